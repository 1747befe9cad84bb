//! Host facts ↔ their messages in the extension.

use prost::Message;
use wallscope_model as model;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Pressure {
    #[prost(double, tag = "1")]
    pub some_avg10: f64,
    #[prost(uint64, tag = "2")]
    pub some_total_us: u64,
    #[prost(double, tag = "3")]
    pub full_avg10: f64,
    #[prost(uint64, tag = "4")]
    pub full_total_us: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Disk {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub reads: u64,
    #[prost(uint64, tag = "3")]
    pub read_bytes: u64,
    #[prost(uint64, tag = "4")]
    pub writes: u64,
    #[prost(uint64, tag = "5")]
    pub written_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub in_flight: u64,
    #[prost(uint64, tag = "7")]
    pub busy_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Net {
    #[prost(uint64, tag = "1")]
    pub tcp_in_use: u64,
    #[prost(uint64, tag = "2")]
    pub tcp_time_wait: u64,
    #[prost(uint64, tag = "3")]
    pub udp_in_use: u64,
    #[prost(uint64, tag = "4")]
    pub tcp_retransmits: u64,
    #[prost(uint64, tag = "5")]
    pub listen_overflows: u64,
    #[prost(uint64, tag = "6")]
    pub listen_drops: u64,
    #[prost(uint64, tag = "7")]
    pub tcp_failed_connects: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Cgroup {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(uint64, optional, tag = "2")]
    pub quota_us: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub period_us: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub nr_periods: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub nr_throttled: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub throttled_ns: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pub memory_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub memory_limit_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub memory_limit_hits: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub tasks: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub tasks_limit: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Listener {
    #[prost(string, tag = "1")]
    pub address: String,
    #[prost(uint32, tag = "2")]
    pub queued: u32,
    #[prost(uint32, tag = "3")]
    pub room: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Connections {
    #[prost(string, tag = "1")]
    pub peer: String,
    #[prost(string, tag = "2")]
    pub state: String,
    #[prost(uint32, tag = "3")]
    pub count: u32,
    #[prost(uint64, tag = "4")]
    pub silent_ms: u64,
    #[prost(uint64, tag = "5")]
    pub unread_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub unsent_bytes: u64,
    #[prost(uint64, tag = "7")]
    pub retransmits: u64,
    #[prost(uint32, tag = "8")]
    pub held_back: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Neighbour {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(uint64, tag = "3")]
    pub cpu_ns: u64,
    #[prost(uint32, tag = "4")]
    pub cpu: u32,
    #[prost(sint32, tag = "5")]
    pub nice: i32,
    #[prost(uint32, tag = "6")]
    pub policy: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FileLock {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub path: String,
    #[prost(bool, tag = "4")]
    pub exclusive: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Limits {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(uint64, optional, tag = "2")]
    pub nofile_soft: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub open_files: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub nproc_soft: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub threads: Option<u64>,
    #[prost(string, tag = "6")]
    pub cpus: String,
    #[prost(uint64, optional, tag = "7")]
    pub read_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub written_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub resident_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub swapped_bytes: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HostSample {
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    #[prost(double, repeated, tag = "2")]
    pub load: Vec<f64>,
    #[prost(uint64, optional, tag = "3")]
    pub runnable_tasks: Option<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub cpu_ns: Vec<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub context_switches: Option<u64>,
    #[prost(message, optional, tag = "6")]
    pub psi_cpu: Option<Pressure>,
    #[prost(message, optional, tag = "7")]
    pub psi_io: Option<Pressure>,
    #[prost(message, optional, tag = "8")]
    pub psi_memory: Option<Pressure>,
    #[prost(uint64, repeated, tag = "9")]
    pub memory: Vec<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub major_faults: Option<u64>,
    #[prost(message, repeated, tag = "11")]
    pub disks: Vec<Disk>,
    #[prost(message, optional, tag = "12")]
    pub net: Option<Net>,
    #[prost(message, optional, tag = "13")]
    pub cgroup: Option<Cgroup>,
    #[prost(message, repeated, tag = "14")]
    pub limits: Vec<Limits>,
    #[prost(message, repeated, tag = "15")]
    pub listeners: Vec<Listener>,
    #[prost(message, repeated, tag = "16")]
    pub connections: Vec<Connections>,
    #[prost(uint64, repeated, tag = "17")]
    pub cpu_busy_ns: Vec<u64>,
    #[prost(message, repeated, tag = "18")]
    pub neighbours: Vec<Neighbour>,
    #[prost(message, repeated, tag = "19")]
    pub file_locks: Vec<FileLock>,
}

fn pressure_out(p: &model::Pressure) -> Pressure {
    Pressure {
        some_avg10: p.some_avg10,
        some_total_us: p.some_total_us,
        full_avg10: p.full_avg10,
        full_total_us: p.full_total_us,
    }
}

/// Facts as they are written.
pub(super) fn to_message(h: &model::HostSample) -> HostSample {
    let f = &h.facts;
    HostSample {
        time_ns: h.time_ns,
        load: f.load.map(|v| v.to_vec()).unwrap_or_default(),
        runnable_tasks: f.runnable_tasks,
        cpu_ns: f.cpu_ns.map(|v| v.to_vec()).unwrap_or_default(),
        context_switches: f.context_switches,
        psi_cpu: f.psi_cpu.as_ref().map(pressure_out),
        psi_io: f.psi_io.as_ref().map(pressure_out),
        psi_memory: f.psi_memory.as_ref().map(pressure_out),
        memory: f.memory.map(|v| v.to_vec()).unwrap_or_default(),
        major_faults: f.major_faults,
        disks: f.disks.iter().map(disk_out).collect(),
        net: f.net.as_ref().map(|n| Net {
            tcp_in_use: n.tcp_in_use,
            tcp_time_wait: n.tcp_time_wait,
            udp_in_use: n.udp_in_use,
            tcp_retransmits: n.tcp_retransmits,
            listen_overflows: n.listen_overflows,
            listen_drops: n.listen_drops,
            tcp_failed_connects: n.tcp_failed_connects,
        }),
        cgroup: f.cgroup.as_ref().map(|c| Cgroup {
            path: c.path.clone(),
            quota_us: c.quota_us,
            period_us: c.period_us,
            nr_periods: c.nr_periods,
            nr_throttled: c.nr_throttled,
            throttled_ns: c.throttled_ns,
            memory_bytes: c.memory_bytes,
            memory_limit_bytes: c.memory_limit_bytes,
            memory_limit_hits: c.memory_limit_hits,
            tasks: c.tasks,
            tasks_limit: c.tasks_limit,
        }),
        listeners: f.listeners.iter().map(listener_out).collect(),
        connections: f.connections.iter().map(connections_out).collect(),
        cpu_busy_ns: f.cpu_busy_ns.clone(),
        neighbours: f.neighbours.iter().map(neighbour_out).collect(),
        file_locks: f.file_locks.iter().map(file_lock_out).collect(),
        limits: f
            .limits
            .iter()
            .map(|l| Limits {
                pid: l.pid,
                nofile_soft: l.nofile_soft,
                open_files: l.open_files,
                nproc_soft: l.nproc_soft,
                threads: l.threads,
                cpus: l.cpus.clone(),
                read_bytes: l.read_bytes,
                written_bytes: l.written_bytes,
                resident_bytes: l.resident_bytes,
                swapped_bytes: l.swapped_bytes,
            })
            .collect(),
    }
}

fn listener_out(l: &model::Listener) -> Listener {
    Listener {
        address: l.address.clone(),
        queued: l.queued,
        room: l.room,
    }
}

fn connections_out(c: &model::Connections) -> Connections {
    Connections {
        peer: c.peer.clone(),
        state: c.state.clone(),
        count: c.count,
        silent_ms: c.silent_ms,
        unread_bytes: c.unread_bytes,
        unsent_bytes: c.unsent_bytes,
        retransmits: c.retransmits,
        held_back: c.held_back,
    }
}

fn neighbour_out(n: &model::Neighbour) -> Neighbour {
    Neighbour {
        pid: n.pid,
        name: n.name.clone(),
        cpu_ns: n.cpu_ns,
        cpu: n.cpu,
        nice: n.nice,
        policy: n.policy,
    }
}

fn file_lock_out(l: &model::FileLock) -> FileLock {
    FileLock {
        pid: l.pid,
        name: l.name.clone(),
        path: l.path.clone(),
        exclusive: l.exclusive,
    }
}

fn disk_out(d: &model::DiskFacts) -> Disk {
    Disk {
        name: d.name.clone(),
        reads: d.reads,
        read_bytes: d.read_bytes,
        writes: d.writes,
        written_bytes: d.written_bytes,
        in_flight: d.in_flight,
        busy_ms: d.busy_ms,
    }
}

/// Facts as they were read.
pub(super) fn from_message(h: HostSample) -> model::HostSample {
    model::HostSample {
        time_ns: h.time_ns,
        facts: model::HostFacts {
            load: h.load.try_into().ok(),
            runnable_tasks: h.runnable_tasks,
            cpu_ns: h.cpu_ns.try_into().ok(),
            context_switches: h.context_switches,
            psi_cpu: h.psi_cpu.map(pressure_in),
            psi_io: h.psi_io.map(pressure_in),
            psi_memory: h.psi_memory.map(pressure_in),
            memory: h.memory.try_into().ok(),
            major_faults: h.major_faults,
            disks: h.disks.into_iter().map(disk_in).collect(),
            net: h.net.map(|n| model::NetFacts {
                tcp_in_use: n.tcp_in_use,
                tcp_time_wait: n.tcp_time_wait,
                udp_in_use: n.udp_in_use,
                tcp_retransmits: n.tcp_retransmits,
                listen_overflows: n.listen_overflows,
                listen_drops: n.listen_drops,
                tcp_failed_connects: n.tcp_failed_connects,
            }),
            cgroup: h.cgroup.map(|c| model::CgroupFacts {
                path: c.path,
                quota_us: c.quota_us,
                period_us: c.period_us,
                nr_periods: c.nr_periods,
                nr_throttled: c.nr_throttled,
                throttled_ns: c.throttled_ns,
                memory_bytes: c.memory_bytes,
                memory_limit_bytes: c.memory_limit_bytes,
                memory_limit_hits: c.memory_limit_hits,
                tasks: c.tasks,
                tasks_limit: c.tasks_limit,
            }),
            listeners: h.listeners.into_iter().map(listener_in).collect(),
            connections: h.connections.into_iter().map(connections_in).collect(),
            cpu_busy_ns: h.cpu_busy_ns,
            neighbours: h.neighbours.into_iter().map(neighbour_in).collect(),
            file_locks: h.file_locks.into_iter().map(file_lock_in).collect(),
            limits: h
                .limits
                .into_iter()
                .map(|l| model::Limits {
                    pid: l.pid,
                    nofile_soft: l.nofile_soft,
                    open_files: l.open_files,
                    nproc_soft: l.nproc_soft,
                    threads: l.threads,
                    cpus: l.cpus,
                    read_bytes: l.read_bytes,
                    written_bytes: l.written_bytes,
                    resident_bytes: l.resident_bytes,
                    swapped_bytes: l.swapped_bytes,
                })
                .collect(),
        },
    }
}

fn listener_in(l: Listener) -> model::Listener {
    model::Listener {
        address: l.address,
        queued: l.queued,
        room: l.room,
    }
}

fn connections_in(c: Connections) -> model::Connections {
    model::Connections {
        peer: c.peer,
        state: c.state,
        count: c.count,
        silent_ms: c.silent_ms,
        unread_bytes: c.unread_bytes,
        unsent_bytes: c.unsent_bytes,
        retransmits: c.retransmits,
        held_back: c.held_back,
    }
}

fn neighbour_in(n: Neighbour) -> model::Neighbour {
    model::Neighbour {
        pid: n.pid,
        name: n.name,
        cpu_ns: n.cpu_ns,
        cpu: n.cpu,
        nice: n.nice,
        policy: n.policy,
    }
}

fn file_lock_in(l: FileLock) -> model::FileLock {
    model::FileLock {
        pid: l.pid,
        name: l.name,
        path: l.path,
        exclusive: l.exclusive,
    }
}

fn pressure_in(p: Pressure) -> model::Pressure {
    model::Pressure {
        some_avg10: p.some_avg10,
        some_total_us: p.some_total_us,
        full_avg10: p.full_avg10,
        full_total_us: p.full_total_us,
    }
}

fn disk_in(d: Disk) -> model::DiskFacts {
    model::DiskFacts {
        name: d.name,
        reads: d.reads,
        read_bytes: d.read_bytes,
        writes: d.writes,
        written_bytes: d.written_bytes,
        in_flight: d.in_flight,
        busy_ms: d.busy_ms,
    }
}
