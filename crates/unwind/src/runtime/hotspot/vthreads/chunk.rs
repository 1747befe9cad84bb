//! The stack of an unmounted virtual thread, which lies in the heap in one or more chunks.
//!
//! Frames have the layout that they had on the carrier's stack. Only interpreter frames differ:
//! they hold distances where a mounted frame holds addresses.
//!
//! ```text
//! compiled      its size is in the code's blob; its return address is the word below the next frame
//! interpreted   two words below its first word: distance up to its fixed part, in words. That
//!               part has the method, the bytecode and the distance up to its caller's frame
//! ```
//!
//! A stack is complete if its last frame ends at the end of the last chunk.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::{abi, structs::Layout, vm::Vm};
use super::heap::word;
use crate::runtime::{memory::Memory, tasks};

/// Maximum frames of one chunk, and maximum cached code addresses.
const MAX_FRAMES: usize = 512;
const MAX_CACHED_CODE: usize = 1 << 16;
/// Slots of an interpreter frame, in words from its fixed part.
const SENDER_SP: i64 = -1;
const METHOD: i64 = -3;
const LOCALS: i64 = -7;
const BYTECODE: i64 = -8;
/// Bytes below a frame's first word that belong to it: the return address and the caller's frame
/// pointer.
pub(super) const BELOW: u64 = 16;
/// The first letters of code names, as in `hotspot_core.h`.
const COMPILED: [&[u8]; 2] = [b"nmet", b"nati"];
const INTERPRETER: &[u8] = b"Inte";
const MAX_FRAME_WORDS: u32 = 8192;

/// Marks the end of a stack that could not be followed further.
pub const STACK_TRUNCATED: u64 = u64::MAX;

/// Code that contains a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Interpreter,
    /// Compiled code: the compile id, the deoptimisation handler and the slot of the original
    /// return address. With neither id nor handler: a stub.
    Frame {
        bytes: u64,
        id: Option<u32>,
        deopt: u64,
        kept: u64,
    },
}

/// The part of a stack in one chunk.
pub(super) struct ChunkStack<'b> {
    /// Addresses of the first frame's first word, and one past the last word.
    pub(super) first: u64,
    pub(super) end: u64,
    /// From [`BELOW`] bytes below `first` on.
    pub(super) bytes: &'b [u8],
}

impl ChunkStack<'_> {
    fn word(&self, at: u64) -> Option<u64> {
        let at = at.checked_sub(self.first - BELOW)?;
        word(self.bytes, usize::try_from(at).ok()?)
    }

    /// The word `n` words from `at`.
    fn slot(&self, at: u64, n: i64) -> Option<u64> {
        self.word(at.checked_add_signed(8 * n)?)
    }

    /// The address at the distance, in words from `at`, that the word `n` words from `at` holds.
    fn follow_distance(&self, at: u64, n: i64) -> Option<u64> {
        let words = self.slot(at, n)? as i64;
        at.checked_add_signed(words.checked_mul(8)?)
    }
}

/// Cache of code. Compiled methods may be replaced at any time, so their entries are checked before
/// each snapshot.
#[derive(Default)]
pub(super) struct CodeCache {
    known: FxHashMap<u64, Option<(u64, Code)>>,
}

impl CodeCache {
    /// Drops entries of replaced code.
    pub(super) fn renew(&mut self, vm: &Vm, memory: &mut dyn tasks::Memory) {
        if self.known.len() > MAX_CACHED_CODE {
            self.known.clear();
        }
        self.known.retain(|_, known| known.is_some());
        let at = vm.layout.compiled.id;
        let compiled: Vec<(u64, u64, u32)> = { self.known.iter() }
            .filter_map(|(pc, known)| match known {
                Some((blob, Code::Frame { id: Some(id), .. })) => Some((*pc, *blob, *id)),
                _ => None,
            })
            .collect();
        let blobs: BTreeMap<u64, u32> = compiled.iter().map(|(_, blob, id)| (*blob, *id)).collect();
        // The block header before the blob holds its length and an in-use flag.
        let in_use = u64::from(vm.proc.header) / 2;
        let wanted: Vec<_> = { blobs.keys() }
            .flat_map(|blob| [(blob - in_use, 1), (blob + at, 4)])
            .collect();
        let mut bytes = vec![0u8; 5 * blobs.len()];
        let readable = memory.read_all(&wanted, &mut bytes);
        let same = |i: usize, id: u32| {
            let now = &bytes[5 * i..5 * i + 5];
            let readable = readable[2 * i] && readable[2 * i + 1];
            readable && now[0] != 0 && now[1..] == id.to_le_bytes()
        };
        let blobs = blobs.iter().enumerate();
        let gone: FxHashSet<u64> = { blobs }
            .filter(|(i, (_, id))| !same(*i, **id))
            .map(|(_, (blob, _))| *blob)
            .collect();
        if !gone.is_empty() {
            self.known
                .retain(|_, known| known.is_none_or(|k| !gone.contains(&k.0)));
        }
    }

    /// The code of a frame that returns to `pc`.
    pub(super) fn at(&mut self, pc: u64, vm: &Vm, memory: &mut Memory<'_>) -> Option<Code> {
        let known = self.known.entry(pc);
        Some((*known.or_insert_with(|| code(pc, vm, memory)))?.1)
    }

    /// Appends the frames in `part` to `stack`, as [`walk`] does.
    pub(super) fn walk(
        &mut self,
        part: &ChunkStack<'_>,
        vm: &Vm,
        stack: &mut Vec<u64>,
        memory: &mut Memory<'_>,
    ) -> Option<()> {
        walk(part, stack, &|pc| vm.proc.owns(pc), &mut |pc| {
            self.at(pc, vm, memory)
        })
    }
}

/// Appends the frames in `part` to `stack`, innermost first, in the words of the native walk.
/// `None`: they could not be followed to the part's end. `owns`: whether an address is in the VM's
/// code; `code`: the code at a return address.
fn walk(
    part: &ChunkStack<'_>,
    stack: &mut Vec<u64>,
    owns: &dyn Fn(u64) -> bool,
    code: &mut dyn FnMut(u64) -> Option<Code>,
) -> Option<()> {
    const OFFSET: u64 = (1 << 47) - 1;
    // `sp`: end of the callee's frame. `own`: start of the frame for its own code. They differ
    // where compiled code calls the interpreter and reserves space in between.
    let (mut sp, mut own) = (part.first, part.first);
    for _ in 0..MAX_FRAMES {
        if sp >= part.end {
            return (sp == part.end).then_some(());
        }
        let mut pc = part.word(sp - 8)?;
        let (next, next_own, above) = match code(pc)? {
            Code::Interpreter => {
                let fixed = part.follow_distance(sp - BELOW, 0)?;
                let method = part.slot(fixed, METHOD)?;
                let bytecode = part.slot(fixed, BYTECODE)?;
                if fixed < sp || method == 0 || method > OFFSET || bytecode > OFFSET {
                    return None;
                }
                stack.extend([abi::WORD_METHOD | method, abi::WORD_BCP | bytecode]);
                let above = part.follow_distance(fixed, LOCALS)?.checked_add(8)?;
                (
                    fixed + BELOW,
                    part.follow_distance(fixed, SENDER_SP)?,
                    above,
                )
            }
            Code::Frame {
                bytes,
                id,
                deopt,
                kept,
            } => {
                if id.is_some() && pc == deopt {
                    pc = part.word(own.checked_add(kept)?)?;
                    owns(pc).then_some(())?;
                }
                stack.push(pc & OFFSET);
                stack.extend(id.map(|id| abi::WORD_CODE | u64::from(id)));
                let next = own.checked_add(bytes)?;
                (next, next, next + BELOW)
            }
        };
        if above >= part.end {
            // The last frame may end slightly below the chunk's end.
            return (next <= part.end + BELOW && next > sp).then_some(());
        }
        if next <= sp || next_own < sp {
            return None;
        }
        (sp, own) = (next, next_own);
    }
    None
}

/// The code at `pc`, and its blob.
fn code(pc: u64, vm: &Vm, memory: &mut Memory<'_>) -> Option<(u64, Code)> {
    let l: &Layout = &vm.layout;
    // A return address may be the first byte after the code.
    let blob = vm.blob(pc.checked_sub(1)?, memory)?;
    let name = memory.word(blob + l.blob.name)?;
    let mut letters = [0u8; 4];
    memory.bytes(name, &mut letters)?;
    if letters == INTERPRETER {
        return Some((blob, Code::Interpreter));
    }
    let words = memory.half(blob + l.blob.frame_size)?;
    let size = (1..=MAX_FRAME_WORDS).contains(&words);
    let compiled = COMPILED.contains(&&letters[..]);
    let id = compiled.then(|| memory.half(blob + l.compiled.id));
    let mut deopt = memory.word(blob + l.compiled.deopt).filter(|_| compiled);
    if l.blob.by_offsets {
        deopt = deopt.map(|at| blob + u64::from(at as u32));
    }
    let kept = memory.half(blob + l.compiled.orig_pc).filter(|_| compiled);
    let frame = Code::Frame {
        bytes: u64::from(words) * 8,
        id: match id {
            Some(id) => Some(id?),
            None => None,
        },
        deopt: deopt.unwrap_or(0),
        kept: u64::from(kept.unwrap_or(0)),
    };
    size.then_some((blob, frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x10_0000;
    const INTERPRETED: u64 = 0x7f00_0000_0100;
    const FOUR: u64 = 0x7f00_0000_1000;
    const SIX: u64 = 0x7f00_0000_2000;
    const DEOPT: u64 = 0x7f00_0000_2800;

    fn code(pc: u64) -> Option<Code> {
        let frame = |words: u64, id, deopt, kept| Code::Frame {
            bytes: 8 * words,
            id,
            deopt,
            kept,
        };
        match pc {
            INTERPRETED => Some(Code::Interpreter),
            FOUR => Some(frame(4, Some(44), 0, 0)),
            SIX | DEOPT => Some(frame(6, Some(66), DEOPT, 16)),
            _ => None,
        }
    }

    /// Walks the words of a chunk; the first two lie below its first frame.
    fn follow(words: &[u64]) -> (Option<()>, Vec<u64>) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let part = ChunkStack {
            first: BASE + BELOW,
            end: BASE + bytes.len() as u64,
            bytes: &bytes,
        };
        let mut stack = Vec::new();
        let owns = |pc: u64| pc & 0xffff_0000_0000 == 0x7f00_0000_0000;
        let whole = walk(&part, &mut stack, &owns, &mut code);
        (whole, stack)
    }

    #[test]
    fn compiled_frames_are_left_by_their_size() {
        let mut words = vec![0, FOUR];
        words.extend([1, 2, 3, SIX, 1, 2, 3, 4, 5, 6]);
        let frames = vec![FOUR, abi::WORD_CODE | 44, SIX, abi::WORD_CODE | 66];
        assert_eq!(follow(&words), (Some(()), frames.clone()));
        // Replaced code keeps its original return address.
        words[5] = DEOPT;
        words[8] = SIX;
        assert_eq!(follow(&words), (Some(()), frames));
        // A frame that exceeds the chunk.
        words.truncate(9);
        assert_eq!(follow(&words).0, None);
    }

    #[test]
    fn interpreted_frames_say_distances() {
        // The fixed part is word 11; all distances count from there. The caller's frame starts a
        // word above this one's end.
        let mut words = vec![0; 18];
        words[0] = 11;
        words[1] = INTERPRETED;
        words[11 - 8] = 0x8_0040;
        words[11 - 7] = 2;
        words[11 - 3] = 0x8_0000;
        words[11 - 1] = 3;
        words[11 + 1] = FOUR;
        let (whole, stack) = follow(&words);
        assert_eq!(
            stack,
            [
                abi::WORD_METHOD | 0x8_0000,
                abi::WORD_BCP | 0x8_0040,
                FOUR,
                abi::WORD_CODE | 44
            ]
        );
        assert_eq!(whole, Some(()));
    }

    #[test]
    fn garbage_ends() {
        let mut chance = 1u64;
        let mut next = || {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance
        };
        for _ in 0..20_000 {
            let some = |n: u64| match n % 6 {
                0 => INTERPRETED,
                1 => FOUR,
                2 => DEOPT,
                3 => n >> 60,
                4 => (n as i64 >> 58) as u64,
                _ => n,
            };
            let words: Vec<u64> = (0..2 + next() % 40).map(|_| some(next())).collect();
            follow(&words);
        }
        assert_eq!(follow(&[0, 0x1234, 1, 2]).0, None);
    }
}
