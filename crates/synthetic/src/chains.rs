//! Recordings of threads that wait for each other, with the true root of each nanosecond.
//!
//! A [`Plan`] states, step by step, for which thread each thread waits. The truth is read from the
//! plan alone: in each step the pointers lead from a waiting thread to the one that computes. The
//! recording holds the plan as a hop tree below each sampled wait, and as intervals with wakers.

use std::collections::BTreeMap;
use std::sync::Arc;

use wallscope_model::*;

use crate::Random;

/// Length of a step, ns; odd, so that no sum is round.
pub const STEP_NS: u64 = 1_003;
const START: u64 = 7_000_000_000;
const PROGRAM: &str = "/usr/bin/chains";

/// For each step, the thread that each thread waits for; `None`: it computes. A thread waits only
/// for threads of a higher index.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of threads.
    pub threads: usize,
    /// Steps in the order of time.
    pub steps: Vec<Vec<Option<usize>>>,
    /// Whether each thread is a process of its own.
    pub processes: bool,
}

impl Plan {
    /// Thread 0 waits for thread 1, which waits for thread 2, and so on over `hops` hops.
    pub fn line(hops: usize, steps: usize) -> Plan {
        let waiting = |i: usize| (i < hops).then_some(i + 1);
        let row: Vec<_> = (0..=hops).map(waiting).collect();
        Plan::ended(hops + 1, vec![row; steps])
    }

    /// `waiters` threads wait for the last one.
    pub fn fan_in(waiters: usize, steps: usize) -> Plan {
        let row: Vec<_> = (0..=waiters)
            .map(|i| (i < waiters).then_some(waiters))
            .collect();
        Plan::ended(waiters + 1, vec![row; steps])
    }

    /// Thread 0 waits for each of `roots` threads in turn: for the first one step, for the second
    /// two steps, and so on.
    pub fn fan_out(roots: usize) -> Plan {
        let turn = |root: usize| {
            let mut row = vec![None; roots + 1];
            row[0] = Some(root);
            vec![row; root]
        };
        Plan::ended(roots + 1, (1..=roots).flat_map(turn).collect())
    }

    /// Any plan at all.
    pub fn random(seed: u64) -> Plan {
        let mut r = Random(seed);
        let threads = 2 + r.below(6) as usize;
        let steps = 1 + r.below(60);
        let mut row: Vec<Option<usize>> = vec![None; threads];
        let mut rows = Vec::new();
        for _ in 0..steps {
            for (i, waits) in row.iter_mut().enumerate() {
                if r.below(3) == 0 {
                    let others = (threads - i - 1) as u64;
                    let next = i + 1 + r.below(others) as usize;
                    *waits = (others > 0 && r.below(4) > 0).then_some(next);
                }
            }
            rows.push(row.clone());
        }
        let mut plan = Plan::ended(threads, rows);
        plan.processes = seed.is_multiple_of(2);
        plan
    }

    /// A plan with waits that are over at the end.
    fn ended(threads: usize, mut steps: Vec<Vec<Option<usize>>>) -> Plan {
        steps.push(vec![None; threads]);
        Plan {
            threads,
            steps,
            processes: false,
        }
    }

    /// With a process for each thread.
    pub fn across_processes(mut self) -> Plan {
        self.processes = true;
        self
    }

    /// Time that each computing thread explains of each thread's waits, ns, by both indices.
    pub fn truth(&self) -> BTreeMap<(u32, u32), u64> {
        let mut truth = BTreeMap::new();
        for row in &self.steps {
            for waiter in 0..self.threads {
                let mut at = waiter;
                while let Some(next) = row[at] {
                    at = next;
                }
                if at != waiter {
                    *truth.entry((waiter as u32, at as u32)).or_default() += STEP_NS;
                }
            }
        }
        truth
    }

    /// The recording.
    pub fn recording(&self) -> Recording {
        let mut rec = self.skeleton();
        for waiter in 0..self.threads {
            for target in waiter + 1..self.threads {
                let steps: Vec<usize> = (0..self.steps.len())
                    .filter(|s| self.steps[*s][waiter] == Some(target))
                    .collect();
                if !steps.is_empty() {
                    let sample = rec.samples.len() as u32;
                    let ns = steps.len() as u64 * STEP_NS;
                    rec.samples
                        .push(sample_of(waiter, Some(BlockReason::Lock), ns));
                    self.hops(&mut rec, Above::Sample(sample), target, &steps);
                }
            }
            let busy = self
                .steps
                .iter()
                .filter(|row| row[waiter].is_none())
                .count() as u64;
            rec.samples.push(sample_of(waiter, None, busy * STEP_NS));
        }
        rec.timeline = Some(self.timeline());
        rec
    }

    /// Threads, with their ledgers, stacks and processes.
    fn skeleton(&self) -> Recording {
        let length = self.steps.len() as u64 * STEP_NS;
        let mut rec = Recording {
            window: Window {
                start_ns: START,
                end_ns: START + length,
                ..Window::default()
            },
            modules: vec![Module {
                kind: ModuleKind::Elf,
                path: PROGRAM.into(),
                build_id: "".into(),
                pid: 0,
            }],
            ..Recording::default()
        };
        rec.domain.backend = "ebpf".into();
        rec.domain.cpus = 8;
        for i in 0..self.threads {
            let busy = self.steps.iter().filter(|row| row[i].is_none()).count() as u64;
            let mut ledger = Ledger {
                wall_ns: length,
                ..Ledger::default()
            };
            ledger.on_cpu.user = busy * STEP_NS;
            ledger.blocked[BlockReason::Lock as usize] = length - busy * STEP_NS;
            let pid = 100 + if self.processes { i as u32 } else { 0 };
            rec.contexts.push(Context {
                pid,
                tid: 100 + i as u32,
                name: format!("t{i}").into(),
                start_ns: START,
                end_ns: START + length,
                ledger,
            });
            for name in ["wait", "work"] {
                push_stack(&mut rec, format!("{name}_{i}").into());
            }
            rec.actors.push(Actor::Context(ContextId(i as u32)));
            if rec.processes.iter().all(|p| p.pid != pid) {
                rec.processes.push(Process {
                    pid,
                    name: "chains".into(),
                    ..Process::default()
                });
            }
        }
        rec
    }

    /// Adds the waker `thread` of a wait that took `steps`, with its activity in them.
    fn hops(&self, rec: &mut Recording, above: Above, thread: usize, steps: &[usize]) {
        let woke = push_hop(rec, above, (Role::Woke, thread), steps.len());
        let busy = steps.iter().filter(|s| self.steps[**s][thread].is_none());
        let busy = busy.count();
        if busy > 0 {
            push_hop(rec, woke, (Role::OnCpu, thread), busy);
        }
        for next in thread + 1..self.threads {
            let of_next: Vec<usize> = (steps.iter().copied())
                .filter(|s| self.steps[*s][thread] == Some(next))
                .collect();
            if !of_next.is_empty() {
                let blocked = push_hop(rec, woke, (Role::Blocked, thread), of_next.len());
                self.hops(rec, blocked, next, &of_next);
            }
        }
    }

    fn timeline(&self) -> Timeline {
        let lanes = (0..self.threads).map(|thread| {
            let mut intervals: Vec<Interval> = Vec::new();
            let mut last = None;
            for (s, row) in self.steps.iter().enumerate() {
                match intervals.last_mut() {
                    Some(interval) if last == Some(row[thread]) => interval.ns += STEP_NS,
                    _ => intervals.push(Interval {
                        start_ns: START + s as u64 * STEP_NS,
                        ns: STEP_NS,
                        state: row[thread].map_or(State::OnCpu, |_| State::Blocked),
                        reason: row[thread].map(|_| BlockReason::Lock),
                        part: None,
                        waker: row[thread].map(|waker| ContextId(waker as u32)),
                        request: false,
                        idle: false,
                    }),
                }
                last = Some(row[thread]);
            }
            Lane {
                context: ContextId(thread as u32),
                intervals,
            }
        });
        Timeline {
            lanes: lanes.collect(),
            ..Timeline::default()
        }
    }
}

/// The stack in which a thread waits, or works.
fn stack_of(thread: usize, waits: bool) -> StackId {
    StackId(2 * thread as u32 + u32::from(!waits))
}

fn sample_of(thread: usize, reason: Option<BlockReason>, ns: u64) -> Sample {
    Sample {
        context: ContextId(thread as u32),
        stack: stack_of(thread, reason.is_some()),
        state: reason.map_or(State::OnCpu, |_| State::Blocked),
        reason,
        part: None,
        idle: false,
        cpu: None,
        labels: None,
        count: 1,
        ns,
        slices: Vec::new(),
    }
}

fn push_stack(rec: &mut Recording, name: Arc<str>) {
    let id = rec.stacks.len() as u32;
    rec.functions.push(Function {
        name: name.clone(),
        system_name: name,
        file: "".into(),
        start_line: 0,
    });
    rec.frames.push(Frame {
        kind: FrameKind::Native,
        module: Some(ModuleId(0)),
        address: u64::from(id),
        lines: vec![Line {
            function: FunctionId(id),
            line: 0,
        }],
    });
    rec.stacks.push(Stack {
        frames: vec![FrameId(id)],
        end: StackEnd::Root,
    });
}

fn push_hop(
    rec: &mut Recording,
    above: Above,
    (role, thread): (Role, usize),
    steps: usize,
) -> Above {
    let blocked = role == Role::Blocked;
    rec.hops.push(Hop {
        above,
        role,
        actor: ActorId(thread as u32),
        stack: Some(stack_of(thread, blocked)),
        reason: blocked.then_some(BlockReason::Lock),
        part: None,
        labels: None,
        count: 1,
        ns: steps as u64 * STEP_NS,
    });
    Above::Hop(rec.hops.len() as u32 - 1)
}
