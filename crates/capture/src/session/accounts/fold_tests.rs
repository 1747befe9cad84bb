use wallscope_model::{BlockReason, Ledger, State};
use zerocopy::FromZeros;

use super::super::groups::Group;
use super::*;
use crate::event::{Dump, ThreadEvent, how};

const START: u64 = 1_000;
const PARENT: u32 = 10;
/// Two and a half times as many as stand for themselves.
const N: u64 = 10_000;

fn comm(name: &str) -> [u8; 16] {
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    comm
}

fn born(id: u64, pid: u32, parent: u32, name: &str, time: u64) -> ThreadEvent {
    let mut e = ThreadEvent::new_zeroed();
    (e.id, e.pid, e.tid, e.parent, e.time) = (id, pid, pid, parent, time);
    (e.how, e.comm) = (how::BORN, comm(name));
    e
}

/// A life of `3 × id % 1000 + 30` ns: computing, blocked, runnable for a third each.
fn life(id: u64, pid: u32, name: &str, birth: u64) -> Dump {
    let mut d = Dump::new_zeroed();
    let third = id % 1000 + 10;
    (d.id, d.pid, d.tid, d.comm) = (id, pid, pid, comm(name));
    (d.birth, d.since, d.now) = (birth, birth + 3 * third, birth + 3 * third);
    d.acc.on_cpu = third;
    d.acc.runnable[1] = third;
    d.acc.blocked[BlockReason::Disk as usize] = third;
    (d.acc.voluntary, d.kernel_switches) = (1, 1);
    d
}

/// Books of `n` short processes of one parent, which lives on, with a fold at every hundredth.
fn storm(n: u64) -> Accounts {
    let mut a = Accounts::new(START, 100_000);
    a.thread(&born(1, PARENT, 1, "shell", START));
    for id in 2..n + 2 {
        let (pid, time) = (100 + id as u32, START + id * 100);
        let name = ["cut", "sed"][id as usize % 2];
        a.thread(&born(id, pid, PARENT, name, time));
        a.last_dump(&life(id, pid, name, time));
        if id % 100 == 0 {
            a.tick(time + 100);
            a.fold();
        }
    }
    a
}

fn thirds(n: u64) -> u64 {
    (2..n + 2).map(|id| id % 1000 + 10).sum()
}

#[test]
fn sums_are_those_of_the_threads_to_the_nanosecond() {
    let n = N;
    let mut a = storm(n);
    assert!(a.threads.len() <= KEPT_ENDED + FOLDED_AT_ONCE + 200);
    let (folded, groups) = (a.folding.folded, a.folding.groups.len());
    assert_eq!(groups, 2);
    a.last_dump(&life(1, PARENT, "shell", START));
    let end = START + (n + 2) * 100 + 3000;
    let (contexts, _, rows) = a.finish(end);
    let mut all = Ledger::default();
    contexts.iter().for_each(|c| all.add(&c.ledger));
    let third = thirds(n) + 11;
    assert_eq!(all.wall_ns, 3 * third);
    for state in [State::OnCpu, State::Runnable, State::Blocked] {
        assert_eq!(all.state_ns(state), third, "{state:?}");
    }
    assert_eq!(all.voluntary_switches, n + 1);
    assert!(contexts.iter().all(|c| c.ledger.residue_ns() == 0));
    let of_slices: u64 = State::ALL
        .iter()
        .map(|s| rows.iter().map(|r| r.state_ns(*s)).sum::<u64>())
        .sum();
    assert_eq!(of_slices, 3 * third);
    let group = |c: &&Context| c.pid >= FIRST_NUMBER;
    let grouped: u64 = (contexts.iter().filter(group))
        .map(|c| c.ledger.voluntary_switches)
        .sum();
    assert_eq!(grouped, folded);
    assert_eq!(contexts.len() as u64, n + 1 - folded + 2);
}

#[test]
fn threads_with_long_lives_stand_for_themselves() {
    let mut a = storm(N);
    a.compact();
    let own = (a.threads.iter()).filter(|t| t.role.is_own());
    let lives = own.filter_map(|t| t.last).map(|d| d.now - d.birth);
    // Lives are spread evenly over 1,000 lengths. Those that are short are not folded yet.
    let short = lives.filter(|ns| *ns < 3 * 400).count();
    assert!(short < FOLDED_AT_ONCE, "{short}");
}

#[test]
fn a_folded_thread_s_record_is_its_group_s_and_news_of_it_change_nothing() {
    let mut a = storm(N);
    let folded = (2..N + 2).find(|id| a.is_grouped(*id));
    let id = folded.expect("some are folded");
    assert!(a.record(id) >= FIRST_RECORD);
    let before = a.threads.len();
    a.last_dump(&life(id, 5, "again", START));
    a.thread(&born(id, 5, 1, "again", START));
    assert_eq!(a.threads.len(), before);
    assert_eq!(a.pid(a.index(id).unwrap()) & FIRST_NUMBER, FIRST_NUMBER);
    assert_eq!(a.record(1), 1, "the parent lives");
}

#[test]
fn names_without_end_are_one_group() {
    let mut a = Accounts::new(START, 100_000);
    for id in 1..20_000u64 {
        let (pid, name) = (100 + id as u32, format!("n{id}"));
        a.thread(&born(id, pid, 1, &name, START + id));
        a.last_dump(&life(id, pid, &name, START + id));
        if id % 100 == 0 {
            a.tick(START + id);
            a.fold();
        }
    }
    assert!(a.folding.groups.len() <= MAX_GROUPS + 1);
    assert!(a.folding.groups.keys().any(|key| &*key.name == REST));
    assert!(a.folding.known.len() <= KEPT_ENDED + FOLDED_AT_ONCE + 200);
}

#[test]
fn snapshots_show_each_nanosecond_once_and_what_they_have_shown_is_forgotten() {
    let mut a = Accounts::new(START, 100_000);
    let (mut all, mut forgotten, n) = (Ledger::default(), 0, 30_000u64);
    for id in 1..=n {
        let (pid, time) = (100 + id as u32, START + id * 100);
        a.thread(&born(id, pid, PARENT, "cut", time));
        a.last_dump(&life(id, pid, "cut", time));
        if id % 100 == 0 {
            a.tick(time + 100);
            forgotten += a.fold().forgotten.len();
        }
        if id % 10_000 == 0 {
            a.drop_told();
            (a.take_snapshot(time + 100).iter()).for_each(|(_, c)| all.add(&c.ledger));
        }
    }
    let third: u64 = (1..=n).map(|id| id % 1000 + 10).sum();
    assert_eq!((all.wall_ns, all.on_cpu.total()), (3 * third, third));
    assert_eq!((all.voluntary_switches, all.residue_ns()), (n, 0));
    a.drop_told();
    a.fold();
    a.compact();
    assert!(a.threads.len() <= 2, "{} are left", a.threads.len());
    assert!(forgotten as u64 > n / 2);
}

#[test]
fn user_and_kernel_time_of_a_group_are_divided_as_those_of_its_threads() {
    let ticks = Ticks {
        user: 3_000,
        kernel: 1_000,
    };
    let mut group = Group::default();
    let mut d = life(790, 1, "cut", START);
    d.acc.on_cpu = 800;
    let thread = |d: Dump| {
        let mut a = Accounts::new(START, 1000);
        a.last_dump(&d);
        context(&a.threads[0], &Ticks::default())
    };
    group.add(&thread(d), 800);
    (d.utime, d.stime) = (1, 1);
    group.add(&thread(d), 0);
    let on_cpu = group.ledger(&ticks).ledger.on_cpu;
    assert_eq!((on_cpu.user, on_cpu.kernel), (600 + 400, 200 + 400));
}

#[test]
fn a_session_without_end_forgets_groups_and_their_threads() {
    let mut a = Accounts::new(START, 1_000_000_000);
    a.follow_ancestors();
    a.thread(&born(1, PARENT, 1, "shell", START));
    let mut id = 1;
    let mut sizes = Vec::new();
    for window in 1..=12 {
        // Long after the shell's start, and with names that come once.
        let start = START + window * 20_000_000_000;
        for n in 0..N {
            id += 1;
            let name = format!("job-{window}-{}", n % 50);
            a.thread(&born(id, 100 + id as u32, PARENT, &name, start + n));
            a.last_dump(&life(id, 100 + id as u32, &name, start + n));
            if n % 1_000 == 0 {
                a.tick(start + n + 10_000);
                a.fold();
            }
        }
        let end = start + 10_000_000_000;
        a.tick(end);
        a.drop_told();
        let parts = a.take_snapshot(end);
        let on_cpu: u64 = parts.iter().map(|(_, c)| c.ledger.on_cpu.total()).sum();
        let expected: u64 = (id + 1 - N..=id).map(|id| id % 1000 + 10).sum();
        assert_eq!(on_cpu, expected);
        let groups = a.take_folded_processes();
        let folded = |groups: &[Process]| groups.iter().map(|p| p.folded_threads).sum::<u64>();
        assert!((1..=N).contains(&folded(&groups)), "{groups:?}");
        assert_eq!(folded(&a.take_folded_processes()), 0);
        assert!(groups.iter().all(|p| p.parent == PARENT), "{groups:?}");
        sizes.push((groups.len(), a.by_id.len(), a.threads.len()));
    }
    for (groups, known, places) in &sizes[2..] {
        assert!(*groups <= 100, "{sizes:?}");
        assert!(
            *known < 2 * N as usize && *places < 2 * N as usize,
            "{sizes:?}"
        );
    }
    assert_eq!(sizes[3], sizes[11], "{sizes:?}");
}
