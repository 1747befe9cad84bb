//! PyPy: recognised, so that it can be said that its frames are not read.
//!
//! It runs Python by structures and machine code of its own, which it describes to nobody outside.

use super::{Image, Refusal, Runtime};

/// The row of the table.
pub const RUNTIME: Runtime = Runtime {
    name: "PyPy",
    tried: &[],
    // Its stand-in for CPython's interface has this name in every version.
    recognise: |image: &Image<'_>| {
        image.exported("PyPyEval_EvalCode")?;
        Some(Err(Refusal {
            what: format!("PyPy in {}", image.name()),
            why: "only CPython's frames are read; stacks show the interpreter's own functions"
                .into(),
        }))
    },
};
