//! The SDK for connector authors.
