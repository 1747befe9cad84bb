//! Windows over made-up lives.

use std::fs::File;

use wallscope_unwind::native::Registers;

use super::*;
use crate::{backend::perf::Running, period_jitter::PeriodJitter};

const MS: u64 = 1_000_000;
const PERIOD: u64 = 10 * MS;
const RINGS: usize = 2;

fn event() -> OwnedFd {
    File::open("/dev/null").expect("every system has it").into()
}

fn sample(tid: u32, period_ns: u64) -> Record {
    Record::Sample(Box::new(Running {
        pid: 1,
        tid,
        period_ns,
        cpu: None,
        user_mode: true,
        registers: Registers::default(),
        stack: Vec::new(),
        below: Vec::new(),
        managed: None,
        late: false,
        moved: None,
        first: None,
    }))
}

fn first(
    newborns: &mut Newborns,
    ring: usize,
    time: u64,
    mut record: Record,
) -> Option<FirstSample> {
    assert!(newborns.observe(ring, time, &mut record) || matches!(record, Record::Sample(_)));
    match record {
        Record::Sample(r) => r.first,
        _ => None,
    }
}

/// With so many lives of `life` behind it.
fn known(life: u64) -> Newborns {
    let mut newborns = Newborns::default();
    for _ in 0..2 * MIN_LIVES {
        newborns.ended(9, life, PERIOD);
    }
    newborns.made(7, 0);
    newborns.made(8, 0);
    newborns
}

#[test]
fn there_are_no_windows_without_short_lives_or_makers() {
    let mut newborns = Newborns::default();
    newborns.made(7, 0);
    assert_eq!(newborns.next(MS, PERIOD, RINGS), None);
    for _ in 0..2 * MIN_LIVES {
        newborns.ended(9, 2 * PERIOD, PERIOD);
    }
    assert_eq!(
        newborns.next(MS, PERIOD, RINGS),
        None,
        "these are sampled anyway"
    );
    let mut newborns = known(MS);
    newborns.ended(7, MS, PERIOD);
    newborns.ended(8, MS, PERIOD);
    assert_eq!(
        newborns.next(MS, PERIOD, RINGS),
        None,
        "nobody makes threads"
    );
    let mut newborns = known(MS);
    assert!(newborns.next(MS, PERIOD, RINGS).is_some());
    assert_eq!(newborns.next(3 * REVIEW, PERIOD, RINGS), None, "long ago");
}

#[test]
fn the_range_is_that_of_nearly_all_that_is_computed() {
    let mut lives = ShortLives::default();
    (0..1000).for_each(|_| lives.add(300_000));
    assert_eq!(lives.range_ns(), 1 << 19);
    lives.add(5 * MS);
    assert_eq!(lives.range_ns(), 1 << 19, "one part in 60");
    lives.add(5 * MS);
    assert_eq!(lives.range_ns(), 1 << 23);
}

/// Of 400 lives of 0.3 ms and 4 of 8 ms, a fifth of the time computed is in the long ones.
#[test]
fn a_few_long_lives_leave_most_windows_to_the_short_ones() {
    let mut lives = ShortLives::default();
    (0..400).for_each(|_| lives.add(300_000));
    (0..4).for_each(|_| lives.add(8 * MS));
    let range = lives.range_ns();
    assert_eq!(range, 1 << 23);
    let drawn: Vec<(u64, f64)> = (0..1000u32)
        .map(|n| lives.age_at((f64::from(n) + 0.5) / 1000.0, range))
        .collect();
    assert!(drawn.is_sorted_by_key(|(age, _)| *age) && drawn[999].0 <= range);
    let met = drawn.iter().filter(|(age, _)| *age < 300_000).count();
    assert!((300..600).contains(&met), "{met} of 1000");
    // The samples stand for all computing, of short lives and of long ones.
    let estimate = |lives: f64, length: u64| -> f64 {
        let met = drawn.iter().filter(|(age, _)| *age < length);
        met.map(|(_, density)| lives / density / 1000.0).sum()
    };
    for (lives, length) in [(400.0, 300_000), (4.0, 8 * MS)] {
        let ratio = estimate(lives, length) / (lives * length as f64);
        assert!(
            (0.98..1.02).contains(&ratio),
            "{ratio:.3} of lives of {length} ns"
        );
    }
}

/// Threads compute `a` for a part of their lives and `b` after it, which no single age can tell.
#[test]
fn ages_makers_and_cpus_are_met_evenly() {
    let mut newborns = known(400_000);
    let (mut seen, mut truth) = ([0.0; 2], [0.0; 2]);
    let (mut tid, mut random) = (100, PeriodJitter::seeded(3));
    for poll in 1..=2000u64 {
        let opens = poll * 10 * MS;
        newborns.made(7, opens);
        newborns.made(8, opens);
        let plan = newborns
            .next(opens, PERIOD, RINGS)
            .expect("short lives are known");
        newborns.open(plan, event(), None);
        for born in (0..8).map(|n| opens + n * MS) {
            tid += 1;
            // The second maker's threads, and those on the second CPU, do other work than the rest.
            let (maker, ring) = ([7, 8][tid as usize % 2], tid as usize / 2 % RINGS);
            let life = random.of(300_000, 3);
            newborns.ended(9, life, PERIOD);
            let turns = life / 4 * (1 + u64::from(maker == 7) + u64::from(ring == 0));
            truth[0] += turns as f64;
            truth[1] += (life - turns) as f64;
            if (maker, ring) != (plan.maker, plan.ring) {
                continue;
            }
            first(&mut newborns, ring, born, Record::In { pid: 1, tid });
            // It sleeps for 3 ms in the middle.
            let half = life / 2;
            let at = |age: u64| born + age + if age > half { 3 * MS } else { 0 };
            let mut times: Vec<(u64, Record)> = (1..=life / plan.age_ns)
                .map(|n| (at(n * plan.age_ns), sample(tid, plan.age_ns)))
                .collect();
            let out = Record::Out {
                pid: 1,
                tid,
                preempted: false,
            };
            times.push((born + half + 1, out));
            times.push((born + half + 3 * MS, Record::In { pid: 1, tid }));
            times.sort_by_key(|(time, _)| *time);
            let firsts: Vec<FirstSample> = times
                .into_iter()
                .filter_map(|(time, record)| first(&mut newborns, ring, time, record))
                .collect();
            assert!(firsts.len() <= 1, "one sample a life");
            for f in firsts.iter().filter(|f| f.born_ns.contains(&born)) {
                seen[usize::from(plan.age_ns > turns)] += f.stands_for_ns as f64;
            }
        }
    }
    let share = |[a, b]: [f64; 2]| 100.0 * a / (a + b);
    let off = share(seen) - share(truth);
    assert!(
        off.abs() < 1.0,
        "{:.1} %, truth {:.1} %",
        share(seen),
        share(truth)
    );
    let all = (seen[0] + seen[1]) / (truth[0] + truth[1]);
    assert!((0.97..1.03).contains(&all), "{all:.3} of the time computed");
}

#[test]
fn later_births_and_later_expiries_do_not_count() {
    let mut newborns = known(400_000);
    let plan = newborns
        .next(MS, PERIOD, RINGS)
        .expect("short lives are known");
    newborns.open(plan, event(), None);
    let age = plan.age_ns;
    let mut at = |time, record| first(&mut newborns, plan.ring, time, record);
    at(2 * MS, Record::In { pid: 1, tid: 50 });
    let f = at(2 * MS + age, sample(50, age)).expect("the first");
    assert!(f.born_ns.contains(&(2 * MS)) && !f.born_ns.contains(&(MS / 2)));
    assert_eq!(at(2 * MS + 2 * age, sample(50, age)), None);
    assert_eq!(
        at(2 * MS + age, sample(51, age)),
        None,
        "it never came to this CPU"
    );
    newborns.next(3 * MS, PERIOD, RINGS);
    let mut at = |time, record| first(&mut newborns, plan.ring, time, record);
    at(4 * MS, Record::In { pid: 1, tid: 52 });
    let f = at(4 * MS + age, sample(52, age)).expect("it inherited the event");
    assert!(!f.born_ns.contains(&(4 * MS)), "of the next window");
    // The clock's own samples stay.
    let mut own = sample(50, PERIOD);
    assert!(newborns.observe(plan.ring, 4 * MS, &mut own));
}

#[test]
fn windows_are_closed_in_time() {
    let mut newborns = known(400_000);
    for poll in 1..100 {
        let now = poll * 10 * MS;
        if let Some(plan) = newborns.next(now, PERIOD, RINGS) {
            newborns.open(plan, event(), None);
        }
        let open = newborns.windows.iter().filter(|w| w.event.is_some());
        assert!(open.count() <= 6);
        newborns.made(7, now);
        (0..MIN_LIVES).for_each(|_| newborns.ended(9, MS, PERIOD));
    }
}

#[test]
fn windows_fill_a_ring_no_faster_than_it_is_read() {
    const HALF: u64 = 64 * 4096;
    for life in [50_000, 400_000, 6 * MS] {
        let mut newborns = known(life);
        assert_eq!(newborns.fills_in(HALF), Duration::MAX, "none is open");
        for poll in 1..=1000u64 {
            let opens = poll * 10 * MS;
            newborns.made(7, opens);
            (0..MIN_LIVES).for_each(|_| newborns.ended(9, life, PERIOD));
            let plan = (newborns.next(opens, PERIOD, RINGS)).expect("short lives are known");
            newborns.open(plan, event(), None);
            let rate = plan.bytes_per_second();
            assert!(rate < 125e6, "{plan:?}: {rate}");
            assert!(rate < 40e6 || plan.age_ns < 32_000, "{plan:?}: {rate}");
            assert!(newborns.fills_in(HALF).as_secs_f64() <= HALF as f64 / rate * 1.001);
            let waking = u64::from(plan.samples_each_waking()) * plan.age_ns;
            assert!(waking > MIN_WAKING / 2, "{plan:?}");
        }
    }
}
