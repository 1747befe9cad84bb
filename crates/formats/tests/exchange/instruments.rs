use wallscope_model::{FrameKind, Unit};

use crate::support::{ends, fold, read};

/// `callgrind_annotate --inclusive=yes` of the same file.
#[test]
fn costs_are_those_of_callgrind_annotate() {
    let rec = read(include_bytes!("../fixtures/callgrind.out")).recording;
    assert_eq!(rec.domain.unit, Unit::Count("Ir".into()));
    let (own, total) = ends(&rec);
    assert_eq!(own.values().sum::<u64>(), 1_350_136_898);
    assert_eq!(own["leaf"], 1_350_003_600);
    assert_eq!(own["mid_a"], 3_900);
    // Totals are estimates: time below a millionth on a path is not followed along it.
    let near = |name: &str, cost: u64| {
        let off = total[name].abs_diff(cost);
        assert!(off < 20_000, "{name}: {} and {cost}", total[name]);
    };
    near("mid_a", 810_006_300);
    near("mid_b", 540_003_000);
    near("main", 1_350_014_610);
    assert!(rec.domain.columns.iter().all(|c| c.exact));
}

/// gprof's own table: 0.07 s, all of it in `leaf`, two thirds of it called by `mid_a`.
#[test]
fn times_are_those_of_gprof_and_said_to_be_instrumented() {
    let rec = read(include_bytes!("../fixtures/gprof.txt")).recording;
    let sums = fold(&rec);
    assert_eq!(sums.values().sum::<u64>(), 70_000_000);
    assert_eq!(sums["main;mid_a;leaf"], 50_000_000);
    assert_eq!(sums["main;mid_b;leaf"], 20_000_000);
    assert!(
        rec.domain
            .limits
            .iter()
            .any(|l| l.what.contains("instrumented"))
    );
    let leaf: u64 = rec.samples.iter().map(|s| s.count).sum();
    assert_eq!(leaf, 900, "calls of leaf");
}

/// `pstats.Stats(…).print_stats()`: 50 ms in sleep, 16 ms in `leaf` (50 calls), 67 ms in all.
#[test]
fn times_and_calls_are_those_of_pstats() {
    let rec = read(include_bytes!("../fixtures/profile.pstats")).recording;
    let (own, total) = ends(&rec);
    let ms = |v: u64| (v + 500_000) / 1_000_000;
    assert_eq!(ms(own["leaf"]), 16);
    assert_eq!(ms(own["<built-in method time.sleep>"]), 50);
    assert_eq!(ms(total["main"]), 67);
    assert!(rec.frames.iter().any(|f| f.kind == FrameKind::Python));
    let calls = |name: &str| -> u64 {
        let of = |s: &&wallscope_model::Sample| {
            let leaf = rec.stacks[s.stack.0 as usize].frames[0];
            let line = rec.frames[leaf.0 as usize].lines[0];
            &*rec.functions[line.function.0 as usize].name == name
        };
        rec.samples.iter().filter(of).map(|s| s.count).sum()
    };
    assert_eq!((calls("leaf"), calls("rec"), calls("main")), (50, 300, 1));
    assert!(
        rec.domain
            .limits
            .iter()
            .any(|l| l.what.contains("instrumented"))
    );
}

#[test]
fn counts_of_bpftrace_are_kept() {
    let text = include_str!("../fixtures/bpftrace.txt");
    let rec = read(text.as_bytes()).recording;
    let expected: u64 = text
        .lines()
        .filter_map(|l| l.rsplit_once("]: ")?.1.parse::<u64>().ok())
        .sum();
    assert!(expected > 10);
    assert_eq!(fold(&rec).values().sum::<u64>(), expected);
    let kernel = fold(&rec)
        .keys()
        .any(|k| k.ends_with("clear_page_erms_[k]"));
    assert!(kernel, "{:?}", fold(&rec));
}

/// As `offcputime` of bcc prints it (the format of its manual page).
#[test]
fn offcputime_is_read_with_its_unit() {
    let text = "\
Tracing off-CPU time (us) of all threads by user + kernel stack... Hit Ctrl-C to end.

    finish_task_switch
    schedule
    do_nanosleep
    --
    nanosleep
    main
    -                sleep (4711)
        1000123

    [unknown]
    -                bash (12)
        17
";
    let read = crate::support::read_value(text.as_bytes(), "microseconds").unwrap();
    let rec = read.recording;
    assert!(rec.domain.unit.is_time());
    let sums = fold(&rec);
    assert_eq!(
        sums["main;nanosleep;do_nanosleep_[k];schedule_[k];finish_task_switch_[k]"],
        1_000_123_000
    );
    assert_eq!(
        (rec.contexts[0].tid, &*rec.contexts[0].name),
        (4711, "sleep")
    );
}
