//! What a suspended coroutine awaits: from the task's own coroutine to the one that awaits no other.
//!
//! Where a coroutine stands is in its frame; what it awaits is on top of that frame's stack, and is
//! another coroutine, something that leads to one, or what will be brought. All that was relied on is
//! kept ([`Chain::seen`]), so that it can be read again at the end: if it still holds, nothing moved.

use super::super::{Facts, code};
use super::objects::{HEAP_TYPE, Objects};
use super::places::{Places, Suspended};

/// Most coroutines of one task.
const MOST_FRAMES: usize = 256;
/// In the instructions to 3.10: "give what the thing on top gives".
const YIELD_FROM: u8 = 72;
/// In a code object to 3.10: its instructions; in `bytes`: their first one.
const CODE_BYTES: u64 = 48;
const FIRST_BYTE: u64 = 32;

/// Of a reference, the part that is an address: from 3.14 on some carry marks.
const ADDRESS: u64 = (1 << 47) - 8;

/// What a type is to a chain of awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A coroutine or generator: has a frame.
    Frames,
    /// Hands on to the object whose address is its first word.
    Through,
    /// Waits for the future whose address is its first word.
    Future,
    /// Anything else.
    Other,
}

impl Kind {
    /// Of `class`.
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

/// What a coroutine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Has not begun.
    Created,
    /// Waits in an `await` or a `yield`.
    Suspended,
    /// Is on a thread.
    Running,
    /// Will never run again.
    Finished,
}

/// A task's coroutines.
#[derive(Debug)]
pub(super) struct Chain {
    /// What the first one does.
    pub state: State,
    /// Its code object; its class, where it has none.
    pub start: u64,
    /// Code object and offset of the instruction in bytes, first coroutine first.
    pub frames: Vec<(u64, i32)>,
    /// Where was read what this rests on, and what was there.
    pub seen: Vec<(u64, u64)>,
}

/// A coroutine's frame.
struct Frame {
    state: State,
    code: u64,
    lasti: i32,
    /// What it awaits.
    on: Option<u64>,
}

impl Frame {
    /// Of one that does not wait.
    fn without_place(state: State, code: u64) -> Frame {
        Frame {
            state,
            code,
            lasti: 0,
            on: None,
        }
    }
}

/// The chain that begins with `first`. `kind` tells the kinds of types.
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
                    // An inner one cannot be so while an outer one is suspended.
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
                // Where it is changes all the time, and is of no interest.
                0 => return Some(Frame::without_place(State::Running, code)),
                n if n == created => State::Created,
                n if n < 0 => State::Suspended,
                _ => return Some(Frame::without_place(State::Finished, code)),
            };
            let instruction = note(objects, frame + u64::from(walk.frame_instr))?;
            let lasti = instruction.wrapping_sub(code + u64::from(walk.code_start)) as i64;
            let awaits = match (state, awaits) {
                (State::Suspended, true) => raw == -1,
                // The instruction that it goes on with says which way it stopped.
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

/// Where a code object has the address of its name, and that, with what tells it from others at its
/// address (see `bpf/python_abi.h`).
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
