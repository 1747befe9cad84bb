//! Follows the awaits of a suspended coroutine, from the task's own coroutine to the innermost one.
//!
//! A coroutine's position is in its frame. The awaited object is on top of that frame's stack. It
//! is another coroutine, an object that leads to one, or a future. All words that the result
//! depends on are kept in [`Chain::seen`] and read again at the end. If they are unchanged, nothing
//! moved.

use super::super::{Facts, code};
use super::objects::{HEAP_TYPE, Objects};
use super::offsets::Suspended;

/// Maximum coroutines of one task.
const MAX_COROUTINES: usize = 256;
/// Opcode up to 3.10: yield from the object on top of the stack.
const YIELD_FROM: u8 = 72;
/// Up to 3.10: offset of the instructions in a code object, and of the first one in a `bytes`
/// object.
const CODE_BYTES: u64 = 48;
const FIRST_BYTE: u64 = 32;

/// Address bits of a reference; from 3.14 on some references carry tag bits.
const ADDRESS: u64 = (1 << 47) - 8;

/// Role of a type in a chain of awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitRole {
    /// A coroutine or generator, which has a frame.
    Frames,
    /// Passes on to the object that its first word points to.
    Through,
    /// Waits for the future that its first word points to.
    Future,
    /// Any other type.
    Other,
}

impl AwaitRole {
    /// The role of `class`.
    pub(super) fn of(objects: &mut Objects<'_>, class: u64) -> Option<AwaitRole> {
        let name = objects.type_name(class)?;
        // Classes written in Python may have any of these names.
        let of_python = objects.type_flags(class)? & HEAP_TYPE != 0;
        Some(match name.as_str() {
            "_asyncio.FutureIter" => AwaitRole::Future,
            _ if of_python => AwaitRole::Other,
            "coroutine" | "generator" | "async_generator" => AwaitRole::Frames,
            "async_generator_asend"
            | "async_generator_athrow"
            | "coroutine_wrapper"
            | "anext_awaitable" => AwaitRole::Through,
            _ => AwaitRole::Other,
        })
    }
}

/// State of a coroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoroutineState {
    /// It has not started.
    Created,
    /// It waits in an `await` or a `yield`.
    Suspended,
    /// It runs on a thread.
    Running,
    /// It will never run again.
    Finished,
}

/// The coroutines of a task.
#[derive(Debug)]
pub(super) struct Chain {
    /// State of the first one.
    pub state: CoroutineState,
    /// Its code object, or its class if it has none.
    pub start: u64,
    /// Code object and offset of the instruction in bytes, first coroutine first.
    pub frames: Vec<(u64, i32)>,
    /// Addresses that the result depends on, with the words read there.
    pub seen: Vec<(u64, u64)>,
}

/// The frame of a coroutine.
struct Frame {
    state: CoroutineState,
    code: u64,
    lasti: i32,
    /// The awaited object.
    on: Option<u64>,
}

impl Frame {
    /// The frame of a coroutine that does not wait.
    fn without_place(state: CoroutineState, code: u64) -> Frame {
        Frame {
            state,
            code,
            lasti: 0,
            on: None,
        }
    }
}

/// Follows the chain that starts with `first`. `kind` gives the role of a type.
pub(super) fn follow(
    objects: &mut Objects<'_>,
    facts: &Facts,
    first: u64,
    mut kind: impl FnMut(&mut Objects<'_>, u64) -> Option<AwaitRole>,
) -> Option<Chain> {
    let mut chain = Chain {
        state: CoroutineState::Suspended,
        start: objects.type_of(first).filter(|_| first >> 47 == 0)?,
        frames: Vec::new(),
        seen: Vec::new(),
    };
    let mut at = first;
    for _ in 0..2 * MAX_COROUTINES {
        let class = objects.type_of(at)?;
        match kind(objects, class)? {
            AwaitRole::Frames => {
                let frame = read(objects, facts, at, &mut chain.seen)?;
                if chain.frames.is_empty() {
                    (chain.state, chain.start) = (frame.state, frame.code);
                }
                if matches!(
                    frame.state,
                    CoroutineState::Running | CoroutineState::Finished
                ) {
                    // An inner coroutine cannot run or be finished while an outer one is suspended.
                    return chain.frames.is_empty().then_some(chain);
                }
                chain.frames.push((frame.code, frame.lasti));
                match frame.on {
                    Some(on) => at = on,
                    None => return Some(chain),
                }
            }
            AwaitRole::Through => at = objects.pointer(at + 16)?,
            AwaitRole::Future | AwaitRole::Other => return Some(chain),
        }
    }
    None
}

/// Reads words, and notes them as those that the chain depends on.
struct Notes<'n, 'o> {
    objects: &'n mut Objects<'o>,
    seen: &'n mut Vec<(u64, u64)>,
}

impl Notes<'_, '_> {
    /// The word that holds `at`.
    fn word(&mut self, at: u64) -> Option<u64> {
        let word = self.objects.word(at & !7)?;
        self.seen.push((at & !7, word));
        Some(word)
    }

    fn byte(&mut self, at: u64) -> Option<u8> {
        Some((self.word(at)? >> (8 * (at & 7))) as u8)
    }
}

fn read(
    objects: &mut Objects<'_>,
    facts: &Facts,
    at: u64,
    seen: &mut Vec<(u64, u64)>,
) -> Option<Frame> {
    let suspended = objects.offsets.suspended;
    let notes = Notes { objects, seen };
    match suspended {
        Suspended::Within { .. } => read_within(notes, facts, at),
        Suspended::Pointer | Suspended::Depth => read_pointed(notes, facts, at),
    }
}

/// Reads a coroutine that holds its frame.
fn read_within(mut notes: Notes<'_, '_>, facts: &Facts, at: u64) -> Option<Frame> {
    let Suspended::Within {
        state,
        frame,
        depth,
        first,
        created,
        awaits,
    } = notes.objects.offsets.suspended
    else {
        return None;
    };
    let walk = &facts.layout.walk;
    let raw = notes.byte(at + u64::from(state))? as i8;
    let frame = at + u64::from(frame);
    let code = notes.word(frame + u64::from(walk.frame_code))? & ADDRESS;
    let state = match raw {
        // Its position changes all the time and is not needed.
        0 => return Some(Frame::without_place(CoroutineState::Running, code)),
        n if n == created => CoroutineState::Created,
        n if n < 0 => CoroutineState::Suspended,
        _ => return Some(Frame::without_place(CoroutineState::Finished, code)),
    };
    let instruction = notes.word(frame + u64::from(walk.frame_instr))?;
    let lasti = instruction.wrapping_sub(code + u64::from(walk.code_start)) as i64;
    let objects = notes.objects;
    let awaits = match (state, awaits) {
        (CoroutineState::Suspended, true) => raw == -1,
        // The next instruction tells whether it stopped in an await.
        (CoroutineState::Suspended, false) => {
            let next = instruction.checked_add(3)?;
            matches!(objects.byte(next)? & 3, 2 | 3)
        }
        _ => false,
    };
    let mut on = None;
    if awaits {
        let depth = frame + u64::from(depth);
        let end = match first {
            Some(first) => {
                let n = u64::try_from(objects.half(depth)?).ok()?;
                frame + u64::from(first) + 8 * (n & 0xffff)
            }
            None => objects.pointer(depth)?,
        };
        on = Some(objects.word(end.checked_sub(8)?)? & ADDRESS);
    }
    Some(Frame {
        state,
        code,
        lasti: lasti as i32,
        on,
    })
}

/// Reads a coroutine that points to its frame.
fn read_pointed(mut notes: Notes<'_, '_>, facts: &Facts, at: u64) -> Option<Frame> {
    let walk = &facts.layout.walk;
    let suspended = notes.objects.offsets.suspended;
    let frame = notes.word(at + 16)? & ADDRESS;
    if frame == 0 {
        return Some(Frame::without_place(CoroutineState::Finished, 0));
    }
    let code = notes.objects.pointer(frame + u64::from(walk.frame_code))?;
    let instruction = frame + u64::from(walk.frame_instr);
    let running = match suspended {
        Suspended::Pointer => notes.byte(at + 24)? != 0,
        _ => match notes.byte(frame + 108)? as i8 {
            0 => true,
            n if n < 0 => false,
            _ => return Some(Frame::without_place(CoroutineState::Finished, code)),
        },
    };
    if running {
        return Some(Frame::without_place(CoroutineState::Running, code));
    }
    let word = notes.word(instruction)?;
    let raw = (word >> (8 * (instruction & 7))) as i32;
    let lasti = raw << walk.lasti_shift;
    let state = match raw < 0 {
        true => CoroutineState::Created,
        false => CoroutineState::Suspended,
    };
    let objects = notes.objects;
    let mut on = None;
    if state == CoroutineState::Suspended {
        let bytes = objects.pointer(code + CODE_BYTES)?;
        let next = u64::try_from(lasti).ok()? + 2;
        if objects.byte(bytes + FIRST_BYTE + next)? == YIELD_FROM {
            let end = if suspended == Suspended::Pointer {
                objects.pointer(frame + 72)?
            } else {
                let depth = u64::try_from(objects.half(frame + 80)?).ok()?;
                objects.pointer(frame + 64)? + 8 * (depth & 0xffff)
            };
            on = Some(objects.word(end.checked_sub(8)?)? & ADDRESS);
        }
    }
    Some(Frame {
        state,
        code,
        lasti,
        on,
    })
}

/// Returns the address of a code object's name pointer with its value, and the checksum of the code
/// object (see `bpf/python_abi.h`).
pub(super) fn check(
    objects: &mut Objects<'_>,
    facts: &Facts,
    code: u64,
) -> Option<((u64, u64), u32)> {
    let o = &facts.layout.objects;
    let at = code + u64::from(o.name);
    let name = objects.word(at)?;
    let line = objects.half(code + u64::from(o.line))? as u32;
    Some(((at, name), code::check(name, line)))
}
