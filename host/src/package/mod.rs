//! A package: one file, the component with its manifest and its operations' docs as custom sections.

mod operation;
mod shape;

pub use operation::Operation;
pub use shape::{Case, Field, Name, Shape};
