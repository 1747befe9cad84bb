//! Compiled methods: address → methods, including inlined ones.
//!
//! For addresses where the VM may need it (calls, polls, traps), the compiler records the chain of
//! inlined methods, with the bytecode of each. A return address is such an address. Other code is
//! taken for that of the next such address, as the VM does: in a loop without calls this is the
//! poll at its end. So the compiled method is always correct, and its inlined methods are as
//! precise as the VM's own records.

use std::{collections::HashMap, sync::Arc};

use super::method::{Method, number};
use crate::native::Pc;

/// Maximum depth of inlining.
const MAX_SCOPES: usize = 128;

/// The VM's debug data of a compiled method.
pub(super) struct Compiled {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) method: u64,
    /// Its methods that have been read. They live as long as the code.
    pub(super) methods: HashMap<u64, Arc<Method>>,
    /// (Offset in the code, offset in `scopes`).
    pub(super) pcs: Vec<(i32, u32)>,
    pub(super) scopes: Vec<u8>,
    pub(super) metadata: Vec<u64>,
}

impl Compiled {
    /// Whether `address` is in its code.
    pub(super) fn holds(&self, address: u64) -> bool {
        (self.begin..self.end).contains(&address)
    }

    /// The methods at `pc`, innermost first, each with its bytecode index.
    pub(super) fn chain(&self, pc: Pc, first: u8) -> Vec<(u64, Option<u32>)> {
        let offset = |pc: u64| pc.wrapping_sub(self.begin) as i64;
        // Running code lies before the address of its record; a return address equals it.
        let from = match pc {
            Pc::Running(pc) => offset(pc) + 1,
            Pc::Return(pc) => offset(pc),
        };
        let found = self.pcs.iter().filter(|(at, _)| i64::from(*at) >= from);
        let Some((_, scope)) = found.min_by_key(|(at, _)| *at) else {
            return Vec::new();
        };
        let mut chain = Vec::new();
        let mut at = *scope as usize;
        // Callers were written before their callees; 0 means none.
        let mut before = self.scopes.len();
        while at != 0 && at < before && chain.len() < MAX_SCOPES {
            before = at;
            let mut rest = self.scopes[at..].iter().copied();
            let mut next = || number(first, || rest.next());
            let (Some(sender), Some(method), Some(bci)) = (next(), next(), next()) else {
                break;
            };
            let index = (method as usize).checked_sub(1);
            if let Some(method) = index.and_then(|i| self.metadata.get(i)) {
                // Bytecode index -1 is the method's entry.
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
        let at = |pc| compiled.chain(pc, 0);
        let outer = vec![(0xa0, Some(7))];
        let both = vec![(0xb0, Some(0)), (0xa0, Some(7))];
        assert_eq!(at(Pc::Return(0x1020)), outer);
        assert_eq!(at(Pc::Running(0x1010)), outer);
        // The call that returns there is over.
        assert_eq!(at(Pc::Running(0x1020)), both);
        assert_eq!(at(Pc::Return(0x1040)), both);
        assert_eq!(at(Pc::Running(0x1050)), vec![]);
        assert_eq!(at(Pc::Running(0xfff)), outer);
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
        assert_eq!(compiled.chain(Pc::Running(0), 0), [(1, Some(0))]);
    }
}
