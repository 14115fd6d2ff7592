//! bombs
