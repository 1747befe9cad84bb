//! PyPy: recognised only to report that its frames are not read.
//!
//! Its data structures and machine code have no description for other programs.

use super::{Image, Refusal, Runtime};

/// The runtime's row in [`super::RUNTIMES`].
pub const RUNTIME: Runtime = Runtime {
    name: "PyPy",
    tried: &[],
    // The entry point of its CPython API emulation has this name in every version.
    recognise: |image: &Image<'_>| {
        image.exported("PyPyEval_EvalCode")?;
        Some(Err(Refusal {
            what: format!("PyPy in {}", image.name()),
            why: "only CPython's frames are read; stacks show the interpreter's own functions"
                .into(),
        }))
    },
};
