//! The words of the page's data: window, threads with their ledgers, domain, losses, cost, host.

use serde_json::{Value, json};
use wallscope_model::{Context, HostSample, PauseGroup, Recording, scale::Scaled};

/// Everything of `recording` but its stacks, as `web/js/decode.js` expects it.
pub(super) fn meta(recording: &Recording, scaled: &Scaled) -> Value {
    let d = &recording.domain;
    let w = &recording.window;
    let c = &recording.cost;
    json!({
        "version": 1,
        "window": {
            "start": w.start_ns, "end": w.end_ns, "clock": w.clock,
            "unix_ms": w.start_unix_ns / 1_000_000,
        },
        "slices": {
            "start": recording.slices.start_ns, "width": recording.slices.width_ns,
            "count": recording.slices.count,
        },
        "domain": {
            "tool": d.tool, "backend": d.backend, "why": d.backend_reason,
            "privilege": d.privilege, "kernel": d.kernel, "cpus": d.cpus, "target": d.target,
            "events": d.events.iter().map(|e| json!([e.what, e.event, e.rate])).collect::<Vec<_>>(),
            "columns": d.columns.iter()
                .map(|c| json!([c.state.name(), c.exact, c.how])).collect::<Vec<_>>(),
            "limits": d.limits.iter().map(|l| json!([l.what, l.remedy])).collect::<Vec<_>>(),
            "notes": d.notes, "unit": d.unit.name(),
        },
        "timeline": recording.timeline.as_ref().map(|t| json!({
            "limit": t.limit_bytes, "dropped": t.dropped, "lost": t.lost,
        })),
        "losses": recording.losses.iter().map(|l| json!([l.cause, l.count])).collect::<Vec<_>>(),
        "cost": {
            "bpf_ns": c.bpf_ns, "displaced_ns": c.displaced_ns, "own_cpu_ns": c.own_cpu_ns, "rss_bytes": c.rss_bytes,
            "kernel_bytes": c.kernel_bytes, "target_stopped_ns": c.target_stopped_ns,
        },
        "scaling": { "borrowed_ns": scaled.borrowed_ns, "unplaced_ns": scaled.unplaced_ns },
        "processes": recording.processes.iter().map(|p| json!({
            "pid": p.pid, "parent": p.parent, "name": &*p.name, "exe": &*p.exe,
            "cmdline": &*p.cmdline, "unattributed_ns": p.unattributed_on_cpu_ns,
        })).collect::<Vec<_>>(),
        "threads": recording.contexts.iter().map(thread).collect::<Vec<_>>(),
        "host": recording.host.iter().map(host).collect::<Vec<_>>(),
        "pauses": recording.pauses.iter().map(pauses).collect::<Vec<_>>(),
    })
}

fn thread(c: &Context) -> Value {
    let l = &c.ledger;
    let audit =
        l.audit
            .valid
            .then_some([l.audit.on_cpu_ns, l.audit.run_delay_ns, l.audit.switches]);
    json!({
        "pid": c.pid, "tid": c.tid, "name": &*c.name, "start": c.start_ns, "end": c.end_ns,
        "wall": l.wall_ns,
        "on_cpu": [l.on_cpu.user, l.on_cpu.kernel, l.on_cpu.irq, l.on_cpu.stolen],
        "runnable": [l.runnable.woken, l.runnable.preempted, l.runnable.throttled],
        "blocked": l.blocked,
        "unknown": l.unknown,
        "residue": l.residue_ns(), "repaired": l.repaired_ns, "idle": l.idle_ns,
        "switches": [l.voluntary_switches, l.involuntary_switches],
        "audit": audit,
    })
}

fn pauses(g: &PauseGroup) -> Value {
    json!({
        "pid": g.pid, "operation": &*g.operation, "kind": &*g.kind, "cause": &*g.cause,
        "count": g.count, "total": g.total_ns,
        "longest": g.longest.iter().map(|p| [p.start_ns, p.length_ns]).collect::<Vec<_>>(),
    })
}

/// One moment of the page's table of the host.
fn host(sample: &HostSample) -> Value {
    let f = &sample.facts;
    json!({
        "time": sample.time_ns,
        "load": f.load.map(|l| l[0]),
        "runnable": f.runnable_tasks,
        "cpu": f.cpu_ns,
        "psi": [
            f.psi_cpu.map(|p| p.some_avg10), f.psi_io.map(|p| p.some_avg10),
            f.psi_memory.map(|p| p.some_avg10),
        ],
        "memory": f.memory,
        "major_faults": f.major_faults,
        "quota": f.cgroup.as_ref().map(|c| json!([
            c.quota_us, c.period_us, c.nr_throttled, c.throttled_ns, c.memory_bytes,
            c.memory_limit_bytes,
        ])),
    })
}
