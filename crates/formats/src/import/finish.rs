//! Times → slices, samples → ledgers, and the domain of an import.

use wallscope_model::{
    BlockReason, Column, Domain, LedgerSlices, Limit, Part, Recording, SliceValue, Slices, State,
    UnknownCause, Window,
};

use super::{About, Import, MAX_FRAMES};

/// Maximum slices; more of them are joined two by two.
const MAX_SLICES: i64 = 400;
/// The length of a slice before any are joined, ns.
const FIRST_WIDTH: u64 = 10_000_000;
/// Number of the first slice while times before it may still come.
const ORIGIN: i64 = 1 << 30;

impl Import {
    /// The slice of a time. Later times may halve its number.
    pub(super) fn slice(&mut self, time: u64) -> u32 {
        self.reaches(time);
        let (origin, mut width) = *self.time.slices.get_or_insert((time, FIRST_WIDTH));
        loop {
            let away = i128::from(time) - i128::from(origin);
            let n = away.div_euclid(i128::from(width)) as i64;
            let range = (self.time.range.0.min(n), self.time.range.1.max(n));
            if range.1 - range.0 < MAX_SLICES {
                self.time.range = range;
                return (n + ORIGIN) as u32;
            }
            width *= 2;
            self.time.slices = Some((origin, width));
            if self.time.range.0 <= self.time.range.1 {
                self.time.range = (
                    self.time.range.0.div_euclid(2),
                    self.time.range.1.div_euclid(2),
                );
            }
            for s in &mut self.rec.samples {
                join(&mut s.slices);
            }
        }
    }

    /// Extends the recording to this time, even if it has no sample there.
    pub(crate) fn reaches(&mut self, time: u64) {
        let times = self.time.times.get_or_insert((time, time));
        *times = (times.0.min(time), times.1.max(time));
    }

    /// Sets the window, for a file that has a window but no times of samples.
    pub(crate) fn window(&mut self, window: Window) {
        self.rec.window = window;
    }

    /// Whether any sample was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.rec.samples.is_empty()
    }

    /// The recording.
    pub(crate) fn finish(mut self, about: About) -> Recording {
        if let Some((first, last)) = self.time.times {
            let w = &mut self.rec.window;
            if w.end_ns <= w.start_ns || first < w.start_ns || last > w.end_ns {
                w.start_ns = first;
                w.end_ns = last;
            }
            if w.clock.is_empty() {
                w.clock = "the file's own clock".to_string();
            }
        }
        self.place_slices();
        let w = &self.rec.window;
        for c in &mut self.rec.contexts {
            c.start_ns = w.start_ns;
            c.end_ns = w.end_ns;
        }
        account(&mut self.rec);
        self.rec.domain = domain(about, self.time.slices.is_some(), self.cut);
        self.rec
    }

    fn place_slices(&mut self) {
        let Some((origin, width)) = self.time.slices else {
            return;
        };
        let (low, high) = self.time.range;
        let start = i128::from(origin) + i128::from(low) * i128::from(width);
        let base = (low + ORIGIN) as u32;
        self.rec.slices = Slices {
            start_ns: u64::try_from(start).unwrap_or(0),
            width_ns: width,
            count: (high - low + 1) as u32,
        };
        for s in &mut self.rec.samples {
            s.slices.shrink_to_fit();
            s.slices.iter_mut().for_each(|v| v.slice -= base);
        }
        self.rec.ledger_slices = LedgerSlices::of_samples(&self.rec.samples);
    }
}

/// Joins slices two by two.
fn join(slices: &mut Vec<SliceValue>) {
    // ORIGIN is even at every width, so halves meet around it as they should.
    for v in slices.iter_mut() {
        let from_origin = i64::from(v.slice) - ORIGIN;
        v.slice = (from_origin.div_euclid(2) + ORIGIN) as u32;
    }
    SliceValue::merge(slices);
}

/// Makes each context's ledger from its samples.
fn account(rec: &mut Recording) {
    for s in &rec.samples {
        let l = &mut rec.contexts[s.context.0 as usize].ledger;
        l.wall_ns += s.ns;
        if s.idle && s.state == State::Blocked {
            l.idle_ns += s.ns;
        }
        let to = match (s.state, s.part) {
            (State::OnCpu, Some(Part::Kernel)) => &mut l.on_cpu.kernel,
            (State::OnCpu, Some(Part::Irq)) => &mut l.on_cpu.irq,
            (State::OnCpu, Some(Part::Stolen)) => &mut l.on_cpu.stolen,
            (State::OnCpu, _) => &mut l.on_cpu.user,
            (State::Runnable, Some(Part::Preempted)) => &mut l.runnable.preempted,
            (State::Runnable, Some(Part::Throttled)) => &mut l.runnable.throttled,
            (State::Runnable, _) => &mut l.runnable.woken,
            (State::Blocked, _) => &mut l.blocked[s.reason.unwrap_or(BlockReason::Other) as usize],
            (State::Unknown, _) => &mut l.unknown[UnknownCause::NotInSource as usize],
        };
        *to += s.ns;
    }
}

fn domain(about: About, sliced: bool, cut: u64) -> Domain {
    let slices = if sliced { "" } else { ", no time slices" };
    let mut limits = vec![Limit {
        what: format!(
            "only what the file's samples say: no ledger{slices}, no losses; totals are sums of \
             samples, and time that was not sampled is not there"
        ),
        remedy: "record with wallscope".to_string(),
    }];
    limits.extend(about.limits);
    let mut notes = about.notes;
    if cut > 0 {
        notes.push(format!("{cut} stacks were cut at {MAX_FRAMES} frames"));
    }
    Domain {
        tool: about.tool,
        backend: Domain::IMPORT.to_string(),
        backend_reason: format!("the file is {}", about.format),
        columns: State::ALL
            .iter()
            .map(|state| Column {
                state: *state,
                exact: about.exact,
                how: about.values.clone(),
            })
            .collect(),
        events: about.events,
        limits,
        notes,
        unit: about.unit,
        ..Domain::default()
    }
}

#[cfg(test)]
mod tests {
    use wallscope_model::StackEnd;

    use super::super::{Amount, SampleTime};
    use super::*;

    #[test]
    fn slices_widen_as_time_goes_on_and_keep_every_value() {
        let mut to = Import::new(1 << 20);
        let stack = to.stack(&[], StackEnd::Root).unwrap();
        let context = to.context(1, 1, "a", "").unwrap();
        let kind = SampleTime::of(State::OnCpu);
        let base = 5_000_000_000_000u64;
        // From the middle outwards, so that earlier times come later too.
        for i in 0..1000u64 {
            for t in [base + i * 37_000_000, base - i * 37_000_000] {
                to.sample(context, stack, kind, Amount::new((1, 10), Some(t)))
                    .unwrap();
            }
        }
        let rec = to.finish(About::default());
        let s = &rec.samples[0];
        assert_eq!((s.count, s.ns), (2000, 20_000));
        assert!(rec.slices.count <= 400 && rec.slices.count >= 200);
        assert!(s.slices.is_sorted_by_key(|v| v.slice));
        assert_eq!(s.slices.iter().map(|v| v.count).sum::<u64>(), 2000);
        let last = s.slices.last().unwrap().slice;
        assert_eq!(last, rec.slices.count - 1);
        // Equal times fall into equal slices: each is as full as its length says.
        let full = rec.slices.width_ns / 37_000_000;
        for v in &s.slices[1..s.slices.len() - 1] {
            assert!(v.count.abs_diff(full) <= 2, "{} of {full}", v.count);
        }
        assert_eq!(
            rec.ledger_slices.iter().map(|r| r.on_cpu_ns).sum::<u64>(),
            20_000
        );
        assert_eq!(
            rec.window.end_ns - rec.window.start_ns,
            2 * 999 * 37_000_000
        );
    }
}
