use wallscope_model::{FrameKind, StackEnd, State, Unit};

use crate::support::{fold, lines, read, read_value};

#[test]
fn folded_stacks_come_back_line_by_line() {
    let text = "\
main;run;work 120
main;run;work;inner_[i] 7
main;run;work;inner_[i];deeper_[i] 3
main;run 5
[truncated:window_end];late 2
[no stack] 9
main;write;vfs_write_[k] 11
app;libcodec.so.2+0x1f3a 4
app;[0x7f0000001000] 1
js;render_[j] 6
";
    let read = read(text.as_bytes());
    assert_eq!(fold(&read.recording), lines(text));
    let rec = &read.recording;
    assert_eq!(rec.domain.unit, Unit::Count("counts".into()));
    assert!(rec.samples.iter().all(|s| s.state == State::Unknown));
    assert!(rec.stacks.iter().any(|s| s.end == StackEnd::WindowEnd));
    assert!(rec.frames.iter().any(|f| f.lines.len() == 3));
    assert!(rec.frames.iter().any(|f| f.kind == FrameKind::Kernel));
    let unnamed = rec.frames.iter().filter(|f| f.lines.is_empty()).count();
    assert_eq!(unnamed, 2);
}

#[test]
fn neighbours_that_share_part_of_a_name_are_told_apart() {
    let text = "a;bc 1\na;bcd 2\na;bcd;e 3\na;b 4\nab;b 5\na 6\n";
    assert_eq!(fold(&read(text.as_bytes()).recording), lines(text));
}

#[test]
fn the_user_says_what_the_numbers_are() {
    let read = read_value(b"main;f 1500\n", "nanoseconds").unwrap();
    assert!(read.recording.domain.unit.is_time());
    assert_eq!(
        read.recording.samples[0].count, 1,
        "of how many samples is not told"
    );
    let read = read_value(b"main;f 1500\n", "samples").unwrap();
    assert_eq!(read.recording.samples[0].count, 1500);
}

#[test]
fn lines_that_are_no_stacks_are_counted_and_long_files_are_streamed() {
    let mut text = String::new();
    for i in 0..400_000 {
        text.push_str(&format!(
            "main;a_function_with_a_long_name_{};leaf 1\n",
            i % 1000
        ));
    }
    text.push_str("this is no stack\n");
    let read = read(text.as_bytes());
    assert_eq!(read.warnings.len(), 1, "{:?}", read.warnings);
    assert!(
        read.warnings[0].starts_with("1 lines"),
        "{:?}",
        read.warnings
    );
    let sums = fold(&read.recording);
    assert_eq!(sums.len(), 1000);
    assert!(sums.values().all(|v| *v == 400));
}

/// As `austin -o` writes them (from its documentation's grammar).
#[test]
fn austin_tells_threads_and_microseconds() {
    let text = "\
# austin: 3.6.0
# interval: 10000
# mode: cpu

P42;T0:43;/app/a.py:<module>:12;/app/a.py:work:3 10250
P42;T0:44;/app/a.py:work:4 1000
";
    let rec = read(text.as_bytes()).recording;
    assert!(rec.domain.unit.is_time());
    assert_eq!(rec.contexts.len(), 2);
    assert_eq!((rec.contexts[0].pid, rec.contexts[0].tid), (42, 43));
    assert_eq!(rec.contexts[0].ledger.on_cpu.user, 10_250_000);
    assert_eq!(rec.contexts[1].ledger.wall_ns, 1_000_000);
    let work = rec.functions.iter().find(|f| &*f.name == "work").unwrap();
    assert_eq!(&*work.file, "/app/a.py");
}

/// As `py-spy record --format raw` writes them.
#[test]
fn files_and_lines_of_py_spy_are_kept() {
    let text =
        b"thread (17344): Main;<module> (app.py:12);work (app.py:3) 40\nthread (17344): Main 4\n";
    let rec = read(text).recording;
    let sums = fold(&rec);
    assert_eq!(sums["<module>;work"], 40);
    assert_eq!(sums["[no stack]"], 4);
    assert_eq!(rec.contexts.len(), 1);
    assert_eq!(
        (rec.contexts[0].tid, &*rec.contexts[0].name),
        (17344, "Main")
    );
    let leaf = &rec.frames[rec.stacks[0].frames[0].0 as usize];
    assert_eq!(leaf.lines[0].line, 3);
}

#[test]
fn a_mark_of_the_byte_order_an_encoding_and_a_deep_recursion_first_are_read() {
    let marked = fold(&read(b"\xef\xbb\xbfmain;a 5\r\nmain;caf\xe9 6\r\n").recording);
    assert_eq!(marked["main;a"], 5);
    assert_eq!(marked.values().sum::<u64>(), 11);
    let deep = vec!["a::function::of::some::length"; 5_000].join(";");
    let rec = read(format!("{deep} 3\nmain 4\n").as_bytes()).recording;
    assert_eq!(fold(&rec)[&deep], 3);
    // Zeros up to the end of a block of a tape are no part of the compressed data.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, b"main;a 5\n").unwrap();
    let padded = [gzip.finish().unwrap(), vec![0; 512]].concat();
    assert_eq!(fold(&read(&padded).recording)["main;a"], 5);
}
