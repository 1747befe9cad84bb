//! CFI synthesis: unwind rules for code without unwind information, inferred from its instructions.
//!
//! Some C libraries (musl), browsers and programs built with `-fno-asynchronous-unwind-tables` have
//! no unwind information for most of their code. Every stack through such code would end there.
//!
//! * **By control flow**: all paths from a function's first instruction are walked. Pushes, pops
//!   and additions give the CFA offset and the slots of saved registers. A function counts only if
//!   it returns with the stack pointer restored. Where two paths disagree, no rule is given.
//!   Symbols and direct calls tell where functions begin. Code that nothing is seen to call is
//!   tried as a function, and as a target of the jump table before it. It counts only if it
//!   returns, joins known code, or has its address taken. Code that continues where its caller's
//!   registers point (Haskell's continuations) is not a function in this sense.
//! * **By frame pointer**: in files where undescribed functions begin with a frame-pointer
//!   prologue.
//! * **V8's builtins**: by control flow too, but only where they have no frame of their own
//!   (`builtins.rs`).
//!
//! If rbp is unknown, `cfa_offset.rs` infers the **CFA offset** of described code that uses rbp as its
//! base.
//!
//! `tests.rs` compares the results with the compilers' own information for the same code. At most
//! [`MAX_CODE_BYTES`] bytes of a file are walked, and jump tables are not read.

mod builtins;
pub(crate) mod cfa_offset;
mod state;
mod walk;

use crate::native::abi::End;
use crate::native::rules::RuleSet;
pub(crate) use builtins::synthesise_builtins;
pub(crate) use walk::CodeRange;
use walk::CodeWalker;

/// Maximum bytes of a file that are walked.
pub(crate) const MAX_CODE_BYTES: usize = 1 << 20;

/// Infers rules for all of `code` (sorted, at most [`MAX_CODE_BYTES`] bytes): for each range its (file
/// offset, rule id) pairs, sorted. `entries` are the addresses of known functions.
pub(crate) fn synthesise(
    code: &[CodeRange<'_>],
    entries: impl Iterator<Item = u64>,
    rules: &mut RuleSet,
) -> Vec<Vec<(u32, u32)>> {
    let (known, states) = CodeWalker::new(code, entries).walk_all();
    let ids: Vec<u32> = (states.iter()).map(|state| rules.id(state.row())).collect();
    const NO_RULE: u32 = End::NoInfo as u32;
    code.iter()
        .map(|range| {
            let mut rows = vec![(range.offset, NO_RULE)];
            let mut push = |at: u64, rule: u32| {
                let at = range.offset + (at - range.address) as u32;
                match rows.last_mut() {
                    Some(last) if last.0 == at => last.1 = rule,
                    Some(last) if last.1 == rule => {}
                    _ => rows.push((at, rule)),
                }
            };
            let mut reached = range.address;
            let first = known.partition_point(|(at, _)| *at < range.address);
            let here = known[first..]
                .iter()
                .take_while(|(at, _)| *at < range.end());
            for (at, known) in here {
                // Instructions may overlap where one path skips a prefix.
                if *at < reached {
                    continue;
                }
                push(reached, NO_RULE);
                push(*at, ids[known.state as usize]);
                reached = at + u64::from(known.len);
            }
            if reached < range.end() {
                push(reached, NO_RULE);
            }
            rows
        })
        .collect()
}

/// Whether functions in `code` (sorted) begin with a frame-pointer prologue. The test samples
/// targets of direct calls; three fifths of them must do so. A caller is missed where such a
/// function calls one without a frame.
pub(crate) fn keeps_frame_pointers<'d>(
    code: &[(u64, u64)],
    bytes: impl Fn(u64, u64) -> Option<&'d [u8]>,
) -> bool {
    const SAMPLES: u64 = 32;
    const SAMPLE_BYTES: u64 = 16 << 10;
    const MAX_CALLS_PER_SAMPLE: usize = 32;
    const MIN_CALLS: usize = 32;
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
        let Some(sample) = bytes(at, SAMPLE_BYTES.min(end - at)) else {
            continue;
        };
        let calls = sample.windows(5).enumerate().filter(|(_, w)| w[0] == CALL);
        let targets = calls.filter_map(|(i, w)| {
            let by = i32::from_le_bytes([w[1], w[2], w[3], w[4]]);
            let target = (at + i as u64 + 5).checked_add_signed(i64::from(by));
            target.filter(|t| holds(*t))
        });
        for target in targets.take(MAX_CALLS_PER_SAMPLE) {
            let Some(first) = bytes(target, 8) else {
                continue;
            };
            let first = first
                .strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa])
                .unwrap_or(first);
            all += 1;
            // push %rbp; mov %rsp, %rbp in both encodings
            let made = first.starts_with(&[0x55, 0x48, 0x89, 0xe5])
                || first.starts_with(&[0x55, 0x48, 0x8b, 0xec]);
            frames += usize::from(made);
        }
    }
    all >= MIN_CALLS && frames * 5 >= all * 3
}

#[cfg(test)]
mod tests;
