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
    pub(super) blob_name: u64,
    pub(super) blob_begin: u64,
    pub(super) blob_end: u64,
    pub(super) blob_frame_size: u64,
    pub(super) blob_complete: u64,
    /// `blob_begin`, `blob_end` and `method_deopt` are offsets, not pointers.
    pub(super) offsets: bool,
    pub(super) compiled_id: u64,
    pub(super) compiled_method: u64,
    pub(super) deopt: u64,
    pub(super) orig_pc: u64,
    pub(super) debug: DebugData,
    pub(super) pc_desc: u64,
    pub(super) pc_offset: u64,
    pub(super) pc_scope: u64,
    pub(super) heap_memory: u64,
    pub(super) heap_segmap: u64,
    pub(super) heap_shift: u64,
    pub(super) space_low: u64,
    pub(super) space_high: u64,
    pub(super) heap_header: u64,
    pub(super) array_length: u64,
    pub(super) array_data: u64,
    pub(super) const_method: u64,
    pub(super) const_size: u64,
    pub(super) constants: u64,
    pub(super) code_size: u64,
    pub(super) flags: u64,
    pub(super) name_index: u64,
    pub(super) pool_size: u64,
    pub(super) pool_holder: u64,
    /// Offset of the source file's index, and whether it is in the pool; up to JDK 14 it is in the
    /// class.
    pub(super) source_file: (bool, u64),
    pub(super) class_name: u64,
    pub(super) symbol_length: u64,
    pub(super) symbol_body: u64,
}

impl Layout {
    /// Builds the layout from the tables, or names a missing field.
    pub(super) fn of(tables: &Tables) -> Result<Layout, String> {
        let need = |of: &str, field: &str| {
            tables
                .get(of, field)
                .ok_or_else(|| format!("its tables lack {of}::{field}"))
        };
        let any = |names: &[(&str, &str)]| {
            tables
                .any(names)
                .ok_or_else(|| format!("its tables lack {}::{}", names[0].0, names[0].1))
        };
        let size = |of: &str| {
            tables
                .size(of)
                .ok_or_else(|| format!("its tables lack the size of {of}"))
        };
        let compiled = |field: &'static str| any(&[("nmethod", field), ("CompiledMethod", field)]);
        let offsets = tables.get("CodeBlob", "_code_begin").is_none();
        let debug = if tables.get("nmethod", "_immutable_data").is_some() {
            DebugData::Apart {
                pcs: compiled("_scopes_pcs_offset")?,
                scopes: compiled("_scopes_data_offset")?,
                data: compiled("_immutable_data")?,
                data_size: compiled("_immutable_data_size")?,
                metadata: match tables.get("CodeBlob", "_mutable_data") {
                    Some(at) => Metadata::Mutable {
                        at,
                        size: need("CodeBlob", "_mutable_data_size")?,
                        skip: need("CodeBlob", "_relocation_size")?,
                    },
                    None => Metadata::InBlob {
                        offset: compiled("_metadata_offset")?,
                        data: need("CodeBlob", "_data_offset")?,
                        size: need("CodeBlob", "_size")?,
                    },
                },
            }
        } else {
            DebugData::InBlob {
                metadata: compiled("_metadata_offset")?,
                scopes: compiled("_scopes_data_begin")?,
                pcs: compiled("_scopes_pcs_offset")?,
                end: compiled("_dependencies_offset")?,
            }
        };
        Ok(Layout {
            blob_name: need("CodeBlob", "_name")?,
            blob_begin: any(&[("CodeBlob", "_code_begin"), ("CodeBlob", "_code_offset")])?,
            blob_end: any(&[("CodeBlob", "_code_end"), ("CodeBlob", "_data_offset")])?,
            blob_frame_size: need("CodeBlob", "_frame_size")?,
            blob_complete: need("CodeBlob", "_frame_complete_offset")?,
            offsets,
            compiled_id: compiled("_compile_id")?,
            compiled_method: compiled("_method")?,
            deopt: any(&[
                ("CompiledMethod", "_deopt_handler_begin"),
                ("nmethod", "_deopt_handler_begin"),
                ("nmethod", "_deopt_handler_offset"),
                ("nmethod", "_deopt_handler_entry_offset"),
            ])?,
            orig_pc: compiled("_orig_pc_offset")?,
            debug,
            pc_desc: size("PcDesc")?,
            pc_offset: need("PcDesc", "_pc_offset")?,
            pc_scope: need("PcDesc", "_scope_decode_offset")?,
            heap_memory: need("CodeHeap", "_memory")?,
            heap_segmap: need("CodeHeap", "_segmap")?,
            heap_shift: need("CodeHeap", "_log2_segment_size")?,
            space_low: need("VirtualSpace", "_low_boundary")?,
            space_high: need("VirtualSpace", "_high_boundary")?,
            heap_header: size("HeapBlock")?,
            array_length: any(&[
                ("GrowableArrayBase", "_len"),
                ("GenericGrowableArray", "_len"),
            ])?,
            array_data: need("GrowableArray<int>", "_data")?,
            const_method: need("Method", "_constMethod")?,
            const_size: size("ConstMethod")?,
            constants: need("ConstMethod", "_constants")?,
            code_size: need("ConstMethod", "_code_size")?,
            flags: any(&[("ConstMethod", "_flags._flags"), ("ConstMethod", "_flags")])?,
            name_index: need("ConstMethod", "_name_index")?,
            pool_size: size("ConstantPool")?,
            pool_holder: need("ConstantPool", "_pool_holder")?,
            source_file: match tables.get("ConstantPool", "_source_file_name_index") {
                Some(at) => (true, at),
                None => (false, need("InstanceKlass", "_source_file_name_index")?),
            },
            class_name: need("Klass", "_name")?,
            symbol_length: need("Symbol", "_length")?,
            symbol_body: need("Symbol", "_body")?,
        })
    }
}
