//! Compiled methods: address → methods, including inlined ones.
//!
//! For addresses where the VM may need it (calls, polls, traps), the compiler records the chain of
//! inlined methods, with the bytecode of each. A return address is such an address. Other code is
//! taken for that of the next such address, as the VM does: in a loop without calls this is the
//! poll at its end. So the compiled method is always correct, and its inlined methods are as
//! precise as the VM's own records.

use std::{collections::HashMap, sync::Arc};

use super::{
    method::{Method, number},
    structs::{Debug, Metadata},
    vm::{Miss, Scope, Vm},
};
use crate::{native::FrameWord, runtime::memory::Memory};

/// Maximum bytes of one part of a compiled method's debug data.
const MOST: u64 = 4 << 20;
/// Maximum depth of inlining.
const MOST_SCOPES: usize = 128;

/// The VM's debug data of a compiled method.
pub(super) struct Compiled {
    begin: u64,
    end: u64,
    method: u64,
    /// Its methods that have been read. They live as long as the code.
    methods: HashMap<u64, Arc<Method>>,
    /// (Offset in the code, offset in `scopes`).
    pcs: Vec<(i32, u32)>,
    scopes: Vec<u8>,
    metadata: Vec<u64>,
}

impl Vm {
    pub(super) fn compiled_scopes(
        &mut self,
        word: FrameWord,
        id: u32,
        memory: &mut Memory<'_>,
    ) -> Result<Vec<Scope>, Miss> {
        let pc = word.offset();
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
        let mut chain = compiled.chain(pc, word.is_exact(), self.first);
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
        if get(l.compiled_id, memory)? as u32 != id {
            return Err(Miss::Changed);
        }
        let mut code = |at: u64| match l.offsets {
            true => Ok(blob + u64::from(get(at, memory)? as u32)),
            false => get(at, memory),
        };
        let (begin, end) = (code(l.blob_begin)?, code(l.blob_end)?);
        let method = get(l.compiled_method, memory)?;
        // Each range as (from, to).
        let (metadata, scopes, pcs) = match l.debug {
            Debug::InBlob {
                metadata,
                scopes,
                pcs,
                end,
            } => {
                let mut half = |at| Ok(blob + u64::from(get(at, memory)? as u32));
                let (metadata, pcs, end) = (half(metadata)?, half(pcs)?, half(end)?);
                let scopes = get(scopes, memory)?;
                ((metadata, scopes), (scopes, pcs), (pcs, end))
            }
            Debug::Apart {
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
                (metadata, (scopes, end), (pcs, scopes))
            }
        };
        let mut read = |(from, to): (u64, u64)| {
            let length = to.checked_sub(from).filter(|n| *n <= MOST);
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
        let stride = (l.pc_desc as usize).max(8);
        let compiled = Compiled {
            begin,
            end,
            method,
            methods: HashMap::new(),
            pcs: pcs
                .chunks_exact(stride)
                .filter_map(|e| Some((half(e, l.pc_offset)? as i32, half(e, l.pc_scope)?)))
                .collect(),
            scopes,
            metadata: metadata
                .chunks_exact(8)
                .map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")))
                .collect(),
        };
        // The code may have been replaced meanwhile.
        if get(l.compiled_id, memory)? as u32 != id {
            return Err(Miss::Changed);
        }
        Ok(compiled)
    }
}

impl Compiled {
    /// Whether `address` is in its code.
    fn holds(&self, address: u64) -> bool {
        (self.begin..self.end).contains(&address)
    }

    /// The methods at `pc`, innermost first, each with its bytecode index.
    fn chain(&self, pc: u64, exact: bool, first: u8) -> Vec<(u64, Option<u32>)> {
        let offset = pc.wrapping_sub(self.begin) as i64;
        // Running code lies before the address of its record; a return address equals it.
        let from = offset + i64::from(exact);
        let found = self.pcs.iter().filter(|(at, _)| i64::from(*at) >= from);
        let Some((_, scope)) = found.min_by_key(|(at, _)| *at) else {
            return Vec::new();
        };
        let mut chain = Vec::new();
        let mut at = *scope as usize;
        // Callers were written before their callees; 0 means none.
        let mut before = self.scopes.len();
        while at != 0 && at < before && chain.len() < MOST_SCOPES {
            before = at;
            let mut rest = self.scopes[at..].iter().copied();
            let mut next = || number(first, || rest.next());
            let (Some(sender), Some(method), Some(bci)) = (next(), next(), next()) else {
                break;
            };
            let index = (method as usize).checked_sub(1);
            if let Some(method) = index.and_then(|i| self.metadata.get(i)) {
                // Bytecode index -1 stands for the method's entry.
                chain.push((*method, bci.checked_sub(1)));
            }
            at = sender as usize;
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_for_the_next_place_that_is_known() {
        // At 1: method 1, bytecode 7. At 4: method 2, bytecode 0, called there.
        let compiled = Compiled {
            begin: 0x1000,
            end: 0x1100,
            method: 0xa0,
            methods: HashMap::new(),
            pcs: vec![(-1, 0), (0x20, 1), (0x40, 4), (i32::MAX, 0)],
            scopes: vec![0, 0, 1, 8, 1, 2, 1],
            metadata: vec![0xa0, 0xb0],
        };
        let at = |pc, exact| compiled.chain(pc, exact, 0);
        let outer = vec![(0xa0, Some(7))];
        let both = vec![(0xb0, Some(0)), (0xa0, Some(7))];
        assert_eq!(at(0x1020, false), outer);
        assert_eq!(at(0x1010, true), outer);
        // The call that returns there is over.
        assert_eq!(at(0x1020, true), both);
        assert_eq!(at(0x1040, false), both);
        assert_eq!(at(0x1050, true), vec![]);
        assert_eq!(at(0xfff, true), outer);
    }

    #[test]
    fn damaged_scopes_end() {
        let compiled = Compiled {
            begin: 0,
            end: 0x10,
            method: 0,
            methods: HashMap::new(),
            pcs: vec![(8, 2)],
            // Refers to itself.
            scopes: vec![0, 0, 2, 1, 1, 2],
            metadata: vec![1],
        };
        assert_eq!(compiled.chain(0, true, 0), [(1, Some(0))]);
    }
}
