//! Disturbances of a measurement by other programs: CPU time that the host of a virtual machine takes,
//! CPU time of processes that are no part of the test, and waits of the tester itself for a CPU.
//!
//! [`Meter`] measures all three around one attempt of a test. A test that fails is made once more only if
//! its [`Disturbance`] exceeds a limit; [`wait_for_calm`] then waits for a moment that gives the second
//! attempt a chance. The module does not decide whether a test holds: `live` does.

use std::fmt;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Fraction of the CPUs' time that the host may take before a measurement counts as disturbed. Programs
/// know by the clock when they ran, and not that they stood still.
pub const MAX_STOLEN: f64 = 0.01;
/// Fraction of the CPUs' time that other processes may use before a measurement counts as disturbed. A
/// quiet virtual machine stays below 0.01 (measured over 3 s); one busy process on two CPUs makes 0.5.
pub const MAX_OTHERS: f64 = 0.03;
/// Mean run-queue delay of the tester's threads per turn on a CPU before a measurement counts as disturbed.
/// The tester sleeps between its turns, so that the scheduler prefers it to whatever computes.
pub const MAX_DELAY: Duration = Duration::from_millis(1);

/// CPU time since the machine's start, from the first line of `/proc/stat`, in clock ticks.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTicks {
    /// In processes and kernel threads, without interrupts.
    used: u64,
    stolen: u64,
    total: u64,
}

impl CpuTicks {
    fn now() -> CpuTicks {
        CpuTicks::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> CpuTicks {
        let first = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = (first.split_whitespace().skip(1))
            .filter_map(|word| word.parse().ok())
            .collect();
        CpuTicks {
            // User, nice and system.
            used: ticks.iter().take(3).sum(),
            stolen: ticks.get(7).copied().unwrap_or(0),
            // Later columns are of guests, which the first two include.
            total: ticks.iter().take(8).sum(),
        }
    }
}

/// CPU time of this process and of its children that have been waited for.
fn own_cpu_time() -> Duration {
    let time = |of: libc::c_int| {
        // SAFETY: zeros are a valid rusage, and getrusage fills it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a rusage of ours.
        unsafe { libc::getrusage(of, &mut usage) };
        let parts = [usage.ru_utime, usage.ru_stime];
        parts
            .iter()
            .map(|t| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000))
            .sum::<Duration>()
    };
    time(libc::RUSAGE_SELF) + time(libc::RUSAGE_CHILDREN)
}

/// Run-queue delay and turns on a CPU, from one thread's `schedstat`.
fn parse_schedstat(text: &str) -> (Duration, u64) {
    let mut words = text.split_whitespace().skip(1);
    let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    (Duration::from_nanos(next()), next())
}

/// Run-queue delay and turns on a CPU of the calling thread since its start.
fn own_delay() -> (Duration, u64) {
    parse_schedstat(&fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default())
}

/// The state of the machine at the begin of an attempt.
#[derive(Debug)]
pub struct Meter {
    ticks: CpuTicks,
    own: Duration,
    delay: (Duration, u64),
}

impl Meter {
    /// Begins to measure. The thread that calls is the tester.
    pub fn start() -> Meter {
        Meter {
            ticks: CpuTicks::now(),
            own: own_cpu_time(),
            delay: own_delay(),
        }
    }

    /// Returns the disturbance since the start. The attempt's processes must have been waited for: before
    /// that their CPU time counts as others'.
    pub fn read(&self) -> Disturbance {
        let ticks = CpuTicks::now();
        let (delay, turns) = own_delay();
        // SAFETY: sysconf has no preconditions.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        let total = ticks.total.saturating_sub(self.ticks.total).max(1) as f64;
        let used = ticks.used.saturating_sub(self.ticks.used) as f64;
        let own = own_cpu_time().saturating_sub(self.own).as_secs_f64() * per_second;
        let turns = turns.saturating_sub(self.delay.1).max(1) as u32;
        Disturbance {
            stolen: ticks.stolen.saturating_sub(self.ticks.stolen) as f64 / total,
            // A few ticks of rounding must not become a disturbance.
            others: (used - own - TICKS_OF_ROUNDING).max(0.0) / total,
            delay: delay.saturating_sub(self.delay.0) / turns,
        }
    }
}

/// Difference in ticks between `/proc/stat` and `getrusage` that rounding alone can make.
const TICKS_OF_ROUNDING: f64 = 3.0;

/// How much other programs disturbed an attempt.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, PartialEq, serde::Serialize)]
pub struct Disturbance {
    /// Fraction of the CPUs' time that the host took, 0..=1.
    pub stolen: f64,
    /// Fraction of the CPUs' time that other processes used, 0..=1.
    pub others: f64,
    /// Mean run-queue delay of the tester per turn on a CPU.
    pub delay: Duration,
}

impl Disturbance {
    /// Returns whether any figure exceeds its limit.
    pub fn is_telling(&self) -> bool {
        self.stolen > MAX_STOLEN || self.others > MAX_OTHERS || self.delay > MAX_DELAY
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "host took {:.1} % of the CPUs' time (limit {:.0}), other processes used {:.1} % (limit {:.0}), \
             tester waited {} µs for a CPU per turn (limit {})",
            self.stolen * 100.0,
            MAX_STOLEN * 100.0,
            self.others * 100.0,
            MAX_OTHERS * 100.0,
            self.delay.as_micros(),
            MAX_DELAY.as_micros()
        )
    }
}

/// Time during which no CPU was given to a thread that computes, from which on it counts as taken.
const GAP: Duration = Duration::from_micros(200);
/// Fraction of the time of threads that only compute which may be taken on a calm machine.
const MAX_TAKEN: f64 = 0.02;
/// Mean lateness of sleepers on a calm machine.
const MAX_LATE: Duration = Duration::from_micros(250);
/// Time for which all waits of one process together wait for calm. A machine that is never calm is judged as
/// it is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Result of a short probe of the machine.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Fraction of computing time that was taken, 0..=1.
    taken: f64,
    /// Mean lateness of sleepers.
    late: Duration,
}

impl Probe {
    /// Probes every CPU for 0.6 s. One probe at a time: two would take the CPUs from each other.
    fn new() -> Probe {
        static PROBING: Mutex<()> = Mutex::new(());
        let _alone = PROBING.lock();
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let probes: Vec<Probe> = thread::scope(|scope| {
            let all: Vec<_> = (0..cpus).map(|_| scope.spawn(probe_one_cpu)).collect();
            all.into_iter().filter_map(|t| t.join().ok()).collect()
        });
        Probe {
            taken: probes.iter().map(|p| p.taken).sum::<f64>() / cpus as f64,
            late: probes.iter().map(|p| p.late).max().unwrap_or_default(),
        }
    }

    fn is_calm(self) -> bool {
        self.taken <= MAX_TAKEN && self.late <= MAX_LATE
    }
}

/// Computes for a while, then sleeps often.
fn probe_one_cpu() -> Probe {
    const SLEEPS: u32 = 200;
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
    let asked = Duration::from_millis(1);
    let begun = Instant::now();
    (0..SLEEPS).for_each(|_| thread::sleep(asked));
    Probe {
        taken: taken.as_secs_f64() / computing.as_secs_f64(),
        late: (begun.elapsed() / SLEEPS).saturating_sub(asked),
    }
}

/// Waits until the machine is calm, for as long as this process has patience for it in all. Returns the disturbance
/// that it found, for the report.
pub fn wait_for_calm() -> String {
    static WAITED_MS: AtomicU64 = AtomicU64::new(0);
    let begun = Instant::now();
    let mut probe = Probe::new();
    while !probe.is_calm() {
        let before = Duration::from_millis(WAITED_MS.load(Ordering::Relaxed));
        if before + begun.elapsed() > PATIENCE {
            break;
        }
        thread::sleep(Duration::from_secs(2));
        probe = Probe::new();
    }
    let waited = begun.elapsed();
    WAITED_MS.fetch_add(waited.as_millis() as u64, Ordering::Relaxed);
    let state = if probe.is_calm() { "calm" } else { "not calm" };
    format!(
        "the machine was {state} {:.0} s later",
        waited.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn columns_of_the_kernel_s_files_are_read() {
        let ticks = CpuTicks::parse("cpu  100 20 30 400 50 6 7 80 9 9\ncpu0 1 2 3\n");
        assert_eq!((ticks.used, ticks.stolen, ticks.total), (150, 80, 693));
        let (delay, turns) = parse_schedstat("1000 250000 7\n");
        assert_eq!((delay, turns), (Duration::from_micros(250), 7));
        assert_eq!(parse_schedstat(""), (Duration::ZERO, 0));
    }

    #[test]
    fn each_figure_alone_tells_and_a_quiet_machine_does_not() {
        let quiet = Disturbance {
            stolen: MAX_STOLEN,
            others: MAX_OTHERS,
            delay: MAX_DELAY,
        };
        assert!(!quiet.is_telling());
        let host = Disturbance {
            stolen: 0.02,
            ..quiet
        };
        let others = Disturbance {
            others: 0.04,
            ..quiet
        };
        let late = Disturbance {
            delay: 2 * MAX_DELAY,
            ..quiet
        };
        assert!(host.is_telling() && others.is_telling() && late.is_telling());
        assert!(others.to_string().contains("other processes used 4.0 %"));
    }

    #[test]
    fn own_computing_is_no_disturbance_by_others() {
        let own = own_cpu_time();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let spent = own_cpu_time() - own;
        assert!(spent >= Duration::from_millis(1), "{spent:?}");
        let disturbance = Meter {
            ticks: CpuTicks::now(),
            own: Duration::ZERO,
            delay: own_delay(),
        }
        .read();
        assert_eq!(disturbance.others, 0.0, "{disturbance}");
    }

    #[test]
    fn a_machine_with_more_to_do_than_cpus_is_not_calm() {
        println!("before: {:?}", Probe::new());
        let over = AtomicBool::new(false);
        let probe = thread::scope(|scope| {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..2 * cpus {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let probe = Probe::new();
            over.store(true, Ordering::Relaxed);
            probe
        });
        assert!(!probe.is_calm() && probe.taken > 0.2, "{probe:?}");
    }
}
