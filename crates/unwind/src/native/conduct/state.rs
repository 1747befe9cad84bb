//! Abstract state of the stack before an instruction, and the effect of an instruction on it.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::native::abi::{End, KIND_REG, Rule};
use crate::native::rules::Row;

/// The callee-saved registers, in the order of [`Rule::slot`].
const PRESERVED: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
pub(super) const RBP: usize = 1;
/// Maximum bytes of a frame; the sum of two such values does not overflow.
const FARTHEST: i32 = 1 << 29;

/// State of the stack before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// CFA − rsp, bytes.
    pub(super) height: Option<i32>,
    /// CFA − rbp, bytes, while rbp points into the frame.
    pub(super) frame: Option<i32>,
    /// Words below the CFA at which a register's caller value is saved; 0: in the register.
    pub(super) kept: [i16; 6],
    /// Bit per register: the caller's value is not recoverable.
    lost: u8,
    /// rbp was set to zero and never saved, as in an outermost frame…
    marked: bool,
    /// …and then the stack pointer moved as in no function that returns.
    pub(super) bottom: bool,
}

/// The state at a function's first instruction.
pub(super) const ENTRY: State = State {
    height: Some(8),
    frame: None,
    kept: [0; 6],
    lost: 0,
    marked: false,
    bottom: false,
};

impl State {
    /// The state after rbp was saved and set to the stack pointer, `height` bytes below the CFA.
    pub(super) fn framed(height: i32) -> State {
        let mut state = State {
            height: Some(height),
            frame: Some(height),
            ..ENTRY
        };
        state.kept[RBP] = (height / 8) as i16;
        state
    }

    /// Whether both states lead to one caller.
    pub(super) fn agrees(&self, other: &State) -> bool {
        let kept = |(a, b): (&i16, &i16)| a == b || *a == 0 || *b == 0;
        self.height == other.height
            && self.bottom == other.bottom
            && self.kept.iter().zip(&other.kept).all(kept)
    }

    /// Keeps the facts that hold in both; returns whether `self` lost any.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        let before = *self;
        if self.height != other.height {
            self.height = None;
        }
        if self.frame != other.frame {
            self.frame = None;
        }
        for k in 0..PRESERVED.len() {
            if self.kept[k] != other.kept[k] {
                self.kept[k] = 0;
                self.lost |= 1 << k;
            }
        }
        self.lost |= other.lost;
        self.marked &= other.marked;
        self.bottom &= other.bottom;
        *self != before
    }

    pub(super) fn row(&self) -> Row {
        let (reg, cfa_off) = match (self.bottom, self.height, self.frame) {
            (true, ..) => return Row::End(End::Root),
            (_, Some(height), _) if height >= 8 => (7, height),
            (_, None, Some(frame)) if frame >= 8 => (6, frame),
            _ => return Row::End(End::NoInfo),
        };
        let mut rule = Rule {
            kind: KIND_REG,
            reg,
            cfa_off,
            lost: self.lost,
            ..Rule::default()
        };
        for (k, kept) in self.kept.iter().enumerate() {
            if *kept > 0 {
                rule.saved |= 1 << k;
                rule.slot[k] = -kept;
            }
        }
        Row::Rule(rule)
    }

    /// Sets the CFA offset.
    pub(super) fn move_to(&mut self, height: Option<i32>) {
        // A saved word that is popped without being read is gone.
        if let Some(height) = height {
            for k in 0..PRESERVED.len() {
                if i32::from(self.kept[k]) * 8 > height {
                    self.forget(k);
                }
            }
        }
        let leaves = height.is_none_or(|h| h < 8);
        self.bottom |= self.marked && leaves;
        self.height = height.filter(|h| h % 8 == 0 && (-FARTHEST..FARTHEST).contains(h));
    }

    /// Register `k` is no longer in its slot.
    fn forget(&mut self, k: usize) {
        self.kept[k] = 0;
        self.lost |= 1 << k;
    }

    /// Forgets all registers but `k`.
    pub(super) fn forget_all_but(&mut self, k: usize) {
        for (other, kept) in self.kept.iter_mut().enumerate() {
            if other != k {
                *kept = 0;
            }
        }
        self.lost &= 1 << k;
    }

    /// Register `k` gets a value of this function.
    fn overwrite(&mut self, k: usize) {
        if self.kept[k] == 0 {
            self.lost |= 1 << k;
        }
        if k == RBP {
            self.frame = None;
            self.marked = false;
        }
    }

    /// CFA − address of a memory operand on the stack, bytes.
    fn place(&self, i: &Instruction) -> Option<i32> {
        if i.memory_index() != Register::None || i.segment_prefix() != Register::None {
            return None;
        }
        let base = match i.memory_base() {
            Register::RSP => self.height?,
            Register::RBP => self.frame?,
            _ => return None,
        };
        let place = i64::from(base).checked_sub(i.memory_displacement64() as i64)?;
        (i32::try_from(place).ok()).filter(|p| (-FARTHEST..FARTHEST).contains(p))
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
        let preserved = |r: Register| PRESERVED.iter().position(|p| *p == r);
        match i.mnemonic() {
            Mnemonic::Push => {
                let height = self.height.map(|h| h - i.stack_pointer_increment());
                self.move_to(height);
                if let (Some(k), Some(height)) = (preserved(to), height) {
                    self.keep(k, height);
                }
            }
            Mnemonic::Pop => {
                let height = self.height;
                if let Some(k) = preserved(to) {
                    self.fetch(k, height);
                } else if to == Register::RSP {
                    return self.move_to(None);
                }
                self.move_to(height.map(|h| h - i.stack_pointer_increment()));
            }
            Mnemonic::Leave => {
                let frame = self.frame;
                self.fetch(RBP, frame);
                self.move_to(frame.map(|f| f - 8));
            }
            Mnemonic::Sub | Mnemonic::Add if to == Register::RSP && from == Register::None => {
                let by = match i.op1_kind() {
                    OpKind::Memory => None,
                    _ => i32::try_from(i.immediate(1) as i64).ok(),
                };
                self.move_to(self.height.zip(by).and_then(|(h, by)| match i.mnemonic() {
                    Mnemonic::Sub => h.checked_add(by),
                    _ => h.checked_sub(by),
                }));
            }
            Mnemonic::Lea if to == Register::RSP => self.move_to(self.place(i)),
            Mnemonic::Mov if to == Register::RSP => {
                self.move_to(self.frame.filter(|_| from == Register::RBP));
            }
            Mnemonic::Lea if to == Register::RBP && i.memory_base() == Register::RSP => {
                let frame = self.place(i);
                self.overwrite(RBP);
                self.frame = frame;
            }
            Mnemonic::Mov if to == Register::RBP && from == Register::RSP => {
                let height = self.height;
                self.overwrite(RBP);
                self.frame = height;
            }
            Mnemonic::Mov if i.op0_kind() == OpKind::Memory => {
                if let (Some(k), Some(place)) = (preserved(from), self.place(i)) {
                    self.keep(k, place);
                }
            }
            Mnemonic::Mov if i.op1_kind() == OpKind::Memory && preserved(to).is_some() => {
                let place = self.place(i);
                self.fetch(preserved(to).unwrap_or(RBP), place);
            }
            Mnemonic::Xor if to.full_register() == Register::RBP && to == from => {
                let kept = self.kept[RBP] != 0 || self.lost & 1 << RBP != 0;
                self.overwrite(RBP);
                self.marked = !kept;
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
                if let Some(k) = preserved(to.full_register()).filter(|_| !reads) {
                    self.overwrite(k);
                }
            }
            _ => {
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
                    if let Some(k) = preserved(register) {
                        self.overwrite(k);
                    } else if register == Register::RSP && moved == 0 {
                        self.move_to(None);
                    }
                }
                if moved != 0 {
                    self.move_to(self.height.map(|h| h - moved));
                }
            }
        }
    }

    /// Whether `register` is callee-saved and still holds the caller's value.
    pub(super) fn is_callers(&self, register: Register) -> bool {
        let k = PRESERVED.iter().position(|p| *p == register);
        k.is_some_and(|k| {
            let own = k == RBP && (self.frame.is_some() || self.marked);
            self.kept[k] == 0 && self.lost & 1 << k == 0 && !own
        })
    }

    /// Register `k` is stored `place` bytes below the CFA.
    fn keep(&mut self, k: usize, place: i32) {
        let own = self.kept[k] != 0 || self.lost & 1 << k != 0;
        let words = i16::try_from(place / 8);
        if !own && place >= 16 && place % 8 == 0 {
            self.kept[k] = words.unwrap_or(0);
        }
    }

    /// Register `k` is loaded from `place` bytes below the CFA.
    fn fetch(&mut self, k: usize, place: Option<i32>) {
        let own = place.is_some_and(|p| self.kept[k] != 0 && i32::from(self.kept[k]) * 8 == p);
        self.overwrite(k);
        if own {
            self.kept[k] = 0;
        }
    }
}
