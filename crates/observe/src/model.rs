//! Values of `wallscope_model` ↔ bytes.

use wallscope_model::{
    CgroupFacts, Column, Connections, Cost, DiskFacts, Domain, EventSource, FileLock, FileUser,
    FrameKind, Function, HostFacts, HostSample, Limit, Limits, Listener, Loss, Module, ModuleKind,
    Neighbour, NetFacts, Pressure, Process, StackEnd, State, Unit,
};

use crate::wire::{Input, Malformed, Wire, fields, variants};

variants! {
    State { OnCpu = 0, Runnable = 1, Blocked = 2, Unknown = 3 }
    ModuleKind { Elf = 0, Kernel = 1, Vdso = 2, Jit = 3, Source = 4 }
    FrameKind {
        Native = 0, Kernel = 1, Jit = 2, Python = 3, Php = 4, Ruby = 5, Java = 6, JavaScript = 7,
    }
    StackEnd {
        Root = 0, KernelOnly = 1, MaxFrames = 2, NoMapping = 3, TableNotLoaded = 4, NoUnwindInfo = 5,
        BadRule = 6, Unreadable = 7, WindowEnd = 8, NoProgress = 9, Gone = 10, Lost = 11,
        NotSampled = 12,
    }
}

// No collector observes a group of ended threads: `folded_threads` is the recorder's.
impl Wire for Process {
    fn put(&self, out: &mut Vec<u8>) {
        self.pid.put(out);
        self.parent.put(out);
        self.name.put(out);
        self.exe.put(out);
        self.cmdline.put(out);
        self.unattributed_on_cpu_ns.put(out);
        self.user.put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<Process, Malformed> {
        Ok(Process {
            pid: Wire::get(from)?,
            parent: Wire::get(from)?,
            name: Wire::get(from)?,
            exe: Wire::get(from)?,
            cmdline: Wire::get(from)?,
            unattributed_on_cpu_ns: Wire::get(from)?,
            user: Wire::get(from)?,
            folded_threads: 0,
        })
    }
}

fields! {
    FileUser { uid, gid }
    Module { kind, path, build_id, pid }
    Function { name, system_name, file, start_line }
    EventSource { what, event, rate }
    Column { state, exact, how }
    Limit { what, remedy }
    Loss { cause, count }
    Cost { bpf_ns, displaced_ns, own_cpu_ns, rss_bytes, kernel_bytes, target_stopped_ns }
    Domain {
        tool, backend, backend_reason, privilege, kernel, cpus, target, events, columns, limits,
        notes, unit,
    }
    Pressure { some_avg10, some_total_us, full_avg10, full_total_us }
    DiskFacts { name, reads, read_bytes, writes, written_bytes, in_flight, busy_ms }
    NetFacts {
        tcp_in_use, tcp_time_wait, udp_in_use, tcp_retransmits, listen_overflows, listen_drops,
        tcp_failed_connects,
    }
    CgroupFacts {
        path, quota_us, period_us, nr_periods, nr_throttled, throttled_ns, memory_bytes,
        memory_limit_bytes, memory_limit_hits, tasks, tasks_limit,
    }
    Listener { address, queued, room }
    Connections {
        peer, state, count, silent_ms, unread_bytes, unsent_bytes, retransmits, held_back,
    }
    Limits {
        pid, nofile_soft, open_files, nproc_soft, threads, cpus, read_bytes, written_bytes,
        resident_bytes, swapped_bytes,
    }
    Neighbour { pid, name, cpu_ns, cpu, nice, policy }
    FileLock { pid, name, path, exclusive }
    HostFacts {
        load, runnable_tasks, cpu_ns, cpu_busy_ns, context_switches, psi_cpu, psi_io, psi_memory,
        memory, major_faults, disks, net, cgroup, listeners, connections, limits, neighbours,
        file_locks,
    }
    HostSample { time_ns, facts }
}

/// Encoded as its name: a unit of counts has the name of the counted thing.
impl Wire for Unit {
    fn put(&self, out: &mut Vec<u8>) {
        self.name().to_owned().put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<Unit, Malformed> {
        Ok(Unit::from_name(&String::get(from)?))
    }
}
