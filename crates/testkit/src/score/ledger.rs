//! Does the ledger close, and does it agree with the threads' own clocks?

use super::{Row, Scorecard, within};
use crate::report::{Report, Thread};
use crate::truth::{ThreadTruth, Truth};

/// What is allowed, as the project promises it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Residue of each thread, ppm of wall.
    pub residue_ppm: f64,
    /// Unknown of each thread, ppm of wall.
    pub unknown_ppm: f64,
    /// Difference to the kernel's own counters, ppm of wall.
    pub counters_ppm: f64,
    /// How far runnable time may stay below the kernel's `run_delay`, ppm of wall: kernels that
    /// dequeue blocked threads late count blocked time as waiting when such a thread is moved to
    /// another CPU (seen: a sleeper with more `run_delay` than its sleeps can have overshot).
    pub below_delay_ppm: f64,
    /// Repaired time, ppm of wall.
    pub repaired_ppm: f64,
    /// Difference between a thread's wall time and the part of the window in which it lived, ms.
    pub wall_ms: f64,
    /// Threads that lived shorter than this are judged by their sum against the counters: a
    /// thread's own last reading comes tens of µs before its end, ns.
    pub long_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            residue_ppm: 100.0,
            unknown_ppm: 1_000.0,
            counters_ppm: 600.0,
            below_delay_ppm: 10_000.0,
            repaired_ppm: 10_000.0,
            wall_ms: 20.0,
            long_ns: 500_000_000,
        }
    }
}

fn ppm(part: f64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part * 1e6 / whole as f64
    }
}

/// The worst of some figures, and its thread.
#[derive(Default)]
struct Worst {
    figure: f64,
    /// Name and id in parentheses, with a space before.
    thread: String,
}

impl Worst {
    fn see(&mut self, figure: f64, thread: &Thread) {
        if figure.abs() > self.figure || figure.is_nan() {
            self.figure = figure.abs();
            self.thread = format!(" ({} {})", thread.name, thread.tid);
        }
    }
}

/// Rows on closure alone; for any recording, known truth or not.
pub fn closes(report: &Report, limits: &Limits) -> Scorecard {
    let mut card = Scorecard::default();
    let (mut residue, mut unknown, mut sums) =
        (Worst::default(), Worst::default(), Worst::default());
    let (mut wall, mut repaired) = (0, 0);
    for thread in &report.threads {
        let parts = thread.on_cpu_ns + thread.runnable_ns + thread.blocked_ns + thread.unknown_ns;
        // Computed here, and compared with the report's own figure.
        let left = thread.wall_ns as f64 - parts as f64;
        residue.see(ppm(left, thread.wall_ns), thread);
        unknown.see(ppm(thread.unknown_ns as f64, thread.wall_ns), thread);
        sums.see(left - thread.residue_ns as f64, thread);
        let split = [
            (&thread.on_cpu, thread.on_cpu_ns),
            (&thread.runnable, thread.runnable_ns),
            (&thread.blocked, thread.blocked_ns),
        ];
        for (parts, total) in split {
            sums.see(parts.values().sum::<u64>() as f64 - total as f64, thread);
        }
        wall += thread.wall_ns;
        repaired += thread.repaired_ns;
    }
    card.at_least(
        "threads in the report",
        report.threads.len() as f64,
        1.0,
        "",
    );
    card.at_most(
        format!("residue, worst thread{}", residue.thread),
        residue.figure,
        limits.residue_ppm,
        "ppm",
    );
    card.at_most(
        format!("unknown, worst thread{}", unknown.thread),
        unknown.figure,
        limits.unknown_ppm,
        "ppm",
    );
    card.at_most(
        format!("parts against their totals{}", sums.thread),
        sums.figure,
        0.0,
        "ns",
    );
    card.at_most(
        "repaired",
        ppm(repaired as f64, wall),
        limits.repaired_ppm,
        "ppm",
    );
    card
}

/// On-CPU time as the kernel counts it: without steal where the hypervisor tells of it, and without
/// interrupts if so configured; of these readings the one nearest to `truth`. All in ns.
pub fn like_the_kernel(thread: &Thread, truth: f64) -> f64 {
    let part = |name: &str| thread.on_cpu.get(name).copied().unwrap_or(0) as f64;
    let all = thread.on_cpu_ns as f64;
    [
        all,
        all - part("stolen"),
        all - part("stolen") - part("irq"),
    ]
    .into_iter()
    .min_by(|a, b| (a - truth).abs().total_cmp(&(b - truth).abs()))
    .unwrap_or(all)
}

/// Wall time that a thread with known birth and death had within the window.
fn expected_wall(report: &Report, truth: &ThreadTruth) -> Option<f64> {
    let monotonic = report.window.clock.to_lowercase().contains("monotonic");
    if !monotonic || !truth.finished {
        return None;
    }
    let start = truth.start_ns.max(report.window.start_ns);
    let end = match truth.end_ns {
        0 => report.window.end_ns,
        end => end.min(report.window.end_ns),
    };
    Some(end as f64 - start as f64)
}

/// Differences between a report and a program's own books, over all threads.
#[derive(Default)]
struct Differences {
    /// Threads known to the program and not in the report.
    missing: Vec<String>,
    /// Threads that lived long enough to be compared one by one.
    long: usize,
    cpu: Worst,
    above: Worst,
    below: Worst,
    switches: Worst,
    wall: Worst,
    short: ShortLives,
}

/// Sums of the threads that lived too short to be compared one by one, ns.
#[derive(Default)]
struct ShortLives {
    wall: f64,
    cpu: f64,
    truth: f64,
}

impl Differences {
    fn of(report: &Report, truth: &Truth, limits: &Limits) -> Differences {
        let mut all = Differences::default();
        for own in &truth.threads {
            let Some(thread) = report.thread(own.pid, own.tid) else {
                all.missing.push(format!("{} {}", own.name, own.tid));
                continue;
            };
            if !own.finished {
                continue;
            }
            let measured = like_the_kernel(thread, own.on_cpu_ns as f64);
            if own.work_wall_ns < limits.long_ns {
                all.short.wall += own.work_wall_ns as f64;
                all.short.cpu += measured;
                all.short.truth += own.on_cpu_ns as f64;
                continue;
            }
            all.long += 1;
            let difference = measured - own.on_cpu_ns as f64;
            all.cpu.see(ppm(difference, thread.wall_ns), thread);
            let expected = expected_wall(report, own);
            all.compare(own, thread, expected);
        }
        all
    }

    /// Compares the figures that do not come from the CPU's clock. `wall`: of its life, if that is known.
    fn compare(&mut self, own: &ThreadTruth, thread: &Thread, wall: Option<f64>) {
        let waited = thread.runnable_ns as f64 - own.run_delay_ns as f64;
        self.above.see(ppm(waited.max(0.0), thread.wall_ns), thread);
        self.below
            .see(ppm((-waited).max(0.0), thread.wall_ns), thread);
        let counted = thread.voluntary_switches + thread.involuntary_switches;
        let expected = own.voluntary_switches + own.involuntary_switches;
        // Threads that end add a few on their way out.
        let allowed = 2.0 + expected as f64 * 1e-3;
        self.switches
            .see((counted as f64 - expected as f64) / allowed, thread);
        if let Some(expected) = wall {
            self.wall
                .see((thread.wall_ns as f64 - expected) / 1e6, thread);
        }
    }
}

/// Rows on closure and on agreement with the threads' own clocks and the kernel's counters, for a
/// program that was recorded from before its release to after its end.
pub fn agrees(report: &Report, truth: &Truth, limits: &Limits) -> Scorecard {
    let mut card = closes(report, limits);
    let Differences {
        missing,
        long,
        cpu,
        above,
        below,
        switches,
        wall,
        short,
    } = Differences::of(report, truth, limits);
    let listed: Vec<&str> = missing.iter().take(3).map(String::as_str).collect();
    card.push(Row {
        what: "threads known to the program and not seen".into(),
        truth: truth.threads.len().to_string(),
        measured: format!("{} {}", missing.len(), listed.join(", ")),
        limit: "0".into(),
        pass: missing.is_empty(),
        ..Row::default()
    });
    if long > 0 {
        for (what, worst, limit, unit) in [
            (
                "on-CPU against the kernel's count",
                cpu,
                limits.counters_ppm,
                "ppm",
            ),
            (
                "runnable above run_delay",
                above,
                limits.counters_ppm,
                "ppm",
            ),
            (
                "runnable below run_delay",
                below,
                limits.below_delay_ppm,
                "ppm",
            ),
            ("switches against nvcsw+nivcsw", switches, 1.0, "× allowed"),
            (
                "length of life, wall against birth and death",
                wall,
                limits.wall_ms,
                "ms",
            ),
        ] {
            card.at_most(format!("{what}{}", worst.thread), worst.figure, limit, unit);
        }
    }
    if short.wall > 0.0 {
        let ratio = (short.cpu - short.truth) / short.wall;
        // Birth and death, which no thread can time from inside, are on-CPU time as well.
        let what = "on-CPU of short lives, beyond their own reading";
        card.near(what, 0.1, ratio, within(0.15, "of wall"));
    }
    card
}

#[cfg(test)]
mod tests {
    use super::super::canned;
    use super::*;

    fn failed(card: &Scorecard, what: &str) -> bool {
        let row = card.rows.iter().find(|row| row.what.starts_with(what));
        !row.unwrap_or_else(|| panic!("no row {what}: {card}")).pass
    }

    #[test]
    fn a_ledger_that_closes_passes() {
        let (report, truth, _) = canned::mix();
        let card = agrees(&report, &truth, &Limits::default());
        assert!(card.passed(), "{card}");
    }

    #[test]
    fn a_residue_that_the_report_hides_is_found() {
        let (mut report, ..) = canned::mix();
        report.threads[0].wall_ns += 200_000;
        let card = closes(&report, &Limits::default());
        assert!(failed(&card, "residue") && failed(&card, "parts"), "{card}");
    }

    #[test]
    fn unknown_and_repaired_have_limits() {
        let (mut report, ..) = canned::mix();
        let thread = &mut report.threads[0];
        thread.unknown_ns = 5_000_000;
        thread.wall_ns += 5_000_000;
        thread.repaired_ns = 400_000_000;
        let card = closes(&report, &Limits::default());
        assert!(
            failed(&card, "unknown") && failed(&card, "repaired"),
            "{card}"
        );
        assert!(!failed(&card, "residue"), "{card}");
    }

    #[test]
    fn disagreement_with_the_clocks_is_found() {
        let (report, mut truth, _) = canned::mix();
        truth.threads[0].on_cpu_ns += 1_000_000;
        truth.threads[0].run_delay_ns -= 1_000_000;
        truth.threads[0].voluntary_switches += 20;
        truth.threads[0].end_ns -= 30_000_000;
        let card = agrees(&report, &truth, &Limits::default());
        for what in ["on-CPU", "runnable above", "switches", "length of life"] {
            assert!(failed(&card, what), "{what}: {card}");
        }
        truth.threads[0].run_delay_ns += 20_000_000;
        let card = agrees(&report, &truth, &Limits::default());
        assert!(failed(&card, "runnable below"), "{card}");
    }

    #[test]
    fn interrupt_time_may_stand_apart_or_not() {
        let (mut report, truth, _) = canned::mix();
        let thread = &mut report.threads[0];
        thread.on_cpu.insert("irq".into(), 4_000_000);
        thread.on_cpu_ns += 4_000_000;
        thread.wall_ns += 4_000_000;
        let card = agrees(&report, &truth, &Limits::default());
        assert!(!failed(&card, "on-CPU"), "{card}");
    }

    #[test]
    fn a_thread_that_was_not_seen_is_found() {
        let (mut report, truth, _) = canned::mix();
        report.threads.pop();
        assert!(failed(
            &agrees(&report, &truth, &Limits::default()),
            "threads known"
        ));
        report.threads.clear();
        assert!(failed(&closes(&report, &Limits::default()), "threads in"));
    }
}
