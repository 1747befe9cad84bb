//! The figure of a condition in a window.

use wallscope_model::histogram::{Histogram, HistogramRow};
use wallscope_model::{
    BlockReason, ContextId, HostSample, Ledger, Part, Pressure, Recording, State,
};

use crate::config::{Condition, Resource};
use crate::metrics::on_cpu_fraction;
use crate::services::SERVICE;

/// A condition's figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether the condition is met.
    pub is_met: bool,
    /// The figure and its limit, in words.
    pub text: String,
}

/// Reads `condition` in `window`. `None`: the window lacks the figure, or the condition is an alert from elsewhere.
pub fn measure(condition: &Condition, window: &Recording) -> Option<Reading> {
    match condition {
        Condition::Pressure { resource, above } => {
            let share = pressure(window, *resource)?;
            let figure = format!("{} pressure", resource_name(*resource));
            Some(share_reading(&figure, share, above.0, share > above.0))
        }
        Condition::RunQueueLatency {
            service,
            quantile,
            above,
        } => {
            let ns = run_queue(window, service.as_deref())?.quantile(quantile.0)?;
            let limit = above.0.as_nanos();
            let p = quantile.0 * 100.0;
            let text = format!(
                "run-queue latency p{p} of {} is {:.1} ms, above {:.1} ms",
                subject(service.as_deref()),
                ns as f64 / 1e6,
                limit as f64 / 1e6
            );
            Some(Reading {
                is_met: u128::from(ns) > limit,
                text,
            })
        }
        Condition::TimeShare { service, of, above } => {
            let ledger = ledger(window, service.as_deref())?;
            let active = ledger.wall_ns.saturating_sub(ledger.idle_ns);
            let share = time_of(&ledger, of)? as f64 / active.max(1) as f64;
            let figure = format!("{of} share of {}", subject(service.as_deref()));
            Some(share_reading(&figure, share, above.0, share > above.0))
        }
        Condition::OnCpuFraction { service, below } => {
            let share = on_cpu_fraction(&ledger(window, service.as_deref())?)?;
            let figure = format!("on-CPU share of {}", subject(service.as_deref()));
            Some(share_reading(&figure, share, below.0, share < below.0))
        }
        Condition::Webhook { .. } => None,
    }
}

fn share_reading(figure: &str, share: f64, limit: f64, is_met: bool) -> Reading {
    let side = if share < limit { "below" } else { "above" };
    let (share, limit) = (share * 100.0, limit * 100.0);
    Reading {
        is_met,
        text: format!("{figure} is {share:.1} %, {side} {limit:.1} %"),
    }
}

fn subject(service: Option<&str>) -> &str {
    service.unwrap_or("the machine")
}

fn resource_name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Io => "I/O",
        Resource::Memory => "memory",
    }
}

/// Share of the window in which some task waited for `resource`, from the kernel's total.
fn pressure(window: &Recording, resource: Resource) -> Option<f64> {
    let total = |h: &HostSample| -> Option<(u64, u64)> {
        let pressure: Option<Pressure> = match resource {
            Resource::Cpu => h.facts.psi_cpu,
            Resource::Io => h.facts.psi_io,
            Resource::Memory => h.facts.psi_memory,
        };
        Some((h.time_ns, pressure?.some_total_us))
    };
    let mut known = window.host.iter().filter_map(total);
    let first = known.next()?;
    let last = known.next_back()?;
    let length = last.0.checked_sub(first.0).filter(|ns| *ns > 0)?;
    let stalled = last.1.checked_sub(first.1)?.saturating_mul(1000);
    Some(stalled as f64 / length as f64)
}

fn is_of(window: &Recording, context: usize, service: Option<&str>) -> bool {
    let own = window.context_label(ContextId(context as u32), SERVICE);
    service.is_none() || own == service
}

/// The ledger of a service; `None`: it has no thread in the window.
fn ledger(window: &Recording, service: Option<&str>) -> Option<Ledger> {
    let mut sum: Option<Ledger> = None;
    for (i, c) in window.contexts.iter().enumerate() {
        if is_of(window, i, service) {
            sum.get_or_insert_default().add(&c.ledger);
        }
    }
    sum
}

/// Run-queue latency of a service's threads, or of all threads.
fn run_queue(window: &Recording, service: Option<&str>) -> Option<Histogram> {
    let is_runnable = |row: &&HistogramRow| row.stack.is_none() && row.state == State::Runnable;
    let rows = || window.histograms.iter().filter(is_runnable);
    // Rows of all threads are counted, by part; those of single threads may be estimates.
    let is_counted = service.is_none() && rows().any(|row| row.context.is_none());
    let mut sum: Option<Histogram> = None;
    for row in rows() {
        let is_meant = match row.context {
            None => is_counted,
            Some(c) => !is_counted && row.part.is_none() && is_of(window, c.0 as usize, service),
        };
        if !is_meant {
            continue;
        }
        match &mut sum {
            Some(sum) => sum.merge(&row.histogram),
            None => sum = Some(row.histogram.clone()),
        }
    }
    sum
}

/// Time in a state, a part or a block reason, by the contract's name.
fn time_of(ledger: &Ledger, name: &str) -> Option<u64> {
    if let Some(state) = State::from_name(name) {
        return Some(ledger.state_ns(state));
    }
    if let Some(reason) = BlockReason::from_name(name) {
        return Some(ledger.blocked[reason as usize]);
    }
    let part = Part::from_name(name)?;
    Some(match part {
        Part::User => ledger.on_cpu.user,
        Part::Kernel => ledger.on_cpu.kernel,
        Part::Irq => ledger.on_cpu.irq,
        Part::Stolen => ledger.on_cpu.stolen,
        Part::Woken => ledger.runnable.woken,
        Part::Preempted => ledger.runnable.preempted,
        Part::Throttled => ledger.runnable.throttled,
    })
}
