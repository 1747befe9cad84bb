//! The metric families.

use std::collections::BTreeMap;

use wallscope_model::histogram::Histogram;
use wallscope_model::{BlockReason, UnknownCause};

use super::family::{Family, Lengths, MetricKind, Sample, Value};
use super::totals::{ServiceTotals, Totals};

/// Upper bounds of classic buckets, ns: around a scheduler's slice, where run-queue latency matters.
const BUCKETS: [u64; 16] = [
    1_000,
    10_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    5_000_000_000,
];

/// The agent's own figures.
#[derive(Clone, Debug, Default)]
pub struct AgentFigures {
    /// Bytes of the store.
    pub store_bytes: u64,
    /// Windows in the store.
    pub store_windows: u64,
    /// Windows that could not be written.
    pub failed_windows: u64,
    /// Services of the last window that count as `other`.
    pub services_beyond: u64,
    /// Resident memory and kernel maps, bytes.
    pub used_bytes: u64,
    /// Bytes that the allocator has handed out; `None`: the C library does not report them.
    pub heap_bytes: Option<u64>,
    /// Bytes of the flight recorder's ring.
    pub flight_bytes: u64,
    /// Step given up for memory; 0: none.
    pub memory_step: u32,
    /// By target.
    pub targets: BTreeMap<String, TargetFigures>,
}

/// Figures of the delivery to one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetFigures {
    /// Windows that wait.
    pub pending: u64,
    /// Their bytes.
    pub pending_bytes: u64,
    /// Windows that the receiver acknowledged.
    pub delivered: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Windows that the receiver refused for good.
    pub refused: u64,
    /// Windows that a receiver without keys may have counted twice.
    pub maybe_twice: u64,
}

/// All families.
pub fn families(totals: &Totals, agent: &AgentFigures) -> Vec<Family> {
    let mut all = ledger_families(totals);
    all.push(histogram(
        "wallscope_run_queue_latency_seconds",
        "Time from runnable to running, by service; the sum is exact, counts are estimated from samples.",
        totals.services.iter().map(|(name, s)| {
            let sum = s.ledger.runnable.total();
            (vec![("service", name.clone())], &s.run_queue, sum)
        }),
    ));
    let runnable: u64 = totals
        .services
        .values()
        .map(|s| s.ledger.runnable.total())
        .sum();
    all.push(histogram(
        "wallscope_host_run_queue_latency_seconds",
        "Time from runnable to running, all threads; buckets are within 1.6 %.",
        std::iter::once((Vec::new(), &totals.run_queue, runnable)),
    ));
    all.extend(agent_families(totals, agent));
    all.extend(target_families(agent));
    all
}

/// Parts of a figure of a service, each with its label's value.
type Parts = Vec<(&'static str, u64)>;

fn on_cpu(s: &ServiceTotals) -> Parts {
    let p = s.ledger.on_cpu;
    vec![
        ("user", p.user),
        ("kernel", p.kernel),
        ("irq", p.irq),
        ("stolen", p.stolen),
    ]
}

fn runnable(s: &ServiceTotals) -> Parts {
    let p = s.ledger.runnable;
    vec![
        ("woken", p.woken),
        ("preempted", p.preempted),
        ("throttled", p.throttled),
    ]
}

fn blocked(s: &ServiceTotals) -> Parts {
    let of = |r: &BlockReason| (r.name(), s.ledger.blocked[*r as usize]);
    BlockReason::ALL.iter().map(of).collect()
}

fn unknown(s: &ServiceTotals) -> Parts {
    let of = |c: &UnknownCause| (c.name(), s.ledger.unknown[*c as usize]);
    UnknownCause::ALL.iter().map(of).collect()
}

fn switches(s: &ServiceTotals) -> Parts {
    vec![
        ("voluntary", s.ledger.voluntary_switches),
        ("involuntary", s.ledger.involuntary_switches),
    ]
}

fn requests(s: &ServiceTotals) -> Parts {
    vec![("served", s.served), ("sent", s.asked)]
}

fn ledger_families(totals: &Totals) -> Vec<Family> {
    let time = |name, help, key, of: &dyn Fn(&ServiceTotals) -> Vec<(&'static str, u64)>| {
        counter(name, help, by(totals, key, of, Value::Ns))
    };
    let plain = |name, help, of: &dyn Fn(&ServiceTotals) -> u64| {
        let sample = |(service, s): (&String, &ServiceTotals)| {
            (vec![("service", service.clone())], Value::Ns(of(s)))
        };
        counter(name, help, totals.services.iter().map(sample).collect())
    };
    let fraction = |(name, s): (&String, &ServiceTotals)| {
        Some((
            vec![("service", name.clone())],
            Value::Number(s.on_cpu_fraction?),
        ))
    };
    vec![
        time(
            "wallscope_on_cpu_seconds",
            "Time on a CPU.",
            "mode",
            &on_cpu,
        ),
        time(
            "wallscope_runnable_seconds",
            "Time runnable and not running.",
            "reason",
            &runnable,
        ),
        time(
            "wallscope_blocked_seconds",
            "Time blocked.",
            "reason",
            &blocked,
        ),
        time(
            "wallscope_unknown_seconds",
            "Time that was not seen.",
            "cause",
            &unknown,
        ),
        plain(
            "wallscope_wall_seconds",
            "Time in which threads existed.",
            &|s| s.ledger.wall_ns,
        ),
        plain(
            "wallscope_idle_seconds",
            "Blocked time without a request in flight.",
            &|s| s.ledger.idle_ns,
        ),
        counter(
            "wallscope_context_switches",
            "Switches away from a CPU.",
            by(totals, "kind", &switches, Value::Whole),
        ),
        counter(
            "wallscope_requests",
            "Requests over sockets, as far as they were seen.",
            by(totals, "direction", &requests, Value::Whole),
        ),
        gauge(
            "wallscope_on_cpu_ratio",
            "On-CPU share of the active time of the last window.",
            totals.services.iter().filter_map(fraction).collect(),
        ),
    ]
}

fn agent_families(totals: &Totals, agent: &AgentFigures) -> Vec<Family> {
    let one = |value| vec![(Vec::new(), value)];
    let part = |name: &str, value| (vec![("part", name.to_string())], value);
    let losses = totals.losses.iter();
    let losses = losses.map(|(c, n)| (vec![("cause", c.clone())], Value::Whole(*n)));
    let version = env!("CARGO_PKG_VERSION").to_string();
    vec![
        gauge(
            "wallscope_agent_info",
            "Version of the agent.",
            vec![(vec![("version", version)], Value::Whole(1))],
        ),
        counter(
            "wallscope_agent_cpu_seconds",
            "CPU time of the agent.",
            vec![
                part("displaced_caches", Value::Ns(totals.displaced_ns)),
                part("kernel_programs", Value::Ns(totals.bpf_ns)),
                part("process", Value::Ns(totals.own_cpu_ns)),
            ],
        ),
        gauge(
            "wallscope_agent_memory_bytes",
            "Memory of the agent in the last window.",
            memory(totals, agent),
        ),
        gauge(
            "wallscope_agent_memory_step",
            "Step given up to keep budget.max_memory; 0: none.",
            one(Value::Whole(agent.memory_step.into())),
        ),
        counter(
            "wallscope_agent_losses",
            "Losses by cause.",
            losses.collect(),
        ),
        counter(
            "wallscope_agent_windows",
            "Windows.",
            one(Value::Whole(totals.windows)),
        ),
        counter(
            "wallscope_agent_failed_windows",
            "Windows that could not be written.",
            one(Value::Whole(agent.failed_windows)),
        ),
        gauge(
            "wallscope_agent_last_window_timestamp_seconds",
            "End of the last window.",
            one(Value::Ns(totals.last_unix_ns)),
        ),
        gauge(
            "wallscope_agent_store_bytes",
            "Bytes of all windows in the store.",
            one(Value::Whole(agent.store_bytes)),
        ),
        gauge(
            "wallscope_agent_store_windows",
            "Windows in the store.",
            one(Value::Whole(agent.store_windows)),
        ),
        gauge(
            "wallscope_agent_services_beyond_limit",
            "Services of the last window that count as other.",
            one(Value::Whole(agent.services_beyond)),
        ),
    ]
}

/// Parts of the agent's memory; `heap` and `flight_recorder` are within `resident`.
fn memory(totals: &Totals, agent: &AgentFigures) -> Vec<Labelled> {
    let part = |name: &str, bytes| (vec![("part", name.to_string())], Value::Whole(bytes));
    let mut parts = vec![
        part("flight_recorder", agent.flight_bytes),
        part("kernel_maps", totals.kernel_bytes),
        part("resident", totals.rss_bytes),
    ];
    parts.extend(agent.heap_bytes.map(|bytes| part("heap", bytes)));
    parts
}

fn target_families(agent: &AgentFigures) -> Vec<Family> {
    let of = |value: fn(&TargetFigures) -> u64| -> Vec<Labelled> {
        let sample = |(name, t): (&String, &TargetFigures)| {
            (vec![("target", name.clone())], Value::Whole(value(t)))
        };
        agent.targets.iter().map(sample).collect()
    };
    vec![
        gauge(
            "wallscope_agent_pending_windows",
            "Windows that wait for delivery.",
            of(|t| t.pending),
        ),
        gauge(
            "wallscope_agent_pending_bytes",
            "Their bytes.",
            of(|t| t.pending_bytes),
        ),
        counter(
            "wallscope_agent_delivered_windows",
            "Windows acknowledged.",
            of(|t| t.delivered),
        ),
        counter(
            "wallscope_agent_delivery_failures",
            "Attempts that failed.",
            of(|t| t.failures),
        ),
        counter(
            "wallscope_agent_refused_windows",
            "Windows refused for good.",
            of(|t| t.refused),
        ),
        counter(
            "wallscope_agent_maybe_duplicated_windows",
            "Windows that a receiver without keys may have counted twice.",
            of(|t| t.maybe_twice),
        ),
    ]
}

type Labelled = (Vec<(&'static str, String)>, Value);

fn counter(name: &'static str, help: &'static str, samples: Vec<Labelled>) -> Family {
    family(name, help, MetricKind::Counter, samples)
}

fn gauge(name: &'static str, help: &'static str, samples: Vec<Labelled>) -> Family {
    family(name, help, MetricKind::Gauge, samples)
}

fn family(
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
    samples: Vec<Labelled>,
) -> Family {
    let sample = |(labels, value)| Sample { labels, value };
    Family {
        name,
        kind,
        help,
        samples: samples.into_iter().map(sample).collect(),
    }
}

/// Samples by service and one more label.
fn by(
    totals: &Totals,
    key: &'static str,
    of: &dyn Fn(&ServiceTotals) -> Vec<(&'static str, u64)>,
    value: fn(u64) -> Value,
) -> Vec<Labelled> {
    let mut samples = Vec::new();
    for (service, s) in &totals.services {
        for (name, n) in of(s) {
            let labels = vec![("service", service.clone()), (key, name.to_string())];
            samples.push((labels, value(n)));
        }
    }
    samples
}

/// A family of histograms, one a row: labels, lengths, and their exact sum, ns.
fn histogram<'a>(
    name: &'static str,
    help: &'static str,
    rows: impl Iterator<Item = (Vec<(&'static str, String)>, &'a Histogram, u64)>,
) -> Family {
    let sample = |(labels, lengths, sum_ns)| Sample {
        labels,
        value: Value::Lengths(Box::new(self::lengths(lengths, sum_ns))),
    };
    Family {
        name,
        kind: MetricKind::Histogram,
        help,
        samples: rows.map(sample).collect(),
    }
}

/// A histogram in classic and in native buckets. Each of its own buckets counts where its middle lies.
///
/// Native buckets are as fine as its own: Prometheus' schema n has 2^n of them in an octave.
fn lengths(histogram: &Histogram, sum_ns: u64) -> Lengths {
    let middle = |bucket: u16| {
        let (low, high) = histogram.bounds(bucket);
        low + (high - low) / 2
    };
    let up_to = |le: u64| {
        let below = histogram.counts.iter().filter(|(b, _)| middle(*b) <= le);
        (le, below.map(|(_, n)| n).sum())
    };
    let schema = histogram.bits as i32;
    let mut native = BTreeMap::new();
    for (bucket, count) in &histogram.counts {
        let octaves = (middle(*bucket) as f64 / 1e9).log2();
        let index = (octaves * f64::from(1 << schema)).ceil() as i32;
        *native.entry(index).or_default() += count;
    }
    Lengths {
        classic: BUCKETS.into_iter().map(up_to).collect(),
        count: histogram.count(),
        sum_ns,
        schema,
        native,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_buckets_hold_the_middles() {
        for bits in [2, 5] {
            let mut histogram = Histogram::new(bits);
            for (i, ns) in [20, 4_000, 1_000_000, 1_100_000, 3_000_000_000]
                .iter()
                .enumerate()
            {
                histogram.add(*ns, (i + 1) as f64);
            }
            let made = lengths(&histogram, 0);
            assert_eq!(made.native.values().sum::<f64>(), 15.0);
            let factor = (1.0 / f64::from(1 << bits)).exp2();
            let last = *made.native.keys().last().unwrap();
            let upper = factor.powi(last);
            // Two buckets wide at most: its own, and the native one.
            assert!(
                upper / factor.powi(2) <= 3.0 && 3.0 <= upper * factor,
                "{upper}"
            );
        }
    }
}
