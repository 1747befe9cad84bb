//! Tests of time slices and of snapshots of the books.

use super::figures_of_threads::*;
use super::*;

/// Accounts with one thread. A snapshot at the start keeps `finish` from correcting its slices.
fn uncorrected() -> Accounts {
    let mut a = accounts();
    a.dump(&figures(1, START));
    a.take_snapshot(START);
    a
}

#[test]
fn time_is_divided_over_the_slices_that_it_covers() {
    let mut a = accounts();
    let mut d = figures(1, 1300).on_cpu(150).blocked(DISK, 60);
    (d.birth, d.acc.runnable) = (1050, [10, 20, 10]);
    a.last_dump(&d);
    assert_eq!((a.rows(), a.grid().count), (3, 0));
    let (_, grid, rows) = a.finish(1300);
    assert_eq!(
        (grid.start_ns, grid.width_ns, grid.count),
        (START, WIDTH, 3)
    );
    // 50, 100 and 100 ns of 250.
    assert_eq!(on_cpu_by_slice(&rows), [(0, 30), (1, 60), (2, 60)]);
    assert_eq!(blocked_by_slice(&rows, DISK), [(0, 12), (1, 24), (2, 24)]);
    let runnable: Vec<_> = rows.iter().map(|r| r.runnable_ns).collect();
    assert_eq!(runnable, [8, 16, 16]);
    assert!(rows.iter().all(|r| r.context == 0));
}

#[test]
fn no_nanosecond_is_lost_to_rounding() {
    for total in [1, 2, 7, 299] {
        let mut a = accounts();
        a.last_dump(&figures(1, 1300).on_cpu(total));
        let (.., rows) = a.finish(1300);
        let expected: Vec<_> = (0..3)
            .map(|slice| {
                (
                    slice,
                    total * u64::from(slice + 1) / 3 - total * u64::from(slice) / 3,
                )
            })
            .filter(|(_, ns)| *ns > 0)
            .collect();
        assert_eq!(on_cpu_by_slice(&rows), expected);
    }
}

#[test]
fn time_before_the_window_goes_to_the_slices_of_the_window() {
    let mut a = accounts();
    let mut d = figures(1, 1200).on_cpu(300);
    d.birth = 900;
    a.last_dump(&d);
    let (.., rows) = a.finish(1200);
    assert_eq!(on_cpu_by_slice(&rows), [(0, 150), (1, 150)]);
}

#[test]
fn a_report_that_ends_with_a_slice_does_not_touch_the_next() {
    let mut a = accounts();
    a.dump(&figures(1, 1200).on_cpu(200));
    a.last_dump(&figures(1, 1201).on_cpu(201));
    let (_, grid, rows) = a.finish(1200);
    // The window has two slices; later time is in the last.
    assert_eq!(grid.count, 2);
    assert_eq!(on_cpu_by_slice(&rows), [(0, 100), (1, 101)]);
}

#[test]
fn a_window_that_ends_in_a_slice_has_that_slice() {
    let mut a = accounts();
    a.last_dump(&figures(1, 1400).on_cpu(400));
    let (_, grid, rows) = a.finish(1201);
    assert_eq!(grid.count, 3);
    assert_eq!(on_cpu_by_slice(&rows), [(0, 100), (1, 100), (2, 200)]);
}

#[test]
fn ticks_carry_the_last_known_state_on_for_living_threads() {
    let mut a = accounts();
    a.dump(&figures(1, 1100).since(1000, state::RUNNABLE, 1));
    a.thread(&born(2, 1000));
    a.last_dump(&figures(3, 1100).since(1000, state::RUNNABLE, 1));
    a.tick(1250);
    let rows: Vec<_> = (a.slices.iter())
        .map(|r| (r.context, r.slice, r.runnable_ns))
        .collect();
    let first = [(0, 0, 100), (2, 0, 100)];
    assert_eq!(rows, [first[0], first[1], (0, 1, 100), (0, 2, 50)]);
    // An earlier tick changes nothing.
    a.tick(1200);
    assert_eq!((a.rows(), a.ticked), (4, 1250));
}

#[test]
fn time_that_was_given_too_early_is_not_given_again() {
    let mut a = uncorrected();
    a.dump(&figures(1, 1100).since(1000, state::BLOCKED, DISK as u8));
    a.tick(1300);
    // It was on a CPU from 1200 on.
    let turned = figures(1, 1500).since(1200, state::ON_CPU, 0);
    a.dump(&turned.blocked(DISK, 200));
    let again = figures(1, 1700).since(1500, state::BLOCKED, DISK as u8);
    a.last_dump(&again.on_cpu(300).blocked(DISK, 200));
    let (.., rows) = a.finish(1700);
    let disk = [100, 100, 100, 0, 0, 50, 50];
    let on_cpu = [0, 0, 0, 150, 150, 0, 0];
    let expected: Vec<_> = (0..7).map(|i| (i as u32, disk[i])).collect();
    assert_eq!(blocked_by_slice(&rows, DISK), expected);
    let expected: Vec<_> = (0..7).map(|i| (i as u32, on_cpu[i])).collect();
    assert_eq!(on_cpu_by_slice(&rows), expected);
}

#[test]
fn on_cpu_and_runnable_time_that_was_given_too_early_is_not_given_again() {
    for st in [state::ON_CPU, state::RUNNABLE] {
        let mut a = uncorrected();
        a.dump(&figures(1, 1100).since(1000, st, 0));
        a.tick(1300);
        // It ended at 1200: a disk from then on.
        let mut d = figures(1, 1400).since(1200, state::BLOCKED, DISK as u8);
        let mut again = figures(1, 1600).since(1400, st, 0).blocked(DISK, 200);
        for d in [&mut d, &mut again] {
            match st {
                state::ON_CPU => d.acc.on_cpu = 200,
                _ => d.acc.runnable[0] = 200,
            }
        }
        a.dump(&d);
        a.last_dump(&again);
        let (.., rows) = a.finish(1600);
        let own: Vec<_> = rows.iter().map(|r| r.on_cpu_ns + r.runnable_ns).collect();
        assert_eq!(own, [100, 100, 100, 0, 50, 50]);
    }
}

#[test]
fn slices_that_got_too_much_are_cut_from_the_end() {
    let mut a = accounts();
    a.dump(&figures(1, 1100).since(1000, state::BLOCKED, DISK as u8));
    a.tick(1400);
    let turned = figures(1, 1400).since(1250, state::RUNNABLE, 0);
    a.last_dump(&turned.blocked(DISK, 250));
    let (.., rows) = a.finish(1400);
    // The waiting for a CPU was not seen in time; the last slice that is left has it.
    assert_eq!(
        blocked_by_slice(&rows, DISK),
        [(0, 100), (1, 100), (2, 50), (3, 0)]
    );
    let runnable: Vec<_> = rows.iter().map(|r| r.runnable_ns).collect();
    assert_eq!(runnable, [0, 0, 0, 150]);
}

#[test]
fn a_thread_without_slices_has_its_time_in_the_slice_of_its_end() {
    for (end, until, expected) in [(1500, 2000, 4), (1501, 2000, 5), (1500, 1300, 2)] {
        let mut a = accounts();
        // Blocked for a reason that is not known: nothing is given.
        a.dump(&figures(1, 1100).since(1000, state::BLOCKED, u8::MAX));
        a.tick(1600);
        assert_eq!(a.rows(), 0);
        a.last_dump(&figures(1, end).on_cpu(400));
        let (.., rows) = a.finish(until);
        assert_eq!(on_cpu_by_slice(&rows), [(expected, 400)]);
    }
}

#[test]
fn coarser_slices_hold_two_of_the_finer_ones() {
    let mut a = accounts();
    a.dump(&figures(1, 1050).on_cpu(50));
    a.last_dump(&figures(2, 1400).on_cpu(400));
    a.dump(&figures(1, 1350).on_cpu(350));
    a.coarsen();
    assert_eq!((a.grid().width_ns, a.rows()), (200, 4));
    a.last_dump(&figures(1, 1500).on_cpu(500));
    let (_, grid, rows) = a.finish(1500);
    assert_eq!(grid.count, 3);
    let rows: Vec<_> = rows
        .iter()
        .map(|r| (r.context, r.slice, r.on_cpu_ns))
        .collect();
    let first = [(0, 0, 200), (0, 1, 200), (0, 2, 100)];
    assert_eq!(
        rows,
        [first[0], first[1], first[2], (1, 0, 200), (1, 1, 200)]
    );
}

#[test]
fn rows_to_come_are_those_of_living_threads_in_slices_not_closed() {
    let mut a = accounts();
    a.dump(&figures(1, 1100).on_cpu(100));
    a.last_dump(&figures(2, 1100).on_cpu(100));
    assert_eq!((a.rows(), a.rows_at(1000), a.rows_at(1250)), (2, 4, 8));
    a.tick(1200);
    // Thread 1 has a second row. From 1200 to 1450 two slices end and a third begins.
    assert_eq!((a.rows(), a.rows_at(1450), a.rows_at(1100)), (3, 6, 4));
}

#[test]
fn without_a_width_there_are_no_slices() {
    let mut a = Accounts::new(START, 0);
    a.dump(&figures(1, 1100).on_cpu(100));
    a.tick(1200);
    assert_eq!((a.rows(), a.rows_at(1203)), (0, 4));
}

#[test]
fn a_wait_for_a_lock_that_was_a_sleep_moves_to_timers() {
    let mut a = uncorrected();
    a.dump(&figures(1, 1150).since(1000, state::BLOCKED, LOCK as u8));
    a.tick(1300);
    a.sleeps(0);
    a.tick(1400);
    let end = figures(1, 1500).since(1450, state::ON_CPU, 0);
    a.last_dump(&end.blocked(TIMER, 450));
    let (.., rows) = a.finish(1500);
    let lock = [(0, 100), (1, 100), (2, 100), (3, 0), (4, 0)];
    assert_eq!(blocked_by_slice(&rows, LOCK), lock);
    let timer = [(0, 0), (1, 0), (2, 0), (3, 100), (4, 50)];
    assert_eq!(blocked_by_slice(&rows, TIMER), timer);
    assert_eq!(on_cpu_by_slice(&rows)[4], (4, 50));
}

#[test]
fn only_the_open_wait_for_a_lock_was_a_sleep() {
    let mut a = uncorrected();
    let open = figures(1, 1150).since(1100, state::BLOCKED, LOCK as u8);
    a.dump(&open.on_cpu(20).blocked(LOCK, 80));
    a.sleeps(0);
    let end = figures(1, 1300).since(1250, state::ON_CPU, 0).on_cpu(20);
    a.last_dump(&end.blocked(LOCK, 80).blocked(TIMER, 150));
    let (.., rows) = a.finish(1300);
    let sum = |reason: usize| rows.iter().map(|r| r.blocked[reason]).sum::<u64>();
    // 50 of it were given as a lock before it was known.
    assert_eq!((sum(LOCK), sum(TIMER)), (130, 100));
}

#[test]
fn slices_of_a_command_begin_when_it_is_let_go() {
    let mut a = accounts();
    let held = figures(1, 1100).since(1000, state::BLOCKED, PIPE as u8);
    a.dump(&held.of(7, 1));
    a.dump(&figures(2, 1100).on_cpu(100));
    a.take_snapshot(1100);
    a.tick(1250);
    a.begins(7, 1300);
    // A repair dates its wake-up 10 ns before its release; it waited for a CPU for 2 ns after that.
    let mut d = figures(1, 1500).since(1302, state::ON_CPU, 0);
    d.acc.runnable[0] = 12;
    a.last_dump(&d.blocked(PIPE, 290).of(7, 1));
    let (.., rows) = a.finish(1500);
    let own: Vec<_> = (rows.iter().filter(|r| r.context == 0))
        .map(|r| (r.slice, r.on_cpu_ns, r.runnable_ns, r.blocked[PIPE]))
        .collect();
    assert_eq!(own, [(3, 99, 1, 0), (4, 99, 1, 0)]);
    // The other thread keeps its slices.
    assert!(rows.iter().any(|r| (r.context, r.slice) == (1, 1)));
}

#[test]
fn other_waits_are_no_sleeps() {
    let lock = LOCK as u8;
    for (st, detail) in [(state::BLOCKED, DISK as u8), (state::RUNNABLE, lock)] {
        let mut a = accounts();
        a.dump(&figures(1, 1200).since(1100, st, detail));
        a.sleeps(0);
        assert_eq!(a.open().next(), Some((0, st, detail, 100)));
    }
    let mut a = accounts();
    a.dump(&figures(1, 1200).since(1100, state::BLOCKED, lock));
    a.sleeps(0);
    let timer = (0, state::BLOCKED, TIMER as u8, 100);
    assert_eq!(a.open().next(), Some(timer));
    // A thread without figures has no wait.
    a.thread(&born(2, 1100));
    a.sleeps(1);
    assert_eq!(a.open().count(), 1);
}

#[test]
fn snapshots_hold_what_was_added_since_the_last() {
    let mut a = accounts();
    a.dump(&figures(1, 1100).since(1000, state::ON_CPU, 0));
    a.dump(&figures(2, 1200).on_cpu(150).blocked(DISK, 50));
    let first = a.take_snapshot(1200);
    let figures_of = |list: &[(u32, Context)]| -> Vec<_> {
        list.iter()
            .map(|(index, c)| {
                (
                    *index,
                    c.start_ns,
                    c.end_ns,
                    c.ledger.wall_ns,
                    c.ledger.on_cpu.total(),
                )
            })
            .collect()
    };
    // Thread 1 has stayed on its CPU.
    assert_eq!(
        figures_of(&first),
        [(0, 1000, 1200, 200, 200), (1, 1000, 1200, 200, 150)]
    );
    assert_eq!((a.rows(), a.life(0)), (0, 1000..1100));

    a.dump(
        &figures(1, 1300)
            .since(1250, state::BLOCKED, DISK as u8)
            .on_cpu(250),
    );
    a.last_dump(&figures(2, 1350).on_cpu(250).blocked(DISK, 100));
    let second = a.take_snapshot(1400);
    // Thread 2 ended at 1350.
    assert_eq!(
        figures_of(&second),
        [(0, 1200, 1400, 200, 50), (1, 1200, 1350, 150, 100)]
    );
    assert_eq!(second[0].1.ledger.blocked[DISK], 150);

    let third = a.take_snapshot(1500);
    assert_eq!(figures_of(&third), [(0, 1400, 1500, 100, 0)]);
    assert_eq!(third[0].1.ledger.blocked[DISK], 100);
    // Slices since the last snapshot are as they were given.
    a.tick(1600);
    let (contexts, _, rows) = a.finish(1600);
    assert_eq!(contexts.len(), 2);
    assert!(!rows.is_empty() && rows.iter().all(|r| r.context == 0));
}

#[test]
fn a_thread_that_has_no_figures_yet_is_in_snapshots() {
    let mut a = accounts();
    a.thread(&named(born(1, 1100), b"new"));
    let snapshot = a.take_snapshot(1200);
    let c = &snapshot[0].1;
    assert_eq!(
        (snapshot.len(), &*c.name, c.start_ns, c.end_ns),
        (1, "new", 1100, 1100)
    );
    let mut d = figures(1, 1300).on_cpu(200);
    d.birth = 1100;
    a.last_dump(&d);
    let c = a.take_snapshot(1300).remove(0).1;
    assert_eq!(
        (c.start_ns, c.end_ns, c.ledger.on_cpu.user),
        (1100, 1300, 200)
    );
    assert!(a.take_snapshot(1400).is_empty());
}

#[test]
fn the_last_snapshot_of_an_ended_thread_leaves_its_slices_alone() {
    let mut a = accounts();
    a.last_dump(&figures(1, 1100).on_cpu(100));
    a.take_snapshot(1200);
    // It was told of: no slice is made up for it, though its ledger has time.
    let (contexts, _, rows) = a.finish(1200);
    assert_eq!((contexts[0].ledger.on_cpu.user, rows.len()), (100, 0));
}
