//! Runtimes of managed languages, one folder and one row each.
//!
//! A runtime is *recognised* in a mapped file. This gives facts, kept as long as the file. The
//! facts and the file's load address give the kernel programs all they need to read a thread's
//! managed frames during a sample. Names and lines are read from the process soon after, and
//! cached. [`fold`] replaces the interpreter's own frames by managed ones.
//!
//! The target is never stopped and never written to, so the memory that is read may be changing, or
//! garbage. Each chain is bounded, each object's type is checked, and a mismatch is a counted miss.

mod fold;
pub mod go;
pub mod hotspot;
mod image;
mod memory;
pub mod php;
pub mod process_memory;
mod pypy;
pub mod python;
pub mod ruby;
pub mod tasks;
pub mod v8;

pub use fold::{Entry, InterpreterFrames, Managed, MatchFrom, Role, fold, running_frames};
pub(crate) use image::SymbolRange;
pub use image::{Image, Refusal};

/// Facts about a file that contains a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// CPython.
    Python(Box<python::Facts>),
    /// PHP.
    Php(Box<php::Facts>),
    /// Ruby.
    Ruby(Box<ruby::Facts>),
    /// HotSpot, which runs Java.
    HotSpot(Box<hotspot::Facts>),
    /// Go.
    Go(Box<go::Facts>),
    /// V8.
    V8(Box<v8::Facts>),
}

impl Facts {
    /// The runtime and its version, for display.
    pub fn describe(&self) -> String {
        match self {
            Facts::Python(f) => format!("CPython {}", f.version),
            Facts::Php(f) => format!("PHP {}", f.version),
            Facts::Ruby(f) => format!("Ruby {}", f.version),
            // Its version is in the process (see `hotspot::Vm`).
            Facts::HotSpot(_) => "HotSpot".into(),
            Facts::Go(_) => "Go".to_owned(),
            Facts::V8(f) => format!("V8 {}", f.version),
        }
    }

    /// The parameters of the interpreter walk for a process that maps the file with load bias
    /// `bias`. `file` is the unwinder's id of the file. `None`: not an interpreter.
    pub fn interpreter(&self, bias: u64, file: u16) -> Option<python::abi::Proc> {
        match self {
            Facts::Python(f) => Some(f.process(bias, file)),
            Facts::Php(f) => Some(f.process(bias, file)),
            Facts::Ruby(f) => Some(f.process(bias, file)),
            Facts::HotSpot(_) | Facts::Go(_) | Facts::V8(_) => None,
        }
    }

    /// Reads the function of an interpreter frame, at `address` of that process. `check` is the
    /// checksum that the walk computed.
    ///
    /// # Errors
    /// The reason for the miss.
    pub fn read_code(
        &self,
        bias: u64,
        address: u64,
        check: u32,
        read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<python::Code, python::Miss> {
        match self {
            Facts::Python(f) => f.read_code(bias, address, check, read),
            Facts::Php(f) => f.read_code(address, check, read),
            Facts::Ruby(f) => f.read_code(bias, address, check, read),
            Facts::HotSpot(_) | Facts::Go(_) | Facts::V8(_) => Err(python::Miss::Unreadable),
        }
    }

    /// Functions of the interpreter that only pass a call on: offset in the file and length in
    /// bytes, ascending.
    pub fn glue(&self) -> &[(u64, u64)] {
        match self {
            Facts::Python(f) => &f.glue,
            Facts::Php(f) => &f.glue,
            Facts::Ruby(f) => &f.glue,
            Facts::HotSpot(_) | Facts::Go(_) | Facts::V8(_) => &[],
        }
    }
}

/// A runtime, with the way to recognise it.
pub struct Runtime {
    /// Its name.
    pub name: &'static str,
    /// Tested versions, as prefixes; empty if nothing depends on the version.
    pub tried: &'static [&'static str],
    /// Examines a file; `None` if the file does not contain the runtime.
    pub recognise: fn(&Image<'_>) -> Option<Result<Facts, Refusal>>,
}

/// All runtimes.
pub const RUNTIMES: &[Runtime] = &[
    Runtime {
        name: "CPython",
        tried: &["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"],
        recognise: |image| kept(python::recognise(image)?, Facts::Python),
    },
    Runtime {
        name: "PHP",
        tried: &["8.2"],
        recognise: |image| kept(php::recognise(image)?, Facts::Php),
    },
    Runtime {
        name: "Ruby",
        tried: &["2.7", "3.1", "3.3", "3.4"],
        recognise: |image| kept(ruby::recognise(image)?, Facts::Ruby),
    },
    Runtime {
        name: "PyPy",
        tried: &[],
        recognise: |image| Some(Err(pypy::refuse(image)?)),
    },
    Runtime {
        name: "HotSpot",
        tried: &["11", "17", "21", "25"],
        recognise: |image| kept(hotspot::recognise(image)?, Facts::HotSpot),
    },
    Runtime {
        name: "Go",
        tried: &[],
        recognise: |image| kept(go::recognise(image)?, Facts::Go),
    },
    Runtime {
        name: "V8",
        tried: &["10.2", "11.3", "12.4", "13.6"],
        recognise: |image| kept(v8::recognise(image)?, Facts::V8),
    },
];

/// Turns the facts of one runtime into [`Facts`].
fn kept<T>(
    found: Result<T, Refusal>,
    facts: fn(Box<T>) -> Facts,
) -> Option<Result<Facts, Refusal>> {
    Some(found.map(|found| facts(Box::new(found))))
}

/// Returns the facts of the first runtime in `bytes`, an ELF file mapped from `path`.
///
/// ```
/// use wallscope_unwind::runtime::{is_tried, recognise};
///
/// // This program runs no managed code.
/// let program = std::fs::read("/proc/self/exe")?;
/// assert!(recognise(&program, "/proc/self/exe").is_none());
///
/// assert_eq!(is_tried("CPython 3.12"), Some(true));
/// assert_eq!(is_tried("CPython 2.7"), Some(false));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn recognise(bytes: &[u8], path: &str) -> Option<Result<Facts, Refusal>> {
    let image = Image::parse(bytes, path)?;
    RUNTIMES.iter().find_map(|r| (r.recognise)(&image))
}

/// Whether tests cover this version of a runtime: `CPython 3.11`, `HotSpot 17.0.15+6`. `None`: no
/// such runtime, or nothing in it depends on the version.
pub fn is_tried(described: &str) -> Option<bool> {
    let mut known = RUNTIMES.iter().filter(|r| !r.tried.is_empty());
    let (runtime, version) =
        known.find_map(|r| Some((r, described.strip_prefix(r.name)?.trim_start())))?;
    let begins = |with: &&str| {
        let rest = version.strip_prefix(*with);
        rest.is_some_and(|r| !r.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(runtime.tried.iter().any(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_were_tried_are_known() {
        assert_eq!(is_tried("CPython 3.8"), Some(true));
        assert_eq!(is_tried("CPython 3.80"), Some(false));
        assert_eq!(is_tried("HotSpot 17.0.15+6-Debian"), Some(true));
        assert_eq!(is_tried("HotSpot 21+35"), Some(true));
        assert_eq!(is_tried("HotSpot 22.0.1+8"), Some(false));
        assert_eq!(is_tried("V8 12.4.254"), Some(true));
        assert_eq!(is_tried("V8 14.1.146"), Some(false));
        assert_eq!(is_tried("Go"), None);
    }
}
