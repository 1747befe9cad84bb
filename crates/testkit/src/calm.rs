//! Whether the machine is fit to measure on. The host of a virtual machine, or what else runs, may take
//! CPUs away for milliseconds: what a program knows of itself then no longer holds for anybody.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Scorecard;
use crate::score::Row;

/// Time that a CPU is not given at one go, from which on it counts as taken away.
const GAP: Duration = Duration::from_micros(200);
/// Of the time of threads that only compute, so much may be taken away.
const MOST_TAKEN: f64 = 0.02;
/// So much later than asked for a sleeper may wake, on average.
const MOST_LATE: Duration = Duration::from_micros(250);
/// For so long all waits of a process together wait for calm: a machine that never is calm is judged as
/// it is.
const PATIENCE: Duration = Duration::from_secs(240);

/// What one look at the machine found.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Part of the computing time that was taken away, 0..=1.
    taken: f64,
    /// How late sleepers woke, on average.
    late: Duration,
}

impl Look {
    /// One at a time: tests of one process that look at once would take the CPUs from each other.
    fn new() -> Look {
        static LOOKING: Mutex<()> = Mutex::new(());
        let _alone = LOOKING.lock();
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let looks: Vec<Look> = thread::scope(|scope| {
            let all: Vec<_> = (0..cpus).map(|_| scope.spawn(one_cpu)).collect();
            all.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        Look {
            taken: looks.iter().map(|l| l.taken).sum::<f64>() / cpus as f64,
            late: looks.iter().map(|l| l.late).max().unwrap_or_default(),
        }
    }

    fn is_calm(self) -> bool {
        self.taken <= MOST_TAKEN && self.late <= MOST_LATE
    }
}

/// Computes for a while, then sleeps often.
fn one_cpu() -> Look {
    let computing = Duration::from_millis(400);
    let begun = Instant::now();
    let (mut last, mut taken) = (begun, Duration::ZERO);
    while last - begun < computing {
        let now = Instant::now();
        if now - last > GAP {
            taken += now - last;
        }
        last = now;
    }
    const SLEEPS: u32 = 200;
    let asked = Duration::from_millis(1);
    let begun = Instant::now();
    (0..SLEEPS).for_each(|_| thread::sleep(asked));
    Look {
        taken: taken.as_secs_f64() / computing.as_secs_f64(),
        late: (begun.elapsed() / SLEEPS).saturating_sub(asked),
    }
}

/// Waits until the machine is calm, for as long as this process has patience for it in all; to be called
/// before what failed is done again. Says on standard output why, if it was not calm at once.
pub fn wait(what: &str) {
    static WAITED_MS: AtomicU64 = AtomicU64::new(0);
    let begun = Instant::now();
    let first = Look::new();
    let mut look = first;
    while !look.is_calm() {
        let before = Duration::from_millis(WAITED_MS.load(Ordering::Relaxed));
        if before + begun.elapsed() > PATIENCE {
            break;
        }
        thread::sleep(Duration::from_secs(2));
        look = Look::new();
    }
    if first.is_calm() {
        return;
    }
    let waited = begun.elapsed();
    WAITED_MS.fetch_add(waited.as_millis() as u64, Ordering::Relaxed);
    println!(
        "{what}: the machine was disturbed ({:.1} % of computing time taken away, sleepers {} µs late), and \
         {} after {:.0} s",
        first.taken * 100.0,
        first.late.as_micros(),
        if look.is_calm() { "calm" } else { "not calm" },
        waited.as_secs_f64()
    );
}

/// What is measured counts if the host took no larger share of the CPUs' time meanwhile. Programs know
/// when they ran by the clock, and not that they stood still.
pub const MOST_STOLEN: f64 = 0.01;

/// The CPUs' time since the machine's start, clock ticks.
pub struct CpuTime {
    stolen: u64,
    total: u64,
}

impl CpuTime {
    /// Up to now.
    pub fn now() -> CpuTime {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = first
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        CpuTime {
            stolen: ticks.get(7).copied().unwrap_or(0),
            // What follows is of guests, and in the user time already.
            total: ticks.iter().take(8).sum(),
        }
    }

    /// The share of the CPUs' time since then that the host gave to others.
    pub fn stolen_since(&self) -> f64 {
        let now = CpuTime::now();
        let total = now.total.saturating_sub(self.total).max(1);
        now.stolen.saturating_sub(self.stolen) as f64 / total as f64
    }
}

/// One experiment made several times. A row that fails now and then may do so by chance or by what else
/// runs, one that fails every time does not; but nor may that be the program's doing, where the host took
/// CPUs away meanwhile.
#[derive(Debug, Default)]
pub struct Attempts {
    /// The share of the CPUs' time that it took in each.
    stolen: Vec<f64>,
    /// What held in one of them, and what failed in one.
    held: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// So many failures that the host had no part in count: any one may be chance, which is why there are
/// several attempts.
const TELLING: usize = 2;

impl Attempts {
    /// One more, which began at `begun`.
    pub fn add(&mut self, begun: &CpuTime) {
        self.stolen.push(begun.stolen_since());
    }

    /// Takes down what it came to.
    pub fn judge(&mut self, card: &Scorecard) {
        let failed: BTreeSet<String> = card.failed().rows.iter().map(Row::question).collect();
        let all = card.rows.iter().map(Row::question);
        self.held
            .extend(all.filter(|asked| !failed.contains(asked)));
        self.failed.extend(failed);
    }

    /// What was judged, and has held in no attempt.
    pub fn never_held(&self) -> Vec<&str> {
        let never = self.failed.difference(&self.held);
        never.map(String::as_str).collect()
    }

    /// Why `what`, which failed each time, says nothing here, in one line; `None`: the host let it run often enough,
    /// or it is asked not to be left out (`WALLSCOPE_REQUIRE_LIVE`).
    pub fn excuse(&self, what: &str) -> Option<String> {
        let taken: Vec<f64> = (self.stolen.iter().copied())
            .filter(|share| *share > MOST_STOLEN)
            .collect();
        let least = taken.iter().copied().reduce(f64::min)?;
        let undisturbed = self.stolen.len() - taken.len();
        let required = std::env::var_os("WALLSCOPE_REQUIRE_LIVE").is_some();
        (undisturbed < TELLING && !required).then(|| {
            format!(
                "skipped {what}: it failed {} times, and in {} of them the host took at least {:.1} % of the CPUs' time",
                self.stolen.len(),
                taken.len(),
                least * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn only_a_host_that_took_cpus_nearly_every_time_excuses() {
        let of = |stolen: &[f64]| Attempts {
            stolen: stolen.to_vec(),
            ..Attempts::default()
        };
        if std::env::var_os("WALLSCOPE_REQUIRE_LIVE").is_none() {
            let said = of(&[0.05, 0.02]).excuse("mix").expect("an excuse");
            assert!(said.starts_with("skipped mix: it failed 2 times") && said.contains("2.0 %"));
            let said = of(&[0.05, 0.004, 0.02]).excuse("mix").expect("an excuse");
            assert!(said.contains("3 times, and in 2 of them"), "{said}");
        }
        assert_eq!(of(&[0.05, 0.004, 0.02, 0.01]).excuse("mix"), None);
        assert_eq!(of(&[0.004]).excuse("mix"), None);
        assert_eq!(of(&[]).excuse("mix"), None);
    }

    #[test]
    fn what_held_once_is_forgiven_and_what_was_not_asked_again_is_not() {
        let card = |rows: &[(&str, f64)]| {
            let mut card = Scorecard::default();
            for (what, measured) in rows {
                card.at_most(*what, *measured, 1.0, "%");
            }
            card
        };
        let mut attempts = Attempts::default();
        attempts.judge(&card(&[("a (x 1)", 2.0), ("b", 0.5), ("c", 2.0)]));
        assert_eq!(attempts.never_held(), ["a", "c"]);
        attempts.judge(&card(&[("a (y 2)", 3.0), ("a (z 3)", 0.5), ("b", 2.0)]));
        assert_eq!(attempts.never_held(), ["a", "c"]);
        attempts.judge(&card(&[("a (y 2)", 0.1), ("c", 0.2), ("d", 2.0)]));
        assert_eq!(attempts.never_held(), ["d"]);
    }

    #[test]
    fn a_machine_with_more_to_do_than_cpus_is_not_calm() {
        println!("before: {:?}", Look::new());
        let over = AtomicBool::new(false);
        let look = thread::scope(|scope| {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..2 * cpus {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let look = Look::new();
            over.store(true, Ordering::Relaxed);
            look
        });
        assert!(!look.is_calm() && look.taken > 0.2, "{look:?}");
    }
}
