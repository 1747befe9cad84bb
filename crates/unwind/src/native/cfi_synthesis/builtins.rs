//! CFI synthesis for V8's builtins: functions that V8 compiles when it is built.
//!
//! They lie in one undescribed range. Like all V8 code they keep frame pointers, but small builtins
//! and the fast paths of large ones make no frame. While these run, rbp is their caller's, and
//! unwinding by it would skip the caller. So each builtin is walked from its first instruction.
//! While rbp is untouched, the caller is found by the stack pointer. Where the return address was
//! popped to put arguments below it, the caller is found by the register that holds it. A builtin
//! that leaves a frame which it did not make runs in its caller's frame from the start.
//!
//! Symbols tell where builtins begin; in stripped files the padding between them does. Code that is
//! not reached (by jump tables) and code where two paths disagree is unwound by frame pointer.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use rustc_hash::FxHashMap;

use super::CodeRange;
use super::state::{ENTRY, RBP, State};
use crate::native::abi::{KIND_FP, RA_IN_REG, Rule};
use crate::native::rules::{Row, RuleSet};

/// Maximum instructions walked; one counts again when its state changes. It is several times the
/// number in a build.
const MAX_STEPS: usize = 4 << 20;
/// Builtins begin at multiples of it, behind at least one byte of [`FILL`].
const ALIGNMENT: usize = 64;
const FILL: u8 = 0xcc;
/// DWARF's number of rsp.
const DWARF_RSP: u8 = 7;
/// All callee-saved registers but rbp, as a set.
const ALL_BUT_RBP: u8 = !(1 << RBP) & 0x3f;

/// State before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct BuiltinState {
    state: State,
    /// The register that holds the popped return address.
    return_register: Option<Register>,
}

impl BuiltinState {
    const ENTRY: BuiltinState = BuiltinState {
        state: ENTRY,
        return_register: None,
    };

    /// The state in a frame that another function made.
    fn in_foreign_frame() -> BuiltinState {
        let mut state = State::framed(16);
        state.cfa_offset = None;
        BuiltinState {
            state,
            return_register: None,
        }
    }

    /// Whether rbp has not been touched, or is the caller's again.
    fn is_frameless(&self) -> bool {
        self.state.is_callers(Register::RBP)
    }

    /// Whether `i` leaves a frame that was not made here.
    fn leaves_foreign_frame(&self, i: &Instruction) -> bool {
        let leaves = match i.mnemonic() {
            Mnemonic::Leave => true,
            Mnemonic::Mov => i.op0_register() == Register::RSP && i.op1_register() == Register::RBP,
            _ => false,
        };
        leaves && self.is_frameless()
    }

    /// Applies an instruction that does not branch.
    fn step(&mut self, i: &Instruction, info: &mut InstructionInfoFactory) {
        let register = match i.op0_kind() {
            OpKind::Register if i.op0_register().is_gpr64() => Some(i.op0_register()),
            _ => None,
        };
        match i.mnemonic() {
            Mnemonic::Pop if self.is_frameless() && self.state.cfa_offset == Some(8) => {
                self.return_register =
                    register.filter(|r| ![Register::RSP, Register::RBP].contains(r));
            }
            // It is on top of the stack again, as at entry.
            Mnemonic::Push
                if self.return_register.is_some() && register == self.return_register =>
            {
                *self = BuiltinState::ENTRY;
                return;
            }
            _ => {
                if let Some(kept) = self.return_register
                    && writes(i, info, kept)
                {
                    self.return_register = None;
                }
            }
        }
        self.state.step(i, info);
        // V8 preserves no other register for its callers.
        self.state.forget_all_but(RBP);
    }

    /// Keeps the facts that hold in both; returns whether `self` lost any.
    fn meet(&mut self, other: &BuiltinState) -> bool {
        let before = *self;
        self.state.meet(&other.state);
        if self.return_register != other.return_register {
            self.return_register = None;
        }
        *self != before
    }

    /// The rule by which the caller is found in this state.
    fn row(&self) -> Row {
        let by_stack = Rule {
            kind: KIND_FP,
            reg: DWARF_RSP,
            lost: ALL_BUT_RBP,
            ..Rule::default()
        };
        let kept = self.state.saved[RBP];
        match (self.state.cfa_offset, self.return_register) {
            _ if self.state.rbp_offset.is_some() => Row::FramePointer,
            (_, Some(register)) if self.is_frameless() => match dwarf_number(register) {
                Some(number) => Row::Rule(Rule {
                    ra: RA_IN_REG | number,
                    ..by_stack
                }),
                None => Row::FramePointer,
            },
            (Some(cfa_offset), None) if cfa_offset >= 8 && self.is_frameless() => Row::Rule(Rule {
                cfa_off: cfa_offset,
                ..by_stack
            }),
            // rbp is saved on the stack, but is not yet this frame's pointer, or no longer.
            (Some(cfa_offset), None) if cfa_offset >= 16 && kept > 0 => {
                let mut rule = Rule {
                    cfa_off: cfa_offset,
                    saved: 1 << RBP,
                    ..by_stack
                };
                rule.slot[RBP] = -kept;
                Row::Rule(rule)
            }
            _ => Row::FramePointer,
        }
    }
}

/// Whether `i` writes `register`.
fn writes(i: &Instruction, info: &mut InstructionInfoFactory, register: Register) -> bool {
    let used = info.info(i).used_registers();
    used.iter().any(|u| {
        u.register().full_register() == register
            && !matches!(u.access(), OpAccess::Read | OpAccess::CondRead)
    })
}

/// A register's DWARF number.
fn dwarf_number(register: Register) -> Option<u8> {
    use Register::*;
    const ORDER: [Register; 16] = [
        RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15,
    ];
    ORDER.iter().position(|r| *r == register).map(|at| at as u8)
}

/// Addresses in `code` where functions begin, found by the padding before them.
fn padded_starts(code: &CodeRange<'_>) -> Vec<u64> {
    let first = code.address.next_multiple_of(ALIGNMENT as u64);
    let all = (first..code.end()).step_by(ALIGNMENT);
    let begins = |at: &u64| {
        let at = (at - code.address) as usize;
        at > 0 && code.bytes[at - 1] == FILL && code.bytes[at] != FILL
    };
    all.filter(begins).collect()
}

/// Infers rules for all of `code`: (file offset, rule id), sorted. `symbols` are addresses of
/// functions, in this range or elsewhere.
pub(crate) fn synthesise_builtins(
    code: &CodeRange<'_>,
    symbols: impl Iterator<Item = u64>,
    rules: &mut RuleSet,
) -> Vec<(u32, u32)> {
    let mut entries: Vec<u64> = symbols
        .filter(|at| (code.address..code.end()).contains(at))
        .collect();
    entries.sort_unstable();
    entries.dedup();
    let guessed = entries.is_empty();
    if guessed {
        entries = padded_starts(code);
    }
    // Guessed entries may lie in the middle of a function.
    let mut walk = Walk::new(code, if guessed { &[] } else { &entries });
    for entry in &entries {
        // An address inside a walked function is not an entry.
        if guessed && walk.is_known(*entry) {
            continue;
        }
        if !walk.follow(*entry, BuiltinState::ENTRY) {
            walk.undo();
            walk.follow(*entry, BuiltinState::in_foreign_frame());
        }
    }
    walk.rows(rules)
}

/// Walks all paths through one range.
struct Walk<'s, 'd> {
    code: &'s CodeRange<'d>,
    /// Addresses of functions, sorted.
    entries: &'s [u64],
    /// For each byte: 0, not reached; 1, inside an instruction; else the index + 2 in `states` of
    /// the state at an instruction's first byte.
    known: Vec<u16>,
    states: Vec<BuiltinState>,
    ids: FxHashMap<BuiltinState, u16>,
    info: InstructionInfoFactory,
    steps: usize,
    /// Changes made by the last function: offset, length, and the earlier value of `known`.
    changes: Vec<(usize, usize, u16)>,
}

const INSIDE_INSTRUCTION: u16 = 1;

impl<'s, 'd> Walk<'s, 'd> {
    fn new(code: &'s CodeRange<'d>, entries: &'s [u64]) -> Walk<'s, 'd> {
        Walk {
            code,
            entries,
            known: vec![0; code.bytes.len()],
            states: Vec::new(),
            ids: FxHashMap::default(),
            info: InstructionInfoFactory::new(),
            steps: 0,
            changes: Vec::new(),
        }
    }

    /// Undoes the changes of the last function.
    fn undo(&mut self) {
        for (offset, len, before) in self.changes.drain(..).rev() {
            if before == 0 {
                self.known[offset..offset + len].fill(0);
            }
            self.known[offset] = before;
        }
    }

    fn is_known(&self, at: u64) -> bool {
        let at = at.checked_sub(self.code.address);
        at.is_some_and(|at| self.known.get(at as usize).is_some_and(|k| *k != 0))
    }

    /// The number of a state; `None` when all numbers are used (builds have some hundred states).
    fn id(&mut self, here: BuiltinState) -> Option<u16> {
        if let Some(id) = self.ids.get(&here) {
            return Some(*id);
        }
        let id = u16::try_from(self.states.len() + 2).ok()?;
        self.states.push(here);
        self.ids.insert(here, id);
        Some(id)
    }

    /// Walks the function at `entry`; `false`: it leaves a frame that it did not make.
    fn follow(&mut self, entry: u64, begin: BuiltinState) -> bool {
        self.changes.clear();
        let mut pending = vec![(entry, begin)];
        while let Some((at, mut here)) = pending.pop() {
            let Some(offset) = at
                .checked_sub(self.code.address)
                .map(|o| o as usize)
                .filter(|o| *o < self.known.len())
            else {
                continue;
            };
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return true;
            }
            // Another function, which is entered like a call.
            if at != entry && self.entries.binary_search(&at).is_ok() {
                continue;
            }
            match self.known[offset] {
                0 => {}
                // Two paths decode these bytes differently: keep the first.
                INSIDE_INSTRUCTION => continue,
                id => {
                    let mut met = self.states[usize::from(id) - 2];
                    if !met.meet(&here) {
                        continue;
                    }
                    here = met;
                }
            }
            let bytes = &self.code.bytes[offset..];
            let i = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            if i.is_invalid() {
                continue;
            }
            if matches!(
                i.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) {
                // The callee owns the registers.
                here.return_register = None;
            }
            let Some(id) = self.id(here) else {
                continue;
            };
            self.changes.push((offset, i.len(), self.known[offset]));
            self.known[offset] = id;
            for byte in &mut self.known[offset + 1..offset + i.len()] {
                *byte = (*byte).max(INSIDE_INSTRUCTION);
            }
            let next = i.next_ip();
            match i.flow_control() {
                FlowControl::Next if here.leaves_foreign_frame(&i) => return false,
                FlowControl::Next => {
                    here.step(&i, &mut self.info);
                    pending.push((next, here));
                }
                FlowControl::Call | FlowControl::IndirectCall => pending.push((next, here)),
                FlowControl::UnconditionalBranch if i.is_jmp_short_or_near() => {
                    pending.push((i.near_branch_target(), here));
                }
                FlowControl::ConditionalBranch => {
                    pending.push((next, here));
                    pending.push((i.near_branch_target(), here));
                }
                _ => {}
            }
        }
        true
    }

    /// Whether the code from `offset` on only tail-calls or returns. The return address is then on
    /// top of the stack, whatever happened before.
    fn tail_calls_or_returns(&self, offset: usize) -> bool {
        const MAX_TAIL_INSTRUCTIONS: usize = 8;
        let bytes = &self.code.bytes[offset..];
        let mut info = InstructionInfoFactory::new();
        for i in Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE)
            .into_iter()
            .take(MAX_TAIL_INSTRUCTIONS)
        {
            match i.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch => return true,
                FlowControl::Next
                    if !i.is_invalid()
                        && !writes(&i, &mut info, Register::RSP)
                        && !writes(&i, &mut info, Register::RBP) => {}
                _ => return false,
            }
        }
        false
    }

    fn rows(self, rules: &mut RuleSet) -> Vec<(u32, u32)> {
        let by_frame = rules.id(Row::FramePointer);
        let ids: Vec<u32> = self.states.iter().map(|s| rules.id(s.row())).collect();
        let entered = rules.id(BuiltinState::ENTRY.row());
        let lost = |here: &BuiltinState| {
            here.is_frameless() && here.state.cfa_offset.is_none() && here.return_register.is_none()
        };
        let mut rows: Vec<(u32, u32)> = vec![(self.code.offset, by_frame)];
        for (offset, known) in self.known.iter().enumerate() {
            let rule = match *known {
                INSIDE_INSTRUCTION => continue,
                0 => by_frame,
                id if lost(&self.states[usize::from(id) - 2])
                    && self.tail_calls_or_returns(offset) =>
                {
                    entered
                }
                id => ids[usize::from(id) - 2],
            };
            let at = self.code.offset + offset as u32;
            match rows.last_mut() {
                Some(last) if last.1 == rule => {}
                Some(last) if last.0 == at => last.1 = rule,
                _ => rows.push((at, rule)),
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::abi::RULE_FP;

    /// The rule at `offset`: `None`, by frame pointer; else the CFA offset, the slot of rbp in
    /// words, and the register of the return address.
    fn at(rows: &[(u32, u32)], rules: &RuleSet, offset: u32) -> Option<(i32, i16, u8)> {
        let after = rows.partition_point(|r| r.0 <= offset);
        let id = rows[after - 1].1;
        if id == RULE_FP {
            return None;
        }
        let rule = rules.rules()[id as usize];
        assert_eq!((rule.kind, rule.reg), (KIND_FP, 7));
        let kept = if rule.saved == 0 { 0 } else { rule.slot[RBP] };
        Some((rule.cfa_off, kept, rule.ra))
    }

    /// Four functions in V8's layout.
    fn code() -> Vec<u8> {
        let functions: [&[u8]; 4] = [
            &[
                0xf6, 0xc2, 0x01, // 0: test $1, %dl
                0x75, 0x01, // 3: jne 6
                0xc3, // 5: ret
                0x55, // 6: push %rbp
                0x48, 0x89, 0xe5, // 7: mov %rsp, %rbp
                0x6a, 0x1e, // 10: push $30
                0xff, 0xd1, // 12: call *%rcx
                0x48, 0x89, 0xec, // 14: mov %rbp, %rsp
                0x5d, // 17: pop %rbp
                0xc3, // 18: ret
            ],
            &[
                0x41, 0x5a, // 64: pop %r10
                0x50, // 66: push %rax
                0x50, // 67: push %rax
                0x41, 0x52, // 68: push %r10
                0xff, 0xe1, // 70: jmp *%rcx
            ],
            &[
                0x50, // 128: push %rax
                0xff, 0xd1, // 129: call *%rcx
                0x58, // 131: pop %rax
                0x75, 0x01, // 132: jne 135
                0x50, // 134: push %rax
                0x58, // 135: pop %rax
                0xff, 0xe1, // 136: jmp *%rcx
            ],
            &[
                0x50, // 192: push %rax
                0x48, 0x89, 0xec, // 193: mov %rbp, %rsp
                0x5d, // 196: pop %rbp
                0x41, 0x58, // 197: pop %r8
                0x48, 0x8d, 0x24, 0xdc, // 199: lea (%rsp, %rbx, 8), %rsp
                0x41, 0x50, // 203: push %r8
                0xc3, // 205: ret
            ],
        ];
        let mut code = Vec::new();
        for function in functions {
            code.extend(function);
            code.resize(code.len().next_multiple_of(ALIGNMENT), FILL);
        }
        code
    }

    fn follow(symbols: &[u64]) -> (Vec<(u32, u32)>, RuleSet) {
        let bytes = code();
        let stretch = CodeRange {
            address: 0x40_0000,
            offset: 0x1000,
            bytes: &bytes,
        };
        let mut rules = RuleSet::new(1000);
        let symbols = symbols.iter().map(|s| 0x40_0000 + s);
        let mut rows = synthesise_builtins(&stretch, symbols, &mut rules);
        for row in &mut rows {
            row.0 -= 0x1000;
        }
        assert_eq!(rows[0].0, 0);
        (rows, rules)
    }

    #[test]
    fn what_has_made_no_frame_is_left_by_the_stack() {
        let (rows, rules) = follow(&[0, 64, 128, 192, 1 << 40]);
        let at = |offset| at(&rows, &rules, offset);
        for frameless in [0, 3, 5, 6, 18, 64, 70, 128] {
            assert_eq!(at(frameless), Some((8, 0, 0)), "{frameless}");
        }
        assert_eq!(at(7), Some((16, -2, 0)));
        for in_foreign_frame in [10, 12, 13, 14, 17] {
            assert_eq!(at(in_foreign_frame), None, "{in_foreign_frame}");
        }
        // While arguments go below the return address, r10 holds it.
        for moved in [66, 67, 68] {
            assert_eq!(at(moved), Some((0, 0, RA_IN_REG | 10)), "{moved}");
        }
        // A call without a frame; then two paths with different CFA offsets.
        assert_eq!(at(129), Some((16, 0, 0)));
        assert_eq!(at(132), Some((8, 0, 0)));
        assert_eq!(at(135), None);
        // A tail call expects the return address on top.
        assert_eq!(at(136), Some((8, 0, 0)));
        // The frame was there from the start.
        for in_foreign_frame in [192, 193, 196] {
            assert_eq!(at(in_foreign_frame), None, "{in_foreign_frame}");
        }
        assert_eq!(at(197), Some((8, 0, 0)));
        assert_eq!(at(203), Some((0, 0, RA_IN_REG | 8)));
        assert_eq!(at(205), Some((8, 0, 0)));
        // Between functions.
        for nothing in [19, 63, 72, 140, 206] {
            assert_eq!(at(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn without_symbols_functions_are_told_by_what_lies_between_them() {
        let (rows, rules) = follow(&[]);
        assert_eq!(at(&rows, &rules, 66), Some((0, 0, RA_IN_REG | 10)));
        assert_eq!(at(&rows, &rules, 129), Some((16, 0, 0)));
        // No padding stands before the first one.
        assert_eq!(at(&rows, &rules, 0), None);
    }

    #[test]
    fn any_bytes_are_survived() {
        use proptest::prelude::*;
        proptest!(|(bytes in prop::collection::vec(any::<u8>(), 1..400), entries in prop::collection::vec(0u64..400, 1..8))| {
            let code = CodeRange { address: 0x1000, offset: 0, bytes: &bytes };
            let mut rules = RuleSet::new(1000);
            let rows = synthesise_builtins(&code, entries.iter().map(|e| 0x1000 + e), &mut rules);
            prop_assert_eq!(rows[0].0, 0);
            prop_assert!(rows.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 != w[1].1));
        });
    }
}
