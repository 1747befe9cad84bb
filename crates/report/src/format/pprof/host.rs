//! Host facts ↔ their messages in the extension.

use wallscope_model as model;

use super::extension as ext;

fn pressure_out(p: &model::Pressure) -> ext::Pressure {
    ext::Pressure {
        some_avg10: p.some_avg10,
        some_total_us: p.some_total_us,
        full_avg10: p.full_avg10,
        full_total_us: p.full_total_us,
    }
}

/// Facts as they are written.
pub(super) fn to_message(h: &model::HostSample) -> ext::HostSample {
    let f = &h.facts;
    ext::HostSample {
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
        net: f.net.as_ref().map(|n| ext::Net {
            tcp_in_use: n.tcp_in_use,
            tcp_time_wait: n.tcp_time_wait,
            udp_in_use: n.udp_in_use,
            tcp_retransmits: n.tcp_retransmits,
            listen_overflows: n.listen_overflows,
            listen_drops: n.listen_drops,
        }),
        cgroup: f.cgroup.as_ref().map(|c| ext::Cgroup {
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
        limits: f
            .limits
            .iter()
            .map(|l| ext::Limits {
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

fn listener_out(l: &model::Listener) -> ext::Listener {
    ext::Listener {
        address: l.address.clone(),
        queued: l.queued,
        room: l.room,
    }
}

fn connections_out(c: &model::Connections) -> ext::Connections {
    ext::Connections {
        peer: c.peer.clone(),
        state: c.state.clone(),
        count: c.count,
        silent_ms: c.silent_ms,
        unread_bytes: c.unread_bytes,
        unsent_bytes: c.unsent_bytes,
        retransmits: c.retransmits,
    }
}

fn disk_out(d: &model::DiskFacts) -> ext::Disk {
    ext::Disk {
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
pub(super) fn from_message(h: ext::HostSample) -> model::HostSample {
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

fn listener_in(l: ext::Listener) -> model::Listener {
    model::Listener {
        address: l.address,
        queued: l.queued,
        room: l.room,
    }
}

fn connections_in(c: ext::Connections) -> model::Connections {
    model::Connections {
        peer: c.peer,
        state: c.state,
        count: c.count,
        silent_ms: c.silent_ms,
        unread_bytes: c.unread_bytes,
        unsent_bytes: c.unsent_bytes,
        retransmits: c.retransmits,
    }
}

fn pressure_in(p: ext::Pressure) -> model::Pressure {
    model::Pressure {
        some_avg10: p.some_avg10,
        some_total_us: p.some_total_us,
        full_avg10: p.full_avg10,
        full_total_us: p.full_total_us,
    }
}

fn disk_in(d: ext::Disk) -> model::DiskFacts {
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
