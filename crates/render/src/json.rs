//! `report --json`: schema `wallscope.report/1`. Keys are added, never changed.

mod blame;
mod collections;
mod schema;
mod timeline;

use std::collections::BTreeMap;
use wallscope_model::printable::escape_json;

use wallscope_model::histogram::Histogram;
use wallscope_model::{BlockReason, Ledger, Recording, State, UnknownCause, View};

use crate::text::Headline;
use schema::{
    Column, Cost, Domain, Function, FunctionView, HistogramOf, Kernel, Loss, Peer, PeerStack,
    Process, Quantiles, Reason, Report, Scaling, Stack, Task, TaskWait, ThreadEntry, Times, Total,
    Window,
};
use wallscope_analysis::view::{
    Analysis, FunctionRow, HistogramLine, PeerRow, StackRow, TaskRow, Value, histogram_lines,
    ledger_rows, process_rows, reason_rows, thread_histograms, total_row,
};

/// The most stacks listed.
const MAX_STACKS: usize = 50;

/// The report as JSON, with a line break at its end.
pub fn render(analysis: &Analysis, headline: &Headline) -> String {
    let rec = analysis.recording;
    let total = total_row(rec);
    let report = Report {
        schema: "wallscope.report/1",
        finding: &headline.sentence,
        domain: domain(rec),
        window: Window {
            start_ns: rec.window.start_ns,
            end_ns: rec.window.end_ns,
            clock: &rec.window.clock,
            start_unix_ns: rec.window.start_unix_ns,
        },
        total: times(&total.ledger),
        threads: threads(rec),
        processes: processes(rec),
        views: views(analysis),
        functions: analysis.functions().iter().map(function).collect(),
        reasons: reason_rows(&total.ledger)
            .into_iter()
            .map(|r| Reason {
                state: r.state.name(),
                reason: r.reason,
                ns: r.ns,
            })
            .collect(),
        shapes: histogram_lines(rec)
            .into_iter()
            .filter_map(histogram_of)
            .collect(),
        timeline: timeline::timeline(rec),
        stacks: analysis
            .stacks(View::Wall, MAX_STACKS)
            .into_iter()
            .map(stack)
            .collect(),
        peers: analysis.peers().into_iter().map(peer).collect(),
        tasks: analysis.tasks().into_iter().map(task).collect(),
        blame: blame::blame(analysis),
        gc: collections::collections(analysis),
        losses: rec
            .losses
            .iter()
            .map(|l| Loss {
                cause: &l.cause,
                count: l.count,
            })
            .collect(),
        cost: Cost {
            bpf_ns: rec.cost.bpf_ns,
            displaced_ns: rec.cost.displaced_ns,
            own_cpu_ns: rec.cost.own_cpu_ns,
            rss_bytes: rec.cost.rss_bytes,
            kernel_bytes: rec.cost.kernel_bytes,
            target_stopped_ns: rec.cost.target_stopped_ns,
        },
        scaling: Scaling {
            borrowed_ns: analysis.scaled.borrowed_ns,
            unplaced_ns: analysis.scaled.unplaced_ns,
        },
    };
    // Strings and integers only: there is nothing that could fail to be written.
    text(&report)
}

fn threads(rec: &Recording) -> Vec<ThreadEntry> {
    let own = thread_histograms(rec);
    ledger_rows(rec)
        .into_iter()
        .map(|r| ThreadEntry {
            pid: r.pid,
            tid: r.tid.unwrap_or(0),
            times: times(&r.ledger),
            shapes: State::ALL
                .iter()
                .filter_map(|s| Some((s.name(), quantiles(own.get(&(r.context?, *s))?)?)))
                .collect(),
            timeline: r.context.and_then(|c| timeline::lane(rec, c)),
            name: r.name,
        })
        .collect()
}

fn processes(rec: &Recording) -> Vec<Process> {
    process_rows(rec)
        .into_iter()
        .map(|r| Process {
            pid: r.pid,
            threads: r.threads,
            times: times(&r.ledger),
            unattributed_on_cpu_ns: r.unattributed_on_cpu_ns,
            name: r.name,
        })
        .collect()
}

fn views(analysis: &Analysis) -> BTreeMap<&'static str, Total> {
    View::ALL
        .iter()
        .map(|view| {
            let t = analysis.total(*view);
            let total = Total {
                total_ns: t.shown_ns(),
                not_sampled_ns: t.unsampled_ns,
                samples: t.samples,
            };
            (view.name(), total)
        })
        .collect()
}

/// `value` as JSON over several lines, with a line break at its end. A terminal that shows it obeys
/// nothing in it.
pub fn text(value: &impl serde::Serialize) -> String {
    let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut out = escape_json(&pretty).into_owned();
    out.push('\n');
    out
}

fn quantiles(histogram: &Histogram) -> Option<Quantiles> {
    Some(Quantiles {
        count: histogram.count().round() as u64,
        p50_ns: histogram.quantile(0.5)?,
        p90_ns: histogram.quantile(0.9)?,
        p99_ns: histogram.quantile(0.99)?,
        max_ns: histogram.max_ns,
    })
}

fn histogram_of(line: HistogramLine) -> Option<HistogramOf> {
    let bucket = |(bucket, count): &(u16, f64)| {
        let (low, high) = line.histogram.bounds(*bucket);
        (low, high, count.round() as u64)
    };
    Some(HistogramOf {
        state: line.state.name(),
        reason: line.reason,
        quantiles: quantiles(&line.histogram)?,
        histogram: line.histogram.counts.iter().map(bucket).collect(),
    })
}

fn peer(row: PeerRow) -> Peer {
    let p = row.peer;
    Peer {
        pid: p.pid,
        process: row.process.to_string(),
        asks: p.asks,
        address: p.address.to_string(),
        peer_pid: p.peer_pid,
        peer_name: p.peer_name.to_string(),
        connections: p.connections,
        requests: p.requests,
        requests_at_least: p.requests_at_least,
        in_flight_ns: p.in_flight_ns,
        share_of_request_time: row.share,
        stacks: (row.stacks.into_iter().take(MAX_STACKS))
            .map(|(frames, requests, ns)| PeerStack {
                frames: frames.iter().map(|f| f.function.name.to_string()).collect(),
                requests,
                ns,
            })
            .collect(),
    }
}

fn task(row: TaskRow) -> Task {
    Task {
        kind: row.kind.to_string(),
        pid: row.pid,
        name: row.name.to_string(),
        seen: row.seen,
        looks: row.polls,
        wall_ns: row.wall_ns,
        on_cpu_ns: row.on_cpu_ns,
        runnable_ns: row.runnable_ns,
        blocked_ns: row.blocked_ns(),
        idle_ns: row.idle_ns,
        blocked: (row.blocked.iter())
            .map(|(reason, ns)| (reason.to_string(), *ns))
            .collect(),
        waits: (row.waits.into_iter().take(MAX_STACKS))
            .map(|w| TaskWait {
                state: w.state.name(),
                reason: w.reason.to_string(),
                detail: w.detail.to_string(),
                ns: w.ns,
                count: w.count,
                labels: w.labels,
                frames: (w.frames.iter())
                    .map(|f| f.function.name.to_string())
                    .collect(),
            })
            .collect(),
    }
}

fn stack(row: StackRow) -> Stack {
    Stack {
        state: row.state.name(),
        reason: row.reason,
        ns: row.ns,
        samples: row.count,
        threads: row.threads,
        frames: row
            .frames
            .iter()
            .map(|f| f.function.name.to_string())
            .collect(),
        intervals: row.histogram.as_ref().and_then(quantiles),
    }
}

fn domain(rec: &Recording) -> Domain<'_> {
    let d = &rec.domain;
    Domain {
        tool: &d.tool,
        backend: &d.backend,
        backend_reason: &d.backend_reason,
        privilege: &d.privilege,
        kernel: &d.kernel,
        cpus: d.cpus,
        target: &d.target,
        events: d
            .events
            .iter()
            .map(|e| {
                BTreeMap::from([
                    ("what", e.what.as_str()),
                    ("event", &e.event),
                    ("rate", &e.rate),
                ])
            })
            .collect(),
        columns: d
            .columns
            .iter()
            .map(|c| Column {
                state: c.state.name(),
                exact: c.exact,
                how: &c.how,
            })
            .collect(),
        limits: d
            .limits
            .iter()
            .map(|l| BTreeMap::from([("what", l.what.as_str()), ("remedy", &l.remedy)]))
            .collect(),
        notes: &d.notes,
        unit: d.unit.name(),
    }
}

fn times(l: &Ledger) -> Times {
    Times {
        wall_ns: l.wall_ns,
        on_cpu_ns: l.on_cpu.total(),
        runnable_ns: l.runnable.total(),
        blocked_ns: l.blocked_ns(),
        unknown_ns: l.unknown_ns(),
        residue_ns: l.residue_ns(),
        repaired_ns: l.repaired_ns,
        on_cpu: BTreeMap::from([
            ("user", l.on_cpu.user),
            ("kernel", l.on_cpu.kernel),
            ("irq", l.on_cpu.irq),
            ("stolen", l.on_cpu.stolen),
        ]),
        runnable: BTreeMap::from([
            ("woken", l.runnable.woken),
            ("preempted", l.runnable.preempted),
            ("throttled", l.runnable.throttled),
        ]),
        blocked: BlockReason::ALL
            .iter()
            .map(|r| r.name())
            .zip(l.blocked)
            .collect(),
        unknown: UnknownCause::ALL
            .iter()
            .map(|c| c.name())
            .zip(l.unknown)
            .collect(),
        idle_ns: l.idle_ns,
        voluntary_switches: l.voluntary_switches,
        involuntary_switches: l.involuntary_switches,
        kernel: l.audit.valid.then_some(Kernel {
            on_cpu_ns: l.audit.on_cpu_ns,
            run_delay_ns: l.audit.run_delay_ns,
            switches: l.audit.switches,
        }),
    }
}

fn function(row: &FunctionRow) -> Function {
    let views = View::ALL.iter().filter_map(|view| {
        let v = row.view(*view);
        let Value {
            ns: total_ns,
            low_ns,
            high_ns,
        } = v.total;
        (total_ns > 0).then_some((
            view.name(),
            FunctionView {
                self_ns: v.own.ns,
                total_ns,
                low_ns,
                high_ns,
                self_low_ns: v.own.low_ns,
                self_high_ns: v.own.high_ns,
                place_ns: v.place.ns,
            },
        ))
    });
    Function {
        name: row.function.name.to_string(),
        module: row.function.module.to_string(),
        views: views.collect(),
    }
}
