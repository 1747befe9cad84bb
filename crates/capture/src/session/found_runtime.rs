//! The runtime that a mapped file holds.

use std::sync::Arc;
use wallscope_unwind::runtime::{Facts, Refusal};

/// The runtime of a mapped file, or why it cannot be read.
pub type Found = Arc<Result<Facts, Refusal>>;
