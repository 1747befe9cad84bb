//! Facts of an ELF file: identity, segments, sections, symbols.
//!
//! The bytes may be truncated or hostile: a part that cannot be read is `None` or an error.
//! Both classes and byte orders are read. Compressed sections are inflated on request, up to
//! [`MAX_SECTION_BYTES`].

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Read;

use object::read::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use object::{CompressionFormat, SegmentFlags, SymbolFlags, SymbolSection};

/// The most bytes a compressed section may inflate to: a small file can otherwise fill memory.
pub const MAX_SECTION_BYTES: u64 = 1 << 30;

/// The most bytes a `.gnu_debugdata` section may inflate to; real ones stay below a few MB.
pub const MAX_MINI_DEBUG_BYTES: u64 = 64 << 20;

/// Why bytes could not be read as ELF.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// Another kind of file.
    #[error("not an ELF file: it begins with {0:02x?}")]
    NotElf(Vec<u8>),
    /// ELF, but its headers make no sense.
    #[error("malformed ELF file: {0}")]
    Malformed(String),
    /// A section that cannot be inflated or exceeds its limit.
    #[error("section {name} cannot be read: {reason}")]
    Section {
        /// Name of the section.
        name: String,
        /// Reason for which it cannot be read.
        reason: String,
    },
}

/// A `PT_LOAD` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its bytes in the file.
    pub offset: u64,
    /// Number of bytes in the file.
    pub file_size: u64,
    /// Virtual address it asks for, before relocation of the whole.
    pub vaddr: u64,
    /// Number of bytes in memory.
    pub mem_size: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
}

impl Segment {
    fn holds_vaddr(&self, vaddr: u64) -> bool {
        vaddr
            .checked_sub(self.vaddr)
            .is_some_and(|d| d < self.mem_size)
    }
}

/// A section header, as far as symbols need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionSpan {
    /// First virtual address.
    pub start: u64,
    /// One past the last virtual address.
    pub end: u64,
}

/// Which symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolTable {
    /// `.symtab`, which `strip` removes.
    Static,
    /// `.dynsym`, which every dynamically linked file keeps.
    Dynamic,
}

/// How far a symbol is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Within its file only.
    Local,
    /// To other files, as a default that others may replace.
    Weak,
    /// To other files.
    Global,
}

/// A symbol that names code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'d> {
    /// Name as stored (mangled; may carry an `@VERSION`).
    pub name: &'d [u8],
    /// Virtual address.
    pub address: u64,
    /// Bytes of code; 0 if the assembly source does not give the size.
    pub size: u64,
    /// Visibility.
    pub binding: Binding,
    /// Whether its type is a function; otherwise a bare label.
    pub function: bool,
    /// Whether the address is that of a resolver, which chooses the function when it is loaded.
    pub resolver: bool,
}

/// A symbol that names data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable<'d> {
    /// Name as stored (mangled).
    pub name: &'d [u8],
    /// Virtual address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// A parsed ELF file over borrowed bytes.
pub struct Elf<'d> {
    file: object::File<'d>,
    segments: Vec<Segment>,
}

impl<'d> Elf<'d> {
    /// Parses the headers; sections and symbols are read when asked for.
    ///
    /// ```
    /// use wallscope_binfmt::elf::{Elf, ElfError, SymbolTable};
    ///
    /// let bytes = std::fs::read("/proc/self/exe")?;
    /// let elf = Elf::parse(&bytes)?;
    /// let main = elf.symbols(SymbolTable::Static).find(|s| s.name == b"main");
    /// let main = main.expect("an unstripped program has it");
    /// assert!(main.function && elf.is_executable(main.address));
    /// assert!(matches!(Elf::parse(b"#!/bin/sh"), Err(ElfError::NotElf(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ElfError::NotElf`] or [`ElfError::Malformed`].
    pub fn parse(data: &'d [u8]) -> Result<Elf<'d>, ElfError> {
        if !data.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf(data.iter().take(4).copied().collect()));
        }
        let file = object::File::parse(data).map_err(|e| ElfError::Malformed(e.to_string()))?;
        let segments = file
            .segments()
            .map(|s| {
                let (offset, file_size) = s.file_range();
                Segment {
                    offset,
                    file_size,
                    vaddr: s.address(),
                    mem_size: s.size(),
                    executable: matches!(s.flags(), SegmentFlags::Elf { p_flags, .. }
                        if p_flags.contains(object::elf::PF_X)),
                }
            })
            .collect();
        Ok(Elf { file, segments })
    }

    /// GNU build id in lower-case hex.
    pub fn build_id(&self) -> Option<String> {
        let id = self.file.build_id().ok().flatten()?;
        (!id.is_empty()).then(|| hex(id))
    }

    /// Name and CRC-32 of the file that `.gnu_debuglink` points to.
    pub fn debug_link(&self) -> Option<(&'d [u8], u32)> {
        self.file.gnu_debuglink().ok().flatten()
    }

    /// Path and build id (hex) of the file that `.gnu_debugaltlink` points to: `dwz` moves DWARF that
    /// several files have in common there.
    pub fn debug_alt_link(&self) -> Option<(&'d [u8], String)> {
        let (path, id) = self.file.gnu_debugaltlink().ok().flatten()?;
        Some((path, hex(id)))
    }

    /// The `PT_LOAD` segments in the file's order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The virtual address of the byte at file offset `offset`. Segments overlap in the file if they
    /// share a page; the address is then the one in the executable segment.
    pub fn vaddr_of_offset(&self, offset: u64) -> Option<u64> {
        let holds = |s: &&Segment| {
            offset
                .checked_sub(s.offset)
                .is_some_and(|d| d < s.file_size)
        };
        let segment = self
            .segments
            .iter()
            .filter(|s| s.executable)
            .find(holds)
            .or_else(|| self.segments.iter().find(holds))?;
        segment.vaddr.checked_add(offset - segment.offset)
    }

    /// The file offset of the byte at virtual address `vaddr`; `None` where it has no bytes in
    /// the file.
    pub fn offset_of_vaddr(&self, vaddr: u64) -> Option<u64> {
        self.segments
            .iter()
            .filter(|s| s.holds_vaddr(vaddr) && vaddr - s.vaddr < s.file_size)
            .max_by_key(|s| s.executable)
            .and_then(|s| s.offset.checked_add(vaddr - s.vaddr))
    }

    /// Whether `vaddr` lies in a segment that is mapped executable.
    pub fn is_executable(&self, vaddr: u64) -> bool {
        self.segments
            .iter()
            .any(|s| s.executable && s.holds_vaddr(vaddr))
    }

    /// The addresses a section covers; `None` where it is not loaded or does not exist.
    pub fn section_span(&self, name: &str) -> Option<SectionSpan> {
        let section = self.file.section_by_name(name)?;
        let start = section.address();
        (start != 0).then_some(SectionSpan {
            start,
            end: start.checked_add(section.size())?,
        })
    }

    /// The address spans of all sections that hold code, in ascending order.
    pub fn code_sections(&self) -> Vec<SectionSpan> {
        let mut spans: Vec<SectionSpan> = self
            .file
            .sections()
            .filter(|s| s.kind() == object::SectionKind::Text && s.address() != 0)
            .filter_map(|s| {
                Some(SectionSpan {
                    start: s.address(),
                    end: s.address().checked_add(s.size())?,
                })
            })
            .collect();
        spans.sort_unstable_by_key(|s| s.start);
        spans
    }

    /// Virtual address and bytes of a section that is not compressed and has bytes in this file.
    pub fn section_as_stored(&self, name: &str) -> Option<(u64, &'d [u8])> {
        let section = self.file.section_by_name(name)?;
        let range = section.compressed_file_range().ok()?;
        let plain = range.format == CompressionFormat::None;
        plain.then_some((section.address(), section.data().ok()?))
    }

    /// The bytes of a section, inflated where compressed; `None` where there is no such section
    /// or it has no bytes in this file.
    ///
    /// # Errors
    /// [`ElfError::Section`] where its bytes lie outside the file, do not inflate, or inflate to
    /// more than [`MAX_SECTION_BYTES`].
    pub fn section(&self, name: &str) -> Result<Option<Cow<'d, [u8]>>, ElfError> {
        let Some(section) = self.file.section_by_name(name) else {
            return Ok(None);
        };
        let fail = |reason: String| ElfError::Section {
            name: name.to_owned(),
            reason,
        };
        let range = section
            .compressed_file_range()
            .map_err(|e| fail(e.to_string()))?;
        if range.format != CompressionFormat::None && range.uncompressed_size > MAX_SECTION_BYTES {
            return Err(fail(format!(
                "it would inflate to {} bytes, more than the limit of {MAX_SECTION_BYTES}",
                range.uncompressed_size
            )));
        }
        let data = section
            .uncompressed_data()
            .map_err(|e| fail(e.to_string()))?;
        Ok((!data.is_empty()).then_some(data))
    }

    /// The inflated `.gnu_debugdata`: an ELF file that holds symbols which `strip` removed.
    ///
    /// # Errors
    /// [`ElfError::Section`] where it does not inflate or exceeds [`MAX_MINI_DEBUG_BYTES`].
    pub fn mini_debug_data(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let name = ".gnu_debugdata";
        let Some(packed) = self.section(name)? else {
            return Ok(None);
        };
        let fail = |reason: String| ElfError::Section {
            name: name.to_owned(),
            reason,
        };
        let limit_kb = (MAX_MINI_DEBUG_BYTES >> 10) as u32;
        let reader = lzma_rust2::XzReader::new_mem_limit(&packed[..], false, limit_kb);
        let mut data = Vec::new();
        reader
            .take(MAX_MINI_DEBUG_BYTES + 1)
            .read_to_end(&mut data)
            .map_err(|e| fail(format!("xz: {e}")))?;
        if data.len() as u64 > MAX_MINI_DEBUG_BYTES {
            return Err(fail(format!(
                "it inflates to more than the limit of {MAX_MINI_DEBUG_BYTES} bytes"
            )));
        }
        Ok(Some(data))
    }

    /// Symbols that are defined here and may name code, in the table's order: functions, and labels
    /// without a type or size as hand-written assembly has them.
    pub fn symbols(&self, table: SymbolTable) -> impl Iterator<Item = Symbol<'d>> + '_ {
        let symbols = match table {
            SymbolTable::Static => self.file.symbols(),
            SymbolTable::Dynamic => self.file.dynamic_symbols(),
        };
        symbols.filter_map(|s| {
            if !matches!(
                s.section(),
                SymbolSection::Section(_) | SymbolSection::Absolute
            ) {
                return None;
            }
            let SymbolFlags::Elf { st_info, .. } = s.flags() else {
                return None;
            };
            let function = matches!(
                st_info.st_type(),
                object::elf::STT_FUNC | object::elf::STT_GNU_IFUNC
            );
            let label = st_info.st_type() == object::elf::STT_NOTYPE;
            if s.address() == 0 || !(function || label) {
                return None;
            }
            let name = s.name_bytes().ok().filter(|n| !n.is_empty())?;
            Some(Symbol {
                name,
                address: s.address(),
                size: s.size(),
                binding: match st_info.st_bind() {
                    object::elf::STB_LOCAL => Binding::Local,
                    object::elf::STB_WEAK => Binding::Weak,
                    _ => Binding::Global,
                },
                function,
                resolver: st_info.st_type() == object::elf::STT_GNU_IFUNC,
            })
        })
    }

    /// Variables that are defined here, of both symbol tables.
    pub fn variables(&self) -> impl Iterator<Item = Variable<'d>> + '_ {
        let symbols = self.file.symbols().chain(self.file.dynamic_symbols());
        symbols.filter_map(|s| {
            let SymbolFlags::Elf { st_info, .. } = s.flags() else {
                return None;
            };
            let defined = matches!(s.section(), SymbolSection::Section(_));
            if !defined || st_info.st_type() != object::elf::STT_OBJECT || s.size() == 0 {
                return None;
            }
            let name = s.name_bytes().ok().filter(|n| !n.is_empty())?;
            Some(Variable {
                name,
                address: s.address(),
                size: s.size(),
            })
        })
    }

    /// Whether the file has a non-empty `.symtab`.
    pub fn has_static_symbols(&self) -> bool {
        self.file.symbols().next().is_some()
    }

    /// Whether numbers in the file are little-endian.
    pub fn is_little_endian(&self) -> bool {
        self.file.is_little_endian()
    }

    /// Whether the code is for x86-64.
    pub fn is_x86_64(&self) -> bool {
        self.file.architecture() == object::Architecture::X86_64
    }

    /// The parsed file, for facts that this view does not offer.
    pub(crate) fn inner(&self) -> &object::File<'d> {
        &self.file
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        // Writing to a String cannot fail.
        let _ = write!(s, "{b:02x}");
        s
    })
}
