//! The settings of a chunk (`jdk.ActiveSetting`), and the weights of samples that follow from them.

use rustc_hash::FxHashMap;

use super::chunk::Chunk;
use super::value::Value;

/// async-profiler's default interval of CPU samples, ns: `DEFAULT_INTERVAL` in its `arguments.h`, versions 2.0
/// to 4.5. Datadog's profiler has an equal one (`DEFAULT_CPU_INTERVAL`).
const DEFAULT_CPU_NS: u64 = 10_000_000;
/// Their interval of wall-clock samples, ns: five times as long (`wallClock.cpp`,
/// `DEFAULT_WALL_INTERVAL`).
const DEFAULT_WALL_NS: u64 = 50_000_000;
/// async-profiler's events that count time, by the names that `event=` takes.
const CPU_EVENTS: [&str; 5] = ["cpu", "itimer", "ctimer", "cpu-clock", "task-clock"];
/// Its other events with one default interval in all versions (`perfEvents_linux.cpp`).
const DEFAULT_COUNTS: [(&str, u64); 13] = [
    ("page-faults", 1),
    ("cycles", 1_000_000),
    ("instructions", 1_000_000),
    ("cache-references", 1_000_000),
    ("cache-misses", 1_000),
    ("branches", 1_000_000),
    ("branch-instructions", 1_000_000),
    ("branch-misses", 1_000),
    ("bus-cycles", 1_000_000),
    ("ref-cycles", 1_000_000),
    ("L1-dcache-load-misses", 1_000_000),
    ("LLC-load-misses", 1_000),
    ("dTLB-load-misses", 1_000),
];

/// Weight of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// Nanoseconds.
    Time(u64),
    /// This number of events with this name.
    Count(u64, String),
    /// The file does not contain it.
    Unknown,
}

/// Meaning of a `jdk.ExecutionSample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The thread ran.
    Cpu,
    /// The thread existed: it ran or waited.
    Wall,
}

/// async-profiler's settings.
struct AsyncProfiler {
    /// The requested event; empty if only others were requested.
    event: String,
    interval: Option<u64>,
    /// The interval of wall-clock samples beside another event; 0: the default.
    wall: Option<u64>,
}

/// Settings of one chunk. They hold for no other chunk, which may be from another recorder.
#[derive(Default)]
pub(super) struct Settings {
    async_profiler: Option<AsyncProfiler>,
    /// The JDK's periods of each type, ns, with the time from which they hold: a recording may change
    /// them.
    periods: FxHashMap<u64, Vec<(i64, Option<u64>)>>,
    /// Intervals of each type.
    intervals: FxHashMap<u64, u64>,
}

/// One setting.
struct Setting {
    /// Number of the type that it is about.
    type_id: u64,
    name: String,
    value: String,
    ticks: i64,
}

impl Settings {
    /// Reads the settings. The outline of a chunk has no constants: there only settings with texts in place are
    /// read, such as those of async-profiler and Datadog.
    pub(super) fn read(chunk: &Chunk) -> Settings {
        let mut list = Vec::new();
        let own = chunk
            .types
            .iter()
            .find(|(_, t)| t.name == "jdk.ActiveSetting");
        let Some((number, t)) = own else {
            return Settings::default();
        };
        for (_, bytes) in chunk.events().filter(|(k, _)| k == number) {
            let Some(fields) = chunk.event(*number, bytes) else {
                continue;
            };
            let field = |name: &str| t.field(name).and_then(|i| fields.get(i));
            let number = |name: &str| match field(name) {
                Some(Value::Number(n)) => *n,
                _ => 0,
            };
            let text = |name: &str| field(name).map_or("", |v| chunk.text(v)).to_string();
            list.push(Setting {
                type_id: number("id") as u64,
                name: text("name"),
                value: text("value"),
                ticks: number("startTime"),
            });
        }
        Settings::of(list)
    }

    fn of(list: Vec<Setting>) -> Settings {
        let any = |name: &str| list.iter().find(|s| s.name == name).map(|s| &*s.value);
        // No other recorder has these two settings.
        let own = any("cstack").or(any("jstackdepth"));
        let event = any("event").filter(|_| own.is_some());
        let async_profiler = event.map(|event| AsyncProfiler {
            event: event.to_string(),
            interval: any("interval").and_then(positive),
            wall: any("wall").and_then(|w| w.parse().ok()),
        });
        let (mut periods, mut intervals) =
            (FxHashMap::<_, Vec<_>>::default(), FxHashMap::default());
        for s in &list {
            match &*s.name {
                "period" => {
                    let all = periods.entry(s.type_id).or_default();
                    all.push((s.ticks, length(&s.value)));
                }
                "interval" => {
                    intervals.extend(positive(&s.value).map(|n| (s.type_id, n)));
                }
                _ => {}
            }
        }
        periods
            .values_mut()
            .for_each(|p| p.sort_by_key(|(ticks, _)| *ticks));
        Settings {
            async_profiler,
            periods,
            intervals,
        }
    }

    /// Interval of async-profiler's wall-clock samples, ns.
    pub(super) fn wall_interval(&self) -> Option<u64> {
        let own = self.async_profiler.as_ref()?;
        let interval = match (&*own.event, own.wall) {
            ("wall", _) => own.interval,
            (_, Some(wall)) => Some(wall).filter(|n| *n > 0),
            _ => return None,
        };
        Some(interval.unwrap_or(DEFAULT_WALL_NS))
    }

    /// Meaning and weight of a `jdk.ExecutionSample` of the type `type_id`, by the thread's state.
    pub(super) fn execution(&self, type_id: u64, state: &str, ticks: i64) -> (Meaning, Weight) {
        let Some(own) = &self.async_profiler else {
            let period = self.period(type_id, ticks);
            return (Meaning::Cpu, period.map_or(Weight::Unknown, Weight::Time));
        };
        // async-profiler 2.10 to 4 give CPU samples no state where both are taken.
        let stated = matches!(state, "STATE_RUNNABLE" | "STATE_SLEEPING");
        if own.event == "wall" || stated && own.wall.is_some() {
            let interval = self.wall_interval();
            return (
                Meaning::Wall,
                interval.map_or(Weight::Unknown, Weight::Time),
            );
        }
        let weight = if CPU_EVENTS.contains(&&*own.event) {
            Weight::Time(own.interval.unwrap_or(DEFAULT_CPU_NS))
        } else {
            let default = DEFAULT_COUNTS.iter().find(|(name, _)| *name == own.event);
            match own.interval.or(default.map(|(_, n)| *n)) {
                Some(n) => Weight::Count(n, own.event.clone()),
                None => Weight::Unknown,
            }
        };
        (Meaning::Cpu, weight)
    }

    /// The JDK's period of a type at a time.
    fn period(&self, type_id: u64, ticks: i64) -> Option<u64> {
        let all = self.periods.get(&type_id)?;
        let after = all.partition_point(|(from, _)| *from <= ticks);
        all[after.saturating_sub(1)].1
    }

    /// Interval of Datadog's samples of the type `type_id`, ns.
    pub(super) fn datadog(&self, type_id: u64, meaning: Meaning) -> u64 {
        let default = match meaning {
            Meaning::Cpu => DEFAULT_CPU_NS,
            Meaning::Wall => DEFAULT_WALL_NS,
        };
        self.intervals.get(&type_id).copied().unwrap_or(default)
    }

    /// Whether execution samples may be wall-clock samples.
    pub(super) fn execution_is_wall(&self) -> bool {
        self.wall_interval().is_some()
    }

    /// Whether async-profiler wrote the chunk.
    pub(super) fn are_async_profilers(&self) -> bool {
        self.async_profiler.is_some()
    }
}

fn positive(value: &str) -> Option<u64> {
    value.trim().parse().ok().filter(|n| *n > 0)
}

/// A length as the JDK's settings have it, ns: `20 ms`, `20ms`, `1 s`.
fn length(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let n: u64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    n.checked_mul(factor).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &[(u64, &str, &str)]) -> Settings {
        let setting = |(i, (type_id, name, value)): (usize, &(u64, &str, &str))| Setting {
            type_id: *type_id,
            name: name.to_string(),
            value: value.to_string(),
            ticks: i as i64,
        };
        Settings::of(list.iter().enumerate().map(setting).collect())
    }

    #[test]
    fn lengths_are_read_in_every_unit() {
        assert_eq!(length("20 ms"), Some(20_000_000));
        assert_eq!(length("10ms"), Some(10_000_000));
        assert_eq!(length("1 s"), Some(1_000_000_000));
        assert_eq!(length("everyChunk"), None);
        assert_eq!(length("0 ns"), None);
    }

    #[test]
    fn an_interval_of_zero_is_the_recorders_default() {
        let cpu = settings(&[
            (9, "event", "cpu"),
            (9, "cstack", "vm"),
            (1, "interval", "0"),
        ]);
        let weight = cpu.execution(1, "STATE_DEFAULT", 9);
        assert_eq!(weight, (Meaning::Cpu, Weight::Time(10_000_000)));
        assert_eq!(cpu.wall_interval(), None);
        let wall = settings(&[
            (9, "event", "wall"),
            (9, "cstack", "vm"),
            (1, "interval", "0"),
        ]);
        assert_eq!(wall.wall_interval(), Some(50_000_000));
    }

    #[test]
    fn cpu_and_wall_samples_of_one_chunk_have_their_own_intervals() {
        let both = settings(&[
            (9, "event", "ctimer"),
            (9, "cstack", "vm"),
            (1, "interval", "7000000"),
            (1, "wall", "20000000"),
        ]);
        let of = |state| both.execution(1, state, 9);
        assert_eq!(of("STATE_DEFAULT"), (Meaning::Cpu, Weight::Time(7_000_000)));
        assert_eq!(
            of("STATE_SLEEPING"),
            (Meaning::Wall, Weight::Time(20_000_000))
        );
    }

    #[test]
    fn intervals_of_other_events_are_no_time() {
        let cycles = settings(&[
            (9, "event", "cycles"),
            (9, "cstack", "vm"),
            (1, "interval", "0"),
        ]);
        let expected = Weight::Count(1_000_000, "cycles".to_string());
        assert_eq!(cycles.execution(1, "", 9).1, expected);
        let method = settings(&[
            (9, "event", "A.b"),
            (9, "cstack", "vm"),
            (1, "interval", "0"),
        ]);
        assert_eq!(method.execution(1, "", 9).1, Weight::Unknown);
    }

    #[test]
    fn a_period_holds_from_its_time_on() {
        let changed = settings(&[(1, "period", "20 ms"), (1, "period", "10 ms")]);
        let at = |ticks| changed.execution(1, "STATE_RUNNABLE", ticks).1;
        assert_eq!(at(0), Weight::Time(20_000_000));
        assert_eq!(at(1), Weight::Time(10_000_000));
        assert_eq!(settings(&[]).execution(1, "", 0).1, Weight::Unknown);
    }
}
