//! Whether the machine is fit to measure on. The host of a virtual machine, or what else runs, may take
//! CPUs away for milliseconds: what a program knows of itself then no longer holds for anybody.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

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
