//! Layout of the VM's structures.
//!
//! The VM exports tables of its types and fields for its debugging agent: entries of (type, field,
//! static or not, offset or address). The set of fields depends on the version, and versions are
//! distinguished by it. Only facts that no table contains are tied to a version number.

use std::collections::BTreeMap;

use super::facts::{Facts, Table};

/// Maximum entries of a table; a VM has some three thousand.
const MAX_ENTRIES: usize = 1 << 15;
/// Maximum bytes of an entry.
const MAX_ENTRY_BYTES: u64 = 256;
/// Maximum bytes of a name.
const MAX_NAME_BYTES: usize = 128;
const PAGE: u64 = 4096;

/// Page cache of a process's memory, for tables that do not change.
pub(super) struct PageCache<'r> {
    read: &'r mut dyn FnMut(u64, &mut [u8]) -> bool,
    pages: BTreeMap<u64, Option<Box<[u8]>>>,
}

impl<'r> PageCache<'r> {
    pub(super) fn new(read: &'r mut dyn FnMut(u64, &mut [u8]) -> bool) -> PageCache<'r> {
        PageCache {
            read,
            pages: BTreeMap::new(),
        }
    }

    fn byte(&mut self, at: u64) -> Option<u8> {
        let page = at & !(PAGE - 1);
        let read = &mut self.read;
        let bytes = self.pages.entry(page).or_insert_with(|| {
            let mut bytes = vec![0u8; PAGE as usize];
            read(page, &mut bytes).then(|| bytes.into())
        });
        bytes.as_ref().map(|b| b[(at - page) as usize])
    }

    pub(super) fn word(&mut self, at: u64) -> Option<u64> {
        let mut bytes = [0u8; 8];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(at.checked_add(i as u64)?)?;
        }
        Some(u64::from_le_bytes(bytes))
    }

    pub(super) fn half(&mut self, at: u64) -> Option<u32> {
        self.word(at).map(|w| w as u32)
    }

    /// Reads a zero-terminated text.
    pub(super) fn text(&mut self, at: u64) -> Option<String> {
        let mut text = Vec::new();
        while text.len() < MAX_NAME_BYTES {
            match self.byte(at.checked_add(text.len() as u64)?)? {
                0 => break,
                byte => text.push(byte),
            }
        }
        String::from_utf8(text).ok()
    }
}

/// Contents of the tables: an offset, or the address of a static field, by type and field.
pub(super) struct Tables {
    fields: BTreeMap<(String, String), u64>,
    sizes: BTreeMap<String, u64>,
}

impl Tables {
    /// Reads the tables; `None` if they are not there (yet) or make no sense.
    pub(super) fn read(facts: &Facts, bias: u64, pages: &mut PageCache<'_>) -> Option<Tables> {
        let mut fields = BTreeMap::new();
        entries(&facts.structs, bias, pages, |pages, at| {
            let [name, field, is_static, offset, address] = at else {
                return None;
            };
            let named = (pages.word(*name)?, pages.word(*field)?);
            if named.0 == 0 || named.1 == 0 {
                return None;
            }
            let value = match pages.half(*is_static)? {
                0 => pages.word(*offset)?,
                _ => pages.word(*address)?,
            };
            fields.insert((pages.text(named.0)?, pages.text(named.1)?), value);
            Some(())
        })?;
        let mut sizes = BTreeMap::new();
        entries(&facts.types, bias, pages, |pages, at| {
            let [name, size] = at else { return None };
            let name = pages.word(*name).filter(|n| *n != 0)?;
            sizes.insert(pages.text(name)?, pages.word(*size)?);
            Some(())
        })?;
        (!fields.is_empty()).then_some(Tables { fields, sizes })
    }

    /// The offset or address of a field.
    pub(super) fn get(&self, of: &str, field: &str) -> Option<u64> {
        let key = (of.to_owned(), field.to_owned());
        self.fields.get(&key).copied()
    }

    /// The first of several fields that exists.
    fn any(&self, names: &[(&str, &str)]) -> Option<u64> {
        names.iter().find_map(|(of, field)| self.get(of, field))
    }

    pub(super) fn size(&self, of: &str) -> Option<u64> {
        self.sizes.get(of).copied()
    }

    /// All static fields of a type.
    pub(super) fn all(&self, of: &str) -> impl Iterator<Item = (&str, u64)> {
        let all = self.fields.range((of.to_owned(), String::new())..);
        let of = of.to_owned();
        all.take_while(move |((t, _), _)| *t == of)
            .map(|((_, field), value)| (field.as_str(), *value))
    }
}

/// Calls `each` with the addresses of an entry's fields until it reports the table's end.
fn entries(
    table: &Table,
    bias: u64,
    pages: &mut PageCache<'_>,
    mut each: impl FnMut(&mut PageCache<'_>, &[u64]) -> Option<()>,
) -> Option<()> {
    let mut word = |at: u64| pages.word(at.wrapping_add(bias));
    let mut at = word(table.first).filter(|a| *a != 0)?;
    let stride = word(table.stride).filter(|s| (1..=MAX_ENTRY_BYTES).contains(s))?;
    let offsets: Vec<u64> = table
        .fields
        .iter()
        .map(|f| word(*f).filter(|o| *o < stride))
        .collect::<Option<_>>()?;
    for _ in 0..MAX_ENTRIES {
        let of: Vec<u64> = offsets.iter().map(|o| at.wrapping_add(*o)).collect();
        if each(pages, &of).is_none() {
            break;
        }
        at = at.checked_add(stride)?;
    }
    Some(())
}

/// Location of a compiled method's debug data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DebugData {
    /// Up to JDK 22: in the blob, by 4-byte offsets, except for a pointer to the scopes.
    InBlob {
        metadata: u64,
        scopes: u64,
        pcs: u64,
        end: u64,
    },
    /// From JDK 23 on: outside the blob.
    Apart {
        pcs: u64,
        scopes: u64,
        data: u64,
        data_size: u64,
        metadata: Metadata,
    },
}

/// Location of the method pointers, from JDK 23 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metadata {
    /// In the blob, at its data plus a 2-byte offset.
    InBlob { offset: u64, data: u64, size: u64 },
    /// From JDK 25 on: in the mutable data, after the relocations.
    Mutable { at: u64, size: u64, skip: u64 },
}

/// Offsets needed to name a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) blob: Blob,
    pub(super) compiled: Compiled,
    pub(super) pc: PcDescriptor,
    pub(super) heap: CodeHeap,
    pub(super) array: Array,
    pub(super) method: Method,
    pub(super) pool: ConstantPool,
    pub(super) symbol: Symbol,
    /// In a class: its name.
    pub(super) class_name: u64,
}

/// Offsets in a blob of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) name: u64,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) frame_size: u64,
    pub(super) complete: u64,
    /// `begin`, `end` and the deoptimisation handler of a method are offsets, not pointers.
    pub(super) by_offsets: bool,
}

/// Offsets in the blob of a compiled method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiled {
    pub(super) id: u64,
    pub(super) method: u64,
    /// The handler to which frames of discarded code return.
    pub(super) deopt: u64,
    /// Where such a frame keeps the pc that it had.
    pub(super) orig_pc: u64,
    pub(super) debug: DebugData,
}

/// Offsets in a pc descriptor, and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PcDescriptor {
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) scope: u64,
}

/// Offsets in a heap of code, and in the two address spaces that it consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeHeap {
    pub(super) memory: u64,
    pub(super) segmap: u64,
    /// The log2 of the size of a segment.
    pub(super) shift: u64,
    /// In an address space: its bounds.
    pub(super) low: u64,
    pub(super) high: u64,
    /// Bytes before each blob.
    pub(super) header: u64,
}

/// Offsets in a growable array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) length: u64,
    pub(super) data: u64,
}

/// Offsets in a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Method {
    /// Its constant part, in which the others lie.
    pub(super) constant: u64,
    /// Bytes of that part before the bytecode.
    pub(super) size: u64,
    pub(super) pool: u64,
    pub(super) code_size: u64,
    pub(super) flags: u64,
    /// Index of its name in the pool.
    pub(super) name: u64,
}

/// Offsets in a constant pool, and the size of its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConstantPool {
    pub(super) size: u64,
    pub(super) holder: u64,
    /// Offset of the source file's index, and whether it is in the pool; up to JDK 14 it is in the
    /// class.
    pub(super) source_file: (bool, u64),
}

/// Offsets in a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) length: u64,
    pub(super) body: u64,
}

impl Tables {
    fn need(&self, of: &str, field: &str) -> Result<u64, String> {
        self.get(of, field)
            .ok_or_else(|| format!("its tables lack {of}::{field}"))
    }

    fn need_any(&self, names: &[(&str, &str)]) -> Result<u64, String> {
        self.any(names)
            .ok_or_else(|| format!("its tables lack {}::{}", names[0].0, names[0].1))
    }

    fn need_size(&self, of: &str) -> Result<u64, String> {
        self.size(of)
            .ok_or_else(|| format!("its tables lack the size of {of}"))
    }
}

/// A field of a compiled method; up to JDK 22 some are those of its base class.
fn compiled(tables: &Tables, field: &'static str) -> Result<u64, String> {
    tables.need_any(&[("nmethod", field), ("CompiledMethod", field)])
}

impl DebugData {
    fn of(tables: &Tables) -> Result<DebugData, String> {
        Ok(if tables.get("nmethod", "_immutable_data").is_some() {
            DebugData::Apart {
                pcs: compiled(tables, "_scopes_pcs_offset")?,
                scopes: compiled(tables, "_scopes_data_offset")?,
                data: compiled(tables, "_immutable_data")?,
                data_size: compiled(tables, "_immutable_data_size")?,
                metadata: match tables.get("CodeBlob", "_mutable_data") {
                    Some(at) => Metadata::Mutable {
                        at,
                        size: tables.need("CodeBlob", "_mutable_data_size")?,
                        skip: tables.need("CodeBlob", "_relocation_size")?,
                    },
                    None => Metadata::InBlob {
                        offset: compiled(tables, "_metadata_offset")?,
                        data: tables.need("CodeBlob", "_data_offset")?,
                        size: tables.need("CodeBlob", "_size")?,
                    },
                },
            }
        } else {
            DebugData::InBlob {
                metadata: compiled(tables, "_metadata_offset")?,
                scopes: compiled(tables, "_scopes_data_begin")?,
                pcs: compiled(tables, "_scopes_pcs_offset")?,
                end: compiled(tables, "_dependencies_offset")?,
            }
        })
    }
}

impl Blob {
    fn of(tables: &Tables) -> Result<Blob, String> {
        Ok(Blob {
            name: tables.need("CodeBlob", "_name")?,
            begin: tables.need_any(&[("CodeBlob", "_code_begin"), ("CodeBlob", "_code_offset")])?,
            end: tables.need_any(&[("CodeBlob", "_code_end"), ("CodeBlob", "_data_offset")])?,
            frame_size: tables.need("CodeBlob", "_frame_size")?,
            complete: tables.need("CodeBlob", "_frame_complete_offset")?,
            by_offsets: tables.get("CodeBlob", "_code_begin").is_none(),
        })
    }
}

impl Compiled {
    fn of(tables: &Tables) -> Result<Compiled, String> {
        Ok(Compiled {
            id: compiled(tables, "_compile_id")?,
            method: compiled(tables, "_method")?,
            deopt: tables.need_any(&[
                ("CompiledMethod", "_deopt_handler_begin"),
                ("nmethod", "_deopt_handler_begin"),
                ("nmethod", "_deopt_handler_offset"),
                ("nmethod", "_deopt_handler_entry_offset"),
            ])?,
            orig_pc: compiled(tables, "_orig_pc_offset")?,
            debug: DebugData::of(tables)?,
        })
    }
}

impl CodeHeap {
    fn of(tables: &Tables) -> Result<CodeHeap, String> {
        Ok(CodeHeap {
            memory: tables.need("CodeHeap", "_memory")?,
            segmap: tables.need("CodeHeap", "_segmap")?,
            shift: tables.need("CodeHeap", "_log2_segment_size")?,
            low: tables.need("VirtualSpace", "_low_boundary")?,
            high: tables.need("VirtualSpace", "_high_boundary")?,
            header: tables.need_size("HeapBlock")?,
        })
    }
}

impl Method {
    fn of(tables: &Tables) -> Result<Method, String> {
        Ok(Method {
            constant: tables.need("Method", "_constMethod")?,
            size: tables.need_size("ConstMethod")?,
            pool: tables.need("ConstMethod", "_constants")?,
            code_size: tables.need("ConstMethod", "_code_size")?,
            flags: tables
                .need_any(&[("ConstMethod", "_flags._flags"), ("ConstMethod", "_flags")])?,
            name: tables.need("ConstMethod", "_name_index")?,
        })
    }
}

impl ConstantPool {
    fn of(tables: &Tables) -> Result<ConstantPool, String> {
        Ok(ConstantPool {
            size: tables.need_size("ConstantPool")?,
            holder: tables.need("ConstantPool", "_pool_holder")?,
            source_file: match tables.get("ConstantPool", "_source_file_name_index") {
                Some(at) => (true, at),
                None => (
                    false,
                    tables.need("InstanceKlass", "_source_file_name_index")?,
                ),
            },
        })
    }
}

impl Layout {
    /// Builds the layout from the tables, or names a missing field.
    pub(super) fn of(tables: &Tables) -> Result<Layout, String> {
        Ok(Layout {
            blob: Blob::of(tables)?,
            compiled: Compiled::of(tables)?,
            pc: PcDescriptor {
                size: tables.need_size("PcDesc")?,
                offset: tables.need("PcDesc", "_pc_offset")?,
                scope: tables.need("PcDesc", "_scope_decode_offset")?,
            },
            heap: CodeHeap::of(tables)?,
            array: Array {
                length: tables.need_any(&[
                    ("GrowableArrayBase", "_len"),
                    ("GenericGrowableArray", "_len"),
                ])?,
                data: tables.need("GrowableArray<int>", "_data")?,
            },
            method: Method::of(tables)?,
            pool: ConstantPool::of(tables)?,
            symbol: Symbol {
                length: tables.need("Symbol", "_length")?,
                body: tables.need("Symbol", "_body")?,
            },
            class_name: tables.need("Klass", "_name")?,
        })
    }
}
