//! Single figures that rules take from the host's facts.

use std::collections::BTreeMap;

use wallscope_model::{HostFacts, Neighbour, Recording};

use super::bottleneck::Bottleneck;
use super::own_traffic;
use crate::labels::{RESOURCE_KEY, text_label};
use crate::thresholds::{FULL_QUEUE_SHARE, NEIGHBOUR_CPUS};
use crate::words;

/// The first and the last facts of a recording, and the seconds between.
fn edges(recording: &Recording) -> Option<(&HostFacts, &HostFacts, f64)> {
    let (first, last) = (recording.host.first()?, recording.host.last()?);
    let seconds = last.time_ns.saturating_sub(first.time_ns) as f64 / 1e9;
    (seconds > 0.0).then_some((&first.facts, &last.facts, seconds))
}

/// Share of the periods of a CPU quota in which it ran out.
pub(crate) fn throttled_periods(recording: &Recording) -> Option<f64> {
    let (first, last, _) = edges(recording)?;
    let (a, b) = (first.cgroup.as_ref()?, last.cgroup.as_ref()?);
    let periods = b.nr_periods?.saturating_sub(a.nr_periods?);
    let throttled = b.nr_throttled?.saturating_sub(a.nr_throttled?);
    (periods > 0).then(|| throttled as f64 / periods as f64)
}

/// Connections of the host that were begun and never made: their number, and their rate a second.
pub(crate) fn failed_connects(recording: &Recording) -> Option<(u64, f64)> {
    let (first, last, seconds) = edges(recording)?;
    let (a, b) = (first.net.as_ref()?, last.net.as_ref()?);
    let failed = b.tcp_failed_connects.saturating_sub(a.tcp_failed_connects);
    Some((failed, failed as f64 / seconds))
}

/// Disk traffic of the target in words, if there is enough to tell.
pub(crate) fn disk_traffic(recording: &Recording) -> Option<String> {
    let (first, last, seconds) = edges(recording)?;
    own_traffic::of_all(&first.limits, &last.limits, seconds)
}

/// The CPUs that the target may use.
pub(crate) struct Room {
    /// Their number.
    pub cpus: usize,
    /// Share of their time that the target used.
    pub own: f64,
    /// Share of their time that any process used.
    pub used: f64,
    /// Their numbers; empty: all CPUs.
    numbers: Vec<usize>,
}

/// Use of the CPUs that the target may use; `None`: the host's facts do not show it.
pub(crate) fn room(recording: &Recording, b: &Bottleneck) -> Option<Room> {
    let (first, last, seconds) = edges(recording)?;
    let busy: Vec<f64> = (last.cpu_busy_ns.iter().zip(&first.cpu_busy_ns))
        .map(|(b, a)| b.saturating_sub(*a) as f64 / 1e9 / seconds)
        .collect();
    if busy.is_empty() {
        return whole_host(recording, b);
    }
    let mut allowed: Vec<usize> = (last.limits.iter().chain(&first.limits))
        .flat_map(|l| cpu_list(&l.cpus, busy.len()))
        .collect();
    allowed.sort_unstable();
    allowed.dedup();
    let all: Vec<f64> = match allowed.is_empty() {
        true => busy,
        false => allowed.iter().map(|cpu| busy[*cpu]).collect(),
    };
    let cpus = all.len();
    Some(Room {
        cpus,
        own: b.busy_cpus() / cpus as f64,
        used: (all.iter().sum::<f64>() / cpus as f64).max(b.busy_cpus() / cpus as f64),
        numbers: allowed,
    })
}

/// Use of all CPUs of the host together, where no figure tells CPUs apart (files of early versions).
fn whole_host(recording: &Recording, b: &Bottleneck) -> Option<Room> {
    let (first, last, _) = edges(recording)?;
    let cpus = b.cpus as usize;
    let grown: Vec<u64> = (last.cpu_ns?.iter().zip(first.cpu_ns?))
        .map(|(b, a)| b.saturating_sub(a))
        .collect();
    let (all, idle) = (grown.iter().sum::<u64>(), grown[3] + grown[4]);
    let own = b.busy_cpus() / cpus.max(1) as f64;
    (cpus > 0 && all > 0).then(|| Room {
        cpus,
        own,
        used: (1.0 - idle as f64 / all as f64).max(own),
        numbers: Vec::new(),
    })
}

/// Most neighbours that are named.
const MAX_NEIGHBOURS: usize = 3;

/// Unmeasured processes with most use of the CPUs of `room`, in words. Processes of one name count
/// together.
pub(crate) fn others(recording: &Recording, room: &Room) -> Option<String> {
    let (_, last, seconds) = edges(recording)?;
    let own = |pid: u32| recording.processes.iter().any(|p| p.pid == pid);
    let there = |cpu: u32| room.numbers.is_empty() || room.numbers.contains(&(cpu as usize));
    let mut names: BTreeMap<&str, Vec<&Neighbour>> = BTreeMap::new();
    for n in last
        .neighbours
        .iter()
        .filter(|n| !own(n.pid) && there(n.cpu))
    {
        names.entry(&n.name).or_default().push(n);
    }
    let used = |of: &[&Neighbour]| of.iter().map(|n| n.cpu_ns).sum::<u64>() as f64 / 1e9 / seconds;
    let mut names: Vec<(&str, Vec<&Neighbour>, f64)> = (names.into_iter())
        .map(|(name, of)| {
            let used = used(&of);
            (name, of, used)
        })
        .filter(|(.., used)| *used >= NEIGHBOUR_CPUS)
        .collect();
    names.sort_by(|a, b| b.2.total_cmp(&a.2));
    let named: Vec<String> = (names.iter().take(MAX_NEIGHBOURS))
        .map(|(name, of, used)| {
            let processes = match &of[..] {
                [one] => format!("pid {}", one.pid),
                more => format!("{} processes", more.len()),
            };
            format!("{name} ({processes}, {used:.2} CPUs{})", comes_first(of))
        })
        .collect();
    (!named.is_empty()).then(|| {
        format!(
            "the largest other users of the CPUs are {}",
            words::list(&named)
        )
    })
}

/// The reason, in words, why one of `processes` has priority over others; empty: none has.
fn comes_first(processes: &[&Neighbour]) -> String {
    let real_time = processes.iter().any(|n| matches!(n.policy, 1 | 2 | 6));
    let nice = processes
        .iter()
        .map(|n| n.nice)
        .min()
        .filter(|nice| *nice < 0);
    match (real_time, nice) {
        (true, _) => ", which comes first by its real-time priority".into(),
        (false, Some(nice)) => format!(", favoured by nice {nice}"),
        (false, None) => String::new(),
    }
}

/// The target's scheduling policy in words, if it gives other processes priority.
pub(crate) fn stands_back(recording: &Recording) -> Option<String> {
    let (_, last, _) = edges(recording)?;
    let own = |n: &&Neighbour| recording.processes.iter().any(|p| p.pid == n.pid);
    last.neighbours.iter().filter(own).find_map(|n| {
        let how = match (n.policy, n.nice) {
            (5, _) => "is scheduled as idle (SCHED_IDLE)".to_string(),
            (_, 1..) => format!("has nice {}", n.nice),
            _ => return None,
        };
        Some(format!(
            "{} (pid {}) {how}, so others go first",
            n.name, n.pid
        ))
    })
}

/// Peers with less than a segment of unsent data in some poll, held back until earlier data is
/// acknowledged.
pub(crate) fn unacknowledged_peers(recording: &Recording) -> Vec<&str> {
    let all = recording.host.iter().flat_map(|s| &s.facts.connections);
    let mut peers: Vec<&str> = (all.filter(|c| c.held_back > 0))
        .map(|c| c.peer.as_str())
        .collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

/// The numbers of `0-3,8` that are below `limit`.
fn cpu_list(text: &str, limit: usize) -> Vec<usize> {
    (text.split(',').filter(|part| !part.is_empty()))
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (
                first.trim().parse().ok()?,
                last.trim().parse::<usize>().ok()?,
            );
            Some(first..last.saturating_add(1).min(limit))
        })
        .flatten()
        .collect()
}

/// An accept queue that was full.
pub(crate) struct Queue {
    /// Address that it listens at.
    pub address: String,
    /// Most connections that waited.
    pub longest: u32,
    /// Connections that may wait.
    pub room: u32,
    /// Share of the polls in which it was full.
    pub full: f64,
    /// Connections that full queues of the machine refused meanwhile.
    pub refused: u64,
}

/// The target's accept queue that was full most often, if one was often full.
pub(crate) fn accept_queue(recording: &Recording) -> Option<Queue> {
    let refused = edges(recording).map_or(0, |(first, last, _)| match (first.net, last.net) {
        (Some(a), Some(b)) => b.listen_overflows.saturating_sub(a.listen_overflows),
        _ => 0,
    });
    let polls = recording.host.len().max(1) as f64;
    let mut found: Option<Queue> = None;
    for listener in recording.host.iter().flat_map(|s| &s.facts.listeners) {
        let of_it = || {
            (recording.host.iter().flat_map(|s| &s.facts.listeners))
                .filter(|l| l.address == listener.address)
        };
        let full = of_it()
            .filter(|l| l.queued > 0 && l.queued >= l.room)
            .count() as f64
            / polls;
        if full >= FULL_QUEUE_SHARE && found.as_ref().is_none_or(|q| q.full < full) {
            found = Some(Queue {
                address: listener.address.clone(),
                longest: of_it().map(|l| l.queued).max().unwrap_or(0),
                room: listener.room,
                full,
                refused,
            });
        }
    }
    found
}

/// Waits for the lock of that name: their number, total and longest, ns. Counted, not sampled.
pub(crate) fn lock_waits(recording: &Recording, name: &str) -> Option<(u64, u64, u64)> {
    let of_it = (recording.locks.iter())
        .filter(|l| text_label(recording, l.labels, RESOURCE_KEY).as_deref() == Some(name));
    of_it
        .map(|l| (l.count, l.total_ns, l.longest_ns))
        .reduce(|a, b| (a.0 + b.0, a.1 + b.1, a.2.max(b.2)))
}

/// The exclusive lock that most polls found on a file that the targets have open: its holder, and
/// the finding in words.
pub(crate) fn file_locks(recording: &Recording) -> Option<(String, String)> {
    let mut met: BTreeMap<(&str, u32), (usize, &str)> = BTreeMap::new();
    for sample in &recording.host {
        let held = sample.facts.file_locks.iter().filter(|l| l.exclusive);
        let once: BTreeMap<_, _> = held.map(|l| ((&*l.path, l.pid), &*l.name)).collect();
        for (lock, name) in once {
            let (times, known) = met.entry(lock).or_default();
            *times += 1;
            *known = name;
        }
    }
    let ((path, pid), (times, name)) = met.into_iter().max_by_key(|(_, (times, _))| *times)?;
    let own = recording.processes.iter().any(|p| p.pid == pid);
    let holder = match (pid, own) {
        (0, _) => "somebody (by an open file; the kernel does not tell its process)".to_string(),
        (_, true) => format!("{name} (pid {pid})"),
        (_, false) => format!("{name} (pid {pid}, not measured)"),
    };
    let said = format!(
        "{path} was locked by {holder} in {times} of {} polls",
        recording.host.len()
    );
    Some((holder, said))
}

#[cfg(test)]
mod tests {
    use wallscope_model::HostSample;

    use super::*;

    #[test]
    fn neighbours_of_one_name_are_told_together() {
        let neighbour = |name: &str, pid, tenths: u64| Neighbour {
            pid,
            name: name.into(),
            cpu_ns: tenths * 100_000_000,
            ..Neighbour::default()
        };
        let mut rec = Recording::default();
        for time_ns in [0, 1_000_000_000] {
            rec.host.push(HostSample {
                time_ns,
                facts: HostFacts {
                    neighbours: vec![
                        neighbour("java", 7, 4),
                        neighbour("rustc", 8, 3),
                        neighbour("rustc", 9, 3),
                    ],
                    ..HostFacts::default()
                },
            });
        }
        let room = Room {
            cpus: 2,
            own: 0.1,
            used: 1.0,
            numbers: Vec::new(),
        };
        assert_eq!(
            others(&rec, &room).as_deref(),
            Some(
                "the largest other users of the CPUs are rustc (2 processes, 0.60 CPUs) and java (pid 7, 0.40 CPUs)"
            )
        );
        rec.host[1].facts.neighbours[0].nice = -5;
        let told = others(&rec, &room).unwrap_or_default();
        assert!(
            told.contains("java (pid 7, 0.40 CPUs, favoured by nice -5)"),
            "{told}"
        );
    }

    #[test]
    fn lists_of_cpus_are_read_and_bounded() {
        assert_eq!(cpu_list("0-1,4", 8), [0, 1, 4]);
        assert_eq!(cpu_list("0-99999999", 3), [0, 1, 2]);
        assert!(cpu_list("", 4).is_empty() && cpu_list("x-,-", 4).is_empty());
    }
}
