use super::thread::divide_on_cpu;
use super::ticks::Ticks;
use super::*;
use zerocopy::FromZeros;

fn dump(id: u64, now: u64, since: u64, st: u8) -> Dump {
    let mut d = Dump::new_zeroed();
    (d.id, d.now, d.since, d.state) = (id, now, since, st);
    d.birth = 1000;
    d
}

#[test]
fn slices_sum_to_the_ledger() {
    let mut a = Accounts::new(1000, 100);
    let mut d = dump(1, 1150, 1120, state::BLOCKED);
    d.detail = BlockReason::Disk as u8;
    d.acc.on_cpu = 120;
    a.dump(&d);
    a.tick(1390);
    let mut d = dump(1, 1500, 1480, state::ON_CPU);
    d.acc.on_cpu = 130;
    d.acc.blocked[BlockReason::Disk as usize] = 350;
    a.last_dump(&d);
    let (contexts, grid, rows) = a.finish(1500);
    assert_eq!(grid.count, 5);
    let l = &contexts[0].ledger;
    assert_eq!((l.wall_ns, l.residue_ns()), (500, 0));
    assert_eq!(
        rows.iter().map(|r| r.on_cpu_ns).sum::<u64>(),
        l.on_cpu.total()
    );
    assert_eq!(
        rows.iter()
            .map(|r| r.blocked[BlockReason::Disk as usize])
            .sum::<u64>(),
        l.blocked_ns()
    );
    assert!(
        rows.iter()
            .all(|r| r.on_cpu_ns + r.blocked.iter().sum::<u64>() <= 110)
    );
}

#[test]
fn a_held_command_that_a_repair_woke_too_early_closes() {
    let mut a = Accounts::new(1000, 100);
    let mut d = dump(1, 1100, 1000, state::BLOCKED);
    d.detail = BlockReason::Pipe as u8;
    d.pid = 7;
    a.dump(&d);
    a.begins(7, 1300);
    // Let go at 1300, it got the CPU at 1302; the kernel says that it had queued for 12.
    let mut d = dump(1, 1500, 1302, state::ON_CPU);
    d.pid = 7;
    d.acc.blocked[BlockReason::Pipe as usize] = 290;
    d.acc.runnable[0] = 12;
    d.kernel_run_delay = 12;
    a.last_dump(&d);
    let (contexts, ..) = a.finish(1500);
    let l = &contexts[0].ledger;
    assert_eq!((l.wall_ns, l.residue_ns()), (200, 0));
    assert_eq!((l.runnable.woken, l.audit.run_delay_ns), (2, 2));
}

#[test]
fn slices_sum_to_the_ledger_where_a_thread_did_not_stay_as_it_was() {
    let disk = BlockReason::Disk as usize;
    for last in [1390, 1500] {
        let mut a = Accounts::new(1000, 100);
        let mut d = dump(1, 1150, 1120, state::BLOCKED);
        d.detail = disk as u8;
        d.acc.on_cpu = 120;
        a.dump(&d);
        // Taken for blocked until 1390; it computed from 1200 on, and its report was under way.
        a.tick(1390);
        let mut d = dump(1, last, 1200, state::ON_CPU);
        d.acc.on_cpu = 120;
        d.acc.blocked[disk] = 80;
        a.last_dump(&d);
        let (contexts, _, rows) = a.finish(1500);
        let l = &contexts[0].ledger;
        assert_eq!(l.residue_ns(), 0);
        let on_cpu: u64 = rows.iter().map(|r| r.on_cpu_ns).sum();
        let blocked: u64 = rows.iter().map(|r| r.blocked[disk]).sum();
        assert_eq!((on_cpu, blocked), (l.on_cpu.total(), l.blocked_ns()));
    }
}

#[test]
fn who_is_born_after_the_window_is_not_met() {
    let mut a = Accounts::new(1000, 100);
    a.last_dump(&dump(1, 1400, 1000, state::RUNNABLE));
    a.close(1500);
    let mut late = ThreadEvent::new_zeroed();
    (late.id, late.time) = (2, 1600);
    a.thread(&late);
    let mut d = dump(3, 1700, 1600, state::RUNNABLE);
    d.birth = 1600;
    a.last_dump(&d);
    assert_eq!(a.len(), 1);
}

#[test]
fn an_idle_thread_is_known_without_news() {
    let mut a = Accounts::new(1000, 100);
    let mut d = dump(1, 1010, 1000, state::BLOCKED);
    d.detail = BlockReason::Timer as u8;
    a.dump(&d);
    for now in [1100, 1200, 1300] {
        a.tick(now);
    }
    d.now = 1300;
    a.last_dump(&d);
    let (_, _, rows) = a.finish(1300);
    let by_slice: Vec<_> = rows
        .iter()
        .map(|r| r.blocked[BlockReason::Timer as usize])
        .collect();
    assert_eq!(by_slice, [100, 100, 100]);
}

#[test]
fn coarser_slices_keep_the_sum() {
    let mut a = Accounts::new(1000, 100);
    a.dump(&dump(1, 1400, 1000, state::RUNNABLE));
    a.coarsen();
    a.last_dump(&dump(1, 1800, 1000, state::RUNNABLE));
    let (_, grid, rows) = a.finish(1800);
    assert_eq!((grid.width_ns, grid.count), (200, 4));
    assert_eq!(rows.iter().map(|r| r.runnable_ns).sum::<u64>(), 800);
}

#[test]
fn user_and_kernel_time_of_those_that_met_no_tick_is_that_of_the_others() {
    let mut long = dump(1, 9000, 9000, 0);
    (long.utime, long.stime) = (3_000_000, 9_000_000);
    let mut short = dump(2, 9000, 9000, 0);
    short.acc.irq = 100;
    let mut kernel = dump(3, 9000, 9000, 0);
    (kernel.flags, kernel.utime, kernel.stime) = (event::FLAG_KERNEL_THREAD, 0, 500);
    let mut ticks = Ticks::default();
    for d in [&long, &short, &kernel] {
        ticks.add(d);
    }
    let parts = |d: &Dump| {
        let on_cpu = divide_on_cpu(d, 1100, &ticks);
        (on_cpu.user, on_cpu.kernel, on_cpu.irq)
    };
    assert_eq!(parts(&long), (275, 825, 0));
    assert_eq!(parts(&short), (250, 750, 100));
    assert_eq!(parts(&kernel), (0, 1100, 0));
    // No thread met a tick, so the time counts as user, where most programs compute.
    let on_cpu = divide_on_cpu(&short, 1100, &Ticks::default());
    assert_eq!((on_cpu.user, on_cpu.kernel), (1000, 0));
}
