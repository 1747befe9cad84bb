//! Reads the parts of an ELF file that a table is built from.
//!
//! It reads piece by piece: a file that shrinks meanwhile is an error, where a memory map would
//! deliver a fatal signal.

use object::LittleEndian;
use object::elf::{FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_TLS};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::read::{CompressedData, CompressedFileRange, ReadCacheOps, ReadRef};
use rustc_hash::FxHasher;
use std::borrow::Cow;
use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::FileExt;

/// Reason why no table could be built from a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Not an ELF file (a cache of generated code, a data file mapped executable).
    #[error("it is not an ELF file")]
    NotElf,
    /// ELF, but not 64-bit x86.
    #[error("it is not x86-64 code; only that can be unwound")]
    OtherMachine,
    /// Headers that contradict themselves or the file.
    #[error("its ELF headers are damaged: {0}")]
    Damaged(object::read::Error),
    /// More unwind information than any real program has: its bytes, and the limit.
    #[error("its unwind information has {0} bytes; more than {1} are not read")]
    TooLarge(u64, u64),
}

/// Maximum bytes of unwind information (librustc has 12 MB, Chromium about 40).
pub(crate) const MAX_CFI: u64 = 512 << 20;

/// Reads a file with `pread`, so that no shared file position moves.
pub(crate) struct Pread<'f> {
    file: &'f File,
    at: u64,
}

impl<'f> Pread<'f> {
    pub(crate) fn new(file: &'f File) -> Pread<'f> {
        Pread { file, at: 0 }
    }
}

impl ReadCacheOps for Pread<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        self.file.metadata().map(|m| m.len()).map_err(|_| ())
    }

    fn seek(&mut self, pos: u64) -> Result<u64, ()> {
        self.at = pos;
        Ok(pos)
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ()> {
        loop {
            match self.file.read_at(buf, self.at) {
                Ok(n) => {
                    self.at += n as u64;
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(()),
            }
        }
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), ()> {
        self.file.read_exact_at(buf, self.at).map_err(|_| ())?;
        self.at += buf.len() as u64;
        Ok(())
    }
}

/// An executable segment of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub vaddr: u64,
    pub offset: u64,
    pub size: u64,
}

/// Call frame information and its link-time address.
pub(crate) struct Cfi<'d> {
    pub address: u64,
    pub data: Cow<'d, [u8]>,
}

/// Sections for Go's code table and the search for it, for V8's exported names, and for symbols.
const KEPT_SECTIONS: &[&str] = &[
    ".note.go.buildid",
    ".gopclntab",
    ".data.rel.ro.gopclntab",
    ".data.rel.ro",
    ".go.module",
    ".noptrdata",
    ".data",
    ".rela.dyn",
    ".dynstr",
    ".dynsym",
    ".symtab",
];

/// A section listed in [`KEPT_SECTIONS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedSection {
    pub name: &'static str,
    pub address: u64,
    pub offset: u64,
    pub size: u64,
}

/// The parsed parts of one file.
pub(crate) struct Image<'d, R: ReadRef<'d>> {
    data: R,
    pub segments: Vec<Segment>,
    pub entry: u64,
    pub eh_frame: Option<Cfi<'d>>,
    pub debug_frame: Option<Cfi<'d>>,
    pub text: u64,
    pub got: u64,
    /// PLT sections: (address, size).
    pub stubs: Vec<(u64, u64)>,
    /// Compiled by Go, which keeps frame pointers.
    pub go: bool,
    /// Sections by which languages and runtimes are recognised.
    pub kept: Vec<NamedSection>,
    /// Bytes of the file's thread-local variables.
    pub tls_size: u64,
}

/// Identity of a build: equal for copies of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub build_id: Box<[u8]>,
    /// Hash of the executable segments' addresses, offsets and sizes.
    layout: u64,
}

impl<'d, R: ReadRef<'d>> Image<'d, R> {
    pub(crate) fn parse(data: R) -> Result<(Image<'d, R>, Option<Identity>), ImageError> {
        let ident = data.read_bytes_at(0, 16).map_err(|_| ImageError::NotElf)?;
        if ident[..4] != *b"\x7fELF" {
            return Err(ImageError::NotElf);
        }
        if ident[4] != 2 || ident[5] != 1 {
            return Err(ImageError::OtherMachine);
        }
        let endian = LittleEndian;
        let header = FileHeader64::<LittleEndian>::parse(data).map_err(ImageError::Damaged)?;
        if header.e_machine(endian) != object::elf::EM_X86_64 {
            return Err(ImageError::OtherMachine);
        }
        let mut image = Image {
            data,
            segments: Vec::new(),
            entry: header.e_entry(endian),
            eh_frame: None,
            debug_frame: None,
            text: 0,
            got: 0,
            stubs: Vec::new(),
            go: false,
            kept: Vec::new(),
            tls_size: 0,
        };
        let programs = header
            .program_headers(endian, data)
            .map_err(ImageError::Damaged)?;
        let mut layout = FxHasher::default();
        let mut hdr = None;
        let mut loads = Vec::new();
        for p in programs {
            let segment = Segment {
                vaddr: p.p_vaddr(endian),
                offset: p.p_offset(endian),
                size: p.p_filesz(endian),
            };
            if p.p_type(endian) == PT_GNU_EH_FRAME {
                hdr = Some(segment);
            }
            if p.p_type(endian) == PT_TLS {
                image.tls_size = p.p_memsz(endian);
            }
            if p.p_type(endian) != PT_LOAD {
                continue;
            }
            loads.push(segment);
            if p.p_flags(endian).0 & PF_X.0 != 0 {
                layout.write_u64(segment.vaddr);
                layout.write_u64(segment.offset);
                layout.write_u64(segment.size);
                image.segments.push(segment);
            }
        }
        // A file without complete section headers still runs: keep the data of its segments.
        let build_id = match header.sections(endian, data) {
            Ok(sections) => image.read_sections(&sections)?,
            Err(_) => None,
        };
        if image.eh_frame.is_none() {
            image.eh_frame = hdr.and_then(|hdr| image.find_eh_frame(hdr, &loads));
        }
        let identity = build_id.map(|build_id| Identity {
            build_id,
            layout: layout.finish(),
        });
        Ok((image, identity))
    }

    fn read_sections(
        &mut self,
        sections: &SectionTable<'d, FileHeader64<LittleEndian>, R>,
    ) -> Result<Option<Box<[u8]>>, ImageError> {
        let endian = LittleEndian;
        let mut build_id = None;
        for section in sections.iter() {
            let Ok(name) = sections.section_name(endian, section) else {
                continue;
            };
            let address = section.sh_addr(endian);
            if let Some(name) = KEPT_SECTIONS.iter().find(|n| n.as_bytes() == name)
                && section.sh_type(endian) != object::elf::SHT_NOBITS
            {
                self.kept.push(NamedSection {
                    name,
                    address,
                    offset: section.sh_offset(endian),
                    size: section.sh_size(endian),
                });
            }
            match name {
                b".text" => self.text = address,
                b".got" => self.got = address,
                b".plt" | b".plt.got" | b".plt.sec" | b".iplt" => {
                    self.stubs.push((address, section.sh_size(endian)));
                }
                b".eh_frame" => self.eh_frame = self.section(section, address)?,
                b".debug_frame" => self.debug_frame = self.section(section, address)?,
                b".note.go.buildid" | b".gopclntab" => self.go = true,
                b".note.gnu.build-id" => {
                    if let Ok(Some(mut notes)) = section.notes(endian, self.data) {
                        while let Ok(Some(note)) = notes.next() {
                            if note.n_type(endian) == object::elf::NT_GNU_BUILD_ID
                                && note.name() == b"GNU"
                                && !note.desc().is_empty()
                            {
                                build_id = Some(note.desc().into());
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(build_id)
    }

    fn section(
        &self,
        section: &<FileHeader64<LittleEndian> as FileHeader>::SectionHeader,
        address: u64,
    ) -> Result<Option<Cfi<'d>>, ImageError> {
        let endian = LittleEndian;
        // Debug files keep the headers of sections without their bytes.
        if section.sh_type(endian) == object::elf::SHT_NOBITS {
            return Ok(None);
        }
        let plain = CompressedFileRange::none(section.file_range(endian));
        let Ok(range) = section.compression(endian, self.data).map(|c| match c {
            Some((header, offset, size)) => {
                use object::read::elf::CompressionHeader;
                CompressedFileRange {
                    format: if header.ch_type(endian) == object::elf::ELFCOMPRESS_ZLIB {
                        object::CompressionFormat::Zlib
                    } else {
                        object::CompressionFormat::Zstandard
                    },
                    offset,
                    compressed_size: size,
                    uncompressed_size: header.ch_size(endian),
                }
            }
            None => plain,
        }) else {
            return Ok(None);
        };
        if range.uncompressed_size > MAX_CFI {
            return Err(ImageError::TooLarge(range.uncompressed_size, MAX_CFI));
        }
        let data = range
            .data(self.data)
            .and_then(CompressedData::decompress)
            .map_err(ImageError::Damaged)?;
        Ok(Some(Cfi { address, data }))
    }

    /// Finds `.eh_frame` through `PT_GNU_EH_FRAME`, for files without section headers.
    fn find_eh_frame(&self, hdr: Segment, loads: &[Segment]) -> Option<Cfi<'d>> {
        let bytes = self.data.read_bytes_at(hdr.offset, hdr.size.min(64)).ok()?;
        let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(hdr.vaddr);
        let parsed = gimli::EhFrameHdr::new(bytes, gimli::LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let gimli::Pointer::Direct(address) = parsed.eh_frame_ptr() else {
            return None;
        };
        let load = loads
            .iter()
            .find(|s| address >= s.vaddr && address - s.vaddr < s.size)?;
        let skip = address - load.vaddr;
        let size = (load.size - skip).min(MAX_CFI);
        let data = self
            .data
            .read_bytes_at(load.offset.checked_add(skip)?, size)
            .ok()?;
        Some(Cfi {
            address,
            data: Cow::Borrowed(data),
        })
    }

    /// Converts the address of executable code to its offset in the file; also returns the bytes
    /// that follow there.
    pub(crate) fn offset_of(&self, vaddr: u64) -> Option<(u64, u64)> {
        let s = self
            .segments
            .iter()
            .find(|s| vaddr >= s.vaddr && vaddr - s.vaddr < s.size)?;
        let skip = vaddr - s.vaddr;
        Some((s.offset.checked_add(skip)?, s.size - skip))
    }

    /// Converts an offset of executable code in the file to its link-time address.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        let s =
            (self.segments.iter()).find(|s| offset >= s.offset && offset - s.offset < s.size)?;
        s.vaddr.checked_add(offset - s.offset)
    }

    /// Addresses of function symbols, unsorted and with repetitions.
    pub(crate) fn functions(&self) -> impl Iterator<Item = u64> {
        const MAX_SYMBOL_BYTES: u64 = 32 << 20;
        const SYMBOL_BYTES: usize = 24;
        const KINDS: [u8; 2] = [object::elf::STT_FUNC.0, object::elf::STT_GNU_IFUNC.0];
        let tables = (self.kept.iter()).filter(|s| [".dynsym", ".symtab"].contains(&s.name));
        let symbols = tables
            .filter_map(|s| self.bytes(s.offset, s.size.min(MAX_SYMBOL_BYTES)))
            .flat_map(|bytes| bytes.chunks_exact(SYMBOL_BYTES));
        symbols.filter_map(|s| {
            let value: [u8; 8] = s[8..16].try_into().ok()?;
            KINDS
                .contains(&(s[4] & 15))
                .then_some(u64::from_le_bytes(value))
        })
    }

    /// Whether the file may export or import a symbol of this name. True for a file without dynamic
    /// symbol names.
    pub(crate) fn may_export(&self, name: &str) -> bool {
        let names = self.kept.iter().find(|s| s.name == ".dynstr");
        let names = names.and_then(|s| self.bytes(s.offset, s.size));
        names.is_none_or(|all| memchr::memmem::find(all, name.as_bytes()).is_some())
    }

    /// Returns up to `len` bytes of the file.
    pub(crate) fn bytes(&self, offset: u64, len: u64) -> Option<&'d [u8]> {
        let end = self.data.len().ok()?;
        self.data
            .read_bytes_at(offset, len.min(end.checked_sub(offset)?))
            .ok()
    }
}
