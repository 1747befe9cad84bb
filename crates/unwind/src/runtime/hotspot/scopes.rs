//! Methods at an address of compiled code, read from the process and cached.

use std::{collections::HashMap, sync::Arc};

use super::{
    code::Compiled,
    structs::{DebugData, Metadata},
    vm::{Miss, Scope, Vm},
};
use crate::{native::FrameWord, runtime::memory::Memory};

/// Maximum bytes of one part of a compiled method's debug data.
const MAX_DATA_BYTES: u64 = 4 << 20;

impl Vm {
    pub(super) fn compiled_scopes(
        &mut self,
        word: FrameWord,
        id: u32,
        memory: &mut Memory<'_>,
    ) -> Result<Vec<Scope>, Miss> {
        let pc = word.pc();
        let address = word.lookup_offset();
        // A known compilation is not read again: its process may have ended.
        let known = self.compiled.get(&id);
        let known = known.and_then(|all| all.iter().position(|c| c.holds(address)));
        let index = match known {
            Some(index) => index,
            None => {
                let blob = self.blob(address, memory).ok_or(Miss::Changed)?;
                let compiled = self.read_compiled(blob, id, memory)?;
                self.keep(id, compiled)
            }
        };
        let compiled = &self.compiled[&id][index];
        let mut chain = compiled.chain(pc, self.first);
        if chain.is_empty() {
            chain.push((compiled.method, None));
        }
        let mut scopes = Vec::new();
        for (at, bci) in chain {
            let known = self.compiled[&id][index].methods.get(&at);
            let method = match known {
                Some(method) => Arc::clone(method),
                None => {
                    let method = self.method(at, memory).ok_or(Miss::Unreadable)?;
                    if let Some(compiled) = self.compiled.get_mut(&id) {
                        compiled[index].methods.insert(at, Arc::clone(&method));
                    }
                    method
                }
            };
            let line = bci.map_or(0, |bci| method.line_at(bci));
            scopes.push(Scope { method, line });
        }
        Ok(scopes)
    }

    fn read_compiled(&self, blob: u64, id: u32, memory: &mut Memory<'_>) -> Result<Compiled, Miss> {
        let l = &self.layout;
        let get = |at: u64, memory: &mut Memory<'_>| memory.word(blob + at).ok_or(Miss::Unreadable);
        if get(l.compiled.id, memory)? as u32 != id {
            return Err(Miss::Changed);
        }
        let mut code = |at: u64| match l.blob.by_offsets {
            true => Ok(blob + u64::from(get(at, memory)? as u32)),
            false => get(at, memory),
        };
        let (begin, end) = (code(l.blob.begin)?, code(l.blob.end)?);
        let method = get(l.compiled.method, memory)?;
        let DebugRanges {
            metadata,
            scopes,
            pcs,
        } = l.compiled.debug.ranges(blob, memory)?;
        let mut read = |(from, to): (u64, u64)| {
            let length = to.checked_sub(from).filter(|n| *n <= MAX_DATA_BYTES);
            let mut bytes = vec![0u8; length.ok_or(Miss::Changed)? as usize];
            if !bytes.is_empty() {
                memory.bytes(from, &mut bytes).ok_or(Miss::Unreadable)?;
            }
            Ok(bytes)
        };
        let metadata = read(metadata)?;
        let scopes = read(scopes)?;
        let pcs = read(pcs)?;
        let half = |entry: &[u8], at: u64| {
            let bytes = entry.get(at as usize..at as usize + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let stride = (l.pc.size as usize).max(8);
        let compiled = Compiled {
            begin,
            end,
            method,
            methods: HashMap::new(),
            pcs: pcs
                .chunks_exact(stride)
                .filter_map(|e| Some((half(e, l.pc.offset)? as i32, half(e, l.pc.scope)?)))
                .collect(),
            scopes,
            metadata: metadata
                .chunks_exact(8)
                .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")))
                .collect(),
        };
        // The code may have been replaced meanwhile.
        if get(l.compiled.id, memory)? as u32 != id {
            return Err(Miss::Changed);
        }
        Ok(compiled)
    }
}

/// Addresses of a compiled method's debug data, each (from, to).
struct DebugRanges {
    metadata: (u64, u64),
    scopes: (u64, u64),
    pcs: (u64, u64),
}

impl DebugData {
    /// The ranges of the method in the blob at `blob`.
    fn ranges(&self, blob: u64, memory: &mut Memory<'_>) -> Result<DebugRanges, Miss> {
        let get = |at: u64, memory: &mut Memory<'_>| memory.word(blob + at).ok_or(Miss::Unreadable);
        match *self {
            DebugData::InBlob {
                metadata,
                scopes,
                pcs,
                end,
            } => {
                let mut half = |at| Ok(blob + u64::from(get(at, memory)? as u32));
                let (metadata, pcs, end) = (half(metadata)?, half(pcs)?, half(end)?);
                let scopes = get(scopes, memory)?;
                Ok(DebugRanges {
                    metadata: (metadata, scopes),
                    scopes: (scopes, pcs),
                    pcs: (pcs, end),
                })
            }
            DebugData::Apart {
                pcs,
                scopes,
                data,
                data_size,
                metadata,
            } => {
                let start = get(data, memory)?;
                let mut half = |at| Ok(u64::from(get(at, memory)? as u32));
                let pcs = start.wrapping_add(half(pcs)?);
                let scopes = start.wrapping_add(half(scopes)?);
                let end = start.wrapping_add(half(data_size)?);
                let metadata = match metadata {
                    Metadata::InBlob { offset, data, size } => {
                        let from = half(data)? + (half(offset)? & 0xffff);
                        (blob + from, blob + half(size)?)
                    }
                    Metadata::Mutable { at, size, skip } => {
                        let (size, skip) = (half(size)?, half(skip)?);
                        let at = get(at, memory)?;
                        (at.wrapping_add(skip), at.wrapping_add(size))
                    }
                };
                // The pc descriptors come first; data after the scopes is not referenced.
                Ok(DebugRanges {
                    metadata,
                    scopes: (scopes, end),
                    pcs: (pcs, scopes),
                })
            }
        }
    }
}
