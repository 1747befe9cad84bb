//! How far the stack pointer is below the CFA, in described code that finds its frame by rbp.
//!
//! Of a thread that waits, `/proc` tells the stack pointer and no other register that calls preserve. Code
//! built with frame pointers is described by rbp alone, and what it calls last need not have saved it: a
//! stack through `read` would end right there. So its instructions are followed from where rbp was set,
//! which the description tells: up to there the frame is found by the stack pointer, from there on by rbp.
//!
//! All ways from there are walked as far as the description stays the same, so that nothing outside the
//! function counts. Where two ways disagree (`alloca` on one of them), nothing is said. What only jumps
//! through tables lead to, and what catches exceptions, has the stack that all calls of the function have,
//! if that is one and the same.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

use super::state::State;
use super::walk::is_padding;
use crate::native::abi::{KIND_REG, RULE_USER, Rule};

const RSP: u8 = 7;
const RBP: u8 = 6;
/// Instructions that are followed at most, each as often as more is learnt of it.
const LONGEST: usize = 40_000;
/// Rows of the description in front of a place that are looked at at most.
const MOST_ROWS: usize = 1 << 14;
/// Places before it in which rbp is set that are tried.
const STARTS: usize = 8;
/// The longest instruction, bytes.
const INSTRUCTION: usize = 15;
/// Bytes of code that are read at a time.
const CHUNK: usize = 512;

/// Code of a process and its description.
pub(crate) struct Described<'t, F> {
    /// Offset in the file << 32 | rule id, sorted.
    pub rows: &'t [u64],
    pub rules: &'t [Rule],
    /// Address + delta = offset in the file.
    pub delta: u64,
    /// Fills a buffer from an address on; says how much.
    pub read: F,
}

/// What is known of an instruction.
struct Node {
    state: State,
    next: u64,
    calls: bool,
    /// Control comes out of it at its end.
    goes_on: bool,
}

impl<F: FnMut(u64, &mut [u8]) -> usize> Described<'_, F> {
    /// CFA − stack pointer, bytes, where a thread is at `ip`; `exact`: the instruction there is the next
    /// one, else a call has just to return there. `None` where the code does not tell.
    pub(crate) fn height(&mut self, ip: u64, exact: bool) -> Option<i64> {
        let row = self.row(ip.wrapping_sub(u64::from(!exact)).wrapping_add(self.delta))?;
        let rule = self.by_rbp(row)?;
        let found = self
            .starts(row, rule.cfa_off)
            .into_iter()
            .find_map(|start| {
                let nodes = self.follow(start, rule.cfa_off, ip)?;
                if exact {
                    return nodes.get(&ip).map(|n| n.state);
                }
                // A call has at most seven bytes.
                let before = (2..=7).filter_map(|len| nodes.get(&ip.wrapping_sub(len)));
                let mut calls = before.filter(|n| n.calls && n.next == ip);
                calls.next().map(|n| n.state)
            })?;
        found.height.filter(|h| *h >= 16).map(i64::from)
    }

    /// The row that covers an offset.
    fn row(&self, offset: u64) -> Option<usize> {
        let after = self.rows.partition_point(|w| w >> 32 <= offset);
        after.checked_sub(1)
    }

    fn rule(&self, row: usize) -> Option<Rule> {
        let id = *self.rows.get(row)? as u32;
        let rule = self.rules.get(id as usize)?;
        (id >= RULE_USER && rule.kind == KIND_REG && rule.ra == 0).then_some(*rule)
    }

    fn by_rbp(&self, row: usize) -> Option<Rule> {
        self.rule(row).filter(|r| r.reg == RBP)
    }

    /// Where rbp is set in front of a row, nearest first.
    fn starts(&mut self, row: usize, cfa_off: i32) -> Vec<u64> {
        let mut starts = Vec::new();
        for at in (row.saturating_sub(MOST_ROWS)..=row).rev() {
            let sets = at > 0
                && self.by_rbp(at).is_some_and(|r| r.cfa_off == cfa_off)
                && (self.rule(at - 1)).is_some_and(|r| r.reg == RSP && r.cfa_off == cfa_off);
            let address = (self.rows[at] >> 32).wrapping_sub(self.delta);
            if sets && self.sets_rbp(address) {
                starts.push(address);
                if starts.len() == STARTS {
                    break;
                }
            }
        }
        starts
    }

    /// Whether the instruction that ends at `address` is `mov %rsp,%rbp`, in one of its two encodings.
    fn sets_rbp(&mut self, address: u64) -> bool {
        let mut code = [0; 3];
        (self.read)(address.wrapping_sub(3), &mut code) == 3
            && matches!(code, [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec])
    }

    /// Walks all ways from `start`, where rbp has just been set.
    fn follow(&mut self, start: u64, cfa_off: i32, wanted: u64) -> Option<FxHashMap<u64, Node>> {
        let mut nodes: FxHashMap<u64, Node> = FxHashMap::default();
        let mut info = InstructionInfoFactory::new();
        let mut chunk = (0, Vec::new());
        let mut jumps: Vec<State> = Vec::new();
        let mut ways = vec![(start, State::framed(cfa_off))];
        let mut steps = 0;
        loop {
            while let Some((at, state)) = ways.pop() {
                steps += 1;
                if steps > LONGEST {
                    return None;
                }
                let row = self.row(at.wrapping_add(self.delta));
                let here = row.and_then(|row| self.by_rbp(row));
                if here.is_none_or(|r| r.cfa_off != cfa_off) || state.frame != Some(cfa_off) {
                    continue;
                }
                let i = self.decode(&mut chunk, at)?;
                let state = match nodes.entry(at) {
                    Entry::Vacant(new) => {
                        new.insert(Node {
                            state,
                            next: i.next_ip(),
                            calls: i.is_call_near() || i.is_call_near_indirect(),
                            goes_on: goes_on(&i),
                        });
                        state
                    }
                    Entry::Occupied(mut known) => {
                        if !known.get_mut().state.meet(&state) {
                            continue;
                        }
                        known.get().state
                    }
                };
                if i.flow_control() == FlowControl::IndirectBranch {
                    jumps.push(state);
                }
                let target =
                    i.is_jmp_short_or_near() || i.flow_control() == FlowControl::ConditionalBranch;
                if target {
                    ways.push((i.near_branch_target(), state));
                }
                if goes_on(&i) {
                    let mut after = state;
                    if i.flow_control() == FlowControl::Next {
                        after.step(&i, &mut info);
                    }
                    ways.push((i.next_ip(), after));
                }
            }
            if nodes.contains_key(&wanted) {
                return Some(nodes);
            }
            // What stands behind an end of the ways and was not reached.
            let calls = nodes.values().filter(|n| n.calls).map(|n| n.state);
            let mut all = calls.chain(jumps.iter().copied());
            let one = all.next()?;
            if !all.all(|s| (s.height, s.frame) == (one.height, one.frame)) {
                return None;
            }
            let ends = nodes.values().filter(|n| !n.goes_on).map(|n| n.next);
            let mut behind: Vec<u64> = ends.filter(|at| *at <= wanted).collect();
            behind.sort_unstable();
            for mut at in behind {
                while let Some(i) = self.decode(&mut chunk, at)
                    && is_padding(&i)
                {
                    at = i.next_ip();
                }
                if !nodes.contains_key(&at) {
                    ways.push((at, one));
                    break;
                }
            }
            if ways.is_empty() {
                return Some(nodes);
            }
        }
    }

    /// The instruction at an address; `chunk` keeps code that was read.
    fn decode(&mut self, chunk: &mut (u64, Vec<u8>), at: u64) -> Option<Instruction> {
        let (from, bytes) = chunk;
        let offset = at.wrapping_sub(*from);
        if offset >= bytes.len() as u64 || bytes.len() as u64 - offset < INSTRUCTION as u64 {
            bytes.resize(CHUNK, 0);
            let n = (self.read)(at, bytes).min(CHUNK);
            bytes.truncate(n);
            *from = at;
        }
        let code = bytes.get(at.wrapping_sub(*from) as usize..)?;
        let i = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        (!i.is_invalid()).then_some(i)
    }
}

/// Whether what stands behind an instruction may come next.
fn goes_on(i: &Instruction) -> bool {
    match i.flow_control() {
        FlowControl::Next => i.mnemonic() != Mnemonic::Hlt,
        FlowControl::ConditionalBranch | FlowControl::IndirectCall => true,
        FlowControl::Call => matches!(i.code(), Code::Syscall) || i.is_call_near(),
        FlowControl::XbeginXabortXend => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x40_0000;
    const RULES: usize = RULE_USER as usize;

    /// The height at `at` of `code`: rbp is set at its fourth byte, the frame is left at its last.
    fn height(code: &[u8], at: usize, exact: bool) -> Option<i64> {
        let rule = |reg, cfa_off| Rule {
            kind: KIND_REG,
            reg,
            cfa_off,
            ..Rule::default()
        };
        let mut rules = vec![Rule::default(); RULES];
        rules.extend([rule(RSP, 8), rule(RSP, 16), rule(RBP, 16)]);
        let row = |at: usize, rule: usize| (at as u64) << 32 | (RULES + rule) as u64;
        let rows = [row(0, 0), row(1, 1), row(4, 2), row(code.len() - 1, 0)];
        let mut described = Described {
            rows: &rows,
            rules: &rules,
            delta: START.wrapping_neg(),
            read: |from: u64, to: &mut [u8]| {
                let rest = code.get((from - START) as usize..).unwrap_or_default();
                let n = rest.len().min(to.len());
                to[..n].copy_from_slice(&rest[..n]);
                n
            },
        };
        described.height(START + at as u64, exact)
    }

    /// push %rbp; mov %rsp,%rbp
    const HEAD: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
    const CALL: [u8; 5] = [0xe8, 0, 0x10, 0, 0];
    /// leave; ret
    const TAIL: [u8; 2] = [0xc9, 0xc3];

    #[test]
    fn what_was_pushed_and_subtracted_is_counted() {
        // push %r12; sub $24,%rsp; call; leave; ret
        let code = [
            &HEAD[..],
            &[0x41, 0x54, 0x48, 0x83, 0xec, 0x18],
            &CALL,
            &TAIL,
        ]
        .concat();
        assert_eq!(height(&code, 15, false), Some(16 + 8 + 24));
        assert_eq!(height(&code, 4, true), Some(16));
        assert_eq!(height(&code, 6, true), Some(24));
        // No call ends there.
        assert_eq!(height(&code, 10, false), None);
    }

    #[test]
    fn a_stack_of_no_known_height_is_not_told() {
        // test %edi,%edi; je over it; sub %rax,%rsp; call; leave; ret
        let alloca = [0x85, 0xff, 0x74, 0x03, 0x48, 0x29, 0xc4];
        let code = [&HEAD[..], &alloca, &CALL, &TAIL].concat();
        assert_eq!(height(&code, 8, true), Some(16));
        assert_eq!(height(&code, 16, false), None);
        // Pushed on one way only: push %rax in its place.
        let one_way = [0x85, 0xff, 0x74, 0x01, 0x50];
        let code = [&HEAD[..], &one_way, &CALL, &TAIL].concat();
        assert_eq!(height(&code, 14, false), None);
    }

    #[test]
    fn the_parts_of_a_switch_have_the_height_of_its_calls() {
        // sub $32,%rsp; jmp *%rax; call; jmp back to the call; call; leave; ret
        let body = [0x48, 0x83, 0xec, 0x20, 0xff, 0xe0];
        let code = [&HEAD[..], &body, &CALL, &[0xeb, 0xf9], &CALL, &TAIL].concat();
        assert_eq!(height(&code, 15, false), Some(48));
        assert_eq!(height(&code, 22, false), Some(48));
    }

    #[test]
    fn code_that_cannot_be_read_or_makes_no_sense_tells_nothing() {
        let code = [&HEAD[..], &[0x06, 0x06, 0x06], &CALL, &TAIL].concat();
        assert_eq!(height(&code, 12, false), None);
        // Without a head there is nothing to follow from.
        let code = [&[0x90; 4][..], &CALL, &TAIL].concat();
        assert_eq!(height(&code, 9, false), None);
        // Round and round: jmp to itself.
        let code = [&HEAD[..], &[0xeb, 0xfe], &TAIL].concat();
        assert_eq!(height(&code, 4, true), Some(16));
    }
}
