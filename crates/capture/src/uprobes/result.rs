//! The counts as a result, with its domain and its limits.

use wallscope_model::{
    Domain, EventSource, Limit, Loss,
    calls::{Calls, FunctionCalls, Tally},
};

use super::{
    abi::Site,
    calibrate::Costs,
    options::Options,
    plan::{Plan, Planned},
    programs::Programs,
    slowest::Slowest,
    steps::Steps,
};
use crate::{
    backend::ebpf::KernelFeatures, cpus, event::LOSSES, session::privilege, target::Target,
};

/// Input of the result.
pub(super) struct Facts<'a> {
    pub options: &'a Options,
    pub kernel: &'a KernelFeatures,
    pub plan: &'a Plan,
    pub costs: &'a Costs,
    pub start_ns: u64,
    pub start_unix_ns: u64,
    pub unwinds: bool,
    /// Whether children of the targets meet the probes too.
    pub follows_forks: bool,
}

impl Facts<'_> {
    pub(super) fn result(
        &self,
        programs: &Programs,
        steps: &Steps,
        slow: &Slowest,
        end_ns: u64,
    ) -> Calls {
        let timed = self.options.timed;
        let function = |(index, planned): (usize, &Planned)| {
            let t = programs.tally(index);
            let entry = planned.kinds.first().copied();
            let exit = planned.kinds.get(1).map_or(0, |k| *k as usize);
            let stepped = usize::from(entry == Some(Site::SteppedEntry));
            FunctionCalls {
                name: planned.name.clone(),
                module: planned.module.clone(),
                probes: planned.how.clone(),
                tally: Tally {
                    entered: t.entered,
                    ended: t.ended,
                    by_tail_call: t.by_jump,
                    by_exception: t.by_catch,
                    left: t.left,
                    deep: t.deep,
                    begun: t.begun,
                },
                lengths: programs.lengths(index),
                longest: t.longest,
                wall: t.wall,
                bands: programs.bands(index),
                subtracted: match timed {
                    true => self.costs.bias[stepped][exit],
                    false => 0,
                },
                slices: steps.of(index).to_vec(),
            }
        };
        let (losses, _) = programs.losses();
        let counted = LOSSES.iter().zip(losses);
        Calls {
            functions: self
                .plan
                .functions
                .iter()
                .enumerate()
                .map(function)
                .collect(),
            slowest: slow.sorted(),
            start_ns: self.start_ns,
            end_ns,
            start_unix_ns: self.start_unix_ns,
            timed,
            domain: self.domain(),
            losses: counted
                .filter(|(_, n)| *n > 0)
                .map(|(cause, count)| Loss {
                    cause: (*cause).to_owned(),
                    count,
                })
                .collect(),
            probe_ns: 0,
            stopped: None,
        }
    }

    fn domain(&self) -> Domain {
        let source = |what: &str, event: &str, rate: &str| EventSource {
            what: what.into(),
            event: event.into(),
            rate: rate.into(),
        };
        let mut events = vec![source("calls", "probes at entries", "each call")];
        if self.options.timed {
            events.push(source("lengths", "probes at ends", "each call"));
            events.push(source(
                "ledgers of calls",
                "sched_switch, sched_wakeup",
                "each event of threads that call",
            ));
        }
        Domain {
            tool: concat!("wallscope ", env!("CARGO_PKG_VERSION")).into(),
            backend: "ebpf".into(),
            backend_reason: "probes need kernel programs".into(),
            privilege: privilege(),
            kernel: self.kernel.release.clone(),
            cpus: cpus::online().map_or(0, |cpus| cpus.len() as u32),
            target: self.options.target.describe(),
            events,
            ..Domain::default()
        }
    }

    /// Limits of the result, in words.
    pub(super) fn limits(&self, programs: &Programs, domain: &mut Domain) {
        let shared = matches!(self.options.target, Target::Command(_) | Target::Cgroup(_));
        if shared && !self.plan.sites.is_empty() {
            domain.notes.push(
                "other processes that run the same files meet the probes too: they are not counted, but \
                 pay; with -p PID they do not"
                    .into(),
            );
        }
        let mut limit = |what: String, remedy: &str| {
            domain.limits.push(Limit {
                what,
                remedy: remedy.into(),
            });
        };
        let execed = programs.execed();
        if execed > 0 && matches!(self.options.target, Target::Pids(_)) {
            let times = match execed {
                1 => String::new(),
                n => format!(" ({n} times)"),
            };
            limit(
                format!(
                    "calls after the target began another program{times}, but for those in files that both run"
                ),
                "measure again: names are then looked up in the new program",
            );
        }
        let forked = programs.forked();
        if forked > 0 && !self.follows_forks && matches!(self.options.target, Target::Pids(_)) {
            limit(
                format!("calls in {forked} processes that the target forked meanwhile"),
                "--cgroup, or start it as a command",
            );
        }
        if matches!(self.options.target, Target::Cgroup(_)) {
            limit(
                "calls of processes that were moved into the cgroup meanwhile".into(),
                "",
            );
        }
        if self.options.timed && self.unwinds {
            limit(
                "how long calls took that a panic or longjmp left; those are counted as left"
                    .into(),
                "",
            );
        }
        if self.options.timed && !self.plan.sites.is_empty() {
            limit(
                "calls of coroutines that change stacks half-way may count as left".into(),
                "time the function that resumes them",
            );
        }
    }
}
