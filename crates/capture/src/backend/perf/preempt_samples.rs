//! Stacks of threads at the moment they are put off their CPU, where the kernel may be sampled.
//!
//! Where a thread is put off is mostly not where it computes: it has woken another one that takes its CPU, or
//! has given it up (`sched_yield`). A clock hardly ever meets that moment. So each thread has a second event
//! for each CPU, which counts its switches and copies the stack at some of them; the record of the switch
//! itself, right behind it in the same ring, tells whether the thread was put off or waits by its own
//! will. Those who wait are looked at while they do, so such copies are dropped at once.
//!
//! The kernel adapts by itself how many switches one copy stands for, as threads that inherit these events
//! cannot be told. Of what comes in spite of that, so many are left out that for all threads together there are
//! no more stacks than half of those by the clock if all CPUs are busy.
//!
//! Who switches often and is hardly ever put off loses that event again: of fifty threads that wake a hundred times a
//! second each switch would be copied for nothing. Where threads are many, those that nobody met computing do not have
//! it at all ([`CROWD`]). Their time off a CPU stands where they were sampled on it.
//!
//! Who may not measure the kernel is refused copies at switches, which happen there.

use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings as b;

use super::{
    Record,
    perf_attr::{ask_for_stack, attributes, open},
};

/// Beyond so many threads each must have been met computing before it has these events: who hardly runs is hardly
/// put off, and of a thousand that only wake now and then each switch would be copied.
pub const CROWD: usize = 64;
/// For how long copies are counted before it is judged anew how many to leave out, ns.
const JUDGED: u64 = 100_000_000;

/// What is taken of the copies.
#[derive(Debug)]
pub struct Leaving {
    /// No thread was refused these events.
    pub complete: bool,
    /// There are so many threads that only those have them that were met computing.
    pub crowd: bool,
    /// Threads that are hardly ever put off have none any more.
    pub selective: bool,
    /// Copies a second of one thread on one CPU that the kernel aims at.
    pub hz: u64,
    /// One of so many is taken.
    every: u64,
    /// Came since one was taken.
    met: u64,
    /// Came since `since`, ns.
    counted: u64,
    since: u64,
}

impl Leaving {
    /// Half as often as running threads are sampled at `hz`: most are put off for longer than they have run.
    pub fn new(hz: u32) -> Leaving {
        Leaving {
            complete: true,
            crowd: false,
            selective: false,
            hz: u64::from(hz / 2).max(1),
            every: 1,
            met: 0,
            counted: 0,
            since: 0,
        }
    }

    /// Opens the event of a thread on one CPU.
    ///
    /// # Errors
    /// It is not allowed, or the thread is gone.
    pub fn event(&self, tid: u32, cpu: u32) -> std::io::Result<OwnedFd> {
        let mut a = attributes(b::PERF_COUNT_SW_CONTEXT_SWITCHES);
        // The address is zero at a switch, where samples of the clock have their period.
        a.sample_type |= u64::from(b::PERF_SAMPLE_ADDR | b::PERF_SAMPLE_PERIOD);
        ask_for_stack(&mut a);
        a.set_freq(1);
        a.__bindgen_anon_1.sample_freq = self.hz;
        a.set_inherit(1);
        open(&mut a, tid as i32, cpu)
    }

    /// A copy of a thread that is put off its CPU has come, for `of` switches: for how many it stands, if it is
    /// to be taken. `most`: so many a second.
    fn judge(&mut self, time: u64, most: u64, of: u64) -> Option<u64> {
        self.counted += 1;
        let passed = time.saturating_sub(self.since);
        let allowed = |ns: u64| (most.saturating_mul(ns) / 1_000_000_000).max(1);
        if passed >= JUDGED {
            let allowed = allowed(passed.min(10 * JUDGED));
            self.every = self.counted.div_ceil(allowed).max(1);
            (self.counted, self.since) = (0, time);
        } else if self.counted > 2 * allowed(JUDGED) * self.every {
            // More than was to be expected: not only from the next stretch on.
            self.every *= 2;
        }
        self.met += 1;
        (self.met >= self.every).then(|| of * std::mem::take(&mut self.met))
    }
}

/// A record was put behind the others in `held`. If it tells of a switch, the copy made at that is right before
/// it: it is dropped, or now stands for the switches of those that are. `most`: so many a second are taken.
pub fn settle(held: &mut Vec<(u64, Record)>, leaving: &mut Leaving, most: u64) {
    let [
        ..,
        (_, Record::Leaving { of, thread }),
        (time, Record::Out { tid, preempted, .. }),
    ] = held.as_mut_slice()
    else {
        return;
    };
    if thread.tid != *tid {
        return;
    }
    let stands_for = preempted.then(|| leaving.judge(*time, most, *of)).flatten();
    match stands_for {
        Some(switches) => *of = switches,
        None => {
            let out = held.len() - 1;
            held.swap(out - 1, out);
            held.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use wallscope_unwind::native::Registers;

    use super::{super::Running, *};

    fn copy(tid: u32, of: u64) -> Record {
        let thread = Running {
            pid: 1,
            tid,
            period_ns: 0,
            cpu: None,
            user_mode: false,
            registers: Registers::default(),
            stack: Vec::new(),
            below: Vec::new(),
            managed: None,
            late: false,
            moved: None,
        };
        Record::Leaving {
            of,
            thread: Box::new(thread),
        }
    }

    fn switch(held: &mut Vec<(u64, Record)>, leaving: &mut Leaving, time: u64, preempted: bool) {
        let pid = 1;
        held.push((time, copy(7, 5)));
        let out = Record::Out {
            pid,
            tid: 7,
            preempted,
        };
        held.push((time, out));
        settle(held, leaving, 50);
    }

    #[test]
    fn copies_of_those_who_wait_are_dropped() {
        let (mut held, mut leaving) = (Vec::new(), Leaving::new(99));
        switch(&mut held, &mut leaving, 1, false);
        assert!(matches!(held[..], [(1, Record::Out { .. })]));
        switch(&mut held, &mut leaving, 2, true);
        let [
            _,
            (2, Record::Leaving { of: 5, .. }),
            (2, Record::Out { .. }),
        ] = held[..]
        else {
            panic!("{held:?}");
        };
        // Of another thread: not its own.
        held.push((3, copy(8, 5)));
        let (pid, tid, preempted) = (1, 7, false);
        held.push((
            3,
            Record::Out {
                pid,
                tid,
                preempted,
            },
        ));
        settle(&mut held, &mut leaving, 50);
        assert_eq!(held.len(), 5);
    }

    #[test]
    fn of_many_some_stand_for_all() {
        let mut leaving = Leaving::new(99);
        let (mut taken, mut stands_for) = (0, 0);
        // 10,000 a second for a second, of which 50 are wanted.
        for n in 0..10_000u64 {
            let mut held = Vec::new();
            switch(&mut held, &mut leaving, n * 100_000, true);
            if let [(_, Record::Leaving { of, .. }), _] = held[..] {
                taken += 1;
                stands_for += of;
            }
        }
        assert!((40..100).contains(&taken), "{taken}");
        assert!((48_000..=52_000).contains(&stands_for), "{stands_for}");
    }
}
