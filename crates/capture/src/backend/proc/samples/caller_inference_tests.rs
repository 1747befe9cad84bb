//! Waits of which only the innermost frame was seen find their callers.

use wallscope_model::{BlockReason, Slices, StackEnd, State, WaitSeen};
use wallscope_unwind::native::FrameWord;

use super::{Known, PollSample, Polled, Samples, Weight, WeightScope};
use crate::{backend::perf::wait_strata::WaitStrata, session::address_scope::AddressScope};

const GRID: Slices = Slices {
    start_ns: 0,
    width_ns: 1_000_000,
    count: 0,
};

fn poll(stack: u32, reason: BlockReason, weight: Weight, ns: u64) -> PollSample {
    PollSample {
        thread: 0,
        stack,
        state: State::Blocked,
        reason: Some(reason),
        part: None,
        begin: 0,
        end: 100,
        ns,
        weight,
        seen: WaitSeen::default(),
    }
}

#[test]
fn callers_are_those_of_the_same_place_and_depth() {
    let mut s = Samples::default();
    let scope = AddressScope { pid: 1, code: 0 };
    let mut stack = |words: &[u64], end| {
        let frames: Vec<FrameWord> = words.iter().map(|w| FrameWord(*w)).collect();
        s.stack(Polled::of(scope, &frames, Box::default(), end))
    };
    // Two ways into one function, and the function alone.
    let (one, other) = (
        stack(&[7, 8], StackEnd::Root),
        stack(&[7, 9], StackEnd::Root),
    );
    let alone = stack(&[7], StackEnd::Lost);
    s.stands_at(0, one, 0x100);
    s.stands_at(0, other, 0x200);
    let (short, long) = (14, 22);
    let wait = |class| WeightScope::Wait { class, late: false };
    let at = |sp, of| Weight::Innermost { sp, of };
    s.add(GRID, &poll(one, BlockReason::Disk, wait(short).into(), 100));
    s.add(
        GRID,
        &poll(other, BlockReason::Disk, wait(long).into(), 100),
    );
    for (sp, reason, ns) in [
        (0x100, BlockReason::Disk, 300),
        // Its way was seen in long waits only.
        (0x200, BlockReason::Disk, 40),
        // Neither of this depth nor for this reason was one seen whole.
        (0x300, BlockReason::Disk, 5),
        (0x100, BlockReason::Pipe, 6),
    ] {
        s.add(GRID, &poll(alone, reason, at(sp, wait(short)), ns));
    }
    s.by_thread();
    let mut waits = WaitStrata::default();
    waits.add(451);
    waits.add(5_000_000);
    let known = Known {
        waits: &waits,
        woken: 0,
        preempted: 0,
    };
    s.settle(0, known);
    let time = |stack, reason| {
        let own = s.sums.by_key.iter().filter(|(k, _)| k.1 == stack);
        own.filter(|(k, _)| k.3 == Some(reason))
            .map(|(_, sum)| sum.ns)
            .sum::<u64>()
    };
    assert_eq!(time(one, BlockReason::Disk), 400);
    // The time of a long wait goes to the stack that was seen in long waits, and is not shared.
    assert_eq!(time(other, BlockReason::Disk), 5_000_000 + 40);
    assert_eq!(time(alone, BlockReason::Disk), 5);
    assert_eq!(time(alone, BlockReason::Pipe), 6);
}

#[test]
fn polls_of_counters_find_callers_too() {
    let mut s = Samples::default();
    let scope = AddressScope { pid: 1, code: 0 };
    let mut stack =
        |frames: &[FrameWord], end| s.stack(Polled::of(scope, frames, Box::default(), end));
    let whole = stack(&[FrameWord(7), FrameWord(8)], StackEnd::Root);
    let alone = stack(&[FrameWord(7)], StackEnd::Lost);
    s.stands_at(0, whole, 0x100);
    let lost = Weight::Innermost {
        sp: 0x100,
        of: WeightScope::Own,
    };
    s.add(GRID, &poll(whole, BlockReason::Disk, Weight::Own, 10));
    s.add(GRID, &poll(alone, BlockReason::Disk, lost, 30));
    s.by_thread();
    let known = Known {
        waits: &WaitStrata::default(),
        woken: 0,
        preempted: 0,
    };
    s.settle(0, known);
    let sums: Vec<(u32, u64)> = s.sums.by_key.iter().map(|(k, sum)| (k.1, sum.ns)).collect();
    assert_eq!(sums, [(whole, 40)]);
}

#[test]
fn a_poll_counts_for_one_stack_whatever_maps_held_before() {
    let settled = |before: u32| {
        let mut s = Samples::default();
        (0..before).for_each(|n| s.add(GRID, &poll(n, BlockReason::Timer, Weight::Own, 1)));
        s.forget();
        let scope = AddressScope { pid: 1, code: 0 };
        for n in 1..=20u64 {
            let mut stack = |words: &[u64], end| {
                let frames: Vec<FrameWord> = words.iter().map(|w| FrameWord(*w)).collect();
                s.stack(Polled::of(scope, &frames, Box::default(), end))
            };
            let whole = [[n, 100], [n, 101]].map(|words| stack(&words, StackEnd::Root));
            let alone = stack(&[n], StackEnd::Lost);
            for stack in whole {
                s.stands_at(0, stack, n);
                s.add(GRID, &poll(stack, BlockReason::Disk, Weight::Own, 10));
            }
            let lost = Weight::Innermost {
                sp: n,
                of: WeightScope::Own,
            };
            s.add(GRID, &poll(alone, BlockReason::Disk, lost, 30));
        }
        s.by_thread();
        let known = Known {
            waits: &WaitStrata::default(),
            woken: 0,
            preempted: 0,
        };
        s.settle(0, known);
        let sums = s
            .sums
            .by_key
            .iter()
            .map(|(key, sum)| (key.1, sum.count, sum.ns));
        let mut sums: Vec<(u32, u64, u64)> = sums.collect();
        sums.sort_unstable();
        sums
    };
    let alone = settled(0);
    assert_eq!(alone.iter().map(|s| s.1).sum::<u64>(), 60);
    assert_eq!(alone, settled(5000));
}
