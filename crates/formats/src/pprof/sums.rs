//! Whether the times of a recording can be added up.

use wallscope_model as model;

use super::super::ReadError;
use super::checks::damaged;

/// Refuses times with sums that would overflow: any figure computed from a recording that passes
/// stays far below the limits of its types.
pub(super) fn check(rec: &model::Recording) -> Result<(), ReadError> {
    let ledger = |l: &model::Ledger| {
        let states: u128 = [
            &[
                l.on_cpu.user,
                l.on_cpu.kernel,
                l.on_cpu.irq,
                l.on_cpu.stolen,
            ][..],
            &[l.runnable.woken, l.runnable.preempted, l.runnable.throttled],
            &l.blocked,
            &l.unknown,
            &[l.wall_ns, l.repaired_ns, l.idle_ns],
            &[l.voluntary_switches, l.involuntary_switches],
            &[l.audit.on_cpu_ns, l.audit.run_delay_ns, l.audit.switches],
        ]
        .iter()
        .flat_map(|part| part.iter())
        .map(|v| u128::from(*v))
        .sum();
        states
    };
    let wide = u128::from;
    let weight = |s: &model::Sample| {
        let slices = s.slices.iter().map(|v| wide(v.ns) + wide(v.count));
        wide(s.ns) + wide(s.count) + slices.sum::<u128>()
    };
    let sums: [u128; 10] = [
        rec.events
            .iter()
            .map(|e| {
                let hits: u128 = e.hits.iter().map(|(_, n)| wide(*n)).sum();
                hits + e.samples.iter().map(weight).sum::<u128>()
            })
            .sum(),
        rec.tasks
            .iter()
            .flat_map(|g| &g.times)
            .map(|t| wide(t.ns) + wide(t.count))
            .sum(),
        rec.peers
            .iter()
            .map(|p| {
                let stacks = p.stacks.iter().map(|s| wide(s.ns) + wide(s.requests));
                wide(p.requests) + wide(p.in_flight_ns) + stacks.sum::<u128>()
            })
            .sum(),
        rec.contexts.iter().map(|c| ledger(&c.ledger)).sum(),
        rec.processes
            .iter()
            .map(|p| wide(p.unattributed_on_cpu_ns))
            .sum(),
        rec.samples.iter().map(weight).sum(),
        rec.ledger_slices
            .iter()
            .map(|r| {
                wide(r.on_cpu_ns)
                    + wide(r.runnable_ns)
                    + r.blocked.iter().map(|v| wide(*v)).sum::<u128>()
            })
            .sum(),
        rec.losses.iter().map(|l| wide(l.count)).sum(),
        [
            rec.cost.bpf_ns,
            rec.cost.displaced_ns,
            rec.cost.own_cpu_ns,
            rec.cost.target_stopped_ns,
        ]
        .map(wide)
        .iter()
        .sum(),
        wide(rec.window.end_ns),
    ];
    if sums.iter().any(|s| *s > 1 << 62) {
        return Err(damaged("its times add up to more than a century"));
    }
    Ok(())
}
