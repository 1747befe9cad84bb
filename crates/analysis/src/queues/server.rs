//! Threads that wait for work as queues: a thread that serves alone, or a pool of threads of one name. Forked
//! workers of one program and role are a pool, too.
//!
//! Busy is all time that is not idle. Jobs are, in this order: waits of other recorded threads that a
//! serving thread ended (with single intervals), requests on the process's connections, busy periods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wallscope_model::{BlockReason, ContextId, Recording, State, Timeline};

use crate::queueing::formulas::service_variation_of_busy_periods;
use crate::queueing::predict::{Closed, Open};
use crate::queueing::{Discipline, Moments};

use super::blocks::{self, MIN_JOBS, Visit};
use super::cpu::MAX_CLOSED;
use super::known::Known;
use super::queue::{Absent, Queue, QueueKind, Queues, System};
use super::seconds::seconds;
use super::workers::{Scope, Workers, process_name};

/// A thread waits for work if it is idle for this share of its time, and serves if it is busy for it.
const MIN_SHARE: f64 = 0.005;
/// Requests from outside come from so many connections that only few are here: the mean number present
/// over that of connections. Above it the connections are a closed system's customers.
const OPEN_UP_TO: f64 = 0.1;

pub(super) fn queues(rec: &Recording, found: &mut Queues) {
    let mut groups = groups(rec);
    // One group serves a process's requests: the busiest.
    groups.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    let mut served: BTreeSet<u32> = BTreeSet::new();
    let idle = blocks::idle_by_slice(rec);
    for group in &groups {
        let unserved: BTreeSet<u32> = group.pids.difference(&served).copied().collect();
        let own = Group::requests(rec, &unserved);
        if own.is_some() {
            served.extend(unserved);
        }
        found.push(group.queue(rec, &idle, own.as_ref()));
    }
}

/// Requests of a process, summed over its listening connections.
struct Requests {
    count: f64,
    /// Mean time from question to answer, s, as those that ask see it: on the side that is asked, a
    /// request begins when it is read, so that its wait in the socket is not seen.
    response: Option<f64>,
    connections: f64,
    at_least: bool,
}

/// Share of the requests from which the recorded askers represent all askers.
const MAX_ASKERS: f64 = 0.5;

/// Serving threads of one name, in one process or in workers of one program.
struct Group {
    scope: Scope,
    pids: BTreeSet<u32>,
    name: Arc<str>,
    threads: BTreeSet<ContextId>,
    /// Busy and idle time, s.
    busy: f64,
    idle: f64,
}

/// Groups of threads that wait for work and get some.
fn groups(rec: &Recording) -> Vec<Group> {
    let workers = Workers::of(rec);
    let mut groups: BTreeMap<(Scope, String), Group> = BTreeMap::new();
    for (id, c) in (0u32..).zip(&rec.contexts) {
        let wall = c.ledger.wall_ns as f64;
        let idle = c.ledger.idle_ns as f64;
        if wall == 0.0 || idle < MIN_SHARE * wall {
            continue;
        }
        let name: String = c.name.chars().filter(|c| !c.is_ascii_digit()).collect();
        let scope = workers.scope(c.pid);
        let group = groups.entry((scope.clone(), name));
        let group = group.or_insert_with(|| Group {
            scope,
            pids: BTreeSet::new(),
            name: c.name.clone(),
            threads: BTreeSet::new(),
            busy: 0.0,
            idle: 0.0,
        });
        group.pids.insert(c.pid);
        group.threads.insert(ContextId(id));
        group.busy += (wall - idle).max(0.0) / 1e9;
        group.idle += idle / 1e9;
    }
    let serves = |g: &Group| g.busy >= MIN_SHARE * (g.busy + g.idle);
    let mut groups: Vec<Group> = groups.into_values().filter(serves).collect();
    let mut alike: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for group in &groups {
        *alike.entry(group.name.clone()).or_default() += 1;
    }
    for group in &mut groups {
        let of_role = workers.role_name(&group.name, &group.scope, &group.pids);
        let alike = || (alike[&group.name] > 1).then(|| process_name(&group.name, &group.pids));
        if let Some(name) = of_role.or_else(alike) {
            group.name = name;
        }
    }
    groups
}

impl Group {
    fn kind(&self) -> QueueKind {
        match self.threads.len() {
            1 => QueueKind::Server,
            _ => QueueKind::Pool,
        }
    }

    fn servers(&self) -> u32 {
        self.threads.len() as u32
    }

    fn absent(&self, reason: &str) -> Absent {
        Absent {
            kind: self.kind(),
            name: self.name.clone(),
            reason: reason.to_owned(),
        }
    }

    fn requests(rec: &Recording, pids: &BTreeSet<u32>) -> Option<Requests> {
        let asked = || (rec.peers.iter()).filter(|p| !p.asks && pids.contains(&p.pid));
        let asks = || (rec.peers.iter()).filter(|p| p.asks && pids.contains(&p.peer_pid));
        let count: u64 = asked().map(|p| p.requests).sum();
        let seen: u64 = asks().map(|p| p.requests).sum();
        let in_flight = seconds(asks().map(|p| p.in_flight_ns).sum());
        (count > 0).then(|| Requests {
            count: count as f64,
            response: (seen as f64 >= MAX_ASKERS * count as f64).then(|| in_flight / seen as f64),
            connections: asked().map(|p| f64::from(p.connections)).sum(),
            at_least: asked().any(|p| p.requests_at_least),
        })
    }

    fn known(&self, blocks: Vec<Moments>, system: System, because: String) -> Known {
        Known {
            kind: self.kind(),
            name: self.name.clone(),
            system,
            because,
            servers: self.servers(),
            discipline: Discipline::Fifo,
            others: 0.0,
            blocks,
            waits_known: true,
            variation_known: true,
            notes: Vec::new(),
        }
    }

    fn queue(
        &self,
        rec: &Recording,
        idle: &std::collections::HashMap<(u32, u32), f64>,
        requests: Option<&Requests>,
    ) -> Result<Queue, Absent> {
        if let Some(timeline) = &rec.timeline {
            let (visits, clients) = self.visits(timeline);
            if visits.len() >= MIN_JOBS {
                return Ok(self.of_visits(visits, clients));
            }
        }
        if rec.slices.count == 0 {
            return Err(self.absent("the recording has no time slices"));
        }
        let busy = blocks::of_slices(rec, |row| {
            if !self.threads.contains(&ContextId(row.context)) {
                return 0.0;
            }
            let idle = idle.get(&(row.context, row.slice)).copied().unwrap_or(0.0);
            (blocks::wall(row) as f64 - idle).max(0.0)
        });
        let periods = rec.timeline.as_ref().map(|t| self.periods(t));
        match (requests, periods) {
            (Some(requests), periods) => Ok(self.of_requests(requests, &busy, periods)),
            (None, Some(periods)) if periods.0.len() >= MIN_JOBS => Ok(self.of_periods(&periods)),
            (None, Some(_)) => Err(self.absent("too few busy periods were seen: record for longer")),
            (None, None) => Err(self.absent(
                "its arrivals are not recorded: it has no connection that is followed; record --timeline",
            )),
        }
    }
}

/// Jobs that other recorded threads waited for.
impl Group {
    /// Waits of other threads that a serving thread ended, and the number of threads that waited. A
    /// service begins when the job has come and the thread has ended the one before.
    fn visits(&self, timeline: &Timeline) -> (Vec<Visit>, usize) {
        let mut waits: Vec<(u64, u64, ContextId)> = Vec::new();
        let mut clients = 0;
        for lane in timeline
            .lanes
            .iter()
            .filter(|l| !self.threads.contains(&l.context))
        {
            let before = waits.len();
            for i in &lane.intervals {
                let by_lock = matches!(
                    i.reason,
                    Some(BlockReason::Lock | BlockReason::Gil | BlockReason::KernelLock)
                );
                match i.waker {
                    Some(w) if self.threads.contains(&w) && !i.idle && !by_lock => {
                        waits.push((i.start_ns, i.end_ns(), w));
                    }
                    _ => {}
                }
            }
            clients += usize::from(waits.len() > before);
        }
        waits.sort_by_key(|(_, end, _)| *end);
        let mut free: BTreeMap<ContextId, u64> = BTreeMap::new();
        let visits = waits.into_iter().map(|(arrival, end, server)| {
            let last = free.insert(server, end).unwrap_or(0);
            let begin = arrival.max(last).min(end);
            Visit {
                arrival_ns: arrival,
                wait_ns: begin - arrival,
                service_ns: end - begin,
            }
        });
        (visits.collect(), clients)
    }

    fn of_visits(&self, visits: Vec<Visit>, clients: usize) -> Queue {
        let (jobs, blocks) = blocks::of_visits(visits);
        let closed = clients <= MAX_CLOSED;
        let (system, because) = match closed {
            true => (
                System::Closed(clients as f64),
                format!("{clients} threads ask, one request each at a time; load is their number"),
            ),
            false => (
                System::Open,
                format!("{clients} threads count as an open system"),
            ),
        };
        let mut known = self.known(blocks, system, because);
        known
            .notes
            .push("a job is a wait of another thread that this thread ended".into());
        let prediction = match system {
            System::Closed(customers) => Closed {
                customers,
                servers: known.servers,
                discipline: Discipline::Fifo,
            }
            .predict(&known.blocks),
            System::Open => known.open().from_jobs(&jobs, &known.blocks),
        };
        known.queue(Some(prediction))
    }
}

/// Requests on connections.
impl Group {
    fn of_requests(
        &self,
        requests: &Requests,
        busy: &[(f64, f64)],
        periods: Option<Periods>,
    ) -> Queue {
        let all: f64 = busy.iter().map(|(_, busy)| busy).sum();
        let span: f64 = busy.iter().map(|(span, _)| span).sum();
        let service = all / requests.count;
        let wait = requests
            .response
            .map_or(0.0, |response| (response - service).max(0.0));
        let utilisation = all / (span * f64::from(self.servers()));
        let variation = periods
            .filter(|p| self.servers() == 1 && p.0.len() >= MIN_JOBS)
            .map(|p| service_variation_of_busy_periods(service, utilisation, p.busy_variance()));
        let (system, because) = Group::source(requests, wait + service, span);
        // Requests by slice are not counted: as many as the busy time is worth.
        let block = |(span, busy): &(f64, f64)| {
            let jobs = busy / service;
            Moments {
                span: *span,
                jobs,
                service: *busy,
                service_squares: busy * service * (1.0 + variation.unwrap_or(1.0)),
                wait: jobs * wait,
                gap: *span,
                gap_squares: if jobs > 0.0 {
                    2.0 * span * span / jobs
                } else {
                    0.0
                },
            }
        };
        let mut known = self.known(busy.iter().map(block).collect(), system, because);
        known.variation_known = variation.is_some();
        known.waits_known = requests.response.is_some();
        known.notes = request_notes(requests, &known, service);
        let prediction = match system {
            System::Closed(customers) if known.waits_known => Closed {
                customers,
                servers: known.servers,
                discipline: Discipline::Fifo,
            }
            .predict(&known.blocks),
            _ if known.waits_known => {
                let mut prediction = known.open().from_sums(&known.blocks);
                let formula = Open::fifo(known.servers).from_moments(&known.blocks);
                prediction.formula = (variation.and(formula.now)).map(|now| now.value);
                prediction
            }
            _ => known.open().from_moments(&known.blocks),
        };
        known.queue(Some(prediction))
    }

    /// Open or closed, by the connections that the requests come from; `time` is that of a request.
    fn source(requests: &Requests, time: f64, span: f64) -> (System, String) {
        let present = requests.count * time / span;
        let connections = requests.connections;
        let closed = present / connections >= OPEN_UP_TO && connections <= MAX_CLOSED as f64;
        let share = format!("{present:.1} of {connections} connections have a request on average");
        match closed && requests.response.is_some() {
            true => (
                System::Closed(connections),
                format!("{share}; load is their number"),
            ),
            false => (System::Open, share),
        }
    }
}

fn request_notes(requests: &Requests, known: &Known, service: f64) -> Vec<String> {
    let mut notes = vec![match requests.response {
        Some(_) => {
            "wait = response time − busy time of the request; it includes the network".into()
        }
        None => {
            "requests wait in sockets, unseen, so waits are by formula; record the processes that ask, too, to measure them"
                .to_owned()
        }
    }];
    if requests.at_least {
        notes.push("requests were seen by polling: λ is a lower bound, S an upper bound".into());
    }
    if requests.response.is_some_and(|response| response < service) {
        notes.push("threads are busy for longer than answers take: S includes other work".into());
    }
    notes.push(match known.variation_known {
        true => {
            "cs² comes from the variance of busy periods (arrivals assumed to be Poisson)".into()
        }
        false => {
            "cs² is not measured and assumed to be 1 (record --timeline measures it for one thread)"
                .to_owned()
        }
    });
    notes
}

/// Busy periods of threads, each with the idle period before it, s.
#[derive(Debug, Default)]
struct Periods(Vec<(f64, f64)>);

impl Periods {
    fn busy_variance(&self) -> f64 {
        let n = self.0.len() as f64;
        let mean = self.0.iter().map(|(busy, _)| busy).sum::<f64>() / n;
        self.0
            .iter()
            .map(|(busy, _)| (busy - mean).powi(2))
            .sum::<f64>()
            / n
    }
}

impl Group {
    /// Whole busy periods between idle waits, in the order of time of each thread.
    fn periods(&self, timeline: &Timeline) -> Periods {
        let mut periods = Periods::default();
        let lanes = timeline
            .lanes
            .iter()
            .filter(|l| self.threads.contains(&l.context));
        for lane in lanes {
            // Start of the busy period, and the idle period before it.
            let mut open: Option<(u64, u64)> = None;
            let mut end = None;
            for i in &lane.intervals {
                if end.is_some_and(|end| i.start_ns > end) {
                    open = None;
                }
                end = Some(i.end_ns());
                if i.state == State::Blocked && i.idle {
                    let period = open.filter(|(from, _)| i.start_ns > *from);
                    (periods.0).extend(
                        period.map(|(from, idle)| (seconds(i.start_ns - from), seconds(idle))),
                    );
                    // Idle waits that follow each other without work are one.
                    let before = open
                        .filter(|(from, _)| i.start_ns == *from)
                        .map_or(0, |(_, idle)| idle);
                    open = Some((i.end_ns(), before + i.ns));
                }
            }
        }
        periods
    }

    /// Without counted jobs: an idle period ends with an arrival, so that idle periods tell the rate of
    /// Poisson arrivals at one thread. In a pool each busy period counts as one job.
    fn of_periods(&self, periods: &Periods) -> Queue {
        let busy: f64 = periods.0.iter().map(|(busy, _)| busy).sum();
        let idle: f64 = periods.0.iter().map(|(_, idle)| idle).sum();
        let one = self.servers() == 1;
        let utilisation = busy / (busy + idle);
        let jobs_a_period = if one {
            1.0 / (1.0 - utilisation).max(1e-9)
        } else {
            1.0
        };
        let service = busy / (periods.0.len() as f64 * jobs_a_period);
        let variance = periods.busy_variance();
        let variation = match one {
            true => service_variation_of_busy_periods(service, utilisation, variance),
            false => variance / (service * service),
        };
        let size = periods.0.len().div_ceil(crate::queueing::bootstrap::BLOCKS);
        let block = |part: &[(f64, f64)]| {
            let busy: f64 = part.iter().map(|(busy, _)| busy).sum();
            let span = part.iter().map(|(busy, idle)| busy + idle).sum::<f64>()
                / f64::from(self.servers());
            let jobs = part.len() as f64 * jobs_a_period;
            Moments {
                span,
                jobs,
                service: busy,
                service_squares: jobs * service * service * (1.0 + variation),
                wait: 0.0,
                gap: span,
                gap_squares: 2.0 * span * span / jobs,
            }
        };
        let blocks = periods.0.chunks(size).map(block).collect();
        let mut known = self.known(
            blocks,
            System::Open,
            "arrivals from other threads end its idle periods".into(),
        );
        known.waits_known = false;
        known.notes = vec![
            match one {
                true => "arrivals are assumed to be Poisson: λ comes from the idle periods, and S = ρ / λ".into(),
                false => {
                    "each busy period counts as one job: jobs without a pause between make S too long"
                        .into()
                }
            },
            "its queue is in memory: no wait was measured, all waits are by the formula".into(),
        ];
        let prediction = known.open().from_moments(&known.blocks);
        known.queue(Some(prediction))
    }
}
