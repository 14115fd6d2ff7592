//! The explanation of a failure in words.

/// The meaning of a failure's code, and what can be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureExplanation {
    /// The meaning, in one sentence.
    pub meaning: String,
    /// The advice on making the same call again.
    pub advice: String,
    /// The role that can fix the cause.
    pub fixed_by: String,
    /// The fix, in a sentence or two; empty if there is none to name.
    pub fix: String,
}

/// Explains the class and the code of a failure or an error; none if they are unknown.
pub type Explain = fn(class: Option<&str>, code: Option<&str>) -> Option<FailureExplanation>;
