//! Corrects slices so that they sum to the threads' ledgers.

use wallscope_model::{Context, LedgerSlice, LedgerSlices, Slices};

/// Returns the slices, which sum to each thread's ledger. `rows` are in the order of `contexts`.
pub fn settled(rows: &LedgerSlices, contexts: &[Context], grid: Slices) -> LedgerSlices {
    let mut out = LedgerSlices::default();
    let mut rows = rows.iter().peekable();
    for (context, c) in (0u32..).zip(contexts) {
        let mut own: Vec<LedgerSlice> = Vec::new();
        while let Some(row) = rows.next_if(|row| row.context == context) {
            own.push(row);
        }
        let lacks = settle(&mut own, context, c, grid);
        out.extend(own);
        out.add(lacks);
    }
    out
}

/// Corrects the slices of a thread, and returns the row that they lack. Between two reports of a thread, its
/// slices get the state that was last known. If the next report shows another state meanwhile, the last
/// slices have too much of the first.
pub(super) fn settle(
    own: &mut [LedgerSlice],
    context: u32,
    c: &Context,
    grid: Slices,
) -> LedgerSlice {
    fn places(row: &mut LedgerSlice) -> impl Iterator<Item = &mut u64> {
        [&mut row.on_cpu_ns, &mut row.runnable_ns]
            .into_iter()
            .chain(&mut row.blocked)
    }
    let l = &c.ledger;
    let mut lacks = LedgerSlice {
        context,
        slice: own.last().map_or_else(
            || {
                let end = c.end_ns.saturating_sub(grid.start_ns + 1) / grid.width_ns.max(1);
                end.min(u64::from(grid.count.saturating_sub(1))) as u32
            },
            |row| row.slice,
        ),
        on_cpu_ns: l.on_cpu.total(),
        runnable_ns: l.runnable.total(),
        blocked: l.blocked,
    };
    for row in own {
        for (given, lacks) in places(row).zip(places(&mut lacks)) {
            *given = (*given).min(*lacks);
            *lacks -= *given;
        }
    }
    lacks
}
