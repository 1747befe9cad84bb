//! CFA offset: the distance from the stack pointer to the CFA, in code that uses rbp as the CFA's
//! base.
//!
//! For a blocked thread, `/proc` gives the stack pointer and no other callee-saved register. Code
//! built with frame pointers has rules that need rbp, and its last callee may not have saved it. A
//! stack through `read` would end right there. So the instructions are walked from the point where
//! rbp is set. The unwind information gives that point: up to it the rules use rsp, from it on rbp.
//!
//! All paths are walked as far as the rule stays the same, so only this function's code counts.
//! Where two paths disagree (`alloca` on one of them), there is no result. Code reached only by
//! jump tables, and exception handlers, are taken to have the CFA offset of the function's calls,
//! if all calls agree.
//!
//! In files with frame pointers, code without unwind information does not give that point either.
//! There the nearest prologues before the thread's address are tried: the function's own is one
//! from which a path leads to that address. Code that no path reaches counts as the function's only
//! if nothing suggests that another function begins there.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

use super::state::State;
use super::walk::is_padding;
use crate::native::abi::{KIND_REG, Pc, RULE_FP, RULE_USER, Rule};
use crate::native::packed_rows::Table;

const RSP: u8 = 7;
const RBP: u8 = 6;
/// Maximum instructions walked; one counts again when its state changes.
const MAX_STEPS: usize = 40_000;
/// Maximum rows searched before an address.
const MAX_ROWS: usize = 1 << 14;
/// Maximum candidates for the point that sets rbp.
const MAX_CANDIDATES: usize = 8;
/// Maximum bytes before an address that are searched for a prologue.
const MAX_PROLOGUE_DISTANCE: u64 = 64 << 10;
/// `push %rbp; mov %rsp,%rbp`, in both encodings.
const PROLOGUES: [[u8; 4]; 2] = [[0x55, 0x48, 0x89, 0xe5], [0x55, 0x48, 0x8b, 0xec]];
/// Alignment of functions, bytes.
const FUNCTION_ALIGNMENT: u64 = 16;
/// Maximum length of an instruction, bytes.
const MAX_INSTRUCTION_BYTES: usize = 15;
/// Bytes of code per read.
const CHUNK_BYTES: usize = 512;

/// Code of a process, and its unwind rules.
pub(crate) struct RuledCode<'t, F> {
    pub table: &'t Table,
    pub rules: &'t [Rule],
    /// Address + delta = offset in the file.
    pub delta: u64,
    /// Fills a buffer from an address on; returns the bytes read.
    pub read: F,
}

/// An instruction that was walked.
struct Node {
    state: State,
    next: u64,
    calls: bool,
    /// Control flow continues after it.
    falls_through: bool,
}

impl<F: FnMut(u64, &mut [u8]) -> usize> RuledCode<'_, F> {
    /// The CFA offset in bytes of a thread at `pc`. `None` if the code does not determine it.
    pub(crate) fn cfa_offset(&mut self, pc: Pc) -> Option<i64> {
        let ip = pc.address();
        let row = self.table.row_at(pc.lookup().wrapping_add(self.delta))?;
        let rule = self.by_rbp(row)?;
        let rbp_set_points = match self.is_described(row) {
            true => self.rbp_set_points(row, rule.cfa_off),
            false => self.prologue_ends(ip),
        };
        let state = (rbp_set_points.into_iter()).find_map(|start| {
            let nodes = self.walk(start, rule.cfa_off, ip)?;
            if matches!(pc, Pc::Running(_)) {
                return nodes.get(&ip).map(|n| n.state);
            }
            // A call has at most seven bytes.
            let before = (2..=7).filter_map(|len| nodes.get(&ip.wrapping_sub(len)));
            let mut calls = before.filter(|n| n.calls && n.next == ip);
            calls.next().map(|n| n.state)
        })?;
        state.cfa_offset.filter(|h| *h >= 16).map(i64::from)
    }

    fn rule(&self, row: usize) -> Option<Rule> {
        let id = self.table.rule(row)?;
        let rule = self.rules.get(id as usize)?;
        let described = id >= RULE_USER && rule.kind == KIND_REG && rule.ra == 0;
        (described || id == RULE_FP).then_some(*rule)
    }

    /// Whether a row is more than "this file keeps frame pointers".
    fn is_described(&self, row: usize) -> bool {
        self.table.rule(row).is_some_and(|id| id != RULE_FP)
    }

    fn by_rbp(&self, row: usize) -> Option<Rule> {
        self.rule(row).filter(|r| r.reg == RBP)
    }

    /// Addresses before a row at which rbp is set, nearest first.
    fn rbp_set_points(&mut self, row: usize, cfa_off: i32) -> Vec<u64> {
        let mut rbp_set_points = Vec::new();
        for at in (row.saturating_sub(MAX_ROWS)..=row).rev() {
            let sets = at > 0
                && self.by_rbp(at).is_some_and(|r| r.cfa_off == cfa_off)
                && (self.rule(at - 1)).is_some_and(|r| r.reg == RSP && r.cfa_off == cfa_off);
            let offset = self.table.offset(at).filter(|_| sets);
            let address = offset.map(|offset| u64::from(offset).wrapping_sub(self.delta));
            if let Some(address) = address.filter(|at| self.sets_rbp(*at)) {
                rbp_set_points.push(address);
                if rbp_set_points.len() == MAX_CANDIDATES {
                    break;
                }
            }
        }
        rbp_set_points
    }

    /// Addresses before `ip` behind a prologue, nearest first.
    fn prologue_ends(&mut self, ip: u64) -> Vec<u64> {
        let mut rbp_set_points = Vec::new();
        let mut end = ip;
        while rbp_set_points.len() < MAX_CANDIDATES
            && end > ip.saturating_sub(MAX_PROLOGUE_DISTANCE)
        {
            // Read within one page, as the page before it may be missing. The overlap with the next
            // chunk keeps prologues on the boundary.
            let from = (end - 1) / CHUNK_BYTES as u64 * CHUNK_BYTES as u64;
            let mut code = vec![0; (end - from) as usize + PROLOGUES[0].len() - 1];
            let n = (self.read)(from, &mut code);
            let here = code[..n].windows(PROLOGUES[0].len()).enumerate();
            let prologue_ends = here.filter(|(_, w)| PROLOGUES.iter().any(|head| head == w));
            let after = prologue_ends.map(|(at, head)| from + (at + head.len()) as u64);
            rbp_set_points.extend(
                after
                    .filter(|at| *at <= ip)
                    .collect::<Vec<_>>()
                    .iter()
                    .rev(),
            );
            if n == 0 || from == 0 {
                break;
            }
            end = from;
        }
        rbp_set_points.truncate(MAX_CANDIDATES);
        rbp_set_points
    }

    /// Whether another function may begin at `at`, in undescribed code after a path that ended at
    /// `end`.
    fn may_begin(&mut self, end: u64, at: u64) -> bool {
        let mut code = [0; 4];
        let described = self
            .table
            .row_at(at.wrapping_add(self.delta))
            .is_none_or(|row| self.is_described(row));
        !described
            && (at != end
                || at.is_multiple_of(FUNCTION_ALIGNMENT)
                || (self.read)(at, &mut code) < code.len()
                || PROLOGUES.contains(&code))
    }

    /// Whether the instruction that ends at `address` is `mov %rsp,%rbp`, in either encoding.
    fn sets_rbp(&mut self, address: u64) -> bool {
        let mut code = [0; 3];
        (self.read)(address.wrapping_sub(3), &mut code) == 3
            && matches!(code, [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec])
    }

    /// Walks all paths from `start`, where rbp has just been set.
    fn walk(&mut self, start: u64, cfa_off: i32, wanted: u64) -> Option<FxHashMap<u64, Node>> {
        let mut nodes: FxHashMap<u64, Node> = FxHashMap::default();
        let mut info = InstructionInfoFactory::new();
        let mut chunk = (0, Vec::new());
        let mut jumps: Vec<State> = Vec::new();
        let mut pending = vec![(start, State::framed(cfa_off))];
        let mut steps = 0;
        loop {
            while let Some((at, state)) = pending.pop() {
                steps += 1;
                if steps > MAX_STEPS {
                    return None;
                }
                let row = self.table.row_at(at.wrapping_add(self.delta));
                let here = row.and_then(|row| self.by_rbp(row));
                if here.is_none_or(|r| r.cfa_off != cfa_off) || state.rbp_offset != Some(cfa_off) {
                    continue;
                }
                let i = self.decode(&mut chunk, at)?;
                let state = match nodes.entry(at) {
                    Entry::Vacant(new) => {
                        new.insert(Node {
                            state,
                            next: i.next_ip(),
                            calls: i.is_call_near() || i.is_call_near_indirect(),
                            falls_through: falls_through(&i),
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
                pending.extend(branch_of(&i).map(|target| (target, state)));
                if falls_through(&i) {
                    let mut after = state;
                    if i.flow_control() == FlowControl::Next {
                        after.step(&i, &mut info);
                    }
                    pending.push((i.next_ip(), after));
                }
            }
            if nodes.contains_key(&wanted) {
                return Some(nodes);
            }
            // Continue with unreached code behind the end of a path.
            let calls = nodes.values().filter(|n| n.calls).map(|n| n.state);
            let mut all = calls.chain(jumps.iter().copied());
            let one = all.next()?;
            if !all.all(|s| (s.cfa_offset, s.rbp_offset) == (one.cfa_offset, one.rbp_offset)) {
                return None;
            }
            let ends = nodes.values().filter(|n| !n.falls_through).map(|n| n.next);
            let mut behind: Vec<u64> = ends.filter(|at| *at <= wanted).collect();
            behind.sort_unstable();
            for end in behind {
                let mut at = end;
                while let Some(i) = self.decode(&mut chunk, at)
                    && is_padding(&i)
                {
                    at = i.next_ip();
                }
                if !nodes.contains_key(&at) && !self.may_begin(end, at) {
                    pending.push((at, one));
                    break;
                }
            }
            if pending.is_empty() {
                return Some(nodes);
            }
        }
    }

    /// Decodes the instruction at an address; `chunk` caches the code.
    fn decode(&mut self, chunk: &mut (u64, Vec<u8>), at: u64) -> Option<Instruction> {
        let (from, bytes) = chunk;
        let offset = at.wrapping_sub(*from);
        if offset >= bytes.len() as u64
            || bytes.len() as u64 - offset < MAX_INSTRUCTION_BYTES as u64
        {
            bytes.resize(CHUNK_BYTES, 0);
            let n = (self.read)(at, bytes).min(CHUNK_BYTES);
            bytes.truncate(n);
            *from = at;
        }
        let code = bytes.get(at.wrapping_sub(*from) as usize..)?;
        let i = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        (!i.is_invalid()).then_some(i)
    }
}

/// The address that an instruction may jump to, if it says so itself.
fn branch_of(i: &Instruction) -> Option<u64> {
    let branches = i.is_jmp_short_or_near() || i.flow_control() == FlowControl::ConditionalBranch;
    branches.then(|| i.near_branch_target())
}

/// Whether the next instruction in memory may run next.
fn falls_through(i: &Instruction) -> bool {
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

    /// The CFA offset at `at` in `code`, which sets rbp at its fourth byte and leaves its frame at
    /// its last.
    fn cfa_offset(code: &[u8], at: Pc) -> Option<i64> {
        let row = |at: usize, rule: usize| (at as u32, (RULES + rule) as u32);
        let rows = [row(0, 0), row(1, 1), row(4, 2), row(code.len() - 1, 0)];
        cfa_offset_by(&rows, code, at)
    }

    /// The CFA offset in code without unwind information.
    fn undescribed_offset(code: &[u8], at: usize) -> Option<i64> {
        cfa_offset_by(&[(0, RULE_FP)], code, Pc::Return(at as u64))
    }

    fn cfa_offset_by(rows: &[(u32, u32)], code: &[u8], at: Pc) -> Option<i64> {
        let rule = |reg, cfa_off| Rule {
            kind: KIND_REG,
            reg,
            cfa_off,
            ..Rule::default()
        };
        let mut rules = vec![Rule::default(); RULES];
        rules[RULE_FP as usize] = rule(RBP, 16);
        rules.extend([rule(RSP, 8), rule(RSP, 16), rule(RBP, 16)]);
        let mut described = RuledCode {
            table: &Table::encode(rows, None),
            rules: &rules,
            delta: START.wrapping_neg(),
            read: |from: u64, to: &mut [u8]| {
                let at = from.checked_sub(START);
                let rest = at
                    .and_then(|at| code.get(at as usize..))
                    .unwrap_or_default();
                let n = rest.len().min(to.len());
                to[..n].copy_from_slice(&rest[..n]);
                n
            },
        };
        described.cfa_offset(match at {
            Pc::Running(at) => Pc::Running(START + at),
            Pc::Return(at) => Pc::Return(START + at),
        })
    }

    /// push %rbp; mov %rsp,%rbp
    const PROLOGUE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
    const CALL: [u8; 5] = [0xe8, 0, 0x10, 0, 0];
    /// leave; ret
    const EPILOGUE: [u8; 2] = [0xc9, 0xc3];

    #[test]
    fn what_was_pushed_and_subtracted_is_counted() {
        // push %r12; sub $24,%rsp; call; leave; ret
        let code = [
            &PROLOGUE[..],
            &[0x41, 0x54, 0x48, 0x83, 0xec, 0x18],
            &CALL,
            &EPILOGUE,
        ]
        .concat();
        assert_eq!(cfa_offset(&code, Pc::Return(15)), Some(16 + 8 + 24));
        assert_eq!(cfa_offset(&code, Pc::Running(4)), Some(16));
        assert_eq!(cfa_offset(&code, Pc::Running(6)), Some(24));
        // No call ends there.
        assert_eq!(cfa_offset(&code, Pc::Return(10)), None);
    }

    #[test]
    fn a_stack_of_no_known_height_is_not_told() {
        // test %edi,%edi; je over it; sub %rax,%rsp; call; leave; ret
        let alloca = [0x85, 0xff, 0x74, 0x03, 0x48, 0x29, 0xc4];
        let code = [&PROLOGUE[..], &alloca, &CALL, &EPILOGUE].concat();
        assert_eq!(cfa_offset(&code, Pc::Running(8)), Some(16));
        assert_eq!(cfa_offset(&code, Pc::Return(16)), None);
        // Only one path pushes: push %rax in place of the subtraction.
        let one_way = [0x85, 0xff, 0x74, 0x01, 0x50];
        let code = [&PROLOGUE[..], &one_way, &CALL, &EPILOGUE].concat();
        assert_eq!(cfa_offset(&code, Pc::Return(14)), None);
    }

    #[test]
    fn the_parts_of_a_switch_have_the_height_of_its_calls() {
        // sub $32,%rsp; jmp *%rax; call; jmp back to the call; call; leave; ret
        let body = [0x48, 0x83, 0xec, 0x20, 0xff, 0xe0];
        let code = [&PROLOGUE[..], &body, &CALL, &[0xeb, 0xf9], &CALL, &EPILOGUE].concat();
        assert_eq!(cfa_offset(&code, Pc::Return(15)), Some(48));
        assert_eq!(cfa_offset(&code, Pc::Return(22)), Some(48));
    }

    #[test]
    fn code_that_nothing_describes_is_followed_from_its_head() {
        // push %r12; sub $24,%rsp
        let body = [0x41, 0x54, 0x48, 0x83, 0xec, 0x18];
        let one = [&PROLOGUE[..], &body, &CALL, &EPILOGUE].concat();
        assert_eq!(undescribed_offset(&one, 15), Some(16 + 8 + 24));
        // The code before it is another function, though its last call does not return.
        let two = [&PROLOGUE[..], &CALL, &PROLOGUE, &body, &CALL, &EPILOGUE].concat();
        assert_eq!(undescribed_offset(&two, 24), Some(16 + 8 + 24));
        // The nearest prologue may belong to another function, from which no path leads here.
        let none = [&one[..], &[0x66, 0x90], &CALL, &EPILOGUE].concat();
        assert_eq!(undescribed_offset(&none, 24), None);
        assert_eq!(undescribed_offset(&CALL, 5), None);
        // Far from its head, over several chunks.
        let far = [
            &PROLOGUE[..],
            &body,
            &[0x90; 3 * CHUNK_BYTES],
            &CALL,
            &EPILOGUE,
        ]
        .concat();
        assert_eq!(undescribed_offset(&far, 15 + 3 * CHUNK_BYTES), Some(48));
    }

    #[test]
    fn a_part_of_an_undescribed_switch_is_told_from_another_function() {
        // sub $32,%rsp; call; jmp *%rax; the part
        let body = [0x48, 0x83, 0xec, 0x20];
        let switch = [&PROLOGUE[..], &body, &CALL, &[0xff, 0xe0]].concat();
        let close = [&switch[..], &CALL, &EPILOGUE].concat();
        assert_eq!(undescribed_offset(&close, 20), Some(48));
        // Behind padding, and at aligned addresses.
        let padded = [&switch[..], &[0x90, 0x90], &CALL, &EPILOGUE].concat();
        assert_eq!(undescribed_offset(&padded, 22), None);
        let aligned = [&PROLOGUE[..], &body, &[0x90], &CALL, &[0xff, 0xe0], &CALL].concat();
        assert_eq!(
            (aligned.len(), undescribed_offset(&aligned, 21)),
            (21, None)
        );
    }

    #[test]
    fn code_that_cannot_be_read_or_makes_no_sense_tells_nothing() {
        let code = [&PROLOGUE[..], &[0x06, 0x06, 0x06], &CALL, &EPILOGUE].concat();
        assert_eq!(cfa_offset(&code, Pc::Return(12)), None);
        // Without a prologue there is no starting point.
        let code = [&[0x90; 4][..], &CALL, &EPILOGUE].concat();
        assert_eq!(cfa_offset(&code, Pc::Return(9)), None);
        // An endless loop: jmp to itself.
        let code = [&PROLOGUE[..], &[0xeb, 0xfe], &EPILOGUE].concat();
        assert_eq!(cfa_offset(&code, Pc::Running(4)), Some(16));
    }
}
