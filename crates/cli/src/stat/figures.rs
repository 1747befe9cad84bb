//! Results of a run: figures by name, and their spread over several runs.

use std::time::Duration;

use wallscope_capture::counter::{Count, Reading, Source, Usage, topdown};
use wallscope_capture::session::Stop;
use wallscope_model::{BlockReason, Domain, State};

use super::sums::Sums;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time, ns.
    Ns,
    /// Number of events.
    Count,
    /// CPUs, on average.
    Cpus,
    /// Bytes.
    Bytes,
    /// Quotient of two figures.
    Ratio,
    /// A share of 1.
    Share,
}

impl Unit {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Count => "count",
            Unit::Cpus => "cpus",
            Unit::Bytes => "bytes",
            Unit::Ratio => "ratio",
            Unit::Share => "share",
        }
    }
}

/// Part of the output that has the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Block {
    /// Of the run.
    Run,
    /// Of the ledger.
    Ledger,
    /// Of the scheduler and the kernel.
    Kernel,
    /// Of the CPU.
    Hardware,
    /// Figures derived from those above.
    Derived,
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name; a part's begins with that of the whole and a dot.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Its part of the output.
    pub block: Block,
    /// Its value.
    pub value: f64,
    /// The share of the time for which it was counted, 1: all of it.
    pub share: f64,
    /// Whether it was counted in user mode only, for lack of the right to count the kernel.
    pub user_only: bool,
}

/// All figures of a run or a stretch of it.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// In the order in which they are shown.
    pub all: Vec<Figure>,
    /// Events that were not counted, and why.
    pub refused: Vec<(String, Source, String)>,
}

impl Figures {
    /// The figures of these sums and readings.
    pub fn new(
        length: Duration,
        sums: &Sums,
        readings: &[Reading],
        usage: Option<&Usage>,
    ) -> Figures {
        let mut f = Figures::default();
        let l = &sums.ledger;
        let wall = length.as_nanos() as f64;
        let on_cpu = l.state_ns(State::OnCpu) + sums.unattributed_ns;
        f.push("elapsed", Unit::Ns, Block::Run, wall);
        f.push(
            "cpus_used",
            Unit::Cpus,
            Block::Run,
            on_cpu as f64 / wall.max(1.0),
        );
        f.push("threads", Unit::Count, Block::Run, sums.threads as f64);
        if let Some(usage) = usage {
            f.push(
                "max_rss",
                Unit::Bytes,
                Block::Run,
                usage.most_rss_bytes as f64,
            );
        }
        f.push("wall", Unit::Ns, Block::Ledger, l.wall_ns as f64);
        let time = |f: &mut Figures, name: &str, ns: u64| {
            f.push(name, Unit::Ns, Block::Ledger, ns as f64);
        };
        let part = |f: &mut Figures, name: &str, ns: u64| {
            if ns > 0 {
                f.push(name, Unit::Ns, Block::Ledger, ns as f64);
            }
        };
        time(&mut f, "on_cpu", l.state_ns(State::OnCpu));
        part(&mut f, "on_cpu.user", l.on_cpu.user);
        part(&mut f, "on_cpu.kernel", l.on_cpu.kernel);
        part(&mut f, "on_cpu.irq", l.on_cpu.irq);
        part(&mut f, "on_cpu.stolen", l.on_cpu.stolen);
        time(&mut f, "runnable", l.state_ns(State::Runnable));
        part(&mut f, "runnable.woken", l.runnable.woken);
        part(&mut f, "runnable.preempted", l.runnable.preempted);
        part(&mut f, "runnable.throttled", l.runnable.throttled);
        time(&mut f, "blocked", l.state_ns(State::Blocked));
        let mut reasons: Vec<_> = BlockReason::ALL
            .iter()
            .map(|r| (l.blocked[*r as usize], r.name()))
            .collect();
        reasons.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        for (ns, name) in reasons {
            part(&mut f, &format!("blocked.{name}"), ns);
        }
        time(&mut f, "unknown", l.unknown_ns());
        part(&mut f, "unattributed_on_cpu", sums.unattributed_ns);
        let count = |f: &mut Figures, name: &str, n: u64| {
            f.push(name, Unit::Count, Block::Kernel, n as f64);
        };
        count(&mut f, "voluntary_switches", l.voluntary_switches);
        count(&mut f, "involuntary_switches", l.involuntary_switches);
        for r in readings {
            f.reading(r, usage);
        }
        f.derived(readings, l.state_ns(State::OnCpu));
        f
    }

    fn push(&mut self, name: &str, unit: Unit, block: Block, value: f64) {
        self.all.push(Figure {
            name: name.to_string(),
            unit,
            block,
            value,
            share: 1.0,
            user_only: false,
        });
    }

    fn reading(&mut self, r: &Reading, usage: Option<&Usage>) {
        if topdown::is_part(&r.name) {
            return;
        }
        match &r.count {
            Count::Value { value, share } => self.all.push(Figure {
                name: r.name.clone(),
                unit: if r.is_time { Unit::Ns } else { Unit::Count },
                block: match r.source {
                    Source::Hardware => Block::Hardware,
                    _ => Block::Kernel,
                },
                value: *value,
                share: *share,
                user_only: r.user_only,
            }),
            Count::None(why) => {
                // The kernel gives the parent a command's faults (`getrusage`).
                let told = usage.and_then(|u| match r.name.as_str() {
                    "page-faults" => Some(u.faults.0 + u.faults.1),
                    "major-faults" => Some(u.faults.1),
                    _ => None,
                });
                match told {
                    Some(n) => self.push(&r.name, Unit::Count, Block::Kernel, n as f64),
                    None => self.refused.push((r.name.clone(), r.source, why.clone())),
                }
            }
        }
    }

    /// Adds the ratios that people read first.
    fn derived(&mut self, readings: &[Reading], on_cpu_ns: u64) {
        let ratio = |of: &str, by: &str| {
            let (of, by) = (self.find(of)?, self.find(by)?);
            (by.value > 0.0).then(|| of.value / by.value)
        };
        let ipc = ratio("instructions", "cycles");
        let branches = ratio("branch-misses", "branches");
        let caches = ratio("cache-misses", "cache-references");
        let clock = self
            .find("cycles")
            .filter(|c| !c.user_only && on_cpu_ns > 0)
            .map(|c| c.value / on_cpu_ns as f64);
        let rows = [
            ("instructions per cycle", ipc, Unit::Ratio),
            ("cycles per ns", clock, Unit::Ratio),
            ("branches mispredicted", branches, Unit::Share),
            ("cache misses", caches, Unit::Share),
        ];
        for (name, value, unit) in rows {
            if let Some(value) = value {
                self.push(name, unit, Block::Derived, value);
            }
        }
        for p in topdown::parts(readings) {
            let name = match p.level {
                1 => format!("top-down {}", p.what),
                _ => format!("top-down: {}", p.what),
            };
            self.push(&name, Unit::Share, Block::Derived, p.share);
        }
    }

    /// The figure of this name.
    pub fn find(&self, name: &str) -> Option<&Figure> {
        self.all.iter().find(|f| f.name == name)
    }

    /// Its value, 0 where there is none.
    pub fn value(&self, name: &str) -> f64 {
        self.find(name).map_or(0.0, |f| f.value)
    }
}

/// One run.
pub struct Run {
    /// Its figures.
    pub figures: Figures,
    /// How they were measured.
    pub domain: Domain,
    /// Exit code of the command; 0 of another target.
    pub status: u8,
    /// Cause of its end.
    pub stop: Stop,
}

/// Mean and standard deviation of `values`; of a single one the latter is not known.
pub fn spread(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, None);
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, Some((squares / (n - 1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(name: &str, source: Source, count: Count) -> Reading {
        Reading {
            name: name.into(),
            source,
            is_time: false,
            user_only: false,
            count,
        }
    }

    #[test]
    fn deviations_are_those_of_a_sample() {
        assert_eq!(spread(&[3.0]), (3.0, None));
        let (mean, deviation) = spread(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(mean, 5.0);
        assert!((deviation.unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_counted_is_told_or_taken_from_elsewhere() {
        let none = || Count::None("no".into());
        let value = |value| Count::Value { value, share: 0.5 };
        let readings = [
            reading("page-faults", Source::Software, none()),
            reading("cycles", Source::Hardware, value(2e9)),
            reading("instructions", Source::Hardware, value(3e9)),
            reading("LLC-loads", Source::Hardware, none()),
        ];
        let usage = Usage {
            faults: (10, 2),
            ..Usage::default()
        };
        let mut sums = Sums::default();
        sums.ledger.on_cpu.user = 1_000_000_000;
        let f = Figures::new(Duration::from_secs(2), &sums, &readings, Some(&usage));
        assert_eq!(f.value("page-faults"), 12.0);
        assert_eq!(f.value("cpus_used"), 0.5);
        assert_eq!(f.value("instructions per cycle"), 1.5);
        assert_eq!(f.find("cycles").unwrap().share, 0.5);
        assert_eq!(f.refused.len(), 1);
        assert_eq!(f.refused[0].0, "LLC-loads");
    }
}
