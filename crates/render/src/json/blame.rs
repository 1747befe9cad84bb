//! Waits beside their roots, for scripts.

use super::schema::{Blame, BlamePart, ExactBlame};
use wallscope_analysis::blame::NotFollowed;
use wallscope_analysis::view::{Analysis, BlameRow, ExactBlameRow};
use wallscope_model::BlockReason;

/// All rows.
pub(super) fn blame(analysis: &Analysis<'_>) -> Blame {
    let kept = analysis.recording.timeline.is_some();
    let exact = || analysis.exact_blame().into_iter().map(exact_part).collect();
    Blame {
        sampled: analysis.blame().into_iter().map(part).collect(),
        every_wait: kept.then(exact),
    }
}

fn part(row: BlameRow) -> BlamePart {
    BlamePart {
        waited_at: row.waited_at,
        reason: row.reason.map(BlockReason::name),
        waiters: row.waiters,
        because_of: row.because_of,
        root: row.root,
        root_state: row.state.name(),
        not_followed: row.open.map(NotFollowed::name),
        ns: row.ns,
        low_ns: row.low_ns,
        high_ns: row.high_ns,
    }
}

fn exact_part(row: ExactBlameRow) -> ExactBlame {
    ExactBlame {
        thread: row.waiter,
        reason: row.reason.map(BlockReason::name),
        because_of: row.because_of,
        root: row.root,
        root_state: row.state.name(),
        not_followed: row.open.map(NotFollowed::name),
        ns: row.ns,
    }
}
