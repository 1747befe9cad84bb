//! Any facts about a host.

use wallscope_model::*;

use super::draw::Draw;

pub(super) fn sample(d: &mut Draw) -> HostSample {
    let mut facts = HostFacts {
        load: d.maybe(|d| [0.5, d.n(100) as f64, 1.25]),
        runnable_tasks: d.maybe(|d| d.n(3)),
        cpu_ns: d.maybe(|d| [0, 1, 2, 3, 4, 5, d.big(), 7]),
        context_switches: d.maybe(Draw::big),
        psi_memory: d.maybe(|d| Pressure {
            some_avg10: d.n(100) as f64,
            some_total_us: d.big(),
            full_avg10: 0.0,
            full_total_us: d.big(),
        }),
        memory: d.maybe(|d| [d.big(), 0, 0, 1]),
        major_faults: d.maybe(|_| 0),
        net: d.maybe(|d| NetFacts {
            tcp_in_use: d.big(),
            ..NetFacts::default()
        }),
        cgroup: d.maybe(|d| CgroupFacts {
            path: d.text(),
            quota_us: d.maybe(|d| d.n(9)),
            memory_limit_bytes: d.maybe(|_| 0),
            memory_limit_hits: d.maybe(Draw::big),
            tasks: d.maybe(|_| 0),
            tasks_limit: d.maybe(|d| d.n(9)),
            ..CgroupFacts::default()
        }),
        cpu_busy_ns: d.list(3, Draw::big),
        ..HostFacts::default()
    };
    for _ in 0..d.n(3) {
        facts.disks.push(disk(d));
        facts.limits.push(limits(d));
        facts.listeners.push(listener(d));
        facts.connections.push(connections(d));
        facts.neighbours.push(neighbour(d));
        facts.file_locks.push(file_lock(d));
    }
    HostSample {
        time_ns: d.big(),
        facts,
    }
}

fn disk(d: &mut Draw) -> DiskFacts {
    DiskFacts {
        name: d.text(),
        reads: d.big(),
        busy_ms: d.big(),
        ..DiskFacts::default()
    }
}

fn limits(d: &mut Draw) -> Limits {
    Limits {
        pid: d.big() as u32,
        threads: d.maybe(|_| 0),
        cpus: d.text(),
        read_bytes: d.maybe(Draw::big),
        resident_bytes: d.maybe(|_| 0),
        ..Limits::default()
    }
}

fn listener(d: &mut Draw) -> Listener {
    Listener {
        address: d.text(),
        queued: d.big() as u32,
        room: d.small(9),
    }
}

fn connections(d: &mut Draw) -> Connections {
    Connections {
        peer: d.text(),
        state: d.text(),
        count: d.big() as u32,
        silent_ms: d.big(),
        unread_bytes: d.big(),
        unsent_bytes: d.n(9),
        retransmits: d.big(),
        held_back: d.small(9),
    }
}

fn neighbour(d: &mut Draw) -> Neighbour {
    Neighbour {
        pid: d.big() as u32,
        name: d.text(),
        cpu_ns: d.big(),
        cpu: d.small(9),
        nice: d.n(40) as i32 - 20,
        policy: d.small(7),
    }
}

fn file_lock(d: &mut Draw) -> FileLock {
    FileLock {
        pid: d.big() as u32,
        name: d.text(),
        path: d.text(),
        exclusive: !d.coin(),
    }
}
