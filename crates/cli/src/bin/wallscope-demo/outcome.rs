//! The result of each role: a value, or the reason why the role ends.

/// A value, or the reason for which the program ends.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
