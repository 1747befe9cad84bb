//! A file that is searched for a runtime.

use object::{Object, ObjectSegment, ObjectSymbol};

/// A file to be searched for a runtime.
pub struct Image<'d> {
    bytes: &'d [u8],
    path: &'d str,
    pub(super) file: object::File<'d>,
}

/// A symbol: virtual address and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SymbolRange {
    pub address: u64,
    pub size: u64,
}

impl<'d> Image<'d> {
    pub(super) fn parse(bytes: &'d [u8], path: &'d str) -> Option<Image<'d>> {
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

    /// Names and addresses of all variables of `.symtab`, which may be stripped.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self
            .file
            .symbols()
            .filter(|s| s.kind() == object::SymbolKind::Data && s.address() != 0 && s.size() != 0);
        all.filter_map(|s| Some((s.name().ok()?, s.address())))
    }

    /// A symbol of either table; `.symtab` may be stripped.
    pub(crate) fn symbol(&self, name: &str) -> Option<SymbolRange> {
        self.exported(name)
            .or_else(|| find(self.file.symbols(), name))
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

    /// All code symbols with a name that `named` knows, from both tables, with the answer.
    pub(crate) fn all_named<T>(&self, named: impl Fn(&str) -> Option<T>) -> Vec<(T, SymbolRange)> {
        let all = self.file.dynamic_symbols().chain(self.file.symbols());
        let code = all.filter(|s| s.kind() == object::SymbolKind::Text && s.size() != 0);
        code.filter_map(|s| {
            let place = SymbolRange {
                address: s.address(),
                size: s.size(),
            };
            Some((named(s.name().ok()?)?, place))
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

/// A runtime that cannot be read, with the reason for display.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Refusal {
    /// The runtime.
    pub what: String,
    /// Reason why its frames cannot be read.
    pub why: String,
}
