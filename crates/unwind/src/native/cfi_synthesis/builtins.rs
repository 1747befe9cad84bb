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
use crate::native::rules::{RuleRow, RuleSet};

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
    fn row(&self) -> RuleRow {
        let by_stack = Rule {
            kind: KIND_FP,
            reg: DWARF_RSP,
            lost: ALL_BUT_RBP,
            ..Rule::default()
        };
        let kept = self.state.saved[RBP];
        match (self.state.cfa_offset, self.return_register) {
            _ if self.state.rbp_offset.is_some() => RuleRow::FramePointer,
            (_, Some(register)) if self.is_frameless() => match dwarf_number(register) {
                Some(number) => RuleRow::Rule(Rule {
                    ra: RA_IN_REG | number,
                    ..by_stack
                }),
                None => RuleRow::FramePointer,
            },
            (Some(cfa_offset), None) if cfa_offset >= 8 && self.is_frameless() => {
                RuleRow::Rule(Rule {
                    cfa_off: cfa_offset,
                    ..by_stack
                })
            }
            // rbp is saved on the stack, but is not yet this frame's pointer, or no longer.
            (Some(cfa_offset), None) if cfa_offset >= 16 && kept > 0 => {
                let mut rule = Rule {
                    cfa_off: cfa_offset,
                    saved: 1 << RBP,
                    ..by_stack
                };
                rule.slot[RBP] = -kept;
                RuleRow::Rule(rule)
            }
            _ => RuleRow::FramePointer,
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
        let by_frame = rules.id(RuleRow::FramePointer);
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
#[path = "builtins_tests.rs"]
mod tests;
