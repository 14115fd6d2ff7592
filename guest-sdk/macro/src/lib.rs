//! The one macro of the SDK.
