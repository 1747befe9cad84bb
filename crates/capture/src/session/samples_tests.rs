//! Tests of the way of a sample: its key, its stack, its slices, and the counts that bound memory.

use wallscope_model::histogram::Histogram;
use zerocopy::FromZeros;

use super::*;

const GRID: Slices = Slices {
    start_ns: 1000,
    width_ns: 100,
    count: 0,
};

/// A sample of thread 1 of process 7 with user stack 99. Its weight is its length.
fn event(st: u8, begin: u64, end: u64) -> SampleEvent {
    let mut s = SampleEvent::new_zeroed();
    (s.id, s.pid, s.state, s.ustack) = (1, 7, st, 99);
    (s.begin, s.end, s.ns, s.count) = (begin, end, end.saturating_sub(begin), 1);
    s
}

fn deferred(ticket: u64, begin: u64, end: u64) -> SampleEvent {
    SampleEvent {
        flags: SAMPLE_DEFERRED,
        ustack: ticket,
        ..event(state::BLOCKED, begin, end)
    }
}

fn read(id: u64, ticket: u64, hash: u64) -> Resolve {
    let mut r = Resolve::new_zeroed();
    (r.id, r.ticket, r.ustack) = (id, ticket, hash);
    r
}

/// The key of one sample.
fn key_of(s: &SampleEvent) -> SampleKey {
    let mut all = Samples::new(GRID);
    all.sample(s);
    all.finish(9).remove(0).0
}

/// Slice, count and weight of one sample's parts.
fn parts(s: &SampleEvent, grid: Slices) -> Vec<(u32, u64, u64)> {
    let mut slices = Vec::new();
    spread(&mut slices, grid, s);
    slices.iter().map(|v| (v.slice, v.count, v.ns)).collect()
}

#[test]
fn each_field_of_a_sample_has_its_place_in_the_key() {
    let plain = SampleKey {
        id: 1,
        former: 0,
        resource: 5,
        kernel: 6,
        user: UserPart::Hash(99),
        code: 0,
        state: state::BLOCKED,
        detail: 3,
        user_mode: false,
        cpu: None,
        in_flight: false,
        awaits: false,
        talks: false,
    };
    let mut s = event(state::BLOCKED, 1000, 1100);
    (s.resource, s.kstack, s.detail, s.cpu) = (5, 6, 3, 2);
    assert_eq!(key_of(&s), plain);
    for (flags, expected) in [
        (
            SAMPLE_IN_FLIGHT,
            SampleKey {
                in_flight: true,
                ..plain
            },
        ),
        (
            SAMPLE_AWAITS,
            SampleKey {
                awaits: true,
                ..plain
            },
        ),
        (
            SAMPLE_TALKS,
            SampleKey {
                talks: true,
                ..plain
            },
        ),
        // A blocked thread is in the kernel, whatever it was in before.
        (SAMPLE_USER_MODE, plain),
    ] {
        assert_eq!(key_of(&SampleEvent { flags, ..s }), expected);
    }
    for st in [state::ON_CPU, state::HIT] {
        let on_cpu = SampleKey {
            state: st,
            cpu: Some(2),
            ..plain
        };
        assert_eq!(key_of(&SampleEvent { state: st, ..s }), on_cpu);
        let flags = SAMPLE_USER_MODE;
        let in_user_mode = SampleKey {
            user_mode: true,
            ..on_cpu
        };
        assert_eq!(
            key_of(&SampleEvent {
                state: st,
                flags,
                ..s
            }),
            in_user_mode
        );
    }
}

#[test]
fn a_missing_stack_has_its_reason() {
    let s = event(state::BLOCKED, 1000, 1100);
    let of_kernel = SampleEvent {
        flags: SAMPLE_NO_USER,
        ..s
    };
    let unread = SampleEvent { ustack: 0, ..s };
    let missing = UserPart::Missing;
    assert_eq!(key_of(&of_kernel).user, missing(StackEnd::KernelOnly));
    assert_eq!(key_of(&unread).user, missing(StackEnd::Gone));
    let mut all = Samples::new(GRID);
    all.sample(&deferred(4, 1000, 1100));
    all.resolve(&read(1, 4, 0));
    let sums = all.finish(9);
    assert_eq!(sums[0].0.user, missing(StackEnd::Gone));
    // The stack was read, and there was none: that is no unresolved ticket.
    assert_eq!(all.unresolved, 0);
}

#[test]
fn samples_belong_to_the_program_that_ran_when_they_were_taken() {
    let mut all = Samples::new(GRID);
    all.sample(&deferred(4, 1000, 1100));
    all.exec(7);
    all.exec(8);
    all.sample(&event(state::BLOCKED, 1100, 1200));
    all.exec(7);
    all.sample(&event(state::BLOCKED, 1200, 1300));
    all.resolve(&read(1, 4, 99));
    let sums = all.finish(9);
    let former: Vec<_> = sums.iter().map(|(k, sum)| (k.former, sum.ns)).collect();
    assert_eq!(former, [(0, 100), (1, 100), (2, 100)]);
}

#[test]
fn only_stacks_outside_files_have_a_version_of_their_addresses() {
    let versions = |unfiled: bool, changes: &[CodeChanges]| {
        let mut all = Samples::new(GRID);
        if unfiled {
            all.unfiled(99);
        }
        assert_eq!((all.is_unfiled(99), all.is_unfiled(98)), (unfiled, false));
        changes.iter().for_each(|c| all.changed(c));
        all.sample(&event(state::ON_CPU, 1000, 1150));
        all.finish(9).remove(0).0.code
    };
    let change = |pid, kept, times: &[u64]| CodeChanges {
        pid,
        kept,
        times: times.to_vec(),
    };
    let known = change(7, 0, &[1010, 1100, 1200]);
    assert_eq!(versions(true, std::slice::from_ref(&known)), 1100);
    assert_eq!(versions(false, std::slice::from_ref(&known)), 0);
    assert_eq!(versions(true, &[change(8, 0, &[1100])]), 0);
    // One stays of those that were known, and others follow it.
    assert_eq!(
        versions(true, &[known.clone(), change(7, 1, &[1120])]),
        1120
    );
    assert_eq!(versions(true, &[known, change(7, 1, &[1160])]), 1010);
}

#[test]
fn a_stack_read_ahead_is_known_until_its_wait_is_charged() {
    let mut all = Samples::new(GRID);
    assert_eq!(all.read_ahead(1), None);
    all.resolve(&read(1, 4, 50));
    assert_eq!(all.read_ahead(1), Some(UserPart::Hash(50)));
    assert!(!all.is_awaited(4));
    all.sample(&deferred(4, 1000, 1100));
    assert!(all.is_awaited(4));
    all.resolve(&read(1, 4, 60));
    assert_eq!((all.read_ahead(1), all.is_awaited(4)), (None, false));
    assert_eq!(all.done[0].0.user, UserPart::Hash(60));
    // Nothing was read ahead: a hash of 0 is no stack.
    all.resolve(&read(1, 5, 0));
    assert_eq!(all.read_ahead(1), None);
}

#[test]
fn stacks_read_ahead_serve_waits_that_are_open_at_the_end() {
    let mut all = Samples::new(GRID);
    all.resolve(&read(1, 4, 50));
    all.sample(&deferred(4, 1000, 1100));
    // A request's sender that was never read is no sample without a stack.
    let asked = SampleEvent {
        state: state::ASKED,
        ..deferred(5, 77, 1100)
    };
    all.sample(&asked);
    let sums = all.finish(9);
    assert_eq!((sums.len(), all.unresolved), (1, 0));
    assert_eq!(sums[0].0.user, UserPart::Hash(50));
}

#[test]
fn stacks_read_ahead_are_given_in_one_order_whatever_came_first() {
    let told = |ids: &mut dyn Iterator<Item = u64>| {
        let mut all = Samples::new(GRID);
        for id in ids {
            all.resolve(&read(id, 1000 + id, 50));
            all.sample(&SampleEvent {
                id,
                ..deferred(1000 + id, 1000, 1100)
            });
        }
        all.finish(9);
        let ids = all.done.iter().map(|(key, _)| key.id);
        ids.collect::<Vec<_>>()
    };
    let ascending: Vec<_> = (1..=100).collect();
    assert_eq!(told(&mut (1..=100)), ascending);
    assert_eq!(told(&mut (1..=100).rev()), ascending);
}

#[test]
fn a_sent_request_is_no_time() {
    let mut all = Samples::new(GRID);
    all.each = Some(Vec::new());
    all.sample(&event(state::ASKED, 1000, 1100));
    assert_eq!((all.rows(), all.done.len(), all.open.len()), (0, 0, 0));
    assert_eq!(all.each.as_ref().map(Vec::len), Some(0));
    assert!(all.finish(9).is_empty());
}

#[test]
fn waits_that_are_over_have_wakers_and_others_are_open() {
    let mut all = Samples::new(GRID);
    all.each = Some(Vec::new());
    let open = SAMPLE_OPEN;
    for (st, flags) in [
        (state::ON_CPU, 0),
        (state::RUNNABLE, 0),
        (state::BLOCKED, 0),
        (state::BLOCKED, open),
        (state::RUNNABLE, open),
        (state::ON_CPU, open),
        (state::HIT, 0),
    ] {
        all.sample(&SampleEvent {
            flags,
            ..event(st, 1000, 1000 + u64::from(st))
        });
    }
    let done: Vec<_> = all.done.iter().map(|(key, _)| key.state).collect();
    assert_eq!(done, [state::ON_CPU, state::RUNNABLE, state::BLOCKED]);
    assert_eq!(all.open.len(), 1);
    assert_eq!(all.open[0].1.flags, open);
    // Moments are those of time, not of events.
    let each = all.each.take().unwrap();
    assert_eq!(each.len(), 6);
    assert_eq!(each[1].1, [1000, 1002, 2, 1]);
}

#[test]
fn equal_samples_are_added_up() {
    let mut all = Samples::new(GRID);
    let s = SampleEvent {
        count: 3,
        ns: 30,
        ..event(state::BLOCKED, 1000, 1010)
    };
    all.sample(&s);
    all.sample(&SampleEvent { end: 1020, ..s });
    all.sample(&SampleEvent { kstack: 1, ..s });
    // An interval without a length tells no length.
    all.sample(&SampleEvent { end: 1000, ..s });
    let sums = all.finish(9);
    let counts: Vec<_> = sums.iter().map(|(_, sum)| (sum.count, sum.ns)).collect();
    assert_eq!(counts, [(9, 90), (3, 30)]);
    let mut lengths = Histogram::new(FINE);
    // A weight of 30 in an interval of 10: it was met three times as often as its length would have it.
    lengths.add(10, 3.0);
    lengths.add(20, 1.5);
    assert_eq!(sums[0].1.lengths, lengths);
}

#[test]
fn time_on_a_cpu_has_no_lengths() {
    let mut all = Samples::new(GRID);
    all.sample(&event(state::ON_CPU, 1000, 1010));
    all.sample(&event(state::RUNNABLE, 1000, 1010));
    let sums = all.finish(9);
    let counts: Vec<_> = sums.iter().map(|(_, sum)| sum.lengths.count()).collect();
    assert_eq!(counts, [0.0, 1.0]);
}

#[test]
fn rows_count_the_values_by_slice() {
    let mut all = Samples::new(GRID);
    all.sample(&event(state::BLOCKED, 1050, 1350));
    assert_eq!(all.rows(), 4);
    all.sample(&event(state::BLOCKED, 1350, 1450));
    assert_eq!(all.rows(), 5);
    all.sample(&event(state::RUNNABLE, 1450, 1460));
    assert_eq!(all.rows(), 6);
    all.coarsen();
    assert_eq!(all.rows(), 4);
    all.sample(&event(state::BLOCKED, 1500, 1700));
    assert_eq!(all.rows(), 5);
    let sums = all.finish(9);
    let slices: Vec<_> = (sums.iter())
        .map(|(_, sum)| {
            let parts = sum.slices.iter().map(|v| (v.slice, v.count, v.ns));
            parts.collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(slices[0], [(2, 1, 10)]);
    assert_eq!(
        slices[1],
        [(0, 0, 150), (1, 1, 200), (2, 1, 150), (3, 1, 100)]
    );
}

#[test]
fn samples_are_taken_out_once() {
    let mut all = Samples::new(GRID);
    all.sample(&event(state::BLOCKED, 1000, 1100));
    all.sample(&deferred(4, 1100, 1200));
    let taken = all.take();
    assert_eq!((taken.len(), taken[0].1.ns), (1, 100));
    assert_eq!((all.rows(), all.done.len()), (0, 0));
    assert!(all.take().is_empty());
    all.resolve(&read(1, 4, 99));
    assert_eq!(all.take()[0].1.ns, 100);
}

#[test]
fn a_weight_is_divided_over_slices_by_time_and_its_count_is_in_the_last() {
    let s = SampleEvent {
        ns: 1000,
        count: 7,
        ..event(state::BLOCKED, 1050, 1250)
    };
    assert_eq!(parts(&s, GRID), [(0, 0, 250), (1, 0, 500), (2, 7, 250)]);
    // An end at the edge of a slice is within the one before.
    let to_edge = SampleEvent { end: 1200, ..s };
    assert_eq!(parts(&to_edge, GRID), [(0, 0, 333), (1, 7, 667)]);
    // Time before the window counts from the start of the window.
    let early = SampleEvent { begin: 500, ..s };
    assert_eq!(parts(&early, GRID), [(0, 0, 400), (1, 0, 400), (2, 7, 200)]);
    for (begin, end) in [(1150, 1150), (1300, 1150)] {
        let point = SampleEvent { begin, end, ..s };
        assert_eq!(parts(&point, GRID), [(1, 7, 1000)]);
    }
    let at_edge = SampleEvent {
        begin: 1200,
        end: 1200,
        ..s
    };
    assert_eq!(parts(&at_edge, GRID), [(2, 7, 1000)]);
    let before = SampleEvent {
        begin: 500,
        end: 600,
        ..s
    };
    assert_eq!(parts(&before, GRID), [(0, 7, 1000)]);
    assert!(
        parts(
            &s,
            Slices {
                width_ns: 0,
                ..GRID
            }
        )
        .is_empty()
    );
}

#[test]
fn a_part_in_the_slice_of_the_last_one_is_added_to_it() {
    let mut slices = Vec::new();
    spread(&mut slices, GRID, &event(state::BLOCKED, 1000, 1150));
    spread(&mut slices, GRID, &event(state::BLOCKED, 1160, 1180));
    spread(&mut slices, GRID, &event(state::BLOCKED, 1020, 1030));
    let got: Vec<_> = slices.iter().map(|v| (v.slice, v.count, v.ns)).collect();
    assert_eq!(got, [(0, 0, 100), (1, 2, 70), (0, 1, 10)]);
    SliceValue::merge(&mut slices);
    let got: Vec<_> = slices.iter().map(|v| (v.slice, v.count, v.ns)).collect();
    assert_eq!(got, [(0, 1, 110), (1, 2, 70)]);
}

#[test]
fn slices_after_the_window_are_its_last() {
    let mut all = Samples::new(GRID);
    all.sample(&event(state::BLOCKED, 1100, 1400));
    let sums = all.finish(2);
    let got: Vec<_> = (sums[0].1.slices.iter())
        .map(|v| (v.slice, v.count, v.ns))
        .collect();
    assert_eq!(got, [(1, 0, 100), (2, 1, 200)]);
}
