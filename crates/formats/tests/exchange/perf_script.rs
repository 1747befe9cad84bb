use std::collections::BTreeMap;

use wallscope_model::{State, Unit};

use crate::support::{ends as shares, fold, read, read_value};

const CLOCK: &str = include_str!("../fixtures/perf-script-clock.txt");
const SWITCHES: &str = include_str!("../fixtures/perf-script-switches.txt");

/// The counts are those of `perf report -F sample,sym` of the same file.
#[test]
fn counts_are_those_of_perf_report() {
    let rec = read_value(CLOCK.as_bytes(), "samples").unwrap().recording;
    assert_eq!(rec.domain.unit, Unit::Count("samples".into()));
    let (own, total) = shares(&rec);
    assert_eq!(own.values().sum::<u64>(), 253);
    assert_eq!(own["leaf"], 244);
    assert_eq!(own["finish_task_switch.isra.0_[k]"], 4);
    assert_eq!(total["run"], 244);
    assert_eq!(total["start_thread"], 135);
    assert_eq!(total["main"], 118);
    assert_eq!(total["do_syscall_64_[k]"], 8);
}

#[test]
fn a_clock_gives_time_by_thread_and_slices() {
    let read = read(CLOCK.as_bytes());
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    let rec = read.recording;
    assert!(rec.domain.unit.is_time());
    let sum: u64 = rec.contexts.iter().map(|c| c.ledger.on_cpu.total()).sum();
    assert_eq!(sum, 253 * 1_001_001);
    assert_eq!(rec.contexts.len(), 2);
    assert!(rec.slices.count > 20);
    assert!(
        rec.samples
            .iter()
            .all(|s| s.ns == s.slices.iter().map(|v| v.ns).sum::<u64>())
    );
    assert!(rec.contexts.iter().any(|c| c.ledger.on_cpu.kernel > 0));
}

/// Between switch out and switch in: compared with the same sums made by hand from the lines.
#[test]
fn switches_give_the_time_off_the_cpu() {
    let rec = read(SWITCHES.as_bytes()).recording;
    let mut out: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    let (mut blocked, mut runnable, mut last) = (0, 0, 0);
    let word = |line: &'static str, key: &str| {
        let rest = line.split_once(key).unwrap().1;
        rest.split_whitespace().next().unwrap()
    };
    for line in SWITCHES.lines().filter(|l| l.contains("sched_switch:")) {
        let time = line
            .split_once(": sched:")
            .unwrap()
            .0
            .rsplit(' ')
            .next()
            .unwrap();
        let (s, us) = time.split_once('.').unwrap();
        let time = s.parse::<u64>().unwrap() * 1_000_000_000 + us.parse::<u64>().unwrap() * 1000;
        last = time;
        let wants = word(line, "prev_state=").starts_with('R');
        out.insert(word(line, "prev_pid="), (time, wants));
        if let Some((from, wants)) = out.remove(word(line, "next_pid=")) {
            *(if wants { &mut runnable } else { &mut blocked }) += time - from;
        }
    }
    out.remove("0");
    for (from, wants) in out.into_values() {
        *(if wants { &mut runnable } else { &mut blocked }) += last - from;
    }
    assert!(blocked > 0);
    let sum = |state| {
        rec.contexts
            .iter()
            .map(|c| c.ledger.state_ns(state))
            .sum::<u64>()
    };
    assert_eq!(sum(State::Blocked), blocked);
    assert_eq!(sum(State::Runnable), runnable);
    assert!(fold(&rec).keys().any(|k| k.contains("do_nanosleep_[k]")));
    let counted = read_value(SWITCHES.as_bytes(), "sched:sched_switch").unwrap();
    assert_eq!(fold(&counted.recording).values().sum::<u64>(), 60);
}

#[test]
fn long_texts_are_read_in_pieces_by_many_and_lose_nothing() {
    // Far more than a piece, each repeat with a stack of its own.
    let mut text = String::new();
    for i in 0..60 {
        text.push_str(&CLOCK.replace(" leaf+0x", &format!(" leaf_{i}+0x")));
        text.push('\n');
    }
    for _ in 0..3 {
        text.push_str(&text.clone());
    }
    let rec = read_value(text.as_bytes(), "samples").unwrap().recording;
    let (own, _) = shares(&rec);
    assert_eq!(own.values().sum::<u64>(), 253 * 60 * 8);
    assert!((0..60).all(|i| own[&format!("leaf_{i}")] == 244 * 8));
}

#[test]
fn a_text_cut_anywhere_gives_what_was_whole() {
    let text = &CLOCK[..4000];
    let mut before = 0;
    for len in 100..text.len() {
        let Ok(read) = crate::support::try_read(&text.as_bytes()[..len]) else {
            continue;
        };
        let sum: u64 = read.recording.samples.iter().map(|s| s.count).sum();
        assert!(sum + 1 >= before, "{len}");
        before = sum.max(before);
    }
    assert!(before > 8);
}

#[test]
fn lines_about_mappings_are_no_samples() {
    let text = "\
w 12 10.000001: PERF_RECORD_COMM exec: w:12/12
w 12 [001] 10.000001: PERF_RECORD_MMAP2 12/12: [0x400000(0x1000) @ 0 08:01 1 1]: r-xp /tmp/w
w 12 10.000001:    1000 cpu-clock:
\t          401136 leaf+0x10 (/tmp/w)
\t          401200 main+0x5 (/tmp/w)

w 12 10.000002: PERF_RECORD_EXIT(12:12):(1:1)
";
    let read = read(text.as_bytes());
    assert_eq!(fold(&read.recording)["main;leaf"], 1000);
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    assert!(read.recording.domain.unit.is_time());
}

#[test]
fn time_is_read_where_other_events_come_first() {
    let text = "\
w 12 [001] K 10.000001:          1 page-faults:
\t          401136 leaf+0x10 (/tmp/w)

w 12 [001] U 10.000002:    1000000 cpu-clock:
\t          401200 main+0x5 (/tmp/w)

";
    let read = read(text.as_bytes());
    let sums = fold(&read.recording);
    assert_eq!((sums.len(), sums["main"]), (1, 1_000_000));
    assert!(
        read.warnings[0].contains("page-faults (1 samples)"),
        "{:?}",
        read.warnings
    );
}

/// Editors and web pages turn tabs into spaces, Windows ends lines by two characters, and some drop
/// empty lines.
#[test]
fn the_form_of_the_text_makes_no_difference() {
    let forms = [
        CLOCK.replace('\t', "        "),
        CLOCK.replace('\t', " "),
        CLOCK.replace('\n', "\r\n"),
        CLOCK.replace('\t', "    ").replace('\n', "\r\n"),
        CLOCK.replace("\n\n", "\n"),
        CLOCK.replace('\t', "  ").replace("\n\n", "\n"),
        CLOCK.trim_end().to_string(),
    ];
    let right = read(CLOCK.as_bytes());
    for (i, form) in forms.iter().enumerate() {
        let other = read(form.as_bytes());
        assert_eq!(fold(&other.recording), fold(&right.recording), "form {i}");
        assert_eq!(
            other.recording.contexts, right.recording.contexts,
            "form {i}"
        );
        assert_eq!(other.warnings, [""; 0], "form {i}");
    }
}

/// One sample as perf 6.1 prints it with different `-F`, each twice.
#[test]
fn stacks_are_read_whatever_fields_stand_before_them() {
    let stack = "\t            117c leaf\n\t            1232 main\n\t           2724a start\n\n";
    let headers = [
        (
            "faults  1323  3283.689880:    2005541   cpu-clock: ",
            2 * 2_005_541,
        ),
        (
            "faults  1323/1323 [001]  3283.689880:    2005541   cpu-clock:u: ",
            2 * 2_005_541,
        ),
        ("   2005541   cpu-clock: ", 2 * 2_005_541),
        (" 3283.689880:    2005541   cpu-clock: ", 2 * 2_005_541),
        (" 1323   cpu-clock: ", 2),
        (" 3283.689880:   cpu-clock: ", 2),
        ("faults  1323  3283.689880: ", 2),
        ("faults ", 2),
        ("", 2),
    ];
    for (header, sum) in headers {
        for stack in [stack.to_string(), stack.replace('\t', "    ")] {
            let text = format!("{header}\n{stack}{header}\n{stack}");
            let read = read(text.as_bytes());
            let sums = fold(&read.recording);
            assert_eq!(sums["start;main;leaf"], sum, "{header:?}");
            assert_eq!(sums.len(), 1, "{header:?}: {sums:?}");
            // A number of samples is no number of nanoseconds.
            assert_eq!(read.recording.domain.unit.is_time(), sum > 2, "{header:?}");
        }
    }
}

/// `perf script` without stacks indents the first field; `-F +srcline` adds a line to each frame.
#[test]
fn records_without_stacks_and_source_lines_are_told_from_frames() {
    let text = "\
            bash    12   100.000001:       1000   cpu-clock:      55d0c0de main+0x1 (/bin/bash)
               w    13   100.000002:       2000   cpu-clock:      55d0c0de leaf+0x1 (/tmp/w)
";
    let sums = fold(&read(text.as_bytes()).recording);
    assert_eq!((sums["main"], sums["leaf"]), (1000, 2000));
    let text = "\
w 12 100.000001:       1000   cpu-clock:
\t          401136 leaf+0x10 (/tmp/w)
  w.c:12
\t          401200 main+0x5 (/tmp/w)
  w.c:40

";
    let read = read(text.as_bytes());
    assert_eq!(fold(&read.recording)["main;leaf"], 1000);
    assert_eq!(read.warnings, [""; 0]);
}

/// A hybrid CPU has one event for each kind of core.
#[test]
fn events_of_two_kinds_of_core_add_up_where_that_is_asked_for() {
    let text = "\
w 12 1.000001:       1000 cpu_core/cycles/P:
\t          401136 leaf+0x10 (/tmp/w)

w 12 1.000002:        300 cpu_atom/cycles/P:
\t          401200 main+0x5 (/tmp/w)

";
    let sum = |value: &str| {
        let read = read_value(text.as_bytes(), value).unwrap();
        (fold(&read.recording).values().sum::<u64>(), read)
    };
    assert_eq!(sum("cpu_core/cycles/P").0, 1000);
    assert_eq!(sum("cpu_atom/cycles/P").0, 300);
    let (both, read) = sum("cycles");
    assert_eq!(both, 1300);
    assert_eq!(read.recording.domain.unit, Unit::Count("cycles".into()));
    let said = "cycles is the sum of cpu_core/cycles/P (1 samples, 1000 in all)";
    assert!(read.warnings[0].starts_with(said), "{:?}", read.warnings);
}

/// Fields of a record as perf prints them, one bit each.
mod field {
    pub const PID: u32 = 1;
    pub const CPU: u32 = 2;
    pub const MISC: u32 = 4;
    pub const TIME: u32 = 8;
    pub const PERIOD: u32 = 16;
    pub const EVENT: u32 = 32;
    pub const ADDR: u32 = 64;
    pub const ALL: u32 = 127;
}

/// A record of the thread, in perf's columns.
fn record(fields: u32, (name, tid): (&str, u32), has_stack: bool) -> String {
    let has = |bit: u32| fields & bit != 0;
    let mut text = match has_stack {
        true => format!("{name} "),
        false => format!("{name:>16} "),
    };
    match has(field::PID) {
        true => text += &format!("{:>5}/{tid:<5} ", tid / 10),
        false => text += &format!("{tid:>5} "),
    }
    if has(field::CPU) {
        text += "[003] ";
    }
    if has(field::MISC) {
        text += "U       ";
    }
    if has(field::TIME) {
        text += "29549.252125: ";
    }
    if has(field::PERIOD) {
        text += &format!("{:>10} ", 250_000 + tid);
    }
    if has(field::EVENT) {
        text += "      cycles: ";
    }
    if has(field::ADDR) {
        text += &format!("{:>16x} ", 0x4011 * (tid % 2));
    }
    let frame = |address: u64, name: &str| format!("{address:>16x} {name}+0x4 (/tmp/w)\n");
    match has_stack {
        false => text + &frame(0x40_1136, "leaf"),
        true => {
            let callers = format!("\t{}", frame(0x40_1200, "main"));
            format!("{text}\n\t{}{callers}\n", frame(0x40_1136, "leaf"))
        }
    }
}

/// Threads have names with numbers, colons and brackets, as programs give them.
#[test]
fn every_set_of_fields_gives_the_same_threads_and_weights() {
    let threads = [
        ("worker 3", 22_870),
        ("[ET_NET 0]", 22_871),
        ("V8 Worker: 1", 922_872),
        ("a 12 34", 7),
        ("tick #1", 1_022_875),
        ("e:f g: h", 22_876),
        ("java", 22_877),
    ];
    for fields in 0..=field::ALL {
        for has_stack in [false, true] {
            let texts = threads.map(|t| record(fields, t, has_stack));
            let text = texts.concat();
            let read = crate::support::try_read(text.as_bytes());
            if !has_stack && fields & (field::TIME | field::EVENT) == 0 {
                // Nothing tells such a record from a frame.
                assert!(read.is_err(), "{text}");
                continue;
            }
            let read = read.unwrap_or_else(|e| panic!("{e}: {text}"));
            let rec = read.recording;
            let weight = |tid: u32| match fields & field::PERIOD {
                0 => 1,
                _ => 250_000 + u64::from(tid),
            };
            let found: Vec<(&str, u32, u64)> = (rec.contexts.iter())
                .map(|c| (&*c.name, c.tid, c.ledger.wall_ns))
                .collect();
            let expected = threads.map(|(name, tid)| (name, tid, weight(tid)));
            assert_eq!(found, expected, "{text}");
            let stack = if has_stack { "main;leaf" } else { "leaf" };
            let sum: u64 = threads.iter().map(|(_, tid)| weight(*tid)).sum();
            assert_eq!(fold(&rec), [(stack.to_string(), sum)].into(), "{text}");
            let unit = match fields & (field::PERIOD | field::EVENT) {
                field::PERIOD => "counts",
                0 | field::EVENT => "samples",
                _ => "cycles",
            };
            assert_eq!(rec.domain.unit, Unit::Count(unit.into()), "{text}");
        }
    }
}
