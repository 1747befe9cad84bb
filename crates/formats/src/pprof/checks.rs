//! Checks of numbers that refer to something, and such numbers.

use super::super::ReadError;
use super::super::wire::Malformed;

impl From<Malformed> for ReadError {
    fn from(_: Malformed) -> ReadError {
        damaged("a message does not have the form of one")
    }
}

pub(super) fn damaged(what: impl Into<String>) -> ReadError {
    ReadError::Damaged { what: what.into() }
}

/// A column that must have `len` entries.
pub(super) fn same<T>(column: &[T], len: usize, what: &str) -> Result<(), ReadError> {
    if column.len() == len {
        return Ok(());
    }
    Err(damaged(format!(
        "{what} has {} entries and should have {len}",
        column.len()
    )))
}

/// An index that must be below `len`.
pub(super) fn below(index: u32, len: usize, what: &str) -> Result<u32, ReadError> {
    if (index as usize) < len {
        return Ok(index);
    }
    Err(damaged(format!("it refers to {what} {index} of {len}")))
}

/// Index of `value` in a list that has it.
pub(super) fn index<T: PartialEq>(list: &[T], value: &T) -> u32 {
    list.iter().position(|v| v == value).unwrap_or(0) as u32
}
