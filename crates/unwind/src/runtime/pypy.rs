//! PyPy: recognised only to report that its frames are not read.
//!
//! Its data structures and machine code have no description for other programs.

use super::image::{Image, Refusal};

/// The refusal of a file with PyPy. The entry point of its CPython API emulation has this name in every
/// version.
pub(super) fn refuse(image: &Image<'_>) -> Option<Refusal> {
    image.exported("PyPyEval_EvalCode")?;
    Some(Refusal {
        what: format!("PyPy in {}", image.name()),
        why: "only CPython's frames are read; stacks show the interpreter's own functions".into(),
    })
}
