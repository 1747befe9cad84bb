//! Whether a return address is that of a call of the function that a program counter lies in.
//!
//! A wait of some microseconds is over before the memory of its thread is copied. The copy mostly still shows the
//! stack of the wait: the thread has just come back to its CPU, and a caller's frame stays until the caller returns.
//! The copy is believed if the code in front of the innermost return address is a call to the function in which the
//! thread was seen to wait, directly or by the table that the loader has filled. Calls by pointer are not followed.

use rustc_hash::FxHashMap;
use wallscope_unwind::native::{FrameWord, Registers, StackStart, Unwound};

use super::waiting::Pages;

/// Longest time after a wait at which a copy may be taken for its stack, ns.
pub const SOON: u64 = 20_000;
/// Most bytes from the begin of a function to its wait: functions that make system calls are short.
const INTO: u64 = 512;
/// Words of a stack among which the return address is looked for.
const WORDS: usize = 256;
/// Jumps that lead from a call to its function.
const JUMPS: u32 = 3;

/// Results for pairs of frames: the innermost one, and its supposed caller.
#[derive(Default)]
pub struct CallSiteCheck {
    known: FxHashMap<(u32, FrameWord, FrameWord), bool>,
}

impl CallSiteCheck {
    /// Whether the second of `frames`, which were unwound from `pages`, has called the first. `unwind`: unwinds
    /// without memory.
    pub fn proves(
        &mut self,
        pages: &Pages,
        frames: &[FrameWord],
        mut unwind: impl FnMut(StackStart<'_>) -> Unwound,
    ) -> bool {
        let pid = pages.pid();
        let [inner, caller, ..] = *frames else {
            return false;
        };
        if !inner.is_exact() || caller.is_exact() {
            return false;
        }
        *self.known.entry((pid, inner, caller)).or_insert_with(|| {
            let is_caller = |at: &u64| {
                let registers = Registers {
                    ip: *at,
                    ..Registers::default()
                };
                let start = StackStart::new(pid, &registers).at_most(1);
                let alone = unwind(start);
                let same =
                    |w: &FrameWord| (w.file(), w.offset()) == (caller.file(), caller.offset());
                alone.frames.first().is_some_and(same)
            };
            let mut words = pages.words().take(WORDS);
            let read = |at, to: &mut [u8]| crate::target::read_memory(pid, at, to) == to.len();
            words
                .find(is_caller)
                .and_then(|at| target(at, read))
                .is_some_and(|begin| (begin..begin.saturating_add(INTO)).contains(&pages.pc()))
        })
    }
}

/// Target of the call in front of the return address `at`; `None`: there is no call, or it is by a register.
fn target(at: u64, read: impl Fn(u64, &mut [u8]) -> bool) -> Option<u64> {
    let word = |at| {
        let mut bytes = [0u8; 8];
        read(at, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let by = |at: u64, bytes: [u8; 4]| at.checked_add_signed(i32::from_le_bytes(bytes).into());
    let mut code = [0u8; 6];
    if !read(at.checked_sub(6)?, &mut code) {
        return None;
    }
    let mut to = match code {
        [_, 0xe8, a, b, c, d] => by(at, [a, b, c, d])?,
        [0xff, 0x15, a, b, c, d] => word(by(at, [a, b, c, d])?)?,
        _ => return None,
    };
    // endbr64, and a prefix that older linkers gave jumps.
    const LANDS: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const BOUND: u8 = 0xf2;
    for _ in 0..JUMPS {
        let mut code = [0u8; 16];
        if !read(to, &mut code) {
            return None;
        }
        let mut from = if code.starts_with(&LANDS) { 4 } else { 0 };
        from += usize::from(code[from] == BOUND);
        let next = to.checked_add(from as u64)?;
        to = match code[from..] {
            [0xff, 0x25, a, b, c, d, ..] => word(by(next.checked_add(6)?, [a, b, c, d])?)?,
            [0xe9, a, b, c, d, ..] => by(next.checked_add(5)?, [a, b, c, d])?,
            _ => return Some(to),
        };
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory with code and tables at some addresses; no other address can be read.
    fn memory(pieces: &[(u64, Vec<u8>)]) -> impl Fn(u64, &mut [u8]) -> bool + '_ {
        |at, to| {
            let found = pieces.iter().find_map(|(begin, bytes)| {
                let from = usize::try_from(at.checked_sub(*begin)?).ok()?;
                bytes.get(from..from + to.len())
            });
            found.is_some_and(|bytes| {
                to.copy_from_slice(bytes);
                true
            })
        }
    }

    fn with_distance(code: &[u8], from: u64, to: u64) -> Vec<u8> {
        let by = i32::try_from(to.wrapping_sub(from) as i64).unwrap();
        [code, &by.to_le_bytes()].concat()
    }

    #[test]
    fn calls_are_followed_to_their_functions() {
        let function = (0x9000, vec![0xb8; 32]);
        let slot = (0x5000, 0x9000u64.to_le_bytes().to_vec());
        let padded = |mut code: Vec<u8>| {
            code.resize(16, 0x90);
            code
        };
        // A direct call, after any byte.
        let straight = (0x1000, with_distance(&[0x90, 0xe8], 0x1006, 0x9000));
        assert_eq!(
            target(0x1006, memory(&[straight, function.clone()])),
            Some(0x9000)
        );
        // By the loader's table.
        let table = (0x1000, with_distance(&[0xff, 0x15], 0x1006, 0x5000));
        let all = [table, slot.clone(), function.clone()];
        assert_eq!(target(0x1006, memory(&all)), Some(0x9000));
        // By a stub, in each of its forms.
        for (before, jump) in [
            (0, &[][..]),
            (4, &[0xf3, 0x0f, 0x1e, 0xfa][..]),
            (5, &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2]),
        ] {
            let call = (0x1000, with_distance(&[0x90, 0xe8], 0x1006, 0x3000));
            let code = with_distance(&[jump, &[0xff, 0x25]].concat(), 0x3000 + before + 6, 0x5000);
            let all = [call, (0x3000, padded(code)), slot.clone(), function.clone()];
            assert_eq!(target(0x1006, memory(&all)), Some(0x9000), "{before}");
        }
        let call = (0x1000, with_distance(&[0x90, 0xe8], 0x1006, 0x3000));
        let jump = (0x3000, padded(with_distance(&[0xe9], 0x3005, 0x9000)));
        assert_eq!(
            target(0x1006, memory(&[call, jump, function])),
            Some(0x9000)
        );
    }

    #[test]
    fn code_without_a_call_proves_nothing() {
        // call *%rax, and bytes that are not there.
        let by_register = (0x1000, vec![0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]);
        assert_eq!(target(0x1006, memory(&[by_register])), None);
        assert_eq!(target(0x1006, memory(&[])), None);
        assert_eq!(target(3, memory(&[])), None);
        // A jump to itself ends.
        let call = (0x1000, with_distance(&[0x90, 0xe8], 0x1006, 0x3000));
        let mut jump = with_distance(&[0xe9], 0x3005, 0x3000);
        jump.resize(16, 0x90);
        assert_eq!(
            target(0x1006, memory(&[call, (0x3000, jump)])),
            Some(0x3000)
        );
        let wild = (0x1000, with_distance(&[0x90, 0xe8], 0x1006, 0x7000));
        assert_eq!(target(0x1006, memory(&[wild])), None);
    }
}
