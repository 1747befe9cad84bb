//! The host around the process: utilisation, saturation and errors of each resource (the USE method
//! of B. Gregg), from the host facts in the recording.

use wallscope_model::{BlockReason, HostFacts, HostSample, Pressure, Recording};

use super::bottleneck::Bottleneck;
use super::own_traffic;
use crate::thresholds::{
    BUSY_USE, CAUSE_SHARE, LIMIT_HIT_RATE, LIMIT_LISTED, LIMIT_SATURATED, QUOTA_SATURATED,
    RETRANSMIT_RATE, STALLED_SHARE,
};

/// State of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Room left.
    Fine,
    /// Much in use, or a disk that the target itself waits for.
    Busy,
    /// Tasks wait for it, or it failed one.
    Saturated,
}

impl Level {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Level::Fine => "fine",
            Level::Busy => "busy",
            Level::Saturated => "saturated",
        }
    }
}

/// One resource over the window.
#[derive(Clone, Debug)]
pub struct Resource {
    /// `cpu`, `memory`, `disk vda`, `network`, `cpu quota`, `memory limit`, `open files (pid 7)`.
    pub name: String,
    /// Share in use, where it has one.
    pub utilisation: Option<f64>,
    /// Tasks that wait for it, in words; empty where none is seen to.
    pub saturation: String,
    /// Failures, in words; empty where there are none.
    pub errors: String,
    /// Its state.
    pub level: Level,
}

/// Most peers that are listed; the recording has all.
const MAX_PEERS: usize = 6;

/// First, last and all host facts of a recording, and the seconds between first and last.
struct Span<'a> {
    first: &'a HostFacts,
    last: &'a HostFacts,
    all: &'a [HostSample],
    seconds: f64,
}

/// All resources that the recording knows of, worst first.
pub(crate) fn resources(recording: &Recording, own: &Bottleneck) -> Vec<Resource> {
    let (Some(first), Some(last)) = (recording.host.first(), recording.host.last()) else {
        return Vec::new();
    };
    let span = Span {
        first: &first.facts,
        last: &last.facts,
        all: &recording.host,
        seconds: last.time_ns.saturating_sub(first.time_ns) as f64 / 1e9,
    };
    if span.seconds <= 0.0 {
        return Vec::new();
    }
    let mut out = Vec::new();
    out.extend(cpu(&span, own));
    out.extend(memory(&span));
    out.extend(disks(&span, own));
    out.extend(network(&span));
    out.extend(cgroup(&span));
    out.extend(limits(&span));
    out.extend(sockets(&span));
    let own = own_traffic::rows(&span.first.limits, &span.last.limits, span.seconds);
    out.extend(own.into_iter().map(|(name, saturation)| Resource {
        name,
        utilisation: None,
        saturation,
        errors: String::new(),
        level: Level::Fine,
    }));
    out.sort_by_key(|r| std::cmp::Reverse(r.level));
    out
}

fn level(utilisation: Option<f64>, saturated: bool, errors: bool) -> Level {
    match utilisation {
        _ if saturated || errors => Level::Saturated,
        Some(u) if u > BUSY_USE => Level::Busy,
        _ => Level::Fine,
    }
}

impl Span<'_> {
    fn grown(&self, of: impl Fn(&HostFacts) -> Option<u64>) -> Option<u64> {
        Some(of(self.last)?.saturating_sub(of(self.first)?))
    }

    /// Share of the window in which a task stalled for a resource.
    fn stalled(&self, of: impl Fn(&HostFacts) -> Option<Pressure>) -> Option<f64> {
        let us = self.grown(|f| Some(of(f)?.some_total_us))?;
        Some(us as f64 / 1e6 / self.seconds)
    }

    fn most<T: PartialOrd + Copy>(&self, of: impl Fn(&HostFacts) -> Option<T>) -> Option<T> {
        self.all
            .iter()
            .filter_map(|s| of(&s.facts))
            .reduce(|a, b| if b > a { b } else { a })
    }
}

/// Share of the window in which a task stalled for `resource`, in words.
fn stall_words(stalled: Option<f64>, resource: &str) -> Vec<String> {
    stalled
        .filter(|s| *s >= 0.01)
        .map(|s| {
            format!(
                "some task waited for {resource} {:.0} % of the time (PSI)",
                s.min(1.0) * 100.0
            )
        })
        .into_iter()
        .collect()
}

fn cpu(span: &Span<'_>, own: &Bottleneck) -> Option<Resource> {
    let (a, b) = (span.first.cpu_ns?, span.last.cpu_ns?);
    let grown: Vec<f64> = b
        .iter()
        .zip(a)
        .map(|(b, a)| b.saturating_sub(a) as f64)
        .collect();
    let total: f64 = grown.iter().sum();
    if total <= 0.0 {
        return None;
    }
    let used = 1.0 - (grown[3] + grown[4]) / total;
    let stalled = span.stalled(|f| f.psi_cpu);
    let mut words = stall_words(stalled, "a CPU");
    if let Some(queue) = span.most(|f| f.runnable_tasks) {
        words.push(format!("up to {queue} tasks running or ready"));
    }
    if grown[4] / total >= 0.01 {
        words.push(format!(
            "idle while tasks waited for I/O {:.0} %",
            grown[4] / total * 100.0
        ));
    }
    if let Some(switches) = span.grown(|f| f.context_switches) {
        words.push(format!(
            "{:.0} context switches a second",
            switches as f64 / span.seconds
        ));
    }
    if grown[7] / total >= 0.01 {
        words.push(format!(
            "the hypervisor took {:.0} % (steal)",
            grown[7] / total * 100.0
        ));
    }
    if own.cpus > 0 {
        let (busy, cpus) = (own.busy_cpus(), own.cpus);
        let waited = &own.ledger.runnable;
        let waited = crate::words::share(own.share(waited.woken + waited.preempted));
        words.insert(
            0,
            format!(
                "all programs together; this one kept {busy:.2} of {cpus} CPUs busy and waited {waited} of its \
                 active time for one"
            ),
        );
    }
    Some(Resource {
        name: "cpu".into(),
        utilisation: Some(used),
        saturation: words.join(", "),
        errors: String::new(),
        level: level(
            Some(used),
            used > BUSY_USE && stalled.is_some_and(|s| s > STALLED_SHARE),
            false,
        ),
    })
}

fn memory(span: &Span<'_>) -> Option<Resource> {
    let [total, available, swap, swap_free] = span.last.memory?;
    let used = 1.0 - available as f64 / total.max(1) as f64;
    let stalled = span.stalled(|f| f.psi_memory);
    let mut words = stall_words(stalled, "memory");
    if let Some(faults) = span.grown(|f| f.major_faults).filter(|n| *n > 0) {
        words.push(format!(
            "{:.0} major page faults a second",
            faults as f64 / span.seconds
        ));
    }
    if swap > swap_free {
        words.push(format!("{} MiB swapped out", (swap - swap_free) >> 20));
    }
    Some(Resource {
        name: "memory".into(),
        utilisation: Some(used),
        saturation: words.join(", "),
        errors: String::new(),
        level: level(
            Some(used),
            stalled.is_some_and(|s| s > STALLED_SHARE),
            false,
        ),
    })
}

fn disks(span: &Span<'_>, own: &Bottleneck) -> Vec<Resource> {
    let mut rows = disk_rows(span);
    let waited = own.share(own.ledger.blocked[BlockReason::Disk as usize]);
    let busiest = |a: &&mut Resource, b: &&mut Resource| {
        let used = |r: &Resource| r.utilisation.unwrap_or(0.0);
        used(a).total_cmp(&used(b))
    };
    // Consecutive short waits leave the disk idle between them. They are the program's, and the disk's use does not
    // show them.
    if let Some(row) = rows
        .iter_mut()
        .max_by(busiest)
        .filter(|_| waited >= CAUSE_SHARE)
    {
        let waited = crate::words::share(waited);
        row.level = row.level.max(Level::Busy);
        row.saturation = format!(
            "this one waited {waited} of its active time for disks; {}",
            row.saturation
        );
    }
    rows
}

fn disk_rows(span: &Span<'_>) -> Vec<Resource> {
    let stalled = span.stalled(|f| f.psi_io);
    span.last
        .disks
        .iter()
        .filter_map(|last| {
            let first = span.first.disks.iter().find(|d| d.name == last.name)?;
            let busy = last.busy_ms.saturating_sub(first.busy_ms) as f64 / 1e3 / span.seconds;
            let requests = (last.reads + last.writes).saturating_sub(first.reads + first.writes);
            if requests == 0 {
                return None;
            }
            let of = |f: &HostFacts| Some(f.disks.iter().find(|d| d.name == last.name)?.in_flight);
            let mut words = stall_words(stalled, "any disk");
            words.push(format!(
                "{:.0} requests a second",
                requests as f64 / span.seconds
            ));
            if let Some(most) = span.most(of).filter(|n| *n > 0) {
                words.push(format!("up to {most} in flight"));
            }
            Some(Resource {
                name: format!("disk {}", last.name),
                utilisation: Some(busy.min(1.0)),
                saturation: words.join(", "),
                errors: String::new(),
                level: level(
                    Some(busy),
                    busy > BUSY_USE && stalled.is_some_and(|s| s > STALLED_SHARE),
                    false,
                ),
            })
        })
        .collect()
}

fn network(span: &Span<'_>) -> Option<Resource> {
    let last = span.last.net?;
    let grown = |of: fn(&wallscope_model::NetFacts) -> u64| {
        span.grown(|f| f.net.as_ref().map(of)).unwrap_or(0)
    };
    let again = grown(|n| n.tcp_retransmits);
    let full = grown(|n| n.listen_overflows).max(grown(|n| n.listen_drops));
    let mut errors = Vec::new();
    if again > 0 {
        errors.push(format!("{again} TCP segments sent again"));
    }
    if full > 0 {
        errors.push(format!("{full} connections met a full accept queue"));
    }
    let failed = grown(|n| n.tcp_failed_connects);
    if failed > 0 {
        errors.push(format!(
            "{failed} connections could not be made (refused, or not answered)"
        ));
    }
    Some(Resource {
        name: "network".into(),
        utilisation: None,
        saturation: format!(
            "TCP sockets: {} in use, {} in TIME_WAIT",
            last.tcp_in_use, last.tcp_time_wait
        ),
        errors: errors.join(", "),
        level: level(
            None,
            false,
            full > 0 || again as f64 / span.seconds > RETRANSMIT_RATE,
        ),
    })
}

fn cgroup(span: &Span<'_>) -> Vec<Resource> {
    let Some(last) = &span.last.cgroup else {
        return Vec::new();
    };
    let of = |get: fn(&wallscope_model::CgroupFacts) -> Option<u64>| {
        span.grown(|f| f.cgroup.as_ref().and_then(get))
    };
    let mut out = Vec::new();
    if let (Some(quota), Some(period)) = (last.quota_us, last.period_us.filter(|p| *p > 0)) {
        let periods = of(|c| c.nr_periods).unwrap_or(0);
        let throttled = of(|c| c.nr_throttled).unwrap_or(0);
        let share = throttled as f64 / periods.max(1) as f64;
        out.push(Resource {
            name: "cpu quota".into(),
            utilisation: None,
            saturation: format!(
                "quota of {:.2} CPUs; throttled in {throttled} of {periods} periods",
                quota as f64 / period as f64
            ),
            errors: String::new(),
            level: level(None, share > QUOTA_SATURATED, false),
        });
    }
    if let (Some(used), Some(limit)) = (last.memory_bytes, last.memory_limit_bytes) {
        let used = used as f64 / limit.max(1) as f64;
        let hits = of(|c| c.memory_limit_hits).unwrap_or(0);
        let met = match hits {
            0 => String::new(),
            n => format!(", reached {n} times"),
        };
        out.push(Resource {
            name: "memory limit".into(),
            utilisation: Some(used),
            saturation: format!("limit of {} MiB{met}", limit >> 20),
            errors: String::new(),
            level: level(
                Some(used),
                hits as f64 / span.seconds > LIMIT_HIT_RATE,
                false,
            ),
        });
    }
    if let (Some(tasks), Some(limit)) = (last.tasks, last.tasks_limit) {
        out.extend(share_of_limit("tasks of the cgroup", tasks, limit));
    }
    out
}

/// A limit that is used enough to be listed.
fn share_of_limit(name: &str, used: u64, limit: u64) -> Option<Resource> {
    let share = used as f64 / limit.max(1) as f64;
    (share >= LIMIT_LISTED).then(|| Resource {
        name: name.into(),
        utilisation: Some(share),
        saturation: format!("{used} in use, at most {limit}"),
        errors: String::new(),
        level: level(Some(share), share > LIMIT_SATURATED, false),
    })
}

/// The targets' own sockets: connections that wait to be accepted, and connections by peer and state.
fn sockets(span: &Span<'_>) -> Vec<Resource> {
    let mut out = Vec::new();
    for l in &span.last.listeners {
        let polls = || {
            (span.all.iter().flat_map(|s| &s.facts.listeners)).filter(|o| o.address == l.address)
        };
        let most = polls().map(|o| o.queued).max().unwrap_or(0);
        let full = polls()
            .filter(|o| o.queued > 0 && o.queued >= o.room)
            .count();
        if most == 0 {
            continue;
        }
        out.push(Resource {
            name: format!("accept queue {}", l.address),
            utilisation: Some(f64::from(most) / f64::from(l.room.max(1))),
            saturation: format!("up to {most} waiting, room for {}", l.room),
            errors: match full {
                0 => String::new(),
                n => format!("full in {n} of {} polls", span.all.len()),
            },
            level: level(
                Some(f64::from(most) / f64::from(l.room.max(1))),
                full > 0,
                false,
            ),
        });
    }
    for c in span.last.connections.iter().take(MAX_PEERS) {
        let mut words = vec![format!("{} {}", c.count, c.state)];
        if c.silent_ms >= 1000 {
            words.push(format!("one silent for {} s", c.silent_ms / 1000));
        }
        if c.unread_bytes > 0 {
            words.push(format!("{} bytes received and not read", c.unread_bytes));
        }
        if c.unsent_bytes > 0 {
            words.push(format!(
                "{} bytes sent and not acknowledged",
                c.unsent_bytes
            ));
        }
        let before = (span.first.connections.iter())
            .find(|b| b.peer == c.peer && b.state == c.state)
            .map_or(0, |b| b.retransmits);
        let again = c.retransmits.saturating_sub(before);
        out.push(Resource {
            name: connection_name(&c.peer),
            utilisation: None,
            saturation: words.join(", "),
            errors: match again {
                0 => String::new(),
                n => format!("{n} segments sent again"),
            },
            level: level(None, false, again as f64 / span.seconds > RETRANSMIT_RATE),
        });
    }
    out
}

/// Name of the connections with a peer. Connections of a port on which the target listens are those of its callers.
fn connection_name(peer: &str) -> String {
    match peer.strip_prefix("port ") {
        Some(port) => format!("callers at port {port}"),
        None => format!("peer {peer}"),
    }
}

fn limits(span: &Span<'_>) -> Vec<Resource> {
    let mut out = Vec::new();
    for l in &span.last.limits {
        let pairs = [
            ("open files", l.open_files, l.nofile_soft),
            ("threads", l.threads, l.nproc_soft),
        ];
        for (what, used, limit) in pairs {
            // A limit below the number in use was set later: the process wants no more of them.
            if let (Some(used), Some(limit)) = (used, limit)
                && used <= limit
            {
                out.extend(share_of_limit(
                    &format!("{what} (pid {})", l.pid),
                    used,
                    limit,
                ));
            }
        }
    }
    out
}
