//! The trait by which an audit log shows everything that a verification looks at.

/// One view of an audit log. Its methods block.
pub trait AuditEvidence: Send {}
