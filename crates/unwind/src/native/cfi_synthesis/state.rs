//! Abstract state of the stack before an instruction, and the effect of an instruction on it.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::native::abi::{End, KIND_REG, Rule};
use crate::native::rules::RuleRow;

/// The callee-saved registers, in the order of [`Rule::slot`].
const CALLEE_SAVED: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
pub(super) const RBP: usize = 1;
/// Maximum bytes of a frame; the sum of two such values does not overflow.
const MAX_FRAME_BYTES: i32 = 1 << 29;

/// State of the stack before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// CFA − rsp, bytes.
    pub(super) cfa_offset: Option<i32>,
    /// CFA − rbp, bytes, while rbp points into the frame.
    pub(super) rbp_offset: Option<i32>,
    /// Words below the CFA at which a register's caller value is saved; 0: in the register.
    pub(super) saved: [i16; 6],
    /// Bit per register: the caller's value is not recoverable.
    lost: u8,
    /// rbp was set to zero and never saved, as in an outermost frame…
    rbp_zeroed: bool,
    /// …and then the stack pointer moved as in no function that returns.
    pub(super) bottom: bool,
}

/// The state at a function's first instruction.
pub(super) const ENTRY: State = State {
    cfa_offset: Some(8),
    rbp_offset: None,
    saved: [0; 6],
    lost: 0,
    rbp_zeroed: false,
    bottom: false,
};

/// Place of a register in [`CALLEE_SAVED`].
fn callee_saved(register: Register) -> Option<usize> {
    CALLEE_SAVED.iter().position(|p| *p == register)
}

impl State {
    /// The state after rbp was saved and set to the stack pointer, `cfa_offset` bytes below the CFA.
    pub(super) fn framed(cfa_offset: i32) -> State {
        let mut state = State {
            cfa_offset: Some(cfa_offset),
            rbp_offset: Some(cfa_offset),
            ..ENTRY
        };
        state.saved[RBP] = (cfa_offset / 8) as i16;
        state
    }

    /// Whether both states lead to one caller.
    pub(super) fn agrees(&self, other: &State) -> bool {
        let saved = |(a, b): (&i16, &i16)| a == b || *a == 0 || *b == 0;
        self.cfa_offset == other.cfa_offset
            && self.bottom == other.bottom
            && self.saved.iter().zip(&other.saved).all(saved)
    }

    /// Keeps the facts that hold in both; returns whether `self` lost any.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        let before = *self;
        if self.cfa_offset != other.cfa_offset {
            self.cfa_offset = None;
        }
        if self.rbp_offset != other.rbp_offset {
            self.rbp_offset = None;
        }
        for k in 0..CALLEE_SAVED.len() {
            if self.saved[k] != other.saved[k] {
                self.saved[k] = 0;
                self.lost |= 1 << k;
            }
        }
        self.lost |= other.lost;
        self.rbp_zeroed &= other.rbp_zeroed;
        self.bottom &= other.bottom;
        *self != before
    }

    pub(super) fn row(&self) -> RuleRow {
        let (reg, cfa_off) = match (self.bottom, self.cfa_offset, self.rbp_offset) {
            (true, ..) => return RuleRow::End(End::Root),
            (_, Some(cfa_offset), _) if cfa_offset >= 8 => (7, cfa_offset),
            (_, None, Some(rbp_offset)) if rbp_offset >= 8 => (6, rbp_offset),
            _ => return RuleRow::End(End::NoInfo),
        };
        let mut rule = Rule {
            kind: KIND_REG,
            reg,
            cfa_off,
            lost: self.lost,
            ..Rule::default()
        };
        for (k, saved) in self.saved.iter().enumerate() {
            if *saved > 0 {
                rule.saved |= 1 << k;
                rule.slot[k] = -saved;
            }
        }
        RuleRow::Rule(rule)
    }

    /// Sets the CFA offset.
    pub(super) fn move_to(&mut self, cfa_offset: Option<i32>) {
        // A saved word that is popped without being read is gone.
        if let Some(cfa_offset) = cfa_offset {
            for k in 0..CALLEE_SAVED.len() {
                if i32::from(self.saved[k]) * 8 > cfa_offset {
                    self.forget(k);
                }
            }
        }
        let leaves = cfa_offset.is_none_or(|h| h < 8);
        self.bottom |= self.rbp_zeroed && leaves;
        self.cfa_offset =
            cfa_offset.filter(|h| h % 8 == 0 && (-MAX_FRAME_BYTES..MAX_FRAME_BYTES).contains(h));
    }

    /// Register `k` is no longer in its slot.
    fn forget(&mut self, k: usize) {
        self.saved[k] = 0;
        self.lost |= 1 << k;
    }

    /// Forgets all registers but `k`.
    pub(super) fn forget_all_but(&mut self, k: usize) {
        for (other, saved) in self.saved.iter_mut().enumerate() {
            if other != k {
                *saved = 0;
            }
        }
        self.lost &= 1 << k;
    }

    /// Register `k` gets a value of this function.
    fn overwrite(&mut self, k: usize) {
        if self.saved[k] == 0 {
            self.lost |= 1 << k;
        }
        if k == RBP {
            self.rbp_offset = None;
            self.rbp_zeroed = false;
        }
    }

    /// CFA − address of a memory operand on the stack, bytes.
    fn stack_offset(&self, i: &Instruction) -> Option<i32> {
        if i.memory_index() != Register::None || i.segment_prefix() != Register::None {
            return None;
        }
        let base = match i.memory_base() {
            Register::RSP => self.cfa_offset?,
            Register::RBP => self.rbp_offset?,
            _ => return None,
        };
        let stack_offset = i64::from(base).checked_sub(i.memory_displacement64() as i64)?;
        (i32::try_from(stack_offset).ok())
            .filter(|p| (-MAX_FRAME_BYTES..MAX_FRAME_BYTES).contains(p))
    }

    /// Applies an instruction that does not branch.
    pub(super) fn step(&mut self, i: &Instruction, info: &mut InstructionInfoFactory) {
        let to = match i.op0_kind() {
            OpKind::Register => i.op0_register(),
            _ => Register::None,
        };
        let from = match i.op1_kind() {
            OpKind::Register if i.op_count() > 1 => i.op1_register(),
            _ => Register::None,
        };
        match i.mnemonic() {
            Mnemonic::Push => {
                let cfa_offset = self.cfa_offset.map(|h| h - i.stack_pointer_increment());
                self.move_to(cfa_offset);
                if let (Some(k), Some(cfa_offset)) = (callee_saved(to), cfa_offset) {
                    self.keep(k, cfa_offset);
                }
            }
            Mnemonic::Pop => {
                let cfa_offset = self.cfa_offset;
                if let Some(k) = callee_saved(to) {
                    self.fetch(k, cfa_offset);
                } else if to == Register::RSP {
                    return self.move_to(None);
                }
                self.move_to(cfa_offset.map(|h| h - i.stack_pointer_increment()));
            }
            Mnemonic::Leave => {
                let rbp_offset = self.rbp_offset;
                self.fetch(RBP, rbp_offset);
                self.move_to(rbp_offset.map(|f| f - 8));
            }
            Mnemonic::Sub | Mnemonic::Add if to == Register::RSP && from == Register::None => {
                self.add_to_stack_pointer(i);
            }
            Mnemonic::Lea if to == Register::RSP => self.move_to(self.stack_offset(i)),
            Mnemonic::Mov if to == Register::RSP => {
                self.move_to(self.rbp_offset.filter(|_| from == Register::RBP));
            }
            Mnemonic::Lea if to == Register::RBP && i.memory_base() == Register::RSP => {
                let rbp_offset = self.stack_offset(i);
                self.overwrite(RBP);
                self.rbp_offset = rbp_offset;
            }
            Mnemonic::Mov if to == Register::RBP && from == Register::RSP => {
                let cfa_offset = self.cfa_offset;
                self.overwrite(RBP);
                self.rbp_offset = cfa_offset;
            }
            Mnemonic::Mov if i.op0_kind() == OpKind::Memory => {
                if let (Some(k), Some(stack_offset)) = (callee_saved(from), self.stack_offset(i)) {
                    self.keep(k, stack_offset);
                }
            }
            Mnemonic::Mov if i.op1_kind() == OpKind::Memory && callee_saved(to).is_some() => {
                let stack_offset = self.stack_offset(i);
                self.fetch(callee_saved(to).unwrap_or(RBP), stack_offset);
            }
            Mnemonic::Xor if to.full_register() == Register::RBP && to == from => {
                let saved = self.saved[RBP] != 0 || self.lost & 1 << RBP != 0;
                self.overwrite(RBP);
                self.rbp_zeroed = !saved;
            }
            // Most instructions write their first operand only.
            Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Lea
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Nop
                if to.full_register() != Register::RSP =>
            {
                let reads = matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Nop);
                if let Some(k) = callee_saved(to.full_register()).filter(|_| !reads) {
                    self.overwrite(k);
                }
            }
            _ => self.step_by_written_registers(i, info),
        }
    }

    /// Applies an instruction of which only the written registers and the move of the stack pointer count.
    fn step_by_written_registers(&mut self, i: &Instruction, info: &mut InstructionInfoFactory) {
        let moved = i.stack_pointer_increment();
        for used in info.info(i).used_registers() {
            let written = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            );
            let register = used.register().full_register();
            if !written {
                continue;
            }
            if let Some(k) = callee_saved(register) {
                self.overwrite(k);
            } else if register == Register::RSP && moved == 0 {
                self.move_to(None);
            }
        }
        if moved != 0 {
            self.move_to(self.cfa_offset.map(|h| h - moved));
        }
    }

    /// Applies an addition to the stack pointer, or a subtraction from it.
    fn add_to_stack_pointer(&mut self, i: &Instruction) {
        let by = match i.op1_kind() {
            OpKind::Memory => None,
            _ => i32::try_from(i.immediate(1) as i64).ok(),
        };
        self.move_to(
            self.cfa_offset
                .zip(by)
                .and_then(|(h, by)| match i.mnemonic() {
                    Mnemonic::Sub => h.checked_add(by),
                    _ => h.checked_sub(by),
                }),
        );
    }

    /// Whether `register` is callee-saved and still holds the caller's value.
    pub(super) fn is_callers(&self, register: Register) -> bool {
        callee_saved(register).is_some_and(|k| {
            let own = k == RBP && (self.rbp_offset.is_some() || self.rbp_zeroed);
            self.saved[k] == 0 && self.lost & 1 << k == 0 && !own
        })
    }

    /// Register `k` is stored `stack_offset` bytes below the CFA.
    fn keep(&mut self, k: usize, stack_offset: i32) {
        let own = self.saved[k] != 0 || self.lost & 1 << k != 0;
        let words = i16::try_from(stack_offset / 8);
        if !own && stack_offset >= 16 && stack_offset % 8 == 0 {
            self.saved[k] = words.unwrap_or(0);
        }
    }

    /// Register `k` is loaded from `stack_offset` bytes below the CFA.
    fn fetch(&mut self, k: usize, stack_offset: Option<i32>) {
        let own =
            stack_offset.is_some_and(|p| self.saved[k] != 0 && i32::from(self.saved[k]) * 8 == p);
        self.overwrite(k);
        if own {
            self.saved[k] = 0;
        }
    }
}
