//! Code that nothing describes: how its frames are left, told from what its instructions do.
//!
//! Some C libraries (musl), browsers and programs built with `-fno-asynchronous-unwind-tables` have no
//! unwind information for most of their code, and each stack that passes through would end there.
//!
//! * **By following it**: from each function's first instruction all ways are walked, counting what
//!   pushes, pops and additions do to the stack pointer, and where preserved registers are kept. A
//!   function counts only if it returns with the stack as it was; where two ways disagree, nothing is
//!   said. Where functions begin is told by symbols and direct calls; stretches that nobody is seen to
//!   call are tried as functions, and as targets of the jump table before them, and count only if they
//!   prove it by returning, or by joining what is known, or where their address is taken. Code that goes on
//!   where its caller's registers lead (Haskell's continuations) is no such function.
//! * **By frame pointer**, in files whose undescribed functions begin by making a frame.
//!
//! * **V8's own functions** likewise, but only for where they have no frame of their own (`builtins.rs`).
//!
//! **How high a frame is**, of described code that finds it by rbp, is told in the same way where rbp is
//! not known (`height.rs`).
//!
//! Held against compilers' own descriptions of the same code (`tests.rs`). It is not done for
//! more than [`MOST`] bytes of a file, and does not read tables of jumps.

mod builtins;
pub(crate) mod height;
mod state;
mod walk;

use crate::native::abi::End;
use crate::native::rules::RuleSet;
pub(crate) use builtins::builtins;
use walk::Follower;

/// Bytes of a file that are followed at most.
pub(crate) const MOST: usize = 1 << 20;

/// A stretch of undescribed code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch<'d> {
    /// Where it is linked at.
    pub address: u64,
    /// Where it lies in the file.
    pub offset: u32,
    pub bytes: &'d [u8],
}

impl Stretch<'_> {
    fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }
}

/// How the frames of `code` (sorted, at most [`MOST`] bytes) are left: (file offset, rule id), sorted,
/// for all of it. `entries` are addresses at which functions are known to begin.
pub(crate) fn follow(
    code: &[Stretch<'_>],
    entries: impl Iterator<Item = u64>,
    rules: &mut RuleSet,
) -> Vec<Vec<(u32, u32)>> {
    let (known, states) = Follower::new(code, entries).follow_all();
    let ids: Vec<u32> = (states.iter()).map(|state| rules.id(state.row())).collect();
    const UNTOLD: u32 = End::NoInfo as u32;
    code.iter()
        .map(|stretch| {
            let mut rows = vec![(stretch.offset, UNTOLD)];
            let mut push = |at: u64, rule: u32| {
                let at = stretch.offset + (at - stretch.address) as u32;
                match rows.last_mut() {
                    Some(last) if last.0 == at => last.1 = rule,
                    Some(last) if last.1 == rule => {}
                    _ => rows.push((at, rule)),
                }
            };
            let mut reached = stretch.address;
            let first = known.partition_point(|(at, _)| *at < stretch.address);
            let here = known[first..]
                .iter()
                .take_while(|(at, _)| *at < stretch.end());
            for (at, known) in here {
                // Instructions may overlap where one way skips a prefix.
                if *at < reached {
                    continue;
                }
                push(reached, UNTOLD);
                push(*at, ids[known.state as usize]);
                reached = at + u64::from(known.len);
            }
            if reached < stretch.end() {
                push(reached, UNTOLD);
            }
            rows
        })
        .collect()
}

/// Whether functions in `code` (sorted) begin by making a frame: of the targets of direct calls, found in
/// samples of it, most do. Where one calls what does not, its frame is passed over.
pub(crate) fn keeps_frame_pointers<'d>(
    code: &[(u64, u64)],
    bytes: impl Fn(u64, u64) -> Option<&'d [u8]>,
) -> bool {
    const SAMPLES: u64 = 32;
    const SAMPLE: u64 = 16 << 10;
    const CALLS: usize = 32;
    const LEAST: usize = 32;
    const CALL: u8 = 0xe8;
    let total: u64 = code.iter().map(|(start, end)| end - start).sum();
    let holds = |at: u64| {
        let after = code.partition_point(|(start, _)| *start <= at);
        code[..after].last().is_some_and(|(_, end)| at < *end)
    };
    let (mut all, mut frames) = (0, 0);
    for n in 0..SAMPLES {
        let mut skip = total / SAMPLES * n;
        let Some((start, end)) = code.iter().find(|(start, end)| {
            let here = skip < end - start;
            skip -= if here { 0 } else { end - start };
            here
        }) else {
            continue;
        };
        let at = start + skip;
        let Some(sample) = bytes(at, SAMPLE.min(end - at)) else {
            continue;
        };
        let calls = sample.windows(5).enumerate().filter(|(_, w)| w[0] == CALL);
        let targets = calls.filter_map(|(i, w)| {
            let by = i32::from_le_bytes([w[1], w[2], w[3], w[4]]);
            let target = (at + i as u64 + 5).checked_add_signed(i64::from(by));
            target.filter(|t| holds(*t))
        });
        for target in targets.take(CALLS) {
            let Some(first) = bytes(target, 8) else {
                continue;
            };
            let first = first
                .strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa])
                .unwrap_or(first);
            all += 1;
            // push %rbp; mov %rsp, %rbp in its two encodings
            let made = first.starts_with(&[0x55, 0x48, 0x89, 0xe5])
                || first.starts_with(&[0x55, 0x48, 0x8b, 0xec]);
            frames += usize::from(made);
        }
    }
    all >= LEAST && frames * 5 >= all * 3
}

#[cfg(test)]
mod tests;
