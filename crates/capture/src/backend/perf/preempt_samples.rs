//! Stacks of threads at the moment they are preempted, where the kernel may be sampled.
//!
//! A thread is mostly not preempted where it computes: it has woken another thread that takes its CPU, or
//! has called `sched_yield`. A clock hardly ever meets that moment. So each thread has a second event
//! for each CPU, which counts its switches and copies the stack at some of them. The record of the switch
//! itself follows in the same ring, and tells whether the thread was preempted or switched voluntarily.
//! Blocked threads are polled while they wait, so copies at voluntary switches are dropped at once.
//!
//! The kernel adapts the number of switches that one copy stands for, because we cannot set it for threads
//! that inherit these events. If too many copies still come, we drop some: all threads together keep at most
//! half as many stacks as the clock takes when all CPUs are busy.
//!
//! A thread that switches often and is hardly ever preempted loses the event again: fifty threads that wake a
//! hundred times a second would each have every switch copied for nothing. If there are many threads, those
//! that no sample found on a CPU do not get it ([`CROWD`]). Run-queue latency of a thread without the event
//! is attributed to where the thread was sampled on a CPU.
//!
//! The kernel refuses copies at switches to users that may not measure the kernel: a switch is in the kernel.

use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings as b;

use super::{
    Record,
    perf_attr::{STACK, ask_for_stack, attributes, open},
};

/// Above this number of threads, a thread gets these events only after a sample found it on a CPU. A thread
/// that hardly runs is hardly ever preempted: of a thousand that wake now and then, each switch would be
/// copied.
pub const CROWD: usize = 64;
/// Interval after which the number of copies to leave out is judged anew, ns.
const JUDGED: u64 = 100_000_000;

/// Rate of the copies, and the part of them that is taken.
#[derive(Debug)]
pub struct PreemptSampling {
    /// No thread was refused these events.
    pub complete: bool,
    /// There are so many threads that only those found on a CPU by a sample have these events.
    pub crowd: bool,
    /// Threads that are hardly ever preempted have lost these events.
    pub selective: bool,
    /// Copies a second of one thread on one CPU that the kernel aims at.
    pub hz: u64,
    /// One copy of so many is taken.
    every: u64,
    /// Copies that came since one was taken.
    met: u64,
    /// Copies that came since `since`, ns.
    counted: u64,
    since: u64,
}

impl PreemptSampling {
    /// Half of `hz`, the rate for running threads: most are preempted for longer than they have run.
    pub fn new(hz: u32) -> PreemptSampling {
        PreemptSampling {
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
        ask_for_stack(&mut a, STACK);
        a.set_freq(1);
        a.__bindgen_anon_1.sample_freq = self.hz;
        a.set_inherit(1);
        open(&mut a, tid as i32, cpu)
    }

    /// Decides on the copy of a preempted thread that stands for `of` switches. Returns the switches that it
    /// is to stand for; `None`: it is to be dropped. `most`: copies to take a second.
    fn judge(&mut self, time: u64, most: u64, of: u64) -> Option<u64> {
        self.counted += 1;
        let passed = time.saturating_sub(self.since);
        let allowed = |ns: u64| (most.saturating_mul(ns) / 1_000_000_000).max(1);
        if passed >= JUDGED {
            let allowed = allowed(passed.min(10 * JUDGED));
            self.every = self.counted.div_ceil(allowed).max(1);
            (self.counted, self.since) = (0, time);
        } else if self.counted > 2 * allowed(JUDGED) * self.every {
            // More than expected: thin out now, not only from the next stretch on.
            self.every *= 2;
        }
        self.met += 1;
        (self.met >= self.every).then(|| of * std::mem::take(&mut self.met))
    }
}

/// Settles the copy at a switch when the record of the switch is the last one in `held`. The copy is right
/// before that record. It is dropped, or stands for the switches of the dropped copies too. `most`: copies
/// to take a second.
pub fn settle(held: &mut Vec<(u64, Record)>, leaving: &mut PreemptSampling, most: u64) {
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
            first: None,
        };
        Record::Leaving {
            of,
            thread: Box::new(thread),
        }
    }

    fn switch(
        held: &mut Vec<(u64, Record)>,
        leaving: &mut PreemptSampling,
        time: u64,
        preempted: bool,
    ) {
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
        let (mut held, mut leaving) = (Vec::new(), PreemptSampling::new(99));
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
        let mut leaving = PreemptSampling::new(99);
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
