//! Samples on their way from the ring to the recording.
//!
//! A sample of blocked time may carry a *ticket* instead of a user stack: the thread reads its own stack a
//! moment later, and a resolve event names it. Until then the sample waits here. A sample that is never
//! resolved keeps its time and the reason for its missing stack.

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::histogram::FINE;
use wallscope_model::{SliceValue, Slices, StackEnd};
use wallscope_observe::CodeChanges;

use super::{
    jit,
    peers::Peers,
    sample_key::{self, Moves, SampleKey, SampleSum, UserPart},
};
use crate::event::{
    Resolve, SAMPLE_AWAITS, SAMPLE_DEFERRED, SAMPLE_IN_FLIGHT, SAMPLE_NO_USER, SAMPLE_OPEN,
    SAMPLE_TALKS, SAMPLE_USER_MODE, SampleEvent, state,
};

/// All samples so far.
pub struct Samples {
    sums: FxHashMap<SampleKey, SampleSum>,
    /// Programs that each process has left, by exec.
    left: FxHashMap<u32, u32>,
    /// User stacks with code outside all files.
    unfiled: FxHashSet<u64>,
    /// Times at which addresses changed their meaning, by process.
    changes: FxHashMap<u32, Vec<u64>>,
    /// Samples by the ticket of their stack, with the number of programs left before.
    waiting: FxHashMap<u64, Vec<(SampleEvent, u32)>>,
    /// Stacks read ahead of the wake-up, by thread: (ticket, hash).
    ahead: FxHashMap<u64, (u64, u64)>,
    grid: Slices,
    /// Values by slice of all samples.
    rows: usize,
    /// Connections, and the senders of the requests on them.
    pub peers: Peers,
    /// Samples with a ticket that was never resolved.
    pub unresolved: u64,
    /// Samples with their stacks, since they were last taken.
    pub done: Vec<(SampleKey, SampleEvent)>,
    /// Waits that are not over at the end.
    pub open: Vec<(SampleKey, SampleEvent)>,
    /// Each sample of time, where they are wanted one by one: begin, end, weight, count.
    pub each: Option<Vec<(SampleKey, [u64; 4])>>,
    /// A command that was let go and has not reached its exec.
    before_exec: Option<u32>,
}

impl Samples {
    /// An empty set on the given division of time.
    pub fn new(grid: Slices) -> Samples {
        Samples {
            sums: FxHashMap::default(),
            left: FxHashMap::default(),
            unfiled: FxHashSet::default(),
            changes: FxHashMap::default(),
            waiting: FxHashMap::default(),
            ahead: FxHashMap::default(),
            grid,
            rows: 0,
            peers: Peers::default(),
            unresolved: 0,
            done: Vec::new(),
            open: Vec::new(),
            each: None,
            before_exec: None,
        }
    }

    /// Process `pid` runs another program: samples from here on belong to that program.
    pub fn exec(&mut self, pid: u32) {
        self.before_exec.take_if(|held| *held == pid);
        *self.left.entry(pid).or_default() += 1;
    }

    /// The command `pid` was let go. Until its exec it is a copy of this program, and no stack of it
    /// is the command's.
    pub fn released(&mut self, pid: u32) {
        self.before_exec = Some(pid);
    }

    /// The stack with this hash runs through code outside all files.
    pub fn unfiled(&mut self, hash: u64) {
        self.unfiled.insert(hash);
    }

    /// Whether the stack with this hash runs through code outside all files.
    pub fn is_unfiled(&self, hash: u64) -> bool {
        self.unfiled.contains(&hash)
    }

    /// Addresses of a process changed their meaning.
    pub fn changed(&mut self, changes: &CodeChanges) {
        let all = self.changes.entry(changes.pid).or_default();
        all.truncate(changes.kept as usize);
        all.extend(&changes.times);
    }

    fn version(&self, pid: u32, user: UserPart, time: u64) -> u64 {
        match (user, self.changes.get(&pid)) {
            (UserPart::Hash(hash), Some(changes)) if self.is_unfiled(hash) => {
                jit::version(changes, time)
            }
            _ => 0,
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self, s: &SampleEvent) {
        if self.before_exec == Some(s.pid) {
            return;
        }
        let former = self.left.get(&s.pid).copied().unwrap_or(0);
        if s.flags & SAMPLE_DEFERRED != 0 {
            self.waiting.entry(s.ustack).or_default().push((*s, former));
        } else if s.flags & SAMPLE_NO_USER != 0 {
            self.add(s, former, UserPart::Missing(StackEnd::KernelOnly));
        } else if s.ustack == 0 {
            self.add(s, former, UserPart::Missing(StackEnd::Gone));
        } else {
            self.add(s, former, UserPart::Hash(s.ustack));
        }
    }

    /// Whether samples wait for the stack of a ticket.
    pub fn is_awaited(&self, ticket: u64) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// A ticket's stack is known.
    pub fn resolve(&mut self, r: &Resolve) {
        let user = if r.ustack == 0 {
            UserPart::Missing(StackEnd::Gone)
        } else {
            UserPart::Hash(r.ustack)
        };
        let waiting = self.waiting.remove(&r.ticket).unwrap_or_default();
        if waiting.is_empty() {
            self.ahead.insert(r.id, (r.ticket, r.ustack));
        } else {
            self.ahead.remove(&r.id);
        }
        for (s, former) in &waiting {
            self.add(s, *former, user);
        }
    }

    /// Notes that a thread is gone: its samples without a stack get the stack read ahead, or none.
    pub fn thread_gone(&mut self, id: u64) {
        if let Some((ticket, hash)) = self.ahead.remove(&id) {
            for (s, former) in &self.waiting.remove(&ticket).unwrap_or_default() {
                self.add(s, *former, UserPart::Hash(hash));
            }
        }
    }

    fn add(&mut self, s: &SampleEvent, former: u32, user: UserPart) {
        if s.state == state::ASKED {
            self.peers.asked(s.begin, s.id, user);
            return;
        }
        let on_cpu = matches!(s.state, state::ON_CPU | state::HIT);
        let key = SampleKey {
            id: s.id,
            former,
            resource: s.resource,
            kernel: s.kstack,
            user,
            code: self.version(s.pid, user, s.end),
            state: s.state,
            detail: s.detail,
            user_mode: on_cpu && s.flags & SAMPLE_USER_MODE != 0,
            cpu: on_cpu.then_some(s.cpu),
            in_flight: s.flags & SAMPLE_IN_FLIGHT != 0,
            awaits: s.flags & SAMPLE_AWAITS != 0,
            talks: s.flags & SAMPLE_TALKS != 0,
        };
        // A wait that is not over has no waker.
        let told = matches!(s.state, state::ON_CPU | state::BLOCKED | state::RUNNABLE);
        if told && s.flags & SAMPLE_OPEN == 0 {
            self.done.push((key, *s));
        } else if s.state == state::BLOCKED {
            self.open.push((key, *s));
        }
        if let Some(each) = self.each.as_mut().filter(|_| s.state != state::HIT) {
            each.push((key, [s.begin, s.end, s.ns, s.count.into()]));
        }
        let sum = self.sums.entry(key).or_default();
        sum.count += u64::from(s.count);
        sum.ns += s.ns;
        if !on_cpu && s.end > s.begin {
            // The chance that an interval is sampled is its length over the period, so a sampled interval stands for
            // the inverse number of intervals.
            sum.lengths.bits = FINE;
            let length = s.end - s.begin;
            sum.lengths.add(length, s.ns as f64 / length as f64);
        }
        let before = sum.slices.len();
        spread(&mut sum.slices, self.grid, s);
        self.rows += sum.slices.len() - before;
    }

    /// Forgets which programs these processes have left, and when their code changed.
    pub fn forget(&mut self, pids: &[u32]) {
        for pid in pids {
            self.left.remove(pid);
            self.changes.remove(pid);
            self.peers.forget(*pid);
        }
    }

    /// Forgets stacks that nothing names any more.
    pub fn forget_stacks(&mut self, gone: &FxHashSet<u64>) {
        self.unfiled.retain(|hash| !gone.contains(hash));
    }

    /// Moves samples to groups of ended threads, and adds up those that have one key then.
    pub fn fold(&mut self, moves: &Moves) {
        self.move_keys(&|key| moves.key(key));
    }

    /// Gives samples the keys that `moved` says, and adds up those that have one key then.
    pub fn move_keys(&mut self, moved: &dyn Fn(&SampleKey) -> Option<SampleKey>) {
        for (key, _) in self.each.iter_mut().flatten() {
            *key = moved(key).unwrap_or(*key);
        }
        let mut all: Vec<_> = (self.sums.extract_if(|key, _| moved(key).is_some())).collect();
        sample_key::sort(&mut all);
        for (key, mut sum) in all {
            let key = moved(&key).unwrap_or(key);
            self.rows -= sum.slices.len();
            let into = self.sums.entry(key).or_default();
            self.rows -= into.slices.len();
            into.count += sum.count;
            into.ns += sum.ns;
            into.lengths.bits = sum.lengths.bits.max(into.lengths.bits);
            into.lengths.merge(&sum.lengths);
            into.slices.append(&mut sum.slices);
            SliceValue::merge(&mut into.slices);
            self.rows += into.slices.len();
        }
    }

    /// Values by slice of all samples so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Doubles the width of the slices.
    pub fn coarsen(&mut self) {
        self.grid.width_ns *= 2;
        self.rows = 0;
        for sum in self.sums.values_mut() {
            for v in &mut sum.slices {
                v.slice /= 2;
            }
            SliceValue::merge(&mut sum.slices);
            self.rows += sum.slices.len();
        }
    }

    /// Takes out the samples since the last call, for snapshots of a running session. Samples that still wait
    /// for their stacks come the next time.
    pub fn take(&mut self) -> Vec<(SampleKey, SampleSum)> {
        self.done.clear();
        self.rows = 0;
        std::mem::take(&mut self.sums).into_iter().collect()
    }

    /// The stack that was read of a thread which is still blocked, if one was.
    pub fn read_ahead(&self, id: u64) -> Option<UserPart> {
        let (_, hash) = self.ahead.get(&id)?;
        Some(UserPart::Hash(*hash)).filter(|_| *hash != 0)
    }

    /// Gives up the samples that never got their stack, and counts them in `unresolved`.
    pub fn end_waiting(&mut self) {
        let mut ids: Vec<u64> = self.ahead.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            self.thread_gone(id);
        }
        let mut waiting: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        waiting.sort_unstable_by_key(|(ticket, _)| *ticket);
        for (s, former) in waiting.into_iter().flat_map(|(_, samples)| samples) {
            self.unresolved += u64::from(s.state != state::ASKED);
            self.add(&s, former, UserPart::Missing(StackEnd::Gone));
        }
    }

    /// Returns everything, sorted.
    pub fn finish(&mut self, last_slice: u32) -> Vec<(SampleKey, SampleSum)> {
        self.end_waiting();
        let mut all: Vec<_> = std::mem::take(&mut self.sums).into_iter().collect();
        for (_, sum) in &mut all {
            for v in &mut sum.slices {
                v.slice = v.slice.min(last_slice);
            }
            SliceValue::merge(&mut sum.slices);
        }
        sample_key::sort(&mut all);
        all
    }
}

/// Gives the sample's weight to the slices that its interval covers; the count to the last.
fn spread(slices: &mut Vec<SliceValue>, grid: Slices, s: &SampleEvent) {
    if grid.width_ns == 0 {
        return;
    }
    let slice_of = |time: u64| (time.saturating_sub(grid.start_ns) / grid.width_ns) as u32;
    let begin = s.begin.max(grid.start_ns).min(s.end);
    let (first, last) = (slice_of(begin), slice_of(s.end.max(begin + 1) - 1));
    let length = s.end.saturating_sub(begin).max(1);
    let mut given = 0;
    if slices.is_empty() {
        // Exact: ten thousand sleeping threads all have the same number of slices, and no more will come.
        slices.reserve_exact((last - first) as usize + 1);
    }
    for slice in first..=last {
        let slice_end = grid.start_ns + u64::from(slice + 1) * grid.width_ns;
        let upto = if slice == last {
            s.ns
        } else {
            let covered = slice_end.saturating_sub(begin).min(length);
            (u128::from(s.ns) * u128::from(covered) / u128::from(length)) as u64
        };
        let count = if slice == last { u64::from(s.count) } else { 0 };
        match slices.last_mut() {
            Some(v) if v.slice == slice => {
                v.count += count;
                v.ns += upto - given;
            }
            _ => slices.push(SliceValue {
                slice,
                count,
                ns: upto - given,
            }),
        }
        given = upto;
    }
}

#[cfg(test)]
#[path = "samples_tests.rs"]
mod path_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    const GRID: Slices = Slices {
        start_ns: 1000,
        width_ns: 100,
        count: 0,
    };

    fn blocked(ticket: u64, begin: u64, end: u64) -> SampleEvent {
        let mut s = SampleEvent::new_zeroed();
        (s.id, s.begin, s.end, s.ns, s.ustack) = (1, begin, end, end - begin, ticket);
        (s.state, s.count, s.flags) = (state::BLOCKED, 1, SAMPLE_DEFERRED);
        s
    }

    fn resolve(ticket: u64, hash: u64) -> Resolve {
        let mut r = Resolve::new_zeroed();
        (r.id, r.ticket, r.ustack) = (1, ticket, hash);
        r
    }

    #[test]
    fn stacks_before_the_exec_of_a_command_are_not_the_command_s() {
        let mut all = Samples::new(GRID);
        let of = |pid, begin| SampleEvent {
            pid,
            flags: SAMPLE_NO_USER,
            ..blocked(0, begin, begin + 10)
        };
        all.released(7);
        all.sample(&of(7, 1000));
        all.sample(&of(8, 1010));
        assert_eq!(all.done.len(), 1);
        all.exec(8);
        all.sample(&of(7, 1020));
        assert_eq!(all.done.len(), 1);
        all.exec(7);
        all.sample(&of(7, 1030));
        assert_eq!(all.done.len(), 2);
    }

    #[test]
    fn a_long_block_is_spread_over_its_slices() {
        let mut all = Samples::new(GRID);
        all.sample(&blocked(7, 1050, 1350));
        all.resolve(&resolve(7, 99));
        let sums = all.finish(9);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[0].0.user, UserPart::Hash(99));
        let ns: Vec<_> = sums[0]
            .1
            .slices
            .iter()
            .map(|v| (v.slice, v.ns, v.count))
            .collect();
        assert_eq!(ns, [(0, 50, 0), (1, 100, 0), (2, 100, 0), (3, 50, 1)]);
    }

    #[test]
    fn a_stack_read_ahead_serves_a_thread_that_dies() {
        let mut all = Samples::new(GRID);
        all.resolve(&resolve(7, 99));
        all.sample(&blocked(7, 1000, 1100));
        all.thread_gone(1);
        let sums = all.finish(9);
        assert_eq!(sums[0].0.user, UserPart::Hash(99));
        assert_eq!(all.unresolved, 0);
    }

    #[test]
    fn what_is_never_resolved_keeps_its_time() {
        let mut all = Samples::new(GRID);
        all.sample(&blocked(7, 1000, 1100));
        let sums = all.finish(9);
        assert_eq!(sums[0].0.user, UserPart::Missing(StackEnd::Gone));
        assert_eq!((sums[0].1.ns, all.unresolved), (100, 1));
    }

    #[test]
    fn sums_that_move_to_one_key_are_one_and_rows_count_their_slices() {
        let mut all = Samples::new(GRID);
        // Two threads in slices 0 to 3 and 2 to 4; a third keeps its own.
        for (id, begin, end) in [(1, 1050, 1350), (2, 1250, 1450), (3, 1000, 1100)] {
            all.sample(&SampleEvent {
                id,
                flags: SAMPLE_NO_USER,
                ..blocked(0, begin, end)
            });
        }
        assert_eq!(all.rows(), 4 + 3 + 1);
        all.move_keys(&|key| (key.id != 3).then(|| key.moved_late(9)).flatten());
        assert_eq!(all.rows(), 5 + 1);
        let sums = all.finish(9);
        let told: Vec<_> = (sums.iter())
            .map(|(key, sum)| (key.id, sum.ns, sum.count, sum.lengths.count() as u64))
            .collect();
        assert_eq!(told, [(3, 100, 1, 1), (9, 500, 2, 2)]);
        let moved = &sums[1].1;
        assert_eq!(moved.lengths.bits, FINE);
        let ns: Vec<_> = moved.slices.iter().map(|v| (v.slice, v.ns)).collect();
        assert_eq!(ns, [(0, 50), (1, 100), (2, 150), (3, 150), (4, 50)]);
    }

    #[test]
    fn a_sample_that_came_late_goes_to_the_group_without_former_programs() {
        let mut all = Samples::new(GRID);
        all.sample(&SampleEvent {
            flags: SAMPLE_NO_USER,
            ..blocked(0, 1000, 1100)
        });
        let (key, _) = all.finish(9)[0];
        let own = SampleKey {
            former: 2,
            code: 5,
            resource: 8,
            ..key
        };
        assert_eq!(own.moved_late(own.id), None);
        let moved = own.moved_late(9).unwrap();
        assert_eq!((moved.id, moved.former, moved.code), (9, 0, 0));
        assert_eq!((moved.resource, moved.state), (8, key.state));
    }

    #[test]
    fn sums_come_in_one_order_whatever_came_first() {
        let keys = |tickets: &mut dyn Iterator<Item = u64>| {
            let mut all = Samples::new(GRID);
            for ticket in tickets {
                all.sample(&blocked(ticket, 1000, 1100));
                all.resolve(&resolve(ticket, 1 + ticket));
            }
            let sums = all.finish(9).into_iter();
            sums.map(|(key, _)| key).collect::<Vec<_>>()
        };
        let forwards = keys(&mut (0..1000));
        assert_eq!(forwards.len(), 1000);
        assert!(forwards == keys(&mut (0..1000).rev()));
    }

    #[test]
    fn what_is_never_resolved_is_told_in_one_order_whatever_maps_held_before() {
        let told = |before: u64| {
            let mut all = Samples::new(GRID);
            let earlier = 1000..1000 + before;
            (earlier.clone()).for_each(|ticket| all.sample(&blocked(ticket, 1000, 1100)));
            earlier.for_each(|ticket| all.resolve(&resolve(ticket, 99)));
            all.done.clear();
            (0..50).for_each(|ticket| all.sample(&blocked(ticket, 1000 + ticket, 1100)));
            all.finish(9);
            all.done.iter().map(|(_, s)| s.begin).collect::<Vec<_>>()
        };
        let alone = told(0);
        assert_eq!(alone.len(), 50);
        assert_eq!(alone, told(5000));
    }
}
