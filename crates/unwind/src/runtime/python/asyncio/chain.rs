//! Follows the awaits of a suspended coroutine, from the task's own coroutine to the innermost one.
//!
//! A coroutine's position is in its frame. The awaited object is on top of that frame's stack. It
//! is another coroutine, an object that leads to one, or a future. All words that the result
//! depends on are kept in [`Chain::seen`] and read again at the end. If they are unchanged, nothing
//! moved.

use super::super::{Facts, code};
use super::objects::{HEAP_TYPE, Objects};
use super::places::{Places, Suspended};

/// Maximum coroutines of one task.
const MOST_FRAMES: usize = 256;
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
pub(super) enum Kind {
    /// A coroutine or generator, which has a frame.
    Frames,
    /// Passes on to the object that its first word points to.
    Through,
    /// Waits for the future that its first word points to.
    Future,
    /// Any other type.
    Other,
}

impl Kind {
    /// The role of `class`.
    pub(super) fn of(objects: &mut Objects<'_>, class: u64) -> Option<Kind> {
        let name = objects.type_name(class)?;
        // Classes written in Python may have any of these names.
        let of_python = objects.type_flags(class)? & HEAP_TYPE != 0;
        Some(match name.as_str() {
            "_asyncio.FutureIter" => Kind::Future,
            _ if of_python => Kind::Other,
            "coroutine" | "generator" | "async_generator" => Kind::Frames,
            "async_generator_asend"
            | "async_generator_athrow"
            | "coroutine_wrapper"
            | "anext_awaitable" => Kind::Through,
            _ => Kind::Other,
        })
    }
}

/// State of a coroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
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
    pub state: State,
    /// Its code object, or its class if it has none.
    pub start: u64,
    /// Code object and offset of the instruction in bytes, first coroutine first.
    pub frames: Vec<(u64, i32)>,
    /// Addresses that the result depends on, with the words read there.
    pub seen: Vec<(u64, u64)>,
}

/// The frame of a coroutine.
struct Frame {
    state: State,
    code: u64,
    lasti: i32,
    /// The awaited object.
    on: Option<u64>,
}

impl Frame {
    /// The frame of a coroutine that does not wait.
    fn without_place(state: State, code: u64) -> Frame {
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
    mut kind: impl FnMut(&mut Objects<'_>, u64) -> Option<Kind>,
) -> Option<Chain> {
    let mut chain = Chain {
        state: State::Suspended,
        start: objects.type_of(first).filter(|_| first >> 47 == 0)?,
        frames: Vec::new(),
        seen: Vec::new(),
    };
    let mut at = first;
    for _ in 0..2 * MOST_FRAMES {
        let class = objects.type_of(at)?;
        match kind(objects, class)? {
            Kind::Frames => {
                let frame = read(objects, facts, at, &mut chain.seen)?;
                if chain.frames.is_empty() {
                    (chain.state, chain.start) = (frame.state, frame.code);
                }
                if matches!(frame.state, State::Running | State::Finished) {
                    // An inner coroutine cannot run or be finished while an outer one is suspended.
                    return chain.frames.is_empty().then_some(chain);
                }
                chain.frames.push((frame.code, frame.lasti));
                match frame.on {
                    Some(on) => at = on,
                    None => return Some(chain),
                }
            }
            Kind::Through => at = objects.pointer(at + 16)?,
            Kind::Future | Kind::Other => return Some(chain),
        }
    }
    None
}

fn read(
    objects: &mut Objects<'_>,
    facts: &Facts,
    at: u64,
    seen: &mut Vec<(u64, u64)>,
) -> Option<Frame> {
    let places: &Places = objects.places;
    let walk = &facts.layout.walk;
    let mut note = |objects: &mut Objects<'_>, at: u64| -> Option<u64> {
        let word = objects.word(at & !7)?;
        seen.push((at & !7, word));
        Some(word)
    };
    let byte = |word: u64, at: u64| (word >> (8 * (at & 7))) as u8;
    match places.suspended {
        Suspended::Within {
            state,
            frame,
            depth,
            first,
            created,
            awaits,
        } => {
            let state_at = at + u64::from(state);
            let raw = byte(note(objects, state_at)?, state_at) as i8;
            let frame = at + u64::from(frame);
            let code = note(objects, frame + u64::from(walk.frame_code))? & ADDRESS;
            let state = match raw {
                // Its position changes all the time and is not needed.
                0 => return Some(Frame::without_place(State::Running, code)),
                n if n == created => State::Created,
                n if n < 0 => State::Suspended,
                _ => return Some(Frame::without_place(State::Finished, code)),
            };
            let instruction = note(objects, frame + u64::from(walk.frame_instr))?;
            let lasti = instruction.wrapping_sub(code + u64::from(walk.code_start)) as i64;
            let awaits = match (state, awaits) {
                (State::Suspended, true) => raw == -1,
                // The next instruction tells whether it stopped in an await.
                (State::Suspended, false) => {
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
        Suspended::Pointer | Suspended::Depth => {
            let frame = note(objects, at + 16)? & ADDRESS;
            if frame == 0 {
                return Some(Frame::without_place(State::Finished, 0));
            }
            let code = objects.pointer(frame + u64::from(walk.frame_code))?;
            let instruction = frame + u64::from(walk.frame_instr);
            let running = match places.suspended {
                Suspended::Pointer => byte(note(objects, at + 24)?, at + 24) != 0,
                _ => match byte(note(objects, frame + 108)?, frame + 108) as i8 {
                    0 => true,
                    n if n < 0 => false,
                    _ => return Some(Frame::without_place(State::Finished, code)),
                },
            };
            if running {
                return Some(Frame::without_place(State::Running, code));
            }
            let word = note(objects, instruction)?;
            let raw = (word >> (8 * (instruction & 7))) as i32;
            let lasti = raw << walk.lasti_shift;
            let state = match raw < 0 {
                true => State::Created,
                false => State::Suspended,
            };
            let mut on = None;
            if state == State::Suspended {
                let bytes = objects.pointer(code + CODE_BYTES)?;
                let next = u64::try_from(lasti).ok()? + 2;
                if objects.byte(bytes + FIRST_BYTE + next)? == YIELD_FROM {
                    let end = if places.suspended == Suspended::Pointer {
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
    }
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
