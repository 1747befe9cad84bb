//! Throughput that loads keep under a watcher, and the printed overhead beside the measured one.
//!
//! One load works in windows. Each window with a watcher is compared with the windows just before and after it,
//! in which nobody watches. Rounds go on until the 95 % interval of each watcher's median is narrow enough, or
//! until a stated number of rounds.
//!
//! The measured overhead is the CPU time of the machine for a unit of work with the watcher, less that without,
//! times the work done. It holds hooks, their entries, cache misses that they cause, and the recorder. The CPU
//! time that the watcher takes before and after its recording is in no window. `blame` measures a part of it alone, and
//! [`Watched::Floors`] the parts that no recording can do without.

mod blame;
mod cpu;
mod exchange_client;
mod floor;
mod limit;
mod loads;
mod watch;
mod work;

use std::fmt::Write as _;

use wallscope_testkit::Tool;

use crate::{Outcome, median};
pub(super) use blame::run as run_blame;
pub(super) use cpu::Meter;
use limit::Figures;
use loads::Load;
use watch::Watcher;
use work::Work;

/// How long to try.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Length of a window, s.
    pub window_s: u64,
    /// Rounds, at most.
    pub most_rounds: usize,
}

/// The 95 % interval of a median is to be no wider than this to both sides.
const NARROW: f64 = 0.01;

/// A window in which the load worked.
#[derive(Clone, Copy, Debug)]
struct Window {
    work: Work,
    /// CPU time of the machine for it, s.
    cpu_s: f64,
    /// Context switches a second.
    switches: f64,
}

impl Window {
    fn cpu_per_unit(&self) -> f64 {
        self.cpu_s / self.work.units
    }
}

/// What one watch showed.
#[derive(Clone, Copy, Debug)]
struct Watch {
    /// Throughput, over the mean of before and after.
    kept: f64,
    /// Measured overhead, µs of CPU a unit of work.
    lost_us: f64,
    /// Measured overhead, percent of one CPU.
    lost_percent: f64,
    /// The printed overhead, percent of one CPU at this rate of work.
    printed_percent: Option<f64>,
    /// CPU time of the watcher's own process, percent of one CPU at this rate of work.
    own_percent: f64,
    /// Context switches a second.
    switches: f64,
}

/// The rounds of one watcher.
#[derive(Clone, Debug, Default)]
struct Watches(Vec<Watch>);

/// A median and its 95 % interval.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    middle: f64,
    low: f64,
    high: f64,
}

/// The median with its interval, by order statistics: no distribution is assumed. Fewer than six values have
/// none.
fn estimate(mut values: Vec<f64>) -> Estimate {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    // The largest rank k such that P(fewer than k of n values lie below the median) ≤ 2.5 %.
    let (mut rank, mut below, mut term) = (0, 0.0, 0.5f64.powi(n as i32));
    while rank < n {
        below += term;
        if below > 0.025 {
            break;
        }
        term *= (n - rank) as f64 / (rank + 1) as f64;
        rank += 1;
    }
    let (low, high) = match rank {
        0 => (f64::NEG_INFINITY, f64::INFINITY),
        k => (values[k - 1], values[n - k]),
    };
    Estimate {
        middle: median(values),
        low,
        high,
    }
}

impl Estimate {
    fn is_narrow(&self) -> bool {
        self.high - self.middle <= NARROW && self.middle - self.low <= NARROW
    }
}

impl Watches {
    fn of(&self, value: impl Fn(&Watch) -> f64) -> Estimate {
        estimate(self.0.iter().map(value).collect())
    }

    fn figures(&self) -> Figures {
        Figures {
            kept: self.of(|w| w.kept).middle,
            lost_percent: self.of(|w| w.lost_percent).middle,
            own_percent: self.of(|w| w.own_percent).middle,
            switches: self.of(|w| w.switches).middle,
        }
    }

    fn ratios(&self) -> Vec<f64> {
        let printed = |w: &Watch| w.printed_percent.map(|p| p / w.lost_percent);
        self.0.iter().filter_map(printed).collect()
    }
}

fn window(load: &Load, meter: &Meter, seconds: u64) -> Outcome<Window> {
    let before = meter.read()?;
    let work = (load.work)(seconds)?;
    let after = meter.read()?;
    Ok(Window {
        work,
        cpu_s: before.until(&after),
        switches: before.switches_until(&after),
    })
}

/// One window with the watcher, after the window `before`; returns the window after it too.
fn watch(
    (load, watcher): (&Load, &Watcher),
    before: Window,
    meter: &Meter,
    seconds: u64,
) -> Outcome<(Watch, Window)> {
    let watching = watcher.start(load)?;
    let own_before = watching.own_cpu_s()?;
    let watched = window(load, meter, seconds)?;
    let own_s = watching.own_cpu_s()? - own_before;
    let printed_s = watching.stop()?;
    let after = window(load, meter, seconds)?;
    let bare = (before.cpu_per_unit() + after.cpu_per_unit()) / 2.0;
    let lost = watched.cpu_per_unit() - bare;
    let rate = watched.work.rate;
    let watch = Watch {
        kept: 2.0 * rate / (before.work.rate + after.work.rate),
        lost_us: lost * 1e6,
        lost_percent: lost * rate * 100.0,
        printed_percent: printed_s.map(|s| s / watched.work.units * rate * 100.0),
        own_percent: own_s / watched.work.units * rate * 100.0,
        switches: watched.switches,
    };
    Ok((watch, after))
}

/// The table of a load.
fn table(load: &Load, watchers: &[Watcher], seen: &[Watches]) -> Outcome<String> {
    let mut text = String::new();
    let width = watchers.iter().map(|w| w.name.len()).max().unwrap_or(0);
    for (watcher, watches) in watchers.iter().zip(seen) {
        let (kept, lost) = (watches.of(|w| w.kept), watches.of(|w| w.lost_percent));
        write!(
            text,
            "  {:width$}  kept {:.3} ({:.3} – {:.3})",
            watcher.name, kept.middle, kept.low, kept.high
        )?;
        let figures = watches.figures();
        write!(
            text,
            "; lost {:.1} % of one CPU ({:.1} – {:.1}), {:.2} µs a unit, {:.0} ns a switch of {:.0} a second; \
             own CPU {:.2} %",
            lost.middle,
            lost.low,
            lost.high,
            watches.of(|w| w.lost_us).middle,
            figures.switch_ns(),
            figures.switches,
            figures.own_percent
        )?;
        match watcher.limit {
            Some(limit) if limit.holds(&figures) => write!(text, "; limit ({limit}) reached")?,
            Some(limit) => write!(text, "; LIMIT NOT REACHED: {limit}")?,
            None => {}
        }
        let ratio = estimate(watches.ratios());
        if !ratio.middle.is_nan() {
            write!(
                text,
                "; printed {:.1} %, over measured {:.2} ({:.2} – {:.2})",
                watches.of(|w| w.printed_percent.unwrap_or(f64::NAN)).middle,
                ratio.middle,
                ratio.low,
                ratio.high
            )?;
        }
        writeln!(text)?;
    }
    Ok(format!("{}: {}\n{text}", load.name, load.about))
}

/// What is measured under a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The ways to record.
    Recordings,
    /// A recording, and the parts that nothing of its kind can do without.
    Floors,
}

/// All watchers of a load; whether the limits hold.
fn compare(watchers: &[Watcher], load: &Load, effort: Effort) -> Outcome<bool> {
    let meter = Meter::new()?;
    if !meter.leaves_others_out() {
        println!("no cgroup of its own: the CPU time of other processes counts");
    }
    let mut seen = vec![Watches::default(); watchers.len()];
    let mut before = window(load, &meter, effort.window_s)?;
    for round in 0..effort.most_rounds {
        if seen.iter().all(|w| w.of(|w| w.kept).is_narrow()) {
            break;
        }
        // Back and forth, so that none is always the one after the most disturbing.
        let mut order: Vec<usize> = (0..watchers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let pair = (load, &watchers[index]);
            let (shown, after) = watch(pair, before, &meter, effort.window_s)?;
            seen[index].0.push(shown);
            before = after;
        }
        eprintln!("round {}\n{}", round + 1, table(load, watchers, &seen)?);
    }
    println!("{}", table(load, watchers, &seen)?);
    let rounds = seen.first().map_or(0, |w| w.0.len());
    println!("  rounds: {rounds} of {} at most", effort.most_rounds);
    let holds = |(watcher, watches): (&Watcher, &Watches)| {
        let limit = watcher.limit;
        limit.is_none_or(|l| l.holds(&watches.figures()))
    };
    Ok(watchers.iter().zip(&seen).all(holds))
}

/// All loads, or the one of that name; whether the limits hold.
///
/// # Errors
/// wallscope cannot record here, or there is no such load. A load that is not installed is left out, and said.
pub(super) fn run(
    tool: &Tool,
    effort: Effort,
    watched: Watched,
    only: Option<&str>,
) -> Outcome<bool> {
    let mut holds = true;
    let kinds = loads::ALL.iter();
    let asked: Vec<_> = kinds.filter(|k| only.is_none_or(|o| o == k.name)).collect();
    if asked.is_empty() {
        let names: Vec<&str> = loads::ALL.iter().map(|k| k.name).collect();
        return Err(format!("no such load; there are {}", names.join(", ")).into());
    }
    for kind in asked {
        if let Some(program) = kind.missing() {
            println!("left out: {}: {program} is not in PATH", kind.name);
            continue;
        }
        let folder = tempfile::tempdir()?;
        let load = (kind.prepare)(folder.path())?;
        let watchers = match watched {
            Watched::Recordings => watch::all(tool, &load, &kind.limits),
            Watched::Floors => watch::floors(tool, &load, &kind.limits),
        };
        holds &= compare(&watchers, &load, effort)?;
    }
    Ok(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_medians_are_those_of_the_tables() {
        // Ranks of the binomial distribution: 1 of 6, 2 of 9, 3 of 12, 6 of 20.
        for (n, rank) in [(6, 1), (9, 2), (12, 3), (20, 6)] {
            let all = estimate((1..=n).map(f64::from).collect());
            assert_eq!(
                (all.low, all.high),
                (f64::from(rank), f64::from(n + 1 - rank))
            );
        }
        assert!(!estimate(vec![1.0; 5]).is_narrow());
        assert!(estimate(vec![1.0; 6]).is_narrow());
    }
}
