//! Tests of the bounds for logs: the last value that is taken, and the first that is not.

use wallscope_observe::{
    EventHits, EventStack, FoundThread, HitsOfEnded, LockWaits, RunnablePoll, RunningSample,
    SchedCounters, StopPlace, StoppedThread,
};
use zerocopy::{FromZeros, IntoBytes};

use super::*;

const START: u64 = 1_000_000_000_000;

fn begin() -> Begin {
    Begin {
        start_ns: START,
        start_unix_ns: 5,
        slice_ns: 10_000_000,
        ..Begin::default()
    }
}

fn times() -> Times {
    Times::new(&begin()).expect("a plain beginning")
}

fn tick(time: u64) -> Observation<'static> {
    Observation::Mark(Mark::Tick { time })
}

/// Whether a log that begins plainly may go on so.
fn takes(observation: &Observation<'_>) -> bool {
    times().take(observation).is_ok()
}

#[test]
fn a_log_begins_with_plain_times() {
    let fits = |change: &dyn Fn(&mut Begin)| {
        let mut b = begin();
        change(&mut b);
        Times::new(&b).is_ok()
    };
    assert!(fits(&|_| {}));
    assert!(!fits(&|b| b.slice_ns = 9_999_999));
    assert!(fits(&|b| b.start_ns = 1 << 62));
    assert!(!fits(&|b| b.start_ns = (1 << 62) + 1));
    let latest = u64::MAX - (1 << 53);
    assert!(fits(&|b| b.start_unix_ns = latest));
    assert!(!fits(&|b| b.start_unix_ns = latest + 1));
}

#[test]
fn times_go_on_by_an_hour_at_most() {
    let hour = 3_600_000_000_000;
    let mut t = times();
    assert!(t.take(&tick(START + hour + 1)).is_err());
    assert!(t.take(&tick(START + hour)).is_ok());
    assert!(t.take(&tick(START + 2 * hour)).is_ok());
    // An earlier moment takes nothing back.
    assert!(t.take(&tick(START)).is_ok());
    assert!(t.take(&tick(START + 3 * hour)).is_ok());
    for mark in [
        Mark::Released {
            pid: 1,
            time: START + 5 * hour,
        },
        Mark::End {
            time: START + 5 * hour,
        },
        Mark::Figures {
            time: START + 5 * hour,
        },
    ] {
        assert!(t.take(&Observation::Mark(mark)).is_err(), "{mark:?}");
    }
}

#[test]
fn a_recording_lasts_104_days_at_most() {
    let mut t = times();
    let end = START + (1 << 53);
    let mut now = START;
    while now < end {
        now = (now + MAX_GAP_NS).min(end);
        assert!(t.take(&tick(now)).is_ok());
    }
    assert!(t.take(&tick(end + 1)).is_err());
}

fn books_with(change: impl Fn(&mut Dump)) -> Dump {
    let mut d = Dump::new_zeroed();
    (d.now, d.birth, d.since) = (START + 10, START, START);
    change(&mut d);
    d
}

#[test]
fn no_sum_of_a_thread_exceeds_the_time_that_there_was() {
    let places: [fn(&mut Dump) -> &mut u64; 11] = [
        |d| &mut d.acc.on_cpu,
        |d| &mut d.acc.irq,
        |d| &mut d.acc.stolen,
        |d| &mut d.acc.limbo,
        |d| &mut d.acc.repaired,
        |d| &mut d.stretch,
        |d| &mut d.block,
        |d| &mut d.acc.runnable[0],
        |d| &mut d.acc.runnable[2],
        |d| &mut d.acc.blocked[0],
        |d| d.acc.blocked.last_mut().expect("reasons"),
    ];
    for (i, place) in places.iter().enumerate() {
        for (ns, fits) in [(MAX_GAP_NS, true), (MAX_GAP_NS + 1, false)] {
            let d = books_with(|d| *place(d) = ns);
            let bytes = d.as_bytes();
            assert_eq!(takes(&Observation::Books(bytes)), fits, "place {i}");
            assert_eq!(takes(&Observation::LastBooks(bytes)), fits);
            assert_eq!(takes(&Observation::FirstBooks(bytes)), fits);
        }
    }
    // The kernel's own counters only audit.
    assert!(takes(&Observation::Books(
        books_with(|d| d.kernel_exec = u64::MAX).as_bytes()
    )));
    // The estimator counts a record that is too short.
    assert!(takes(&Observation::Books(&[1, 2, 3])));
}

#[test]
fn no_time_of_a_thread_lies_beyond_the_log() {
    let late = START + MAX_GAP_NS + 1;
    let times: [fn(&mut Dump) -> &mut u64; 3] =
        [|d| &mut d.now, |d| &mut d.birth, |d| &mut d.since];
    for time in times {
        for (at, fits) in [(late - 1, true), (late, false)] {
            let mut d = books_with(|d| *time(d) = at);
            d.head.kind = kind::EXIT;
            assert_eq!(takes(&Observation::Books(d.as_bytes())), fits);
            assert_eq!(takes(&Observation::Event(d.as_bytes())), fits);
            d.head.kind = kind::THREAD;
            assert!(takes(&Observation::Event(d.as_bytes())));
        }
    }
}

#[test]
fn samples_and_turns_lie_within_the_log() {
    let sample = |ns, end| {
        let mut s = SampleEvent::new_zeroed();
        (s.head.kind, s.ns, s.end) = (kind::SAMPLE, ns, end);
        takes(&Observation::Event(s.as_bytes()))
    };
    let last = START + MAX_GAP_NS;
    assert!(sample(MAX_GAP_NS, last));
    assert!(!sample(MAX_GAP_NS + 1, last));
    assert!(!sample(5, last + 1));
    let turn = |time| {
        let mut t = Turn::new_zeroed();
        t.time = time;
        takes(&Observation::Turn(t.as_bytes()))
    };
    assert!(turn(last) && !turn(last + 1));
    assert!(takes(&Observation::Turn(&[0])) && takes(&Observation::Event(&[0])));
}

#[test]
fn connections_locks_and_events_have_bounds_too() {
    let socket = |in_flight| {
        let mut s = SocketRecord::new_zeroed();
        s.in_flight = in_flight;
        let alone = takes(&Observation::Socket(s.as_bytes()));
        let mut event = [0; 8].to_vec();
        event[..4].copy_from_slice(&kind::SOCKET.to_ne_bytes());
        event.extend(s.as_bytes());
        assert_eq!(takes(&Observation::Event(&event)), alone);
        alone
    };
    assert!(socket(1 << 53) && !socket((1 << 53) + 1));
    let lock = |total_ns, count| {
        takes(&Observation::LockWaits(LockWaits {
            record: 1,
            address: 2,
            call: 3,
            total_ns,
            longest_ns: u64::MAX,
            count,
            name: "".into(),
        }))
    };
    assert!(lock(MAX_GAP_NS, MAX_GAP_NS));
    assert!(!lock(MAX_GAP_NS + 1, 0) && !lock(0, MAX_GAP_NS + 1));
    let hits = |hits| {
        takes(&Observation::EventHits(EventHits {
            event: 0,
            record: 1,
            hits,
        }))
    };
    assert!(hits(1 << 53) && !hits((1 << 53) + 1));
}

#[test]
fn polls_and_samples_without_kernel_programs_have_bounds_too() {
    let hour = 3_600_000_000_000;
    let sample = |time, ns| {
        Observation::RunningSample(RunningSample {
            thread: 1,
            stack: 0,
            time,
            ns,
            user_mode: true,
        })
    };
    assert!(takes(&sample(START + hour, hour)));
    assert!(!takes(&sample(START + hour + 1, 0)));
    assert!(!takes(&sample(START, MAX_WINDOW_NS + 1)));
    let at_event = |hits| {
        Observation::EventStack(EventStack {
            event: 0,
            thread: 1,
            stack: 0,
            time: START,
            hits,
            user_mode: true,
        })
    };
    assert!(takes(&at_event(MAX_WINDOW_NS)));
    assert!(!takes(&at_event(MAX_WINDOW_NS + 2)));
    let of_ended = |hits| {
        Observation::HitsOfEnded(HitsOfEnded {
            event: 0,
            thread: 1,
            hits,
        })
    };
    assert!(takes(&of_ended(MAX_WINDOW_NS)));
    assert!(!takes(&of_ended(MAX_WINDOW_NS + 2)));
    let stop = |poll_end, time| {
        let poll = RunnablePoll {
            thread: 1,
            due: START,
            time: START,
            counters: SchedCounters::default(),
            left: None,
            woken_from: None,
            behind: false,
            begin: START,
            end: poll_end,
        };
        Observation::StoppedThread(StoppedThread {
            poll,
            time,
            counters: SchedCounters::default(),
            found: FoundThread::Halted {
                in_call: false,
                left: None,
                place: StopPlace::Computing,
                stack: 0,
            },
        })
    };
    assert!(takes(&stop(START + hour, START + hour)));
    assert!(!takes(&stop(START + hour + 1, START)));
    assert!(!takes(&stop(START, START + hour + 1)));
}
