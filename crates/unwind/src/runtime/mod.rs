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
mod memory;
pub mod php;
mod pypy;
pub mod python;
pub mod ruby;
pub mod tasks;
pub mod v8;

use object::{Object, ObjectSegment, ObjectSymbol};

pub use fold::{Entry, Managed, Role, fold, running_frames};

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
            Facts::Python(f) => python::Code::read(f, bias, address, check, read),
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

/// A runtime that cannot be read, with the reason for display.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Refusal {
    /// The runtime.
    pub what: String,
    /// Reason why its frames cannot be read.
    pub why: String,
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
    python::RUNTIME,
    php::RUNTIME,
    ruby::RUNTIME,
    pypy::RUNTIME,
    hotspot::RUNTIME,
    go::RUNTIME,
    v8::RUNTIME,
];

/// Returns the facts of the first runtime in `bytes`, an ELF file mapped from `path`.
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

/// A file to be searched for a runtime.
pub struct Image<'d> {
    bytes: &'d [u8],
    path: &'d str,
    file: object::File<'d>,
}

/// A symbol: virtual address and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SymbolRange {
    pub address: u64,
    pub size: u64,
}

impl<'d> Image<'d> {
    fn parse(bytes: &'d [u8], path: &'d str) -> Option<Image<'d>> {
        let file = object::File::parse(bytes).ok()?;
        (file.architecture() == object::Architecture::X86_64 && file.is_64()).then_some(Image {
            bytes,
            path,
            file,
        })
    }

    /// The last component of the path from which the file is mapped.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// A dynamic symbol.
    pub(crate) fn exported(&self, name: &str) -> Option<SymbolRange> {
        find(self.file.dynamic_symbols(), name)
    }

    /// All dynamic symbols with a prefix.
    pub(crate) fn exported_with(&self, prefix: &str) -> Vec<(&str, SymbolRange)> {
        let all = self.file.dynamic_symbols().filter(|s| s.address() != 0);
        all.filter_map(|s| {
            let name = s.name().ok().filter(|n| n.starts_with(prefix))?;
            let place = SymbolRange {
                address: s.address(),
                size: s.size(),
            };
            Some((name, place))
        })
        .collect()
    }

    /// A symbol of either table; `.symtab` may be stripped.
    pub(crate) fn symbol(&self, name: &str) -> Option<SymbolRange> {
        self.exported(name)
            .or_else(|| find(self.file.symbols(), name))
    }

    /// Names and addresses of all variables of `.symtab`, which may be stripped.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self
            .file
            .symbols()
            .filter(|s| s.kind() == object::SymbolKind::Data && s.address() != 0 && s.size() != 0);
        all.filter_map(|s| Some((s.name().ok()?, s.address())))
    }

    /// All code symbols with a name that satisfies `wanted`, from both tables.
    pub(crate) fn all(&self, wanted: impl Fn(&str) -> bool) -> Vec<SymbolRange> {
        self.file
            .dynamic_symbols()
            .chain(self.file.symbols())
            .filter(|s| s.address() != 0 && s.size() != 0)
            .filter(|s| s.name().is_ok_and(&wanted))
            .map(|s| SymbolRange {
                address: s.address(),
                size: s.size(),
            })
            .collect()
    }

    /// The file's bytes at virtual address `address`.
    pub(crate) fn at(&self, address: u64, len: usize) -> Option<&'d [u8]> {
        let from = self.offset(address)? as usize;
        self.bytes.get(from..from.checked_add(len)?)
    }

    /// Converts a virtual address to an offset in the file.
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        self.file.segments().find_map(|s| {
            let (offset, size) = s.file_range();
            let into = address.checked_sub(s.address())?;
            (into < size).then_some(offset + into)
        })
    }

    /// The bytes and virtual address of a section.
    pub(crate) fn section_at(&self, name: &str) -> Option<(&'d [u8], u64)> {
        use object::ObjectSection;
        let section = self.file.section_by_name(name)?;
        Some((section.data().ok()?, section.address()))
    }

    /// The virtual address and length of a section.
    pub(crate) fn extent(&self, name: &str) -> Option<(u64, u64)> {
        use object::ObjectSection;
        let section = self.file.section_by_name(name)?;
        Some((section.address(), section.size()))
    }

    /// The bytes of a section.
    pub(crate) fn section(&self, name: &str) -> Option<&'d [u8]> {
        Some(self.section_at(name)?.0)
    }
}

fn find<'d, 'f, S: ObjectSymbol<'d>>(
    mut symbols: impl Iterator<Item = S> + 'f,
    name: &str,
) -> Option<SymbolRange> {
    symbols
        .find(|s| s.address() != 0 && s.name() == Ok(name))
        .map(|s| SymbolRange {
            address: s.address(),
            size: s.size(),
        })
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
