//! The extension and the profile's tables → the recording that was written, checked throughout.

use std::sync::Arc;

use wallscope_model as model;
use wallscope_model::{
    ContextId, FrameId, FrameKind, FunctionId, LabelsId, ModuleId, ModuleKind, StackEnd, StackId,
    UnknownCause,
};

use super::super::{Read, ReadError};
use super::checks::{below, damaged, same};
use super::extension as ext;
use super::names::{Names, pick};
use super::tables::Tables;
use super::{histograms, host, labels, pauses, peers, sums, tasks, timeline, waits};

fn cost(cost: ext::Cost) -> model::Cost {
    model::Cost {
        bpf_ns: cost.bpf_ns,
        displaced_ns: cost.displaced_ns,
        own_cpu_ns: cost.own_cpu_ns,
        rss_bytes: cost.rss_bytes,
        kernel_bytes: cost.kernel_bytes,
        target_stopped_ns: cost.target_stopped_ns,
    }
}

/// Rebuilds the recording.
pub(super) fn recording(t: &Tables, m: ext::Recording) -> Result<Read, ReadError> {
    let mut warnings = Vec::new();
    let names = Names::new(m.names.unwrap_or_default(), &mut warnings);
    let window = m.window.unwrap_or_default();
    let slices = m.slices.unwrap_or_default();
    let mut rec = model::Recording {
        domain: domain(m.domain.unwrap_or_default(), &names),
        window: model::Window {
            start_ns: window.start_ns,
            end_ns: window.end_ns,
            clock: window.clock,
            start_unix_ns: window.start_unix_ns,
        },
        contexts: m.contexts.into_iter().map(|c| context(c, &names)).collect(),
        processes: m.processes.into_iter().map(process).collect(),
        slices: model::Slices {
            start_ns: slices.start_ns,
            width_ns: slices.width_ns,
            count: slices.count,
        },
        host: m.host.into_iter().map(host::from_message).collect(),
        losses: m
            .losses
            .into_iter()
            .map(|l| model::Loss {
                cause: l.cause,
                count: l.count,
            })
            .collect(),
        cost: cost(m.cost.unwrap_or_default()),
        ..model::Recording::default()
    };
    rec.modules = modules(t, &m.modules.unwrap_or_default(), &names)?;
    rec.functions = functions(t, m.functions)?;
    rec.frames = frames(t, &m.frames.unwrap_or_default(), &names, &rec)?;
    rec.stacks = stacks(&m.stacks.unwrap_or_default(), &names, rec.frames.len())?;
    rec.label_sets = labels::from_message(&m.label_sets.unwrap_or_default())?;
    rec.context_labels = labels::of_contexts(&m.context_labels, &rec)?;
    rec.samples = samples(&m.samples.unwrap_or_default(), &names, &rec)?;
    rec.actors = waits::restore_actors(m.actors, &rec)?;
    rec.hops = waits::restore_hops(
        &m.hops.unwrap_or_default(),
        &names.reasons,
        &names.parts,
        &rec,
    )?;
    rec.locks = waits::restore_locks(&m.locks.unwrap_or_default(), &rec)?;
    rec.ledger_slices = ledger_slices(&m.ledger_slices.unwrap_or_default(), &names, &rec)?;
    rec.peers = m
        .peers
        .into_iter()
        .map(|p| peers::from_message(p, &rec))
        .collect::<Result<_, ReadError>>()?;
    rec.tasks = m
        .tasks
        .into_iter()
        .map(|g| tasks::from_message(g, &names, &rec))
        .collect::<Result<_, ReadError>>()?;
    rec.histograms = histograms::from_message(&m.shapes.unwrap_or_default(), &names, &rec)?;
    rec.events = m
        .events
        .into_iter()
        .map(|e| event(e, &names, &rec))
        .collect::<Result<_, ReadError>>()?;
    rec.pauses = m
        .pauses
        .into_iter()
        .map(pauses::from_message)
        .collect::<Result<_, ReadError>>()?;
    let lanes = |m| timeline::from_message(m, &names, &rec);
    let lanes = m.timeline.map(lanes).transpose()?;
    rec.timeline = lanes;
    sums::check(&rec)?;
    Ok(Read::named(rec, warnings))
}

fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

fn domain(d: ext::Domain, names: &Names) -> model::Domain {
    model::Domain {
        tool: d.tool,
        backend: d.backend,
        backend_reason: d.backend_reason,
        privilege: d.privilege,
        kernel: d.kernel,
        cpus: d.cpus,
        target: d.target,
        events: d
            .events
            .into_iter()
            .map(|e| model::EventSource {
                what: e.what,
                event: e.event,
                rate: e.rate,
            })
            .collect(),
        columns: d
            .columns
            .into_iter()
            .map(|c| model::Column {
                state: names.state(c.state),
                exact: c.exact,
                how: c.how,
            })
            .collect(),
        limits: d
            .limits
            .into_iter()
            .map(|l| model::Limit {
                what: l.what,
                remedy: l.remedy,
            })
            .collect(),
        notes: d.notes,
        unit: model::Unit::from_name(&d.unit),
    }
}

fn context(c: ext::Context, names: &Names) -> model::Context {
    let l = c.ledger.unwrap_or_default();
    let audit = l.audit.unwrap_or_default();
    let at = |list: &[u64], i: usize| list.get(i).copied().unwrap_or(0);
    let mut ledger = model::Ledger {
        wall_ns: l.wall,
        on_cpu: model::OnCpu {
            user: at(&l.on_cpu, 0),
            kernel: at(&l.on_cpu, 1),
            irq: at(&l.on_cpu, 2),
            stolen: at(&l.on_cpu, 3),
        },
        runnable: model::Runnable {
            woken: at(&l.runnable, 0),
            preempted: at(&l.runnable, 1),
            throttled: at(&l.runnable, 2),
        },
        repaired_ns: l.repaired,
        idle_ns: l.idle,
        voluntary_switches: l.voluntary_switches,
        involuntary_switches: l.involuntary_switches,
        audit: model::Audit {
            on_cpu_ns: audit.on_cpu,
            run_delay_ns: audit.run_delay,
            switches: audit.switches,
            valid: audit.valid,
        },
        ..model::Ledger::default()
    };
    for (i, ns) in (0..).zip(&l.blocked) {
        let to = &mut ledger.blocked[names.reason(i) as usize];
        *to = to.saturating_add(*ns);
    }
    for (i, ns) in (0..).zip(&l.unknown) {
        let cause = pick(&names.unknown_causes, i).unwrap_or(UnknownCause::NotInSource);
        let to = &mut ledger.unknown[cause as usize];
        *to = to.saturating_add(*ns);
    }
    model::Context {
        pid: c.pid,
        tid: c.tid,
        name: Arc::from(c.name),
        start_ns: c.start_ns,
        end_ns: c.end_ns,
        ledger,
    }
}

fn process(p: ext::Process) -> model::Process {
    model::Process {
        pid: p.pid,
        parent: p.parent,
        name: Arc::from(p.name),
        exe: Arc::from(p.exe),
        cmdline: Arc::from(p.cmdline),
        unattributed_on_cpu_ns: p.unattributed_on_cpu_ns,
        folded_threads: p.folded_threads,
        user: (p.uid.zip(p.gid)).map(|(uid, gid)| model::FileUser { uid, gid }),
    }
}

fn modules(t: &Tables, m: &ext::Modules, names: &Names) -> Result<Vec<model::Module>, ReadError> {
    same(&m.pid, m.kind.len(), "the processes of modules")?;
    same(&t.mappings, m.kind.len(), "the list of mappings")?;
    // The order in the file shows other readers which mapping is the program; ids identify the modules.
    let mut mappings: Vec<_> = t.mappings.iter().collect();
    mappings.sort_by_key(|m| m.id);
    if mappings.iter().zip(1..).any(|(m, id)| m.id != id) {
        return Err(damaged("its mappings are not numbered from 1"));
    }
    Ok(mappings
        .into_iter()
        .zip(m.kind.iter().zip(&m.pid))
        .map(|(mapping, (kind, pid))| model::Module {
            kind: pick(&names.module_kinds, *kind).unwrap_or(ModuleKind::Elf),
            path: Arc::from(t.string(mapping.file)),
            build_id: Arc::from(t.string(mapping.build_id)),
            pid: *pid,
        })
        .collect())
}

fn functions(t: &Tables, count: u32) -> Result<Vec<model::Function>, ReadError> {
    let own = t.functions.get(..count as usize).ok_or_else(|| {
        damaged(format!(
            "it says it has {count} functions and has {}",
            t.functions.len()
        ))
    })?;
    Ok(own
        .iter()
        .map(|f| model::Function {
            name: Arc::from(t.string(f.name)),
            system_name: Arc::from(t.string(f.system_name)),
            file: Arc::from(t.string(f.file)),
            start_line: number(f.start_line),
        })
        .collect())
}

fn frames(
    t: &Tables,
    m: &ext::Frames,
    names: &Names,
    rec: &model::Recording,
) -> Result<Vec<model::Frame>, ReadError> {
    let own = t.locations.get(..m.kind.len()).ok_or_else(|| {
        damaged(format!(
            "it says it has {} locations and has {}",
            m.kind.len(),
            t.locations.len()
        ))
    })?;
    own.iter()
        .zip(&m.kind)
        .map(|(location, kind)| {
            let module = match location.mapping {
                0 => None,
                id => Some(ModuleId(below(
                    number(id - 1),
                    rec.modules.len(),
                    "mapping",
                )?)),
            };
            let lines = location
                .lines
                .iter()
                // Functions beyond the recording's own are names of unresolved addresses for other readers.
                .filter(|(function, _)| *function >= 1 && *function <= rec.functions.len() as u64)
                .map(|(function, line)| model::Line {
                    function: FunctionId(number(function - 1)),
                    line: number(*line),
                })
                .collect();
            Ok(model::Frame {
                kind: pick(&names.frame_kinds, *kind).unwrap_or(FrameKind::Native),
                module,
                address: location.address,
                lines,
            })
        })
        .collect()
}

fn stacks(m: &ext::Stacks, names: &Names, frames: usize) -> Result<Vec<model::Stack>, ReadError> {
    same(&m.end, m.length.len(), "the ends of stacks")?;
    let mut rest = &m.frame[..];
    let mut out = Vec::with_capacity(m.length.len());
    for (length, end) in m.length.iter().zip(&m.end) {
        let (own, after) = rest
            .split_at_checked(*length as usize)
            .ok_or_else(|| damaged("the list of frames of stacks is too short"))?;
        rest = after;
        out.push(model::Stack {
            frames: own
                .iter()
                .map(|f| Ok(FrameId(below(*f, frames, "frame")?)))
                .collect::<Result<_, ReadError>>()?,
            end: pick(&names.stack_ends, *end).unwrap_or(StackEnd::Lost),
        });
    }
    same(rest, 0, "the rest of the list of frames of stacks")?;
    Ok(out)
}

fn samples(
    m: &ext::Samples,
    names: &Names,
    rec: &model::Recording,
) -> Result<Vec<model::Sample>, ReadError> {
    let n = m.context.len();
    same(&m.stack, n, "the stacks of samples")?;
    same(&m.state, n, "the states of samples")?;
    same(&m.reason, n, "the reasons of samples")?;
    same(&m.part, n, "the parts of samples")?;
    same(&m.idle, n, "the idleness of samples")?;
    same(&m.cpu, n, "the CPUs of samples")?;
    same(&m.count, n, "the counts of samples")?;
    same(&m.ns, n, "the times of samples")?;
    same(&m.slices, n, "the slices of samples")?;
    same(&m.slice_count, m.slice.len(), "the counts of slices")?;
    same(&m.slice_ns, m.slice.len(), "the times of slices")?;
    // Recordings without any label have no such column.
    if !m.labels.is_empty() {
        same(&m.labels, n, "the labels of samples")?;
    }
    let mut from = 0usize;
    let mut out = Vec::with_capacity(n);
    for i in 0..n {
        let to = from + m.slices[i] as usize;
        if to > m.slice.len() {
            return Err(damaged("the list of slices of samples is too short"));
        }
        let slices = (from..to)
            .map(|k| {
                Ok(model::SliceValue {
                    slice: below(m.slice[k], rec.slices.count as usize, "slice")?,
                    count: m.slice_count[k],
                    ns: m.slice_ns[k],
                })
            })
            .collect::<Result<_, ReadError>>()?;
        from = to;
        out.push(model::Sample {
            context: ContextId(below(m.context[i], rec.contexts.len(), "thread")?),
            stack: StackId(below(m.stack[i], rec.stacks.len(), "stack")?),
            state: names.state(m.state[i]),
            reason: m.reason[i].checked_sub(1).map(|r| names.reason(r)),
            part: m.part[i].checked_sub(1).and_then(|p| pick(&names.parts, p)),
            idle: m.idle[i],
            cpu: m.cpu[i].checked_sub(1).map(number),
            labels: (m.labels.get(i).and_then(|l| l.checked_sub(1)))
                .map(|l| {
                    Ok::<_, ReadError>(LabelsId(below(l, rec.label_sets.len(), "set of labels")?))
                })
                .transpose()?,
            count: m.count[i],
            ns: m.ns[i],
            slices,
        });
    }
    Ok(out)
}

fn event(
    m: ext::EventHits,
    names: &Names,
    rec: &model::Recording,
) -> Result<model::EventHits, ReadError> {
    same(&m.hits, m.context.len(), "the hits of an event")?;
    let hits = m.context.iter().zip(m.hits).map(|(context, n)| {
        let context = below(*context, rec.contexts.len(), "thread")?;
        Ok((ContextId(context), n))
    });
    Ok(model::EventHits {
        hits: hits.collect::<Result<_, ReadError>>()?,
        samples: samples(&m.samples.unwrap_or_default(), names, rec)?,
        name: m.name,
        counted: m.counted,
    })
}

fn ledger_slices(
    m: &ext::LedgerSlices,
    names: &Names,
    rec: &model::Recording,
) -> Result<model::LedgerSlices, ReadError> {
    let n = m.context.len();
    same(&m.slice, n, "the slices of ledgers")?;
    same(&m.on_cpu, n, "the on-CPU times of slices")?;
    same(&m.runnable, n, "the runnable times of slices")?;
    same(&m.blocked_mask, n, "the blocked times of slices")?;
    let mut blocked = m.blocked.iter();
    let mut out = model::LedgerSlices::default();
    for i in 0..n {
        let mut row = model::LedgerSlice {
            context: below(m.context[i], rec.contexts.len(), "thread")?,
            slice: below(m.slice[i], rec.slices.count as usize, "slice")?,
            on_cpu_ns: m.on_cpu[i],
            runnable_ns: m.runnable[i],
            ..model::LedgerSlice::default()
        };
        for bit in (0..u64::BITS).filter(|bit| m.blocked_mask[i] >> bit & 1 == 1) {
            let ns = blocked
                .next()
                .ok_or_else(|| damaged("the list of blocked times of slices is too short"))?;
            let to = &mut row.blocked[names.reason(bit) as usize];
            *to = to.saturating_add(*ns);
        }
        out.push(row);
    }
    Ok(out)
}
