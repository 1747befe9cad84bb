//! Tests of threads' books on made-up figures: ledgers, lives, the end of the window, the command's begin.

use super::figures_of_threads::*;
use super::*;
use wallscope_model::{Audit, Ledger, OnCpu, Runnable, State, UnknownCause};

#[test]
fn the_open_interval_belongs_to_the_state_and_part_that_it_is_in() {
    let ledger_of = |st: u8, detail: u8| {
        let mut a = accounts();
        a.last_dump(&figures(1, 1500).since(1400, st, detail));
        a.finish(1500).0.remove(0).ledger
    };
    let ledger = ledger_of(state::ON_CPU, 0);
    assert_eq!((ledger.on_cpu.user, ledger.residue_ns()), (100, 400));
    for (part, expected) in [(0, [100, 0, 0]), (1, [0, 100, 0]), (2, [0, 0, 100])] {
        let r = ledger_of(state::RUNNABLE, part).runnable;
        assert_eq!([r.woken, r.preempted, r.throttled], expected);
    }
    for reason in BlockReason::ALL {
        let ledger = ledger_of(state::BLOCKED, *reason as u8);
        assert_eq!(ledger.blocked[*reason as usize], 100, "{reason:?}");
        assert_eq!((ledger.blocked_ns(), ledger.residue_ns()), (100, 400));
    }
    // A state, part or reason that this version does not know is left unexplained.
    for (st, detail) in [(0, 0), (state::RUNNABLE, 3), (state::BLOCKED, u8::MAX)] {
        assert_eq!(ledger_of(st, detail).residue_ns(), 500);
    }
}

/// Figures with a different number in each place, blocked on a lock for the last 100 ns.
fn whole_figures() -> Dump {
    let mut d = figures(1, 2000).since(1900, state::BLOCKED, LOCK as u8);
    d.acc = event::Account {
        on_cpu: 300,
        irq: 30,
        stolen: 20,
        runnable: [10, 25, 35],
        limbo: 40,
        repaired: 7,
        voluntary: 5,
        involuntary: 6,
        ..event::Account::default()
    };
    d.acc.blocked[DISK] = 400;
    (d.kernel_exec, d.kernel_run_delay, d.kernel_switches) = (280, 60, 11);
    (d.utime, d.stime) = (1, 4);
    d
}

#[test]
fn a_ledger_holds_every_figure_in_its_place() {
    let mut a = accounts();
    a.last_dump(&whole_figures());
    let (contexts, ..) = a.finish(2000);
    let mut expected = Ledger {
        wall_ns: 1000,
        on_cpu: OnCpu {
            user: 50,
            kernel: 200,
            irq: 30,
            stolen: 20,
        },
        runnable: Runnable {
            woken: 10,
            preempted: 25,
            throttled: 35,
        },
        repaired_ns: 7,
        voluntary_switches: 5,
        involuntary_switches: 6,
        audit: Audit {
            // This includes the stolen time, which the counter of the kernel leaves out.
            on_cpu_ns: 300,
            run_delay_ns: 60,
            switches: 11,
            valid: true,
        },
        ..Ledger::default()
    };
    expected.blocked[DISK] = 400;
    expected.blocked[LOCK] = 100;
    expected.unknown[UnknownCause::LostEvents as usize] = 40;
    let context = Context {
        pid: PROCESS,
        tid: 1,
        name: "".into(),
        start_ns: START,
        end_ns: 2000,
        ledger: expected,
    };
    assert_eq!(contexts, [context]);
    // 1000 - 300 on a CPU - 70 runnable - 500 blocked - 40 unseen.
    assert_eq!(contexts[0].ledger.residue_ns(), 90);
}

#[test]
fn the_audit_adds_interrupt_time_where_the_kernel_leaves_it_out() {
    let mut d = whole_figures();
    d.flags = event::FLAG_IRQ_OUT;
    let mut a = accounts();
    a.last_dump(&d);
    assert_eq!(a.finish(2000).0[0].ledger.audit.on_cpu_ns, 330);
}

#[test]
fn parts_of_on_cpu_time_never_exceed_it() {
    for (irq, stolen, expected) in [
        (80, 20, (0, 50, 0)),
        (30, 40, (0, 30, 20)),
        (10, 15, (25, 10, 15)),
    ] {
        let mut d = figures(1, 1100).on_cpu(50);
        (d.acc.irq, d.acc.stolen) = (irq, stolen);
        let mut a = accounts();
        a.last_dump(&d);
        let on_cpu = a.finish(1100).0[0].ledger.on_cpu;
        assert_eq!((on_cpu.user, on_cpu.irq, on_cpu.stolen), expected);
    }
}

#[test]
fn a_thread_without_ticks_is_divided_as_all_user_threads_together() {
    let mut a = accounts();
    let mut ticked = figures(1, 1400).on_cpu(400);
    (ticked.utime, ticked.stime) = (10, 30);
    let mut of_kernel = figures(2, 1400).on_cpu(400);
    (of_kernel.stime, of_kernel.flags) = (1000, event::FLAG_KERNEL_THREAD);
    a.last_dump(&ticked);
    a.last_dump(&of_kernel);
    a.last_dump(&figures(3, 1400).on_cpu(200));
    let (contexts, ..) = a.finish(1400);
    let parts: Vec<_> = contexts
        .iter()
        .map(|c| (c.ledger.on_cpu.user, c.ledger.on_cpu.kernel))
        .collect();
    assert_eq!(parts, [(100, 300), (0, 400), (50, 150)]);
}

#[test]
fn a_commands_time_begins_when_it_is_let_go() {
    let mut a = accounts();
    let held = figures(1, 1200).since(1000, state::BLOCKED, PIPE as u8);
    a.dump(&held.of(7, 1));
    a.dump(&figures(2, 1200).of(8, 2));
    a.dump(&figures(3, 1200).of(7, 3));
    a.tick(1300);
    a.begins(7, 1300);
    assert_eq!(a.life(0).start, 1300);
    let mut d = figures(1, 1500).on_cpu(120);
    d.acc.blocked[PIPE] = 340;
    d.acc.blocked[DISK] = 40;
    a.dump(&d.of(7, 1));
    assert_eq!(
        (a.life(0), a.life(1), a.life(2)),
        (1300..1500, 1000..1200, 1000..1200)
    );
    let (contexts, _, rows) = a.finish(1500);
    let c = &contexts[0];
    assert_eq!((c.start_ns, c.end_ns, c.ledger.wall_ns), (1300, 1500, 200));
    assert_eq!((c.ledger.blocked[PIPE], c.ledger.blocked[DISK]), (40, 40));
    assert_eq!(c.ledger.residue_ns(), 0);
    // Another thread of its process, and a thread of another one, keep their time.
    assert_eq!((contexts[1].start_ns, contexts[2].start_ns), (1000, 1000));
    let own: Vec<_> = rows.iter().filter(|r| r.context == 0).collect();
    assert!(own.iter().all(|r| r.slice >= 3), "{own:?}");
    let blocked = own.iter().map(|r| r.state_ns(State::Blocked)).sum::<u64>();
    assert_eq!(blocked, 80);
}

#[test]
fn an_open_interval_begins_no_earlier_than_the_threads_own_time() {
    let mut a = accounts();
    a.dump(&figures(1, 1500).since(1100, state::BLOCKED, 4).of(7, 1));
    a.dump(&figures(2, 1500).since(1450, state::RUNNABLE, 1));
    a.dump(&figures(3, 1500));
    a.thread(&born(4, 1500));
    a.dump(&figures(5, 1500).since(1499, state::ON_CPU, 0));
    let open: Vec<_> = a.open().collect();
    let first = (0, state::BLOCKED, 4, 400);
    let others = [(1, state::RUNNABLE, 1, 50), (4, state::ON_CPU, 0, 1)];
    assert_eq!(open, [first, others[0], others[1]]);
    a.begins(7, 1300);
    assert_eq!(a.open().next(), Some((0, state::BLOCKED, 4, 200)));
    let last: Vec<_> = a.last().map(|(index, d)| (index, d.since)).collect();
    assert_eq!(last, [(0, 1100), (1, 1450), (2, 1500), (4, 1499)]);
}

#[test]
fn a_thread_that_was_found_late_began_at_its_earliest_report() {
    let mut a = accounts();
    a.thread(&born(5, 1200));
    a.thread(&ThreadEvent {
        how: 2,
        ..named(born(5, 1100), b"found")
    });
    assert_eq!(
        (a.life(0), a.index(5), a.index(6)),
        (1100..1100, Some(0), None)
    );
    // Running a new program is no beginning, but it gives another name.
    let exec = ThreadEvent {
        how: how::EXEC,
        pid: 77,
        tid: 78,
        ..named(born(5, 1050), b"program")
    };
    a.thread(&exec);
    assert_eq!((a.life(0), a.pid(0)), (1100..1100, 77));
    let (contexts, _, rows) = a.finish(1500);
    let expected = Context {
        pid: 77,
        tid: 78,
        name: "program".into(),
        start_ns: 1100,
        end_ns: 1100,
        ledger: Ledger::default(),
    };
    assert_eq!((contexts.as_slice(), rows.len()), (&[expected][..], 0));
}

#[test]
fn figures_give_a_thread_its_birth_its_process_and_its_name() {
    let mut a = accounts();
    a.thread(&named(born(5, 1200), b"old"));
    let mut d = figures(5, 1400).of(30, 31);
    (d.birth, d.comm[0], d.acc.on_cpu) = (1250, b'n', 150);
    a.dump(&d);
    assert_eq!((a.life(0), a.pid(0), a.len()), (1250..1400, 30, 1));
    let (contexts, _, rows) = a.finish(1400);
    let c = &contexts[0];
    assert_eq!((c.pid, c.tid, &*c.name, c.start_ns), (30, 31, "n", 1250));
    // Its time goes to slices from its birth on, and not from its first report on.
    assert_eq!(on_cpu_by_slice(&rows), [(2, 50), (3, 100)]);
}

#[test]
fn a_thread_born_when_the_window_ends_is_left_out() {
    let mut a = accounts();
    a.thread(&born(1, 1400));
    a.close(1500);
    a.thread(&born(2, 1499));
    a.thread(&born(3, 1500));
    let mut late = figures(4, 1700);
    late.birth = 1500;
    a.last_dump(&late);
    // A thread that is known is reported to the end, whatever its record says of its birth.
    let mut known = figures(1, 1600);
    known.birth = 1500;
    a.last_dump(&known);
    assert_eq!((a.len(), a.index(3), a.index(4)), (2, None, None));
    assert_eq!(a.life(0), 1500..1600);
}

#[test]
fn older_figures_and_figures_after_the_last_are_ignored() {
    let mut a = accounts();
    a.dump(&figures(1, 1300).on_cpu(300));
    a.dump(&figures(1, 1200).on_cpu(100));
    assert_eq!(a.life(0), 1000..1300);
    // The later one of two reports of one moment is better.
    a.last_dump(&figures(1, 1300).on_cpu(280).blocked(DISK, 20));
    a.last_dump(&figures(1, 1400).on_cpu(400));
    let ledger = a.finish(1400).0.remove(0).ledger;
    let figures = (ledger.wall_ns, ledger.on_cpu.total(), ledger.blocked[DISK]);
    assert_eq!(figures, (300, 280, 20));
}

#[test]
fn threads_are_counted_while_they_live() {
    let mut a = accounts();
    assert!(a.all_done());
    assert_eq!(a.most_alive(), 0);
    for id in 1..=5 {
        a.dump(&figures(id, 1100).of(100 + id as u32, id as u32));
    }
    assert_eq!((a.len(), a.alive(), a.most_alive()), (5, 5, 5));
    assert_eq!(a.few_processes(), None);
    a.last_dump(&figures(5, 1200).of(105, 5));
    // A tick forgets it.
    assert_eq!((a.alive(), a.all_done()), (5, false));
    a.tick(1200);
    assert_eq!((a.len(), a.alive(), a.most_alive()), (5, 4, 5));
    assert_eq!(a.few_processes(), Some(vec![101, 102, 103, 104]));
    a.dump(&figures(6, 1200).of(101, 6));
    assert_eq!(a.few_processes(), Some(vec![101, 102, 103, 104]));
    assert_eq!((a.alive(), a.most_alive()), (5, 5));
    for id in [1, 2, 3, 4, 6] {
        a.last_dump(&figures(id, 1300));
    }
    assert!(a.all_done());
    a.tick(1300);
    assert_eq!((a.alive(), a.few_processes()), (0, Some(Vec::new())));
}

#[test]
fn threads_that_are_blocked_and_alive_are_listed() {
    let mut a = accounts();
    let blocked = |id| figures(id, 1300).since(1200 + id, state::BLOCKED, DISK as u8);
    a.dump(&blocked(1).of(10, 11));
    let mut of_kernel = blocked(2);
    of_kernel.flags = event::FLAG_KERNEL_THREAD;
    a.dump(&of_kernel);
    a.last_dump(&blocked(3));
    a.dump(&figures(4, 1300).since(1200, state::RUNNABLE, 0));
    a.thread(&born(5, 1250));
    let list: Vec<_> = a
        .still_blocked()
        .map(|b| (b.id, b.pid, b.tid, b.is_kernel_thread, b.detail, b.since))
        .collect();
    let disk = DISK as u8;
    assert_eq!(
        list,
        [
            (1, 10, 11, false, disk, 1201),
            (2, PROCESS, 2, true, disk, 1202)
        ]
    );
}

#[test]
fn threads_without_last_figures_stay_as_they_were() {
    let mut a = accounts();
    a.dump(&figures(1, 1100).since(1000, state::BLOCKED, DISK as u8));
    a.last_dump(&figures(2, 1150).on_cpu(150));
    // Reported after the recorder's end.
    a.dump(&figures(3, 1450).on_cpu(450));
    a.stay(1400);
    let ends = [a.life(0).end, a.life(1).end, a.life(2).end];
    assert_eq!(ends, [1400, 1150, 1450]);
    let (contexts, _, rows) = a.finish(1400);
    let ledger = &contexts[0].ledger;
    assert_eq!((ledger.wall_ns, ledger.blocked[DISK]), (400, 400));
    let disk: Vec<_> = rows.iter().filter(|r| r.context == 0).collect();
    assert_eq!(disk.len(), 4);
    assert!(disk.iter().all(|r| r.blocked[DISK] == 100));
}
