//! The CPUs as a queue: a job is a thread's work between two blocks.
//!
//! With single intervals each job's arrival (it became ready), wait (runnable) and service (on a CPU)
//! are measured. Without them, sums give their means: a voluntary switch ends a job.

use wallscope_model::histogram::Histogram;
use wallscope_model::{Lane, Recording, State};

use crate::queueing::predict::Closed;
use crate::queueing::{Discipline, Moments};

use super::blocks::{self, MIN_JOBS, Visit};
use super::known::Known;
use super::queue::{Absent, Queue, QueueKind, Queues, System};
use super::seconds::{seconds, window};

/// More customers than this behave like arrivals from outside.
pub(super) const MAX_CLOSED: usize = 500;
/// A thread is a customer if it had a CPU for this share of the window at least.
const MIN_CUSTOMER: f64 = 1e-4;
/// Other work on the CPUs up to this share of them is neglected.
const NEGLIGIBLE: f64 = 0.05;

pub(super) fn queues(rec: &Recording, found: &mut Queues) {
    if !rec.contexts.is_empty() {
        found.push(queue(rec));
    }
}

fn absent(reason: &str) -> Absent {
    Absent {
        kind: QueueKind::Cpu,
        name: "".into(),
        reason: reason.to_owned(),
    }
}

fn queue(rec: &Recording) -> Result<Queue, Absent> {
    let visits: Vec<Visit> = (rec.timeline.iter())
        .flat_map(|t| &t.lanes)
        .flat_map(jobs_of)
        .collect();
    let single = visits.len() >= MIN_JOBS;
    let (jobs, blocks) = match single {
        true => blocks::of_visits(visits),
        false => (Vec::new(), from_ledgers(rec)?),
    };
    let (servers, mut notes) = servers(rec);
    let others = others(rec, &mut notes);
    if !single {
        notes.push(match rec.timeline {
            None => "means only; record --timeline measures each job".into(),
            Some(_) => "means only: threads block too rarely to tell single jobs apart".into(),
        });
    }
    let (system, because) = system(rec);
    let known = Known {
        kind: QueueKind::Cpu,
        name: name(rec, servers).into(),
        system,
        because,
        servers,
        // The scheduler gives turns; a long job does not hold up short ones.
        discipline: Discipline::Shared,
        others,
        blocks,
        waits_known: true,
        variation_known: single || has_turns(rec),
        notes,
    };
    let alone = others <= NEGLIGIBLE * f64::from(servers);
    let prediction = match known.system {
        System::Closed(customers) if alone => Closed {
            customers,
            servers,
            discipline: known.discipline,
        }
        .predict(&known.blocks),
        System::Open if alone && single => known.open().from_jobs(&jobs, &known.blocks),
        _ => known.open().from_sums(&known.blocks),
    };
    Ok(known.queue(Some(prediction)))
}

/// The jobs of a lane: ready until blocked. A job that crosses a gap or the window's edge is left out.
fn jobs_of(lane: &Lane) -> Vec<Visit> {
    let mut jobs = Vec::new();
    let mut open: Option<Visit> = None;
    let mut end = None;
    for i in &lane.intervals {
        if end.is_some_and(|end| i.start_ns > end) {
            open = None;
        }
        end = Some(i.end_ns());
        match (i.state, &mut open) {
            (State::Blocked, job) => {
                jobs.extend(job.take().filter(|j| j.service_ns > 0));
                open = Some(Visit {
                    arrival_ns: i.end_ns(),
                    wait_ns: 0,
                    service_ns: 0,
                });
            }
            (State::OnCpu, Some(job)) => job.service_ns += i.ns,
            (State::Runnable, Some(job)) => job.wait_ns += i.ns,
            _ => {}
        }
    }
    jobs
}

/// Sums by slice; voluntary switches give the number of jobs.
fn from_ledgers(rec: &Recording) -> Result<Vec<Moments>, Absent> {
    let jobs: u64 = (rec.contexts.iter())
        .map(|c| c.ledger.voluntary_switches)
        .sum();
    let on_cpu: u64 = (rec.contexts.iter()).map(|c| c.ledger.on_cpu.total()).sum();
    if jobs == 0 || on_cpu == 0 {
        return Err(absent(
            "no voluntary switch was counted, so work has no beginning and no end",
        ));
    }
    if rec.slices.count == 0 {
        return Err(absent("the recording has no time slices"));
    }
    let service = seconds(on_cpu) / jobs as f64;
    let variation = turns(rec).map_or(1.0, variation);
    let on_cpu = blocks::of_slices(rec, |row| row.on_cpu_ns as f64);
    let runnable = blocks::of_slices(rec, |row| row.runnable_ns as f64);
    let block = |((span, busy), (_, wait)): (&(f64, f64), &(f64, f64))| {
        // Jobs by slice are not counted: as many as the CPU time is worth.
        let jobs = busy / service;
        Moments {
            span: *span,
            jobs,
            service: *busy,
            service_squares: jobs * service * service * (1.0 + variation),
            wait: *wait,
            gap: *span,
            gap_squares: if jobs > 0.0 {
                2.0 * span * span / jobs
            } else {
                0.0
            },
        }
    };
    Ok(on_cpu.iter().zip(&runnable).map(block).collect())
}

/// Lengths of turns on a CPU, counted.
fn turns(rec: &Recording) -> Option<&Histogram> {
    let all = |r: &&wallscope_model::histogram::HistogramRow| {
        r.state == State::OnCpu && r.context.is_none() && r.stack.is_none() && r.part.is_none()
    };
    (rec.histograms.iter().find(all)).map(|row| &row.histogram)
}

fn has_turns(rec: &Recording) -> bool {
    turns(rec).is_some()
}

/// Squared coefficient of variation of a histogram's lengths.
fn variation(lengths: &Histogram) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (bucket, count) in &lengths.counts {
        let (low, high) = lengths.bounds(*bucket);
        let middle = (low as f64 + high as f64) / 2.0;
        n += count;
        sum += count * middle;
        squares += count * middle * middle;
    }
    (n * squares / (sum * sum) - 1.0).max(0.0)
}

/// CPUs that the targets may use, and their bound.
fn servers(rec: &Recording) -> (u32, Vec<String>) {
    let cpus = allowed(rec).map_or(rec.domain.cpus.max(1), |cpus| cpus.len() as u32);
    let facts = rec.host.first().and_then(|h| h.facts.cgroup.as_ref());
    let quota = facts.and_then(|c| Some(c.quota_us? as f64 / c.period_us? as f64));
    match quota {
        Some(quota) if quota < f64::from(cpus) => {
            let whole = (quota.floor() as u32).max(1);
            let note = format!("the quota of {quota:.1} CPUs counts as {whole} whole");
            (whole, vec![note])
        }
        _ => (cpus, Vec::new()),
    }
}

/// The CPUs that the first target process may run on.
fn allowed(rec: &Recording) -> Option<Vec<usize>> {
    let list = &rec.host.first()?.facts.limits.first()?.cpus;
    let range = |part: &str| -> Option<Vec<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // A list from a file may say anything: no machine has more CPUs.
        (first <= last && last < 65_536).then(|| (first..=last).collect())
    };
    let parts: Option<Vec<Vec<usize>>> = list.split(',').map(range).collect();
    parts.map(|p| p.concat()).filter(|cpus| !cpus.is_empty())
}

/// CPUs that other processes, and the system, kept busy.
fn others(rec: &Recording, notes: &mut Vec<String>) -> f64 {
    let (first, last) = match (rec.host.first(), rec.host.last()) {
        (Some(a), Some(b)) if b.time_ns > a.time_ns => (a, b),
        _ => {
            notes.push("the load of other processes is not known and counts as none".into());
            return 0.0;
        }
    };
    let cpus = allowed(rec).unwrap_or_else(|| (0..first.facts.cpu_busy_ns.len()).collect());
    let busy = |facts: &wallscope_model::HostFacts| -> u64 {
        cpus.iter()
            .filter_map(|cpu| facts.cpu_busy_ns.get(*cpu))
            .sum()
    };
    let grown = busy(&last.facts).saturating_sub(busy(&first.facts));
    let all = seconds(grown) / seconds(last.time_ns - first.time_ns);
    let own: u64 = (rec.contexts.iter()).map(|c| c.ledger.on_cpu.total()).sum();
    let others = (all - seconds(own) / window(rec)).max(0.0);
    if others > NEGLIGIBLE * cpus.len() as f64 {
        notes.push(format!(
            "other work keeps {others:.1} CPUs busy and is assumed not to grow"
        ));
    }
    others
}

fn name(rec: &Recording, servers: u32) -> String {
    let list = rec.host.first().and_then(|h| h.facts.limits.first());
    match list.map(|l| l.cpus.as_str()).filter(|l| !l.is_empty()) {
        Some(list) => format!("CPUs {list} ({servers})"),
        None => format!("{servers} CPUs"),
    }
}

/// Whether requests come from outside of the recording.
pub(super) fn is_asked(rec: &Recording) -> bool {
    rec.peers.iter().any(|p| !p.asks && p.requests > 0)
}

fn system(rec: &Recording) -> (System, String) {
    let least = rec.window.length_ns() as f64 * MIN_CUSTOMER;
    let ran = |c: &&wallscope_model::Context| c.ledger.on_cpu.total() as f64 > least;
    let threads = rec.contexts.iter().filter(ran).count();
    if is_asked(rec) {
        return (System::Open, "requests come from outside".into());
    }
    match threads {
        0 => (System::Open, "no thread ran for long".into()),
        n if n > MAX_CLOSED => (System::Open, format!("{n} threads count as an open system")),
        n => (
            System::Closed(n as f64),
            format!("{n} threads with one job each at a time; load is their number"),
        ),
    }
}
