//! `perf.data` of every layout that `perf_event.h` describes, made here with known sums.
//!
//! Fields of samples, formats of counters, number of events, byte order and framing (with a header, or
//! as written to a pipe) are drawn at random; each event's stacks must come out with their exact sums.

use std::collections::BTreeMap;

use crate::perf_writer::*;
use crate::support::{fold, read, read_value, try_read};
use wallscope_formats::ReadError;
use wallscope_model::{StackEnd, State, Unit};
use wallscope_synthetic::Random;

#[test]
fn every_layout_gives_the_sums_that_were_written() {
    for seed in 0..400 {
        let mut random = Random(seed * 7919 + 1);
        let mut events = events(&mut random);
        let layout = drawn(&mut random, events.len());
        let records = records(&layout, &mut random, &mut events);
        let bytes = match random.below(2) {
            0 => with_header(&layout, &records, &events),
            _ => to_pipe(&layout, &records, &events),
        };
        for e in &events {
            let context = format!(
                "seed {seed}, {}, sample_type {:#x}, read_format {:#x}",
                e.name, layout.sample, layout.reading
            );
            match read_value(&bytes, &e.name) {
                Ok(read) => {
                    assert_eq!(fold(&read.recording), e.expected, "{context}");
                    let damaged = read
                        .warnings
                        .iter()
                        .any(|w| w.contains("could not be read"));
                    assert!(!damaged, "{context}: {:?}", read.warnings);
                }
                Err(error) => assert!(
                    e.expected.is_empty() && error == ReadError::NoValues,
                    "{context}: {error}"
                ),
            }
        }
    }
}

fn plain(sample: u64) -> Layout {
    Layout {
        big: false,
        sample,
        reading: 0,
        branch: 0,
        user_registers: 0,
        interrupt_registers: 0,
        fixed_period: 1000,
        trailer: true,
    }
}

fn event(name: &str, (kind, config): (u32, u64), id: u64) -> Event {
    Event {
        name: name.to_string(),
        kind,
        config,
        id,
        counter: 0,
        expected: BTreeMap::new(),
    }
}

#[test]
fn fields_that_are_unknown_are_no_guess() {
    let mut random = Random(3);
    for (sample, reading) in [(IP | TID | 1 << 25, 0), (IP | TID | READ, 1 << 5)] {
        let mut layout = plain(sample);
        let mut events = vec![event("cycles", (0, 0), 5)];
        let records = records(&layout, &mut random, &mut events);
        layout.reading = reading;
        let error = try_read(&with_header(&layout, &records, &events)).unwrap_err();
        assert!(matches!(error, ReadError::UnknownLayout { .. }), "{error}");
        assert!(error.to_string().contains("further fields"), "{error}");
    }
    // Without its identity a sample may be of either event.
    let layout = plain(IP | TID);
    let mut events = vec![event("cycles", (0, 0), 5), event("instructions", (0, 1), 6)];
    let records = records(&layout, &mut random, &mut events);
    let error = try_read(&with_header(&layout, &records, &events)).unwrap_err();
    assert!(matches!(error, ReadError::UnknownLayout { .. }), "{error}");
}

/// The events of a hybrid CPU's two kinds of core, as perf names them.
#[test]
fn events_of_a_hybrid_cpu_stay_apart_and_add_up_where_that_is_asked_for() {
    let mut random = Random(11);
    let layout = plain(IP | TID | TIME | PERIOD | IDENTIFIER | CALLCHAIN);
    let names = [
        ["cpu_core/cycles/", "cpu_atom/cycles/"],
        ["cpu_core/cycles/P", "cpu_atom/cpu-cycles/P"],
        ["cycles:P", "cycles:P"],
    ];
    for names in names {
        let mut events = vec![
            event(names[0], (0, 4 << 32), 5),
            event(names[1], (0, 10 << 32), 6),
        ];
        let records = records(&layout, &mut random, &mut events);
        let bytes = with_header(&layout, &records, &events);
        let own = |e: &Event| e.expected.values().sum::<u64>();
        let (core, atom) = (own(&events[0]), own(&events[1]));
        let first = read(&bytes);
        assert_eq!(fold(&first.recording).values().sum::<u64>(), core);
        assert!(
            first
                .warnings
                .iter()
                .any(|w| w.contains("--value cycles adds them up")),
            "{:?}",
            first.warnings
        );
        let sum = read_value(&bytes, "cycles").unwrap();
        assert_eq!(fold(&sum.recording).values().sum::<u64>(), core + atom);
        assert_eq!(sum.recording.domain.unit, Unit::Count("cycles".to_string()));
        let said = &sum.warnings[0];
        assert!(
            said.contains(&core.to_string()) && said.contains(&atom.to_string()),
            "{said}"
        );
        if names[0] != names[1] {
            let second = read_value(&bytes, names[1]).unwrap();
            assert_eq!(fold(&second.recording).values().sum::<u64>(), atom);
        } else {
            let second = read_value(&bytes, "pmu10/cycles:P/").unwrap();
            assert_eq!(fold(&second.recording).values().sum::<u64>(), atom);
        }
    }
}

/// Linux 6.19 writes the user's part of a chain later, under a cookie.
#[test]
fn deferred_chains_join_their_samples() {
    let layout = plain(IP | TID | TIME | PERIOD | CALLCHAIN);
    let events = vec![event("cpu-clock", (1, 0), 5)];
    let mut records = Out::new(false);
    let mut map = Out::new(false);
    map.int(7);
    map.int(7);
    for n in [BASE, 0x10_0000, 0] {
        map.long(n);
    }
    map.text("/bin/x", 8);
    layout.trailer(&mut map, 5);
    records.record(1, 2, &map);
    for (cookie, answered) in [(77u64, true), (78, false)] {
        let mut sample = Out::new(false);
        let kernel = 0xffff_ffff_8100_0010;
        let body = [
            kernel,
            7 << 32 | 7,
            100,
            1000,
            4,
            -128i64 as u64,
            kernel,
            -640i64 as u64,
            cookie,
        ];
        body.iter().for_each(|n| sample.long(*n));
        records.record(9, 1, &sample);
        if answered {
            let mut chain = Out::new(false);
            let body = [cookie, 3, -512i64 as u64, BASE + 0x100, BASE + 0x201];
            body.iter().for_each(|n| chain.long(*n));
            layout.trailer(&mut chain, 5);
            records.record(22, 2, &chain);
        }
    }
    let sums = fold(&read(&with_header(&layout, &records, &events)).recording);
    let whole = sums.keys().find(|k| k.starts_with("x+0x200;x+0x100;"));
    assert!(whole.is_some(), "{sums:?}");
    let cut = sums.keys().find(|k| k.starts_with("[truncated:"));
    assert!(cut.is_some(), "{sums:?}");
    assert_eq!(sums.values().sum::<u64>(), 2000);
}

/// A guest's addresses are in no file of the host.
#[test]
fn code_of_a_virtual_machine_has_no_name_of_the_host() {
    let layout = plain(IP | TID | TIME | PERIOD | IDENTIFIER | CALLCHAIN);
    let mut random = Random(5);
    let mut events = vec![event("cycles", (0, 0), 5)];
    let mut records = records(&layout, &mut random, &mut events);
    let host: u64 = events[0].expected.values().sum();
    const GUEST_KERNEL: u16 = 4;
    const GUEST_USER: u16 = 5;
    for (misc, period, address) in [
        (GUEST_USER, 7, BASE + 0x100),
        (GUEST_KERNEL, 11, 0xffff_ffff_9c4d_5392),
    ] {
        let body = layout.sample(&mut random, &events, (0, period, 900), &[address]);
        records.record(9, misc, &body);
    }
    let read = read(&with_header(&layout, &records, &events));
    let sums = fold(&read.recording);
    assert_eq!(sums["[truncated:unreadable];[guest]"], 7);
    assert_eq!(sums["[truncated:unreadable];[guest.kernel]"], 11);
    assert_eq!(sums.values().sum::<u64>(), host + 18);
    let stacks = &read.recording.stacks;
    assert!(stacks.iter().any(|s| s.end == StackEnd::Unreadable));
    let warnings = read.warnings.join("; ");
    assert!(
        warnings.contains("2 samples are of code in virtual machines"),
        "{warnings}"
    );
}

/// `perf record --off-cpu`: the length of a wait and its stack are in the fields that BPF wrote, since
/// perf 6.15; the sample's own are of the thread that gets the CPU.
#[test]
fn waits_that_perf_measures_by_bpf_have_their_own_thread_and_length() {
    const CONTEXT_USER: u64 = -512i64 as u64;
    let layout = plain(IP | TID | TIME | PERIOD | IDENTIFIER | RAW);
    let mut events = [event("cpu-clock", (1, 0), 5)];
    let mut records = records(&layout, &mut Random(5), &mut events);
    let on_cpu: u64 = events[0].expected.values().sum();
    let [clock] = events;
    let mut body = Out::new(false);
    for long in [6, 0] {
        body.long(long);
    }
    // Another thread ran.
    body.int(900);
    body.int(901);
    body.long(1000);
    body.long(1);
    let chain = [CONTEXT_USER, BASE + 0x100, BASE + 0x201];
    body.int(8 * (4 + chain.len() as u32 + 1) - 8 + 4);
    body.int(7);
    body.int(12);
    body.long(3_000_000);
    body.long(chain.len() as u64);
    chain.iter().for_each(|address| body.long(*address));
    body.long(77);
    body.int(0);
    records.record(9, 1, &body);
    let file = with_header(
        &layout,
        &records,
        &[clock, event("offcpu-time", (1, 10), 6)],
    );
    let rec = read(&file).recording;
    let of = |state| -> u64 { rec.contexts.iter().map(|c| c.ledger.state_ns(state)).sum() };
    assert_eq!((of(State::OnCpu), of(State::Blocked)), (on_cpu, 3_000_000));
    assert_eq!(fold(&rec)["x+0x200;x+0x100"], 3_000_000);
    let waiter = rec.contexts.iter().find(|c| c.tid == 12).unwrap();
    assert_eq!(waiter.ledger.state_ns(State::Blocked), 3_000_000);
    let alone = read_value(&file, "offcpu-time").unwrap().recording;
    assert!(alone.domain.unit.is_time());
    assert_eq!(fold(&alone).values().sum::<u64>(), 3_000_000);
    let text = "\
w    12   100.000001:       1000   cpu-clock:
\t          401136 leaf (/tmp/w)

w    12   100.000002:       2000   offcpu-time:
\t          401200 wait (/tmp/w)

";
    let rec = read(text.as_bytes()).recording;
    let ledger = &rec.contexts[0].ledger;
    let times = [State::OnCpu, State::Blocked].map(|s| ledger.state_ns(s));
    assert_eq!(times, [1000, 2000]);
}
