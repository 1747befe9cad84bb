//! CPython 3.8 to 3.14: shared and static, as a program or embedded.
//!
//! ```text
//! layout.rs            offsets in the interpreter's structures, by version
//! abi.rs               mirror of the C side (`bpf/python_abi.h`)
//! walk.rs              the walk in user space, for blocked threads
//! code.rs              code objects → names; lines.rs: instructions → lines
//! eval_loop_finder.rs  finds the eval loop's cold part
//! asyncio/             tasks and the coroutines they await
//! thread_names.rs      names of threads, by `threading`
//! ```
//!
//! Not read: free-threaded builds (refused with a message, as PyPy is by `runtime/pypy.rs`), and
//! class names before 3.11, which the interpreter does not keep. In a thread that calls one
//! interpreter from another, frames of the inner one are missing before 3.10, from 3.13 on, and
//! where the stack pointer is unknown.

pub mod abi;
pub mod asyncio;
mod code;
mod eval_loop_finder;
mod layout;
mod lines;
mod thread_names;
mod walk;

use super::image::{Image, Refusal};
pub(super) use code::check;
pub use code::{Code, Miss};
pub use layout::{Gil, Layout};
pub use thread_names::{ThreadNames, ThreadNamesRead};
pub use walk::{InterpretedThread, ListedThread, Stack, Walker, threads};

/// The walk's parameters for CPython 3.`minor`, without addresses, if a table has them. For saved
/// or hand-made memory.
pub fn template(minor: u32) -> Option<abi::Proc> {
    layout::of_version(minor).map(|layout| layout.walk)
}

/// Facts about a file with a CPython interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `3.11`.
    pub version: String,
    /// `11`.
    pub minor: u32,
    /// Virtual address of `_PyRuntime`.
    pub runtime: u64,
    /// Virtual address of the type of code objects.
    pub code_type: u64,
    /// The eval loop and its cold part: offset in the file and length; the second may be empty.
    pub eval: [(u64, u64); 2],
    /// Functions that only pass calls on: offset in the file and length, ascending.
    pub glue: Vec<(u64, u64)>,
    /// Offsets in its structures.
    pub layout: Layout,
}

impl Facts {
    /// The kernel programs' parameters for a process that maps this file with load bias `bias`.
    /// `file` is the unwinder's id of the file.
    pub fn process(&self, bias: u64, file: u16) -> abi::Proc {
        let span = |(offset, bytes): (u64, u64)| abi::Span {
            first: u64::from(file) << 48 | offset,
            bytes,
        };
        let runtime = self.runtime.wrapping_add(bias);
        abi::Proc {
            runtime,
            eval: self.eval.map(span),
            gil: match self.layout.gil {
                Gil::InRuntime(offset) => runtime + u64::from(offset),
                Gil::Pointer(..) => 0,
            },
            ..self.layout.walk
        }
    }

    /// The GIL's address in a process with its runtime at `runtime`; `None` if it cannot be read.
    pub fn find_gil(
        &self,
        runtime: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<u64> {
        let mut word = |at: u64| {
            let mut bytes = [0u8; 8];
            (at != 0 && at.is_multiple_of(8) && read(at, &mut bytes))
                .then(|| u64::from_ne_bytes(bytes))
        };
        match self.layout.gil {
            Gil::InRuntime(offset) => Some(runtime + u64::from(offset)),
            Gil::Pointer(in_interp, main) => {
                let interp = word(runtime + u64::from(main))?;
                let gil = word(interp.checked_add(u64::from(in_interp))?)?;
                (interp != 0 && gil != 0).then_some(gil)
            }
        }
    }
}

/// Functions between two calls of the eval loop that only pass the call on.
const GLUE: &[&str] = &[
    "PyEval_EvalCode",
    "PyEval_EvalCodeEx",
    "PyEval_EvalFrame",
    "PyEval_EvalFrameEx",
    "PyObject_Call",
    "PyObject_CallFunctionObjArgs",
    "PyObject_CallMethodObjArgs",
    "PyObject_CallNoArgs",
    "PyObject_CallObject",
    "PyObject_CallOneArg",
    "PyObject_Vectorcall",
    "PyObject_VectorcallMethod",
    "PyVectorcall_Call",
    "_PyEval_EvalCode",
    "_PyEval_EvalCodeWithName",
    "_PyEval_EvalFrame",
    "_PyEval_Vector",
    "_PyFunction_Vectorcall",
    "_PyObject_Call",
    "_PyObject_CallNoArg",
    "_PyObject_CallNoArgs",
    "_PyObject_Call_Prepend",
    "_PyObject_FastCallDict",
    "_PyObject_FastCallDictTstate",
    "_PyObject_MakeTpCall",
    "_PyObject_Vectorcall",
    "_PyObject_VectorcallTstate",
    "_PyVectorcall_Call",
    "call_function",
    "do_call_core",
    "function_code_fastcall",
    "gen_iternext",
    "gen_send_ex",
    "gen_send_ex2",
    "method_vectorcall",
    "object_vacall",
    "py_trampoline_evaluator",
    "slot_tp_call",
];

/// The facts of a file that contains the runtime.
pub(super) fn recognise(image: &Image<'_>) -> Option<Result<Facts, Refusal>> {
    // Only a file named after Python is worth a search of the table that `strip` removes.
    let runtime = match image.exported("_PyRuntime") {
        Some(place) => place,
        None if image.name().contains("python") => image.symbol("_PyRuntime")?,
        None => return None,
    };
    let refuse = |what: String, why: String| Some(Err(Refusal { what, why }));
    let minor = version(image, runtime.address);
    let what = match minor {
        Some(minor) => format!("CPython 3.{minor} in {}", image.name()),
        None => format!("CPython in {}", image.name()),
    };
    let Some(minor) = minor else {
        return refuse(what, "its version cannot be told from the file".into());
    };
    let layout = match (minor, layout::of_version(minor)) {
        (_, Some(layout)) => layout,
        (13 | 14, None) => match offsets(image, runtime.address, minor) {
            Ok(layout) => layout,
            Err(why) => return refuse(what, why),
        },
        _ => return refuse(what, "only 3.8 to 3.14 are supported".into()),
    };
    let eval = image.symbol("_PyEval_EvalFrameDefault");
    let (Some(eval), Some(code_type)) = (eval, image.symbol("PyCode_Type")) else {
        return refuse(what, "it does not export what is needed to read it".into());
    };
    let span = |p: super::SymbolRange| Some((image.offset(p.address)?, p.size));
    let eval_span = span(eval)?;
    let cold = image
        .symbol("_PyEval_EvalFrameDefault.cold")
        .or_else(|| eval_loop_finder::cold_part(image, eval))
        .and_then(span)
        .unwrap_or((0, 0));
    let mut glue: Vec<_> = image
        .all(|name| {
            GLUE.binary_search(&name.split('.').next().unwrap_or(name))
                .is_ok()
        })
        .into_iter()
        .filter_map(span)
        .collect();
    glue.sort_unstable();
    glue.dedup();
    Some(Ok(Facts {
        version: format!("3.{minor}"),
        minor,
        runtime: runtime.address,
        code_type: code_type.address,
        eval: [eval_span, cold],
        glue,
        layout,
    }))
}

/// The minor version of the interpreter in a file: from its own data, else from the file's name,
/// else from the version string in its constants.
fn version(image: &Image<'_>, runtime: u64) -> Option<u32> {
    // 3.11 and later.
    if let Some(place) = image.exported("Py_Version") {
        let word = u32::from_le_bytes(image.at(place.address, 4)?.try_into().ok()?);
        return (word >> 24 == 3).then_some(word >> 16 & 0xff);
    }
    if let Some(words) = offset_words(image, runtime) {
        return Some((words[1] >> 16 & 0xff) as u32);
    }
    let named = image.name().split_once("python3.").and_then(|(_, rest)| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    named.or_else(|| constant(image.section(".rodata")?))
}

/// The minor version, if the version strings among `constants` agree on one.
fn constant(constants: &[u8]) -> Option<u32> {
    let mut found = None;
    for text in constants.split(|b| *b == 0).filter(|t| t.len() < 16) {
        let Some(rest) = text.strip_prefix(b"3.") else {
            continue;
        };
        let mut parts = rest.split(|b| *b == b'.');
        let (Some(minor), Some(patch), None) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let number = |b: &[u8]| std::str::from_utf8(b).ok()?.parse::<u32>().ok();
        if let (Some(minor @ 8..=10), Some(_)) = (number(minor), number(patch)) {
            match found {
                Some(other) if other != minor => return None,
                _ => found = Some(minor),
            }
        }
    }
    found
}

fn offset_words(image: &Image<'_>, runtime: u64) -> Option<[u64; layout::WORDS]> {
    let bytes = image.at(runtime, layout::WORDS * 8)?;
    let mut words = [0u64; layout::WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    bytes.starts_with(layout::COOKIE).then_some(words)
}

fn offsets(image: &Image<'_>, runtime: u64, minor: u32) -> Result<Layout, String> {
    let words = offset_words(image, runtime)
        .ok_or("its runtime does not begin with the offsets that this version has")?;
    layout::of_offsets(&words, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glue_is_sorted() {
        assert!(GLUE.is_sorted());
    }

    #[test]
    fn one_version_among_the_constants_is_believed() {
        assert_eq!(constant(b"abc\x003.10.13\x00x"), Some(10));
        assert_eq!(constant(b"3.9.1\x00\x003.9.1\x00"), Some(9));
        assert_eq!(constant(b"3.9.1\x00\x003.8.1\x00"), None);
        assert_eq!(constant(b"3.45.1\x003.9\x003.9.1.2\x00"), None);
    }

    #[test]
    fn what_is_no_interpreter_is_none() {
        let own = std::fs::read(std::env::current_exe().expect("this test")).expect("readable");
        assert!(super::super::recognise(&own, "/usr/bin/python3.11").is_none());
        assert!(super::super::recognise(b"junk", "/usr/bin/python3.11").is_none());
    }
}
