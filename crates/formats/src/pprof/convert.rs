//! Recording → the bytes of the extension.

use prost::Message;
use wallscope_model as model;
use wallscope_model::scale::Scaled;
use wallscope_model::{BlockReason, Part, StackEnd, State, UnknownCause};

use super::checks::index;
use super::extension as ext;
use super::names::{FRAME_KINDS, MODULE_KINDS};
use super::{histograms, host, labels, pauses, peers, tasks, timeline, waits};

fn kind<T: PartialEq, N>(list: &[(T, N)], value: &T) -> u32 {
    list.iter().position(|(v, _)| v == value).unwrap_or(0) as u32
}

fn cost(cost: &model::Cost) -> ext::Cost {
    ext::Cost {
        bpf_ns: cost.bpf_ns,
        displaced_ns: cost.displaced_ns,
        own_cpu_ns: cost.own_cpu_ns,
        rss_bytes: cost.rss_bytes,
        kernel_bytes: cost.kernel_bytes,
        target_stopped_ns: cost.target_stopped_ns,
    }
}

/// The encoded `wallscope.v1.Recording`.
pub(super) fn to_bytes(rec: &model::Recording, scaled: &Scaled) -> Vec<u8> {
    ext::Recording {
        version: ext::VERSION,
        domain: Some(domain(&rec.domain)),
        window: Some(ext::Window {
            start_ns: rec.window.start_ns,
            end_ns: rec.window.end_ns,
            clock: rec.window.clock.clone(),
            start_unix_ns: rec.window.start_unix_ns,
        }),
        names: Some(names()),
        modules: Some(ext::Modules {
            kind: rec
                .modules
                .iter()
                .map(|m| kind(&MODULE_KINDS, &m.kind))
                .collect(),
            pid: rec.modules.iter().map(|m| m.pid).collect(),
        }),
        frames: Some(ext::Frames {
            kind: rec
                .frames
                .iter()
                .map(|f| kind(&FRAME_KINDS, &f.kind))
                .collect(),
        }),
        functions: rec.functions.len() as u32,
        stacks: Some(ext::Stacks {
            length: rec.stacks.iter().map(|s| s.frames.len() as u32).collect(),
            frame: rec
                .stacks
                .iter()
                .flat_map(|s| s.frames.iter().map(|f| f.0))
                .collect(),
            end: rec
                .stacks
                .iter()
                .map(|s| index(StackEnd::ALL, &s.end))
                .collect(),
        }),
        contexts: rec.contexts.iter().map(context).collect(),
        processes: rec.processes.iter().map(process).collect(),
        samples: Some(samples(rec, &rec.samples)),
        slices: Some(ext::Slices {
            start_ns: rec.slices.start_ns,
            width_ns: rec.slices.width_ns,
            count: rec.slices.count,
        }),
        ledger_slices: Some(ledger_slices(rec)),
        host: rec.host.iter().map(host::to_message).collect(),
        losses: rec
            .losses
            .iter()
            .map(|l| ext::Loss {
                cause: l.cause.clone(),
                count: l.count,
            })
            .collect(),
        cost: Some(cost(&rec.cost)),
        factors: Some(factors(scaled)),
        shapes: histograms::to_message(rec),
        timeline: timeline::to_message(rec),
        events: (rec.events.iter()).map(|e| event(rec, e)).collect(),
        actors: waits::actors(rec),
        hops: waits::hops(rec),
        locks: waits::locks(rec),
        peers: rec.peers.iter().map(peers::to_message).collect(),
        pauses: rec.pauses.iter().map(pauses::to_message).collect(),
        tasks: rec.tasks.iter().map(tasks::to_message).collect(),
        context_labels: (rec.context_labels.iter())
            .map(|l| l.map_or(0, |l| 1 + l.0))
            .collect(),
        label_sets: (!rec.label_sets.is_empty()).then(|| labels::to_message(&rec.label_sets)),
    }
    .encode_to_vec()
}

fn names() -> ext::Names {
    fn list<T>(all: &[T], name: impl Fn(&T) -> &'static str) -> Vec<String> {
        all.iter().map(|v| name(v).to_string()).collect()
    }
    ext::Names {
        states: list(State::ALL, |v| v.name()),
        reasons: list(BlockReason::ALL, |v| v.name()),
        parts: list(Part::ALL, |v| v.name()),
        unknown_causes: list(UnknownCause::ALL, |v| v.name()),
        stack_ends: list(StackEnd::ALL, |v| v.name()),
        frame_kinds: list(&FRAME_KINDS, |v| v.1),
        module_kinds: list(&MODULE_KINDS, |v| v.1),
    }
}

fn domain(d: &model::Domain) -> ext::Domain {
    ext::Domain {
        tool: d.tool.clone(),
        backend: d.backend.clone(),
        backend_reason: d.backend_reason.clone(),
        privilege: d.privilege.clone(),
        kernel: d.kernel.clone(),
        cpus: d.cpus,
        target: d.target.clone(),
        events: d
            .events
            .iter()
            .map(|e| ext::EventSource {
                what: e.what.clone(),
                event: e.event.clone(),
                rate: e.rate.clone(),
            })
            .collect(),
        columns: d
            .columns
            .iter()
            .map(|c| ext::Column {
                state: index(State::ALL, &c.state),
                exact: c.exact,
                how: c.how.clone(),
            })
            .collect(),
        limits: d
            .limits
            .iter()
            .map(|l| ext::Limit {
                what: l.what.clone(),
                remedy: l.remedy.clone(),
            })
            .collect(),
        notes: d.notes.clone(),
        unit: if d.unit.is_time() {
            String::new()
        } else {
            d.unit.name().to_string()
        },
    }
}

fn context(c: &model::Context) -> ext::Context {
    let l = &c.ledger;
    ext::Context {
        pid: c.pid,
        tid: c.tid,
        name: c.name.to_string(),
        start_ns: c.start_ns,
        end_ns: c.end_ns,
        ledger: Some(ext::Ledger {
            wall: l.wall_ns,
            on_cpu: vec![
                l.on_cpu.user,
                l.on_cpu.kernel,
                l.on_cpu.irq,
                l.on_cpu.stolen,
            ],
            runnable: vec![l.runnable.woken, l.runnable.preempted, l.runnable.throttled],
            blocked: l.blocked.to_vec(),
            unknown: l.unknown.to_vec(),
            repaired: l.repaired_ns,
            idle: l.idle_ns,
            voluntary_switches: l.voluntary_switches,
            involuntary_switches: l.involuntary_switches,
            audit: Some(ext::Audit {
                on_cpu: l.audit.on_cpu_ns,
                run_delay: l.audit.run_delay_ns,
                switches: l.audit.switches,
                valid: l.audit.valid,
            }),
        }),
    }
}

fn process(p: &model::Process) -> ext::Process {
    ext::Process {
        pid: p.pid,
        parent: p.parent,
        name: p.name.to_string(),
        exe: p.exe.to_string(),
        cmdline: p.cmdline.to_string(),
        unattributed_on_cpu_ns: p.unattributed_on_cpu_ns,
        folded_threads: p.folded_threads,
        uid: p.user.map(|u| u.uid),
        gid: p.user.map(|u| u.gid),
    }
}

fn event(rec: &model::Recording, e: &model::EventHits) -> ext::EventHits {
    let (context, hits) = e.hits.iter().map(|(c, n)| (c.0, *n)).unzip();
    ext::EventHits {
        name: e.name.clone(),
        counted: e.counted,
        context,
        hits,
        samples: Some(samples(rec, &e.samples)),
    }
}

fn samples(rec: &model::Recording, list: &[model::Sample]) -> ext::Samples {
    let mut s = ext::Samples::default();
    for r in list {
        s.context.push(r.context.0);
        s.stack.push(r.stack.0);
        s.state.push(index(State::ALL, &r.state));
        s.reason
            .push(r.reason.map_or(0, |v| 1 + index(BlockReason::ALL, &v)));
        s.part.push(r.part.map_or(0, |v| 1 + index(Part::ALL, &v)));
        s.idle.push(r.idle);
        s.cpu.push(r.cpu.map_or(0, |c| 1 + u64::from(c)));
        s.count.push(r.count);
        s.ns.push(r.ns);
        s.slices.push(r.slices.len() as u32);
        for v in &r.slices {
            s.slice.push(v.slice);
            s.slice_count.push(v.count);
            s.slice_ns.push(v.ns);
        }
    }
    if !rec.label_sets.is_empty() {
        let number = |r: &model::Sample| r.labels.map_or(0, |l| 1 + l.0);
        s.labels = list.iter().map(number).collect();
    }
    s
}

fn ledger_slices(rec: &model::Recording) -> ext::LedgerSlices {
    let mut s = ext::LedgerSlices::default();
    for r in rec.ledger_slices.iter() {
        s.context.push(r.context);
        s.slice.push(r.slice);
        s.on_cpu.push(r.on_cpu_ns);
        s.runnable.push(r.runnable_ns);
        let mut mask = 0u64;
        for (i, ns) in r.blocked.iter().enumerate() {
            if *ns > 0 {
                mask |= 1 << i;
                s.blocked.push(*ns);
            }
        }
        s.blocked_mask.push(mask);
    }
    s
}

fn factors(scaled: &Scaled) -> ext::Factors {
    let mut s = ext::Factors::default();
    for f in &scaled.factors {
        s.context.push(f.context.0);
        s.state.push(index(State::ALL, &f.state));
        s.reason.push(f.reason.unwrap_or_default().to_string());
        s.exact.push(f.exact_ns);
        s.sampled.push(f.sampled_ns);
    }
    s
}
