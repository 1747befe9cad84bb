//! Waits for a collector that only stacks show: their reason becomes `gc`.
//!
//! The kernel programs know the places at which HotSpot stops threads. Other threads wait for a collector at locks
//! and conditions that have no place of their own: allocations that ZGC and Shenandoah stall, and V8's main thread,
//! which waits for its helpers. The kernel counts these as waits for a lock. Only a function of the collector on the
//! stack identifies them, so their time is an estimate from samples. It moves from `lock` to `gc`, in the ledger and
//! in each slice, up to the ledger's time. All sums stay unchanged.

use std::collections::HashMap;

use wallscope_model::scale::scale;
use wallscope_model::{BlockReason, LedgerSlices, Recording, StackId, State};

use crate::frames::{Side, passes};
use crate::knowledge::STALLS;
use crate::words;

/// Start of the domain's note.
const NOTE: &str = "garbage collection: ";

const LOCK: usize = BlockReason::Lock as usize;
const GC: usize = BlockReason::Gc as usize;

/// Sets the reason `gc` on waits with a collector's function on the stack. The recording is symbolised.
pub(crate) fn mark(recording: &mut Recording) {
    let mut stalls: HashMap<StackId, bool> = HashMap::new();
    let found: Vec<usize> = (recording.samples.iter().enumerate())
        .filter(|(_, s)| s.state == State::Blocked && s.reason == Some(BlockReason::Lock))
        .filter(|(_, s)| {
            let stack = s.stack;
            *stalls
                .entry(stack)
                .or_insert_with(|| passes(recording, stack, Side::User, STALLS))
        })
        .map(|(i, _)| i)
        .collect();
    // Without slices it is not known how much of them the ledger has.
    if found.is_empty() || recording.ledger_slices.iter().next().is_none() {
        return;
    }
    let moved = moved_by_slice(recording, &found);
    for i in found {
        recording.samples[i].reason = Some(BlockReason::Gc);
    }
    let ns = move_time(recording, moved);
    recording.domain.notes.push(format!(
        "{NOTE}{} of waits count as gc and not as lock because a collector's function is on their stacks \
         (an estimate)",
        words::time(ns)
    ));
}

/// Whether stacks showed a part of the waits for a collector, so that their total is an estimate.
pub(crate) fn estimated(recording: &Recording) -> bool {
    recording
        .domain
        .notes
        .iter()
        .any(|note| note.starts_with(NOTE))
}

/// Scaled time of these samples, ns, by context and slice.
fn moved_by_slice(recording: &Recording, samples: &[usize]) -> HashMap<(u32, u32), u64> {
    let mut moved: HashMap<(u32, u32), u64> = HashMap::new();
    for piece in scale(recording).pieces {
        if samples.binary_search(&(piece.sample as usize)).is_err() {
            continue;
        }
        let sample = &recording.samples[piece.sample as usize];
        let each = piece.ns as f64 / sample.ns.max(1) as f64;
        for v in &sample.slices {
            let at = (piece.context.0, v.slice);
            *moved.entry(at).or_default() += (v.ns as f64 * each) as u64;
        }
    }
    moved
}

/// Moves time from `lock` to `gc`; returns how much, ns.
fn move_time(recording: &mut Recording, mut moved: HashMap<(u32, u32), u64>) -> u64 {
    let (mut rows, mut total) = (LedgerSlices::default(), 0);
    for mut row in recording.ledger_slices.iter() {
        let wanted = moved.remove(&(row.context, row.slice)).unwrap_or(0);
        let ledger = recording.contexts.get_mut(row.context as usize);
        if let Some(blocked) = ledger.map(|c| &mut c.ledger.blocked) {
            let ns = wanted.min(row.blocked[LOCK]).min(blocked[LOCK]);
            for reasons in [&mut row.blocked, blocked] {
                reasons[LOCK] -= ns;
                reasons[GC] += ns;
            }
            total += ns;
        }
        rows.push(row);
    }
    recording.ledger_slices = rows;
    total
}
