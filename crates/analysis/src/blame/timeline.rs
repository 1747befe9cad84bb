//! Blame of every single wait, where a recording kept its intervals (`--timeline`).
//!
//! Intervals have wakers and no stacks. So a wait is followed exactly in time, from thread to
//! thread, and a root is a thread in a state.

use std::collections::HashMap;

use wallscope_model::{BlockReason, ContextId, Interval, Lane, Part, Recording, State, Timeline};

use super::follow::is_end;
use super::root::NotFollowed;

/// Most threads of a chain.
const MAX_HOPS: usize = 16;
/// Maximum number of parts in all. It bounds the time of one reading: about a second for each 10
/// million parts.
const MAX_PARTS: u64 = 20_000_000;

/// A kind of wait of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Waiter {
    /// The thread that waits.
    pub context: ContextId,
    /// The block reason.
    pub reason: Option<BlockReason>,
    /// Whether the wait was idle.
    pub idle: bool,
}

/// A thread in a state, at the end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadRoot {
    /// The thread.
    pub context: ContextId,
    /// Its state; [`State::Unknown`]: not known.
    pub state: State,
    /// For blocked time: the block reason.
    pub reason: Option<BlockReason>,
    /// For runnable time: the part.
    pub part: Option<Part>,
    /// Cause for which the chain was not followed further.
    pub open: Option<NotFollowed>,
}

/// Time of one kind of wait that one root explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactBlame {
    /// The wait.
    pub waiter: Waiter,
    /// Its root.
    pub root: ThreadRoot,
    /// Time, ns.
    pub ns: u64,
}

/// Every blocked interval of a timeline, charged to roots; empty: no intervals were kept. For each
/// waiter the times sum to its blocked intervals.
pub fn blame(recording: &Recording) -> Vec<ExactBlame> {
    let Some(timeline) = &recording.timeline else {
        return Vec::new();
    };
    let mut walk = Walk {
        timeline,
        sums: HashMap::new(),
        parts: 0,
        chain: Vec::new(),
    };
    for lane in &timeline.lanes {
        for wait in lane.intervals.iter().filter(|i| i.state == State::Blocked) {
            let waiter = Waiter {
                context: lane.context,
                reason: wait.reason,
                idle: wait.idle,
            };
            let span = (wait.start_ns, wait.end_ns());
            walk.wait(waiter, lane.context, wait, span);
        }
    }
    let mut rows: Vec<ExactBlame> = (walk.sums.into_iter())
        .filter(|(_, ns)| *ns > 0)
        .map(|((waiter, root), ns)| ExactBlame { waiter, root, ns })
        .collect();
    rows.sort_by(|a, b| {
        let order = |r: &ExactBlame| (r.waiter, r.root);
        b.ns.cmp(&a.ns).then_with(|| order(a).cmp(&order(b)))
    });
    rows
}

struct Walk<'t> {
    timeline: &'t Timeline,
    sums: HashMap<(Waiter, ThreadRoot), u64>,
    parts: u64,
    /// Threads of the chain so far.
    chain: Vec<ContextId>,
}

impl Walk<'_> {
    fn charge(&mut self, waiter: Waiter, root: ThreadRoot, (from, to): (u64, u64)) {
        self.parts += 1;
        *self.sums.entry((waiter, root)).or_default() += to - from;
    }

    /// Charges the part `span` of a blocked interval of `thread`.
    fn wait(&mut self, waiter: Waiter, thread: ContextId, wait: &Interval, span: (u64, u64)) {
        let root = |open| ThreadRoot {
            context: thread,
            state: State::Blocked,
            reason: wait.reason,
            part: None,
            open,
        };
        if is_end(wait.reason) {
            return self.charge(waiter, root(None), span);
        }
        let Some(waker) = wait.waker.filter(|waker| *waker != thread) else {
            return self.charge(waiter, root(Some(NotFollowed::WakerNotSeen)), span);
        };
        if self.chain.len() >= MAX_HOPS || self.parts >= MAX_PARTS {
            return self.charge(waiter, root(Some(NotFollowed::TooDeep)), span);
        }
        if self.chain.contains(&waker) {
            return self.charge(waiter, root(Some(NotFollowed::Circle)), span);
        }
        self.chain.push(thread);
        self.meanwhile(waiter, waker, span);
        self.chain.pop();
    }

    /// Charges `span` to the activity of `thread` in it.
    fn meanwhile(&mut self, waiter: Waiter, thread: ContextId, (from, to): (u64, u64)) {
        let timeline = self.timeline;
        let intervals = timeline
            .lane(thread)
            .map_or(&[][..], |l: &Lane| &l.intervals);
        let first = intervals.partition_point(|i| i.end_ns() <= from);
        let gap = ThreadRoot {
            context: thread,
            state: State::Unknown,
            reason: None,
            part: None,
            open: Some(NotFollowed::Gap),
        };
        let mut at = from;
        for i in intervals[first..].iter().take_while(|i| i.start_ns < to) {
            let (begin, end) = (i.start_ns.max(at), i.end_ns().min(to));
            if begin > at {
                self.charge(waiter, gap, (at, begin));
            }
            if end <= begin {
                at = at.max(begin);
                continue;
            }
            if i.state == State::Blocked {
                self.wait(waiter, thread, i, (begin, end));
            } else {
                let root = ThreadRoot {
                    context: thread,
                    state: i.state,
                    reason: None,
                    part: i.part,
                    open: None,
                };
                self.charge(waiter, root, (begin, end));
            }
            at = end;
        }
        if at < to {
            self.charge(waiter, gap, (at, to));
        }
    }
}
