//! Places for probes in a function's machine code: the entry, and every way out.
//!
//! x86-64 only. A uprobe is cheap if the kernel *emulates* the instruction (pushes, direct calls
//! and jumps, `nop`: 0.5 to 1 µs). It is costly if the processor single-steps a copy (10 µs and
//! more in a virtual machine). So the entry probe goes to the first emulated instruction that every call
//! passes exactly once: on the straight path from the entry, and not at the target of a jump within the
//! function. `endbr64` is single-stepped and always skipped.
//!
//! Ways out are the `ret`s and the jumps that leave the function (tail calls). The kernel program accepts a way
//! out only if the stack pointer has its value from the entry. So a jump into a part of the function that the
//! compiler put elsewhere does not count as a way out.
//!
//! The function is swept from start to end. Data between instructions (hand-written assembly) makes
//! that unsafe and is reported as such: [`Body::whole`].

use std::collections::BTreeSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Instructions from the entry among which a cheap one is searched.
const MAX_AHEAD: usize = 24;

/// A stretch of code: its virtual address and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The code.
    pub bytes: &'a [u8],
}

impl Stretch<'_> {
    fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes.len() as u64
    }
}

/// The entry probe's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Virtual address.
    pub at: u64,
    /// Bytes pushed since the function was entered.
    pub pushed: u16,
    /// The instruction is single-stepped.
    pub stepped: bool,
}

/// An indirect jump's target, in terms of `struct ws_jump`; registers as indices of `struct pt_regs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indirect {
    /// Base register, 255: none.
    pub base: u8,
    /// Index register, 255: none.
    pub index: u8,
    /// Factor of the index.
    pub scale: u8,
    /// The target is read from memory.
    pub memory: bool,
    /// Added to the address.
    pub displacement: i64,
}

/// Kind of a way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// `ret`.
    Return,
    /// A jump to another function.
    Jump {
        /// Its virtual address.
        to: u64,
    },
    /// A conditional jump to another function.
    Branch {
        /// Its virtual address.
        to: u64,
        /// Condition code as in the instruction's encoding.
        condition: u8,
    },
    /// A jump that may stay within, or leave.
    Indirect(Indirect),
}

/// One way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Virtual address of the instruction.
    pub at: u64,
    /// Its kind.
    pub leave: ExitKind,
}

/// Places for probes in a function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Place of the entry probe.
    pub entry: Entry,
    /// Place of the kernel's return probe, which needs the return address on top of the stack: the entry
    /// without its `endbr64`, and whether that is single-stepped.
    pub first: Entry,
    /// All ways out.
    pub exits: Vec<Exit>,
    /// Every byte was an instruction.
    pub whole: bool,
}

/// Prologue of a compiler's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prologue {
    /// The function's own work.
    Plain,
    /// A check of the stack's size, after which the function may begin again (Go).
    ChecksStack,
}

/// Reads a function: its own code first, then parts of it that the compiler put elsewhere. `None` where
/// it does not begin with an instruction.
pub fn read(stretches: &[Stretch<'_>], prologue: Prologue) -> Option<Body> {
    let main = stretches.first()?;
    let inside = |address| stretches.iter().any(|s| s.holds(address));
    let mut exits = Vec::new();
    let mut targets = BTreeSet::new();
    let (mut whole, mut indirect) = (true, false);
    let mut ahead: Vec<(Instruction, bool)> = Vec::new();
    for stretch in stretches {
        let mut decoder = Decoder::with_ip(64, stretch.bytes, stretch.start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let i = decoder.decode();
            if i.is_invalid() {
                whole = false;
                break;
            }
            let from = (i.ip() - stretch.start) as usize;
            let bytes = &stretch.bytes[from..from + i.len()];
            if stretch.start == main.start && ahead.len() <= MAX_AHEAD {
                ahead.push((i, is_emulated(bytes)));
            }
            let to = i.near_branch_target();
            match i.flow_control() {
                FlowControl::Return => exits.extend(returns(&i)),
                FlowControl::UnconditionalBranch if inside(to) => {
                    targets.insert(to);
                }
                FlowControl::UnconditionalBranch => exits.push(Exit {
                    at: i.ip(),
                    leave: ExitKind::Jump { to },
                }),
                FlowControl::ConditionalBranch if inside(to) => {
                    targets.insert(to);
                }
                FlowControl::ConditionalBranch => {
                    exits.extend(condition(bytes).map(|condition| Exit {
                        at: i.ip(),
                        leave: ExitKind::Branch { to, condition },
                    }));
                }
                // Marked by the compiler as a jump by a table of its own.
                FlowControl::IndirectBranch if bytes[0] == 0x3e => indirect = true,
                FlowControl::IndirectBranch => {
                    indirect = true;
                    exits.extend(table(&i).map(|leave| Exit { at: i.ip(), leave }));
                }
                _ => {}
            }
        }
    }
    let (entry, first) = entry(&ahead, &targets, indirect, prologue)?;
    Some(Body {
        entry,
        first,
        exits,
        whole,
    })
}

/// Whether an instruction begins at `at`, swept from the start of the function.
pub fn begins_at(stretch: Stretch<'_>, at: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, stretch.bytes, stretch.start, DecoderOptions::NONE);
    while decoder.can_decode() && decoder.ip() < at {
        let _ = decoder.decode();
    }
    decoder.ip() == at
}

/// Bytes of the first instruction; at most those that there are.
pub fn length(stretch: Stretch<'_>) -> usize {
    Decoder::with_ip(64, stretch.bytes, stretch.start, DecoderOptions::NONE)
        .decode()
        .len()
        .min(stretch.bytes.len())
}

/// Whether the kernel emulates the instruction (arch/x86/kernel/uprobes.c: branches and pushes).
pub fn is_emulated(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let [0xf2 | 0xf3 | 0x2e | 0x3e, after @ ..] = rest {
        rest = after;
    }
    match rest {
        [0x50..=0x57] | [0x41, 0x50..=0x57] => rest.len() == bytes.len(),
        [0x70..=0x7f | 0xeb | 0xe8 | 0xe9 | 0x90, ..] => true,
        [0x0f, 0x80..=0x8f, ..] => true,
        _ => false,
    }
}

/// The condition code of a conditional jump; `None` for a jump by counter, which compilers do not use for tail
/// calls.
fn condition(bytes: &[u8]) -> Option<u8> {
    let at = bytes
        .iter()
        .position(|b| !matches!(b, 0xf2 | 0xf3 | 0x2e | 0x3e))?;
    match &bytes[at..] {
        [0x0f, code @ 0x80..=0x8f, ..] | [code @ 0x70..=0x7f, ..] => Some(code & 15),
        _ => None,
    }
}

fn returns(i: &Instruction) -> Option<Exit> {
    matches!(i.code(), Code::Retnq | Code::Retnq_imm16).then_some(Exit {
        at: i.ip(),
        leave: ExitKind::Return,
    })
}

fn table(i: &Instruction) -> Option<ExitKind> {
    let none = 255;
    if i.op0_kind() == OpKind::Register {
        return Some(ExitKind::Indirect(Indirect {
            base: slot(i.op0_register())?,
            index: none,
            scale: 0,
            memory: false,
            displacement: 0,
        }));
    }
    if i.op0_kind() != OpKind::Memory || i.has_segment_prefix() {
        return None;
    }
    let (base, displacement) = match i.memory_base() {
        Register::None => (none, i.memory_displacement64() as i64),
        Register::RIP => (
            slot(Register::RIP)?,
            i.memory_displacement64().wrapping_sub(i.ip()) as i64,
        ),
        base => (slot(base)?, i.memory_displacement64() as i64),
    };
    Some(ExitKind::Indirect(Indirect {
        base,
        index: match i.memory_index() {
            Register::None => none,
            index => slot(index)?,
        },
        scale: i.memory_index_scale() as u8,
        memory: true,
        displacement,
    }))
}

/// The place of a register in `struct pt_regs`, in words.
fn slot(register: Register) -> Option<u8> {
    Some(match register {
        Register::R15 => 0,
        Register::R14 => 1,
        Register::R13 => 2,
        Register::R12 => 3,
        Register::RBP => 4,
        Register::RBX => 5,
        Register::R11 => 6,
        Register::R10 => 7,
        Register::R9 => 8,
        Register::R8 => 9,
        Register::RAX => 10,
        Register::RCX => 11,
        Register::RDX => 12,
        Register::RSI => 13,
        Register::RDI => 14,
        Register::RIP => 16,
        Register::RSP => 19,
        _ => return None,
    })
}

/// The cheapest place that every call passes once, and the first place behind `endbr64`.
fn entry(
    ahead: &[(Instruction, bool)],
    targets: &BTreeSet<u64>,
    indirect: bool,
    prologue: Prologue,
) -> Option<(Entry, Entry)> {
    let skipped = ahead
        .iter()
        .take_while(|(i, _)| i.code() == Code::Endbr64)
        .count();
    let mut ahead = &ahead[skipped..];
    let again = ahead
        .first()
        .is_some_and(|(i, _)| targets.contains(&i.ip()));
    let check = ahead
        .iter()
        .position(|(i, _)| i.flow_control() == FlowControl::ConditionalBranch);
    if let (Prologue::ChecksStack, true, Some(check)) = (prologue, again, check) {
        ahead = &ahead[check + 1..];
    }
    let (head, emulated) = ahead.first()?;
    let first = Entry {
        at: head.ip(),
        pushed: 0,
        stepped: !emulated,
    };
    if *emulated {
        return Some((first, first));
    }
    let mut pushed = 0u16;
    for (n, (i, emulated)) in ahead.iter().enumerate() {
        // The targets of a jump table are not known.
        if n > 0 && (indirect || targets.contains(&i.ip())) {
            break;
        }
        if *emulated {
            let entry = Entry {
                at: i.ip(),
                pushed,
                stepped: false,
            };
            return Some((entry, first));
        }
        if i.flow_control() != FlowControl::Next {
            break;
        }
        let Some(more) = pushes(i) else { break };
        let Some(sum) = pushed.checked_add_signed(more) else {
            break;
        };
        pushed = sum;
    }
    Some((first, first))
}

/// Bytes by which an instruction lowers the stack pointer; `None`: not known.
fn pushes(i: &Instruction) -> Option<i16> {
    let own = i16::try_from(i.stack_pointer_increment()).ok()?;
    if own != 0 {
        return Some(-own);
    }
    let on_sp =
        i.op_count() > 0 && i.op0_kind() == OpKind::Register && i.op0_register() == Register::RSP;
    if !on_sp || matches!(i.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
        return Some(0);
    }
    let by = match i.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
            i16::try_from(i.immediate(1) as i64).ok()?
        }
        _ => return None,
    };
    match i.mnemonic() {
        Mnemonic::Sub => Some(by),
        Mnemonic::Add => by.checked_neg(),
        _ => None,
    }
}

#[cfg(test)]
#[path = "code_tests.rs"]
mod tests;
