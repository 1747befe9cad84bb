//! Line by line: every figure that the source's own tool prints of a file is the one read here.
//! What the tools printed lies beside the files (`*.top.txt`, `*.report.txt`, `*.print.txt`).

use std::collections::BTreeMap;

use wallscope_model::Recording;

use crate::support::{ends, fold, plain, read, read_value};

/// Functions without the marks of folded stacks.
fn unmarked(sums: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    for (name, value) in sums {
        let bare = ["_[i]", "_[j]", "_[k]"]
            .iter()
            .find_map(|mark| name.strip_suffix(mark))
            .unwrap_or(&name);
        *out.entry(bare.to_string()).or_default() += value;
    }
    out
}

/// Own and total values by function.
fn table(rec: &Recording) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (own, total) = ends(rec);
    (unmarked(own), unmarked(total))
}

/// `go tool pprof -top -nodecount=0 -nodefraction=0`, in the smallest unit.
fn agrees_with_top(file: &[u8], value: &str, top: &str) {
    let (own, total) = table(&read_value(file, value).unwrap().recording);
    let mut rows = 0;
    let number = |word: &str| -> u64 {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse().unwrap()
    };
    let lines = top.lines().skip_while(|l| !l.contains("flat%   sum%"));
    for line in lines.skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words[5..].join(" ");
        let name = name.trim_end_matches(" (inline)");
        let flat = own.get(name).copied().unwrap_or(0);
        assert_eq!(flat, number(words[0]), "flat of {name}");
        assert_eq!(total[name], number(words[3]), "cum of {name}");
        rows += 1;
    }
    assert_eq!(rows, total.len(), "every function has a row");
}

#[test]
fn every_row_is_that_of_go_tool_pprof() {
    let file: &[u8] = include_bytes!("../fixtures/go-cpu.pprof.gz");
    agrees_with_top(file, "cpu", include_str!("../fixtures/go-cpu.top.txt"));
    let file: &[u8] = include_bytes!("../fixtures/go-heap.pprof.gz");
    let top = include_str!("../fixtures/go-heap.top.txt");
    agrees_with_top(file, "alloc_space", top);
    let file: &[u8] = include_bytes!("../fixtures/go-block.pprof.gz");
    agrees_with_top(file, "delay", include_str!("../fixtures/go-block.top.txt"));
    let file: &[u8] = include_bytes!("../fixtures/go-mutex.pprof.gz");
    agrees_with_top(file, "delay", include_str!("../fixtures/go-mutex.top.txt"));
}

/// Rows of `perf report`: the columns before the name, and the name.
fn rows(report: &str) -> Vec<(Vec<&str>, &str)> {
    let lines = report.lines().filter(|l| !l.starts_with('#'));
    let rows = lines.filter_map(|l| {
        let (numbers, name) = l.split_once("[.] ").or_else(|| l.split_once("[k] "))?;
        Some((numbers.split_whitespace().collect(), name.trim_end()))
    });
    rows.collect()
}

/// `perf report -F overhead_children,sample,sym` of the file that `perf script` printed.
#[test]
fn every_row_is_that_of_perf_report() {
    let text = plain(include_bytes!("../fixtures/threads.script.txt.gz"));
    let (own, total) = table(&read_value(&text, "samples").unwrap().recording);
    let all: u64 = own.values().sum();
    let rows = rows(include_str!("../fixtures/threads.report.txt"));
    for (numbers, name) in &rows {
        let children: f64 = numbers[0].trim_end_matches('%').parse().unwrap();
        let here = total[*name] as f64 / all as f64 * 100.0;
        assert!(
            (here - children).abs() <= 0.005,
            "children of {name}: {here}"
        );
        let flat = own.get(*name).copied().unwrap_or(0);
        assert_eq!(flat.to_string(), numbers[1], "samples of {name}");
    }
    assert_eq!(rows.len(), total.len(), "every function has a row");
}

/// `perf report -F sample -s dso` of the same file, which has no names of functions.
#[test]
fn modules_are_those_of_perf_report() {
    let data = plain(include_bytes!("../fixtures/threads.perf.data.gz"));
    let rec = read_value(&data, "samples").unwrap().recording;
    let mut modules = BTreeMap::<String, u64>::new();
    for (frame, value) in ends(&rec).0 {
        let (module, _) = frame.rsplit_once("+0x").unwrap();
        *modules.entry(module.to_string()).or_default() += value;
    }
    let mut rows = 0;
    for line in include_str!("../fixtures/threads.modules.txt").lines() {
        let (samples, module) = line.trim().split_once(' ').unwrap();
        let module = module.replace("[kernel.kallsyms]", "[kernel]");
        assert_eq!(modules[&module].to_string(), samples, "{module}");
        rows += 1;
    }
    assert_eq!(rows, modules.len(), "every module has a row");
}

/// `jfr print --stack-depth 64 --events jdk.ExecutionSample,jdk.ThreadSleep`. It leaves hidden
/// frames out (those of lambdas), and prints milliseconds to one digit.
#[test]
fn every_stack_is_that_of_jfr_print() {
    let file: &[u8] = include_bytes!("../fixtures/flight.jfr.gz");
    let print = include_str!("../fixtures/flight.print.txt");
    let mut samples = BTreeMap::<String, u64>::new();
    let mut slept = BTreeMap::<String, (f64, u32)>::new();
    for event in print.split("\n}\n") {
        let (_, stack) = event.split_once("stackTrace = [").unwrap_or(("", ""));
        let lines = stack.lines().map(str::trim);
        let frames = lines.filter_map(|l| Some(l.split_once('(')?.0));
        let mut frames: Vec<&str> = frames.collect();
        frames.reverse();
        let folded = frames.join(";");
        if event.contains("jdk.ExecutionSample {") {
            *samples.entry(folded).or_default() += 1;
        } else if event.contains("jdk.ThreadSleep {") {
            let (_, rest) = event.split_once("duration = ").unwrap();
            let ms: f64 = rest.split_once(" ms").unwrap().0.parse().unwrap();
            let sum = slept.entry(folded).or_default();
            *sum = (sum.0 + ms, sum.1 + 1);
        }
    }
    assert!(samples.values().sum::<u64>() == 43 && !slept.is_empty());

    let shown = |stack: &str| -> String {
        let frames = stack.split(';').map(|f| f.trim_end_matches("_[j]"));
        let frames: Vec<&str> = frames.filter(|f| !f.contains("$$Lambda$")).collect();
        frames.join(";")
    };
    let by_stack = |rec: &Recording| -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        for (stack, value) in fold(rec) {
            *out.entry(shown(&stack)).or_default() += value;
        }
        out
    };
    let read_samples = by_stack(&read_value(file, "jdk.ExecutionSample").unwrap().recording);
    assert_eq!(read_samples, samples);
    let mut waits = by_stack(&read(file).recording);
    waits.retain(|stack, _| !samples.contains_key(stack));
    assert_eq!(waits.len(), slept.len(), "{waits:?} {slept:?}");
    for (stack, (ms, times)) in slept {
        let here = waits[&stack] as f64 / 1e6;
        let rounding = 0.05 * f64::from(times);
        assert!((here - ms).abs() <= rounding, "{stack}: {here}, {ms}");
    }
}
