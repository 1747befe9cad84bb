//! A minute of threads that switch very often, each interval kept.

use wallscope_model::*;

use crate::maker::{Maker, SECOND};

/// `switches` turns on a CPU within a minute, shared by 24 threads, those of low numbers busier.
pub fn switches(switches: u64) -> Recording {
    const THREADS: u64 = 24;
    let mut m = Maker::new("pid 4711 (switcher)", 60, SECOND);
    let mut lanes = Vec::new();
    let weights: u64 = (1..=THREADS).map(|k| SECOND / k).sum();
    for k in 0..THREADS {
        let index = m.thread(4711, 4720 + k as u32, &format!("switcher-{k}"));
        let turns = (switches * (SECOND / (k + 1)) / weights).max(1);
        let turn = 60 * SECOND / turns;
        let (start, end) = (m.r.window.start_ns, m.r.window.end_ns);
        let mut at = start;
        let mut intervals = Vec::new();
        let mut ledger = Ledger {
            wall_ns: end - start,
            ..Ledger::default()
        };
        while at < end {
            let on_cpu = 1 + m.dice.below(turn);
            let wait = 1 + m.dice.below(turn);
            let queue = 1 + m.dice.below(turn / 8 + 1);
            let reason = match m.dice.below(5) {
                0 => BlockReason::Lock,
                1 => BlockReason::Disk,
                _ => BlockReason::Pipe,
            };
            for (state, ns, part) in [
                (State::OnCpu, on_cpu, None),
                (State::Blocked, wait, None),
                (State::Runnable, queue, Some(Part::Woken)),
            ] {
                let ns = ns.min(end - at);
                if ns == 0 {
                    break;
                }
                let blocked = state == State::Blocked;
                intervals.push(Interval {
                    start_ns: at,
                    ns,
                    state,
                    reason: blocked.then_some(reason),
                    part,
                    waker: blocked.then(|| ContextId(m.dice.below(k + 1) as u32)),
                    request: false,
                    idle: false,
                });
                at += ns;
                match state {
                    State::OnCpu => ledger.on_cpu.user += ns,
                    State::Blocked => ledger.blocked[reason as usize] += ns,
                    _ => ledger.runnable.woken += ns,
                }
            }
        }
        m.r.contexts[index].ledger = ledger;
        lanes.push(Lane {
            context: ContextId(index as u32),
            intervals,
        });
    }
    m.r.timeline = Some(Timeline {
        lanes,
        ..Timeline::default()
    });
    m.r
}
