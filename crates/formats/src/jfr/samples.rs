//! Events → samples.

use std::collections::BTreeMap;

use wallscope_model::{BlockReason, ContextId, StackId, State};

use super::super::ReadError;
use super::super::import::{Amount, Import, SampleTime};
use super::catalog::{
    self, CPU_TIME, CPU_TIME_LOST, DATA_LOSS, DATADOG_CPU, DATADOG_WALL, EXECUTION, WALL,
};
use super::chunk::Chunk;
use super::event::{Constants, Fields};
use super::plan::Plan;
use super::settings::{Meaning, Settings, Weight};
use super::value::Value;

/// The values that are read from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// All time: samples and waiting.
    Time,
    /// Time of CPU samples only.
    Cpu,
    /// Time of wall-clock samples only.
    Wall,
    /// Bytes allocated.
    Allocation,
    /// One kind of event, counted.
    Event(String),
}

impl Choice {
    pub(super) fn named(asked: Option<&str>) -> Choice {
        match asked {
            None | Some("time") => Choice::Time,
            Some("cpu") => Choice::Cpu,
            Some("wall") => Choice::Wall,
            Some("allocation") => Choice::Allocation,
            Some(name) => Choice::Event(name.to_string()),
        }
    }

    pub(super) fn is_time(&self) -> bool {
        matches!(self, Choice::Time | Choice::Cpu | Choice::Wall)
    }
}

/// A sample with a weight that is no time.
pub(super) struct Weightless {
    context: ContextId,
    stack: StackId,
    kind: SampleTime,
    count: u64,
    time: Option<u64>,
    /// Number of events that it represents, and the index of their name in [`Samples::counted`]; `None`: unknown.
    value: Option<(u64, usize)>,
}

/// Sources of the recording's parts, for its domain.
#[derive(Default)]
pub(super) struct Sources {
    /// Events that were read as samples, with the first of their intervals, ns.
    pub read: BTreeMap<String, u64>,
    /// Samples with a weight that is no time, by event.
    pub weightless: BTreeMap<String, u64>,
    /// The JDK's own samples of running threads were read.
    pub jdk_execution: bool,
    pub waits: bool,
    pub cpu: bool,
    pub wall: bool,
    /// CPU samples and wall-clock samples cover one time.
    pub both: bool,
    /// Wall-clock samples by Datadog's profiler.
    pub datadog_wall: bool,
}

/// Collects samples from chunk to chunk.
pub(super) struct Samples {
    pub to: Import,
    pub choice: Choice,
    /// Events by name: their number, and whether they have a length.
    pub seen: BTreeMap<String, (u64, bool)>,
    /// Events that were left out because another kind of event covers their time.
    pub covered: BTreeMap<String, u64>,
    pub weightless: Vec<Weightless>,
    /// Names of the events that weights without time count.
    pub counted: Vec<String>,
    pub sources: Sources,
    /// Events with bytes that are no value of their type.
    pub damaged: u64,
    /// Samples and bytes that the recorder lost.
    pub lost_samples: u64,
    pub lost_bytes: u64,
}

/// Maximum pieces into which one length of time is divided.
const MAX_PIECES: u64 = 100;
/// Minimum length of a piece, ns: the width of a slice of a short recording.
const MIN_PIECE_NS: u64 = 10_000_000;

/// The thread, stack and beginning of an event.
#[derive(Clone, Copy)]
struct EventKey {
    context: ContextId,
    stack: StackId,
    start: Option<u64>,
}

impl Samples {
    pub(super) fn new(memory: u64, asked: Option<&str>) -> Samples {
        Samples {
            to: Import::new(memory),
            choice: Choice::named(asked),
            seen: BTreeMap::new(),
            covered: BTreeMap::new(),
            weightless: Vec::new(),
            counted: Vec::new(),
            sources: Sources::default(),
            damaged: 0,
            lost_samples: 0,
            lost_bytes: 0,
        }
    }

    /// Reads the events of a chunk.
    pub(super) fn chunk(&mut self, chunk: &Chunk, plan: Plan) -> Result<(), ReadError> {
        let mut constants = Constants::new(chunk);
        let settings = Settings::read(chunk);
        let cpu_before = std::mem::take(&mut self.sources.cpu);
        for (type_id, bytes) in chunk.events() {
            let Some(t) = chunk.types.get(&type_id).filter(|_| type_id > 1) else {
                continue;
            };
            match self.seen.get_mut(&t.name) {
                Some((n, _)) => *n += 1,
                None => {
                    let timed = t.field("duration").is_some();
                    self.seen.insert(t.name.clone(), (1, timed));
                }
            }
            if !self.wants(&t.name, &settings, plan) {
                continue;
            }
            let Some(values) = chunk.event(type_id, bytes) else {
                self.damaged += 1;
                continue;
            };
            let fields = Fields {
                chunk,
                type_id,
                t,
                values: &values,
            };
            self.event(&mut constants, &settings, &fields)?;
        }
        // Waits are left out where wall-clock samples cover the chunk's time.
        self.sources.both |= self.sources.cpu && !plan.waits;
        self.sources.cpu |= cpu_before;
        Ok(())
    }

    /// Whether an event is read. Counts an event that is left out because another event covers its time.
    fn wants(&mut self, name: &str, settings: &Settings, plan: Plan) -> bool {
        let wall = matches!(name, WALL | DATADOG_WALL);
        let cpu = matches!(name, CPU_TIME | DATADOG_CPU);
        let wait = catalog::wait(name).is_some();
        let lost = matches!(name, CPU_TIME_LOST | DATA_LOSS) && self.choice.is_time();
        let read = match &self.choice {
            Choice::Time => wall || cpu || wait && plan.waits,
            Choice::Cpu => cpu,
            Choice::Wall => wall || settings.execution_is_wall() && name == EXECUTION,
            Choice::Allocation => {
                let source = catalog::allocation(name).map(|(source, _)| source);
                let read = source.is_some() && source == plan.allocations;
                if source.is_some() && !read {
                    *self.covered.entry(name.to_string()).or_default() += 1;
                }
                return read;
            }
            Choice::Event(asked) => return name == asked,
        };
        let execution = name == EXECUTION && matches!(self.choice, Choice::Time | Choice::Cpu);
        let covered = match execution {
            true => !plan.jdk_execution,
            false => wait && self.choice == Choice::Time && !plan.waits,
        };
        if covered {
            *self.covered.entry(name.to_string()).or_default() += 1;
        }
        read || lost || execution && plan.jdk_execution
    }

    fn event(
        &mut self,
        constants: &mut Constants,
        settings: &Settings,
        fields: &Fields,
    ) -> Result<(), ReadError> {
        let name = fields.t.name.as_str();
        let amount = |field: &str| fields.number(field).unwrap_or(0).max(0) as u64;
        match name {
            _ if matches!(self.choice, Choice::Event(_)) => {}
            CPU_TIME_LOST => {
                self.lost_samples = self.lost_samples.saturating_add(amount("lostSamples"));
                return Ok(());
            }
            DATA_LOSS => {
                self.lost_bytes = self.lost_bytes.saturating_add(amount("amount"));
                return Ok(());
            }
            _ => {}
        }
        let thread = match fields.get("sampledThread") {
            Value::Null => fields.get("eventThread"),
            thread => thread,
        };
        let ticks = fields.number("startTime");
        let seen = EventKey {
            context: constants.thread(thread, &mut self.to)?,
            stack: constants.stack(fields.get("stackTrace"), &mut self.to)?,
            start: ticks.and_then(|t| fields.chunk.time(t)),
        };
        if let Choice::Event(_) = self.choice {
            return self.add(seen, SampleTime::of(State::Unknown), (1, 1));
        }
        if self.choice == Choice::Allocation {
            let parts = catalog::allocation(name).map_or(&[][..], |(_, fields)| fields);
            let bytes: f64 = parts
                .iter()
                .map(|f| fields.real(f).unwrap_or(0.0))
                .product();
            // Floats hold bytes exactly up to 8 PiB.
            return self.add(
                seen,
                SampleTime::of(State::Unknown),
                (1, bytes.max(0.0) as u64),
            );
        }
        match catalog::wait(name) {
            Some(reason) => self.wait(seen, reason, fields),
            None => self.sampled(seen, settings, fields),
        }
    }

    /// Adds a sample of a thread. Its weight is in the event or in a setting.
    fn sampled(
        &mut self,
        seen: EventKey,
        settings: &Settings,
        fields: &Fields,
    ) -> Result<(), ReadError> {
        let amount = |field: &str| fields.number(field).unwrap_or(0).max(0) as u64;
        let ticks = fields.number("startTime").unwrap_or(0);
        match fields.t.name.as_str() {
            CPU_TIME => {
                let period = fields.length("samplingPeriod").filter(|n| *n > 0);
                let weight = period.map_or(Weight::Unknown, Weight::Time);
                self.cpu(seen, 1, weight, fields)
            }
            DATADOG_CPU => {
                let interval = settings.datadog(fields.type_id, Meaning::Cpu);
                self.cpu(
                    seen,
                    amount("weight").max(1),
                    Weight::Time(interval),
                    fields,
                )
            }
            DATADOG_WALL => {
                self.sources.datadog_wall = true;
                let interval = settings.datadog(fields.type_id, Meaning::Wall);
                let n = amount("weight").max(1);
                self.wall(seen, (n, Some(n.saturating_mul(interval))), fields)
            }
            WALL => {
                let n = amount("samples").max(1);
                let span = fields.length("timeSpan").filter(|n| *n > 0);
                // The span is from the first of the samples to the last.
                let interval = settings.wall_interval();
                let time = interval.map(|i| i.saturating_mul(n).max(span.unwrap_or(0)));
                self.wall(seen, (n, time.or(span)), fields)
            }
            _ => match settings.execution(fields.type_id, fields.text("state"), ticks) {
                (Meaning::Wall, weight) if self.choice != Choice::Cpu => {
                    let time = match weight {
                        Weight::Time(ns) => Some(ns),
                        _ => None,
                    };
                    self.wall(seen, (1, time), fields)
                }
                (Meaning::Cpu, weight) if self.choice != Choice::Wall => {
                    self.sources.jdk_execution |= !settings.are_async_profilers();
                    self.cpu(seen, 1, weight, fields)
                }
                _ => Ok(()),
            },
        }
    }

    /// Adds `n` samples of a thread that ran.
    fn cpu(
        &mut self,
        seen: EventKey,
        n: u64,
        weight: Weight,
        fields: &Fields,
    ) -> Result<(), ReadError> {
        self.sources.cpu = true;
        let kind = SampleTime::of(State::OnCpu);
        let value = match weight {
            Weight::Time(ns) => {
                self.read_from(&fields.t.name, ns);
                return self.add(seen, kind, (n, n.saturating_mul(ns)));
            }
            Weight::Count(value, name) => {
                let known = self.counted.iter().position(|c| *c == name);
                let at = known.unwrap_or_else(|| {
                    self.counted.push(name);
                    self.counted.len() - 1
                });
                Some((value, at))
            }
            Weight::Unknown => None,
        };
        self.set_aside(seen, kind, (n, value), fields)
    }

    /// Adds `n` samples of a thread that ran or waited, worth `time` ns in all.
    fn wall(
        &mut self,
        seen: EventKey,
        (n, time): (u64, Option<u64>),
        fields: &Fields,
    ) -> Result<(), ReadError> {
        self.sources.wall = true;
        // A thread that is not in a system call runs or waits for a CPU.
        let (state, reason) = match fields.text("state") {
            "STATE_SLEEPING" => (State::Blocked, None),
            "SLEEPING" => (State::Blocked, Some(BlockReason::Timer)),
            "CONTENDED" | "PARKED" | "WAITING" => (State::Blocked, Some(BlockReason::Lock)),
            _ => (State::Unknown, None),
        };
        let kind = SampleTime {
            reason,
            ..SampleTime::of(state)
        };
        let Some(time) = time else {
            return self.set_aside(seen, kind, (n, None), fields);
        };
        self.read_from(&fields.t.name, time / n);
        self.spread(seen, kind, (n, time))
    }

    fn wait(
        &mut self,
        seen: EventKey,
        reason: BlockReason,
        fields: &Fields,
    ) -> Result<(), ReadError> {
        let Some(length) = fields.length("duration") else {
            self.damaged += 1;
            return Ok(());
        };
        self.sources.waits = true;
        let kind = SampleTime {
            reason: Some(reason),
            ..SampleTime::of(State::Blocked)
        };
        self.spread(seen, kind, (1, length))
    }

    fn read_from(&mut self, event: &str, interval: u64) {
        if !self.sources.read.contains_key(event) {
            self.sources.read.insert(event.to_string(), interval);
        }
    }

    fn add(
        &mut self,
        seen: EventKey,
        kind: SampleTime,
        value: (u64, u64),
    ) -> Result<(), ReadError> {
        let EventKey {
            context,
            stack,
            start,
        } = seen;
        self.to
            .sample(context, stack, kind, Amount::new(value, start))
    }

    /// Adds `count` samples worth `time` ns, spread over that time: each slice gets its part.
    fn spread(
        &mut self,
        seen: EventKey,
        kind: SampleTime,
        (count, time): (u64, u64),
    ) -> Result<(), ReadError> {
        let pieces = (time / MIN_PIECE_NS).clamp(1, MAX_PIECES);
        let part = |whole: u64, i: u64| {
            let at = |i: u64| (u128::from(whole) * u128::from(i) / u128::from(pieces)) as u64;
            at(i + 1) - at(i)
        };
        let mut at = seen.start;
        for i in 0..pieces {
            let own = part(time, i);
            // A single sample counts where it begins.
            let n = part(count, pieces - 1 - i);
            let seen = EventKey { start: at, ..seen };
            self.add(seen, kind, (n, own))?;
            at = at.map(|t| t.saturating_add(own));
        }
        if let Some(end) = seen.start.map(|t| t.saturating_add(time)) {
            self.to.reaches(end);
        }
        Ok(())
    }

    fn set_aside(
        &mut self,
        seen: EventKey,
        kind: SampleTime,
        (count, value): (u64, Option<(u64, usize)>),
        fields: &Fields,
    ) -> Result<(), ReadError> {
        let name = &fields.t.name;
        *self.sources.weightless.entry(name.clone()).or_default() += 1;
        self.to.take(std::mem::size_of::<Weightless>())?;
        self.weightless.push(Weightless {
            context: seen.context,
            stack: seen.stack,
            kind,
            count,
            time: seen.start,
            value,
        });
        Ok(())
    }

    /// Adds the samples that were set aside. They count events if all of them represent events of one name;
    /// otherwise each counts as one. Returns the name of the unit.
    pub(super) fn add_weightless(&mut self) -> Result<String, ReadError> {
        let all = std::mem::take(&mut self.weightless);
        let named = self.counted.len() == 1 && all.iter().all(|w| w.value.is_some());
        for w in all {
            let value = w.value.filter(|_| named).map_or(1, |(n, _)| n);
            let value = (w.count, value.saturating_mul(w.count));
            self.to
                .sample(w.context, w.stack, w.kind, Amount::new(value, w.time))?;
        }
        Ok(match named {
            true => self.counted[0].clone(),
            false => "samples".to_string(),
        })
    }
}
