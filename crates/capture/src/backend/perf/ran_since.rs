//! Time that a thread has run since it was sampled.

/// Longest run since a sample, ns, after which the sample's native frames still match frames that are read now.
pub(super) const FRESH: u64 = 1_000_000;

/// Switches of a thread after one of its samples, from records read backwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct SwitchTrail {
    /// End of the present stretch on a CPU, if there is one.
    on_until: Option<u64>,
    ran_ns: u64,
    /// It switched voluntarily.
    pub by_its_will: bool,
    /// Its last record says that it has no CPU.
    off: Option<bool>,
}

impl SwitchTrail {
    /// Without any record it was on its CPU until `now`.
    pub fn until(now: u64) -> SwitchTrail {
        SwitchTrail {
            on_until: Some(now),
            ran_ns: 0,
            by_its_will: false,
            off: None,
        }
    }

    /// It got a CPU.
    pub fn got(&mut self, time: u64) {
        let until = self.on_until.take();
        self.ran_ns += until.map_or(0, |until| until.saturating_sub(time));
        self.off.get_or_insert(false);
    }

    /// It was preempted.
    pub fn put_off(&mut self, time: u64) {
        self.on_until = Some(time);
        self.off.get_or_insert(true);
    }

    /// It switched voluntarily.
    pub fn left(&mut self, time: u64) {
        self.put_off(time);
        self.by_its_will = true;
    }

    /// For how long it has run since a sample, ns.
    fn ran_since(&self, time: u64) -> u64 {
        self.ran_ns + self.on_until.map_or(0, |until| until.saturating_sub(time))
    }

    /// For how long the thread had run by `now` since a sample at `time`.
    pub fn moved(&self, time: u64, now: u64) -> RanSince {
        RanSince {
            ran_ns: self.ran_since(time),
            at: now,
            off: self.off == Some(true),
        }
    }
}

/// For how long a thread had run after its sample when that was taken from the ring.
#[derive(Clone, Copy, Debug)]
pub struct RanSince {
    ran_ns: u64,
    /// When the sample was taken from the ring, ns.
    at: u64,
    /// It had no CPU then.
    off: bool,
}

impl RanSince {
    /// Longest time that it can have run by `now`, ns.
    pub fn by(&self, now: u64) -> u64 {
        let since = now.saturating_sub(self.at);
        // A thread that was preempted for our sake may have another CPU by then.
        self.ran_ns + if self.off && since < FRESH { 0 } else { since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_off_its_cpu_does_not_go_on() {
        // Sampled at 100, put off at 130, on again at 900, and so until 950.
        let mut since = SwitchTrail::until(950);
        assert_eq!((since.ran_since(900), since.ran_since(0)), (50, 950));
        since.got(900);
        since.put_off(130);
        assert_eq!((since.ran_since(100), since.by_its_will), (80, false));
        since.got(90);
        since.left(40);
        assert_eq!((since.ran_since(20), since.by_its_will), (110, true));
    }

    #[test]
    fn another_stack_is_read_while_its_thread_has_hardly_run() {
        let moved = |off| RanSince {
            ran_ns: 40,
            at: 1_000,
            off,
        };
        // A thread that was preempted for our sake has not gone on, for a while.
        assert_eq!((moved(false).by(1_500), moved(true).by(1_500)), (540, 40));
        assert_eq!(moved(true).by(1_000 + FRESH), 40 + FRESH);
        let mut since = SwitchTrail::until(950);
        assert!(!since.moved(900, 950).off);
        since.put_off(130);
        assert!(since.moved(100, 950).off);
        assert_eq!(since.moved(100, 950).by(960), 30);
        // It has a CPU again.
        let mut since = SwitchTrail::until(950);
        since.got(900);
        since.put_off(130);
        assert!(!since.moved(100, 950).off);
    }
}
