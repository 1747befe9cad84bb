//! Comparisons of recordings made by resampling time blocks of a long one: equal functions are
//! called the same, dearer ones are found, and intervals hold the truth.
//!
//! The fixture is a real recording: 66 s of the truth program `cover` (twenty functions with 9.75 %
//! down to 0.25 % of one busy thread), at 99 Hz by the eBPF backend.

use std::path::Path;

use wallscope_analysis::diff::{
    Comparison, Condition, FunctionRow, InState, Metric, Normal, Options, Verdict, compare,
};
use wallscope_formats::{Bounds, read};
use wallscope_model::compare::Effort;
use wallscope_model::histogram::{FINE, Histogram, HistogramRow};
use wallscope_model::{
    BlockReason, Frame, FrameId, FrameKind, Function, FunctionId, Ledger, LedgerSlice, Line,
    Recording, SliceValue, State,
};
use wallscope_render::diff;
use wallscope_render::text::Style;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
    fn below(&mut self, n: u32) -> u32 {
        (self.unit() * f64::from(n)) as u32
    }
}

fn long() -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cover.pb.gz");
    let bytes = std::fs::read(path).expect("the fixture is there");
    let mut rec = read(&bytes, Bounds::default())
        .expect("the fixture is a recording")
        .recording;
    // Its first and last slices are not full: the program starts and ends there.
    let whole = |slice: u32| slice >= 2 && slice + 3 < rec.slices.count;
    for s in &mut rec.samples {
        s.slices.retain(|v| whole(v.slice));
        if s.state != State::OnCpu {
            // A long wait is counted where it ends, and lasts in all slices.
            let (count, ns) = (s.count, s.ns.max(1));
            s.slices
                .iter_mut()
                .for_each(|v| v.count = (v.ns * count).div_ceil(ns));
        }
    }
    let rows = rec.ledger_slices.iter();
    rec.ledger_slices = rows.filter(|r| whole(r.slice)).collect();
    assert!(rec.slices.count >= 50, "{:?}", rec.slices);
    rec
}

/// A recording of `count` slices drawn from `from` with replacement. With `dearer`, each sample of
/// another function is with probability 1 − 1/1.05 one of that function instead: its callers
/// would see this if it took 5 % of all time more for the same work.
fn resampled(from: &Recording, count: u32, dearer: Option<&str>, r: &mut Random) -> Recording {
    let slices = from.slices.count - 5;
    let drawn: Vec<u32> = (0..count).map(|_| 2 + r.below(slices)).collect();
    let mut rec = from.clone();
    rec.slices.count = count;
    rec.window.start_ns = rec.slices.start_ns;
    rec.window.end_ns = rec.slices.start_ns + u64::from(count) * rec.slices.width_ns;
    for s in &mut rec.samples {
        s.slices = (0u32..)
            .zip(&drawn)
            .flat_map(|(to, from)| {
                let own = s.slices.iter().filter(move |v| v.slice == *from);
                own.map(move |v| SliceValue { slice: to, ..*v })
            })
            .collect();
    }
    if let Some(function) = dearer {
        let to = leaf_sample(&rec, function);
        let mut moved: Vec<SliceValue> = Vec::new();
        let context = rec.samples[to].context;
        for (i, s) in rec.samples.iter_mut().enumerate() {
            if i == to || s.state != State::OnCpu || s.context != context {
                continue;
            }
            for v in &mut s.slices {
                let each = v.ns / v.count.max(1);
                let some = (0..v.count).filter(|_| r.unit() < 1.0 - 1.0 / 1.05).count() as u64;
                v.count -= some;
                v.ns -= some * each;
                moved.push(SliceValue {
                    slice: v.slice,
                    count: some,
                    ns: some * each,
                });
            }
        }
        rec.samples[to].slices.extend(moved);
    }
    for s in &mut rec.samples {
        s.count = s.slices.iter().map(|v| v.count).sum();
        s.ns = s.slices.iter().map(|v| v.ns).sum();
    }
    rec.samples.retain(|s| s.ns > 0);
    rec.ledger_slices = (0u32..)
        .zip(&drawn)
        .flat_map(|(to, at)| {
            let rows = from
                .ledger_slices
                .iter()
                .filter(move |row| row.slice == *at);
            rows.map(move |row| LedgerSlice { slice: to, ..row })
        })
        .collect();
    for (i, c) in rec.contexts.iter_mut().enumerate() {
        let mut ledger = Ledger::default();
        for row in rec
            .ledger_slices
            .iter()
            .filter(|row| row.context == i as u32)
        {
            ledger.on_cpu.user += row.on_cpu_ns;
            ledger.runnable.woken += row.runnable_ns;
            for (to, ns) in ledger.blocked.iter_mut().zip(row.blocked) {
                *to += ns;
            }
        }
        ledger.wall_ns = State::ALL.iter().map(|s| ledger.state_ns(*s)).sum();
        c.ledger = ledger;
    }
    // Parts are not kept by slice: all samples of a state are one class.
    for s in &mut rec.samples {
        s.part = None;
    }
    rec
}

/// The sample with most time among those with `name` as innermost function.
fn leaf_sample(rec: &Recording, name: &str) -> usize {
    let is = |i: &usize| {
        let stack = &rec.stacks[rec.samples[*i].stack.0 as usize];
        let lines = stack
            .frames
            .first()
            .map(|f| &rec.frames[f.0 as usize].lines);
        let leaf = lines.and_then(|l| l.first());
        leaf.is_some_and(|l| *rec.functions[l.function.0 as usize].name == *name)
    };
    let of = (0..rec.samples.len()).filter(is);
    of.max_by_key(|i| rec.samples[*i].ns)
        .expect("the function was sampled")
}

fn judge(base: &[Recording], new: &[Recording], normal: Normal) -> Comparison {
    let options = Options {
        normal,
        ..Options::default()
    };
    compare(base, new, &options).expect("one domain")
}

#[test]
fn the_same_program_is_called_the_same() {
    let from = long();
    let mut r = Random(11);
    let (mut wrong, mut judged) = (0, 0);
    for trial in 0..100 {
        let runs = if trial % 2 == 0 { 1 } else { 5 };
        let mut side = || -> Vec<_> {
            (0..runs)
                .map(|_| resampled(&from, 10, None, &mut r))
                .collect()
        };
        let (base, new) = (side(), side());
        let c = judge(&base, &new, Normal::Second);
        judged += c.functions.iter().filter(|f| f.q.is_some()).count();
        if let Some(f) = c.changed().next() {
            println!(
                "trial {trial}: {} {} q {:?}",
                f.function.name,
                f.what(),
                f.q
            );
            wrong += 1;
        }
    }
    println!("reported where nothing changed: {wrong} of 100 pairs, {judged} functions judged");
    assert!(judged > 1_000, "{judged}");
    assert!(wrong <= 5, "{wrong}");
}

#[test]
fn five_percent_dearer_is_found() {
    let from = long();
    let mut r = Random(12);
    let (mut found, mut others, trials) = (0, 0, 60);
    for trial in 0..trials {
        let dearer = format!("cover_{:02}", trial % 12);
        let base: Vec<_> = (0..5).map(|_| resampled(&from, 10, None, &mut r)).collect();
        let new: Vec<_> = (0..5)
            .map(|_| resampled(&from, 10, Some(&dearer), &mut r))
            .collect();
        let c = judge(&base, &new, Normal::Second);
        let first = c.changed().next();
        found += usize::from(
            first.is_some_and(|f| *f.function.name == *dearer && f.what() == "computes more"),
        );
        // The others' shares fall by a twentieth; few are large enough for that to show.
        others += c
            .changed()
            .filter(|f| f.all.delta > 0.0 && *f.function.name != *dearer)
            .count();
    }
    println!("found first: {found} of {trials}; others said to be dearer: {others}");
    assert!(found * 100 >= trials * 95, "{found}");
    assert!(others <= 3, "{others}");
}

#[test]
fn intervals_hold_the_truth() {
    let from = long();
    let mut r = Random(13);
    let (mut held, mut cases) = (0, 0);
    // The truth: the whole recording's shares, and the effect of 5 % more of one.
    let shares = |rec: &Recording| -> Vec<(String, f64)> {
        let c = judge(
            std::slice::from_ref(rec),
            std::slice::from_ref(rec),
            Normal::Raw,
        );
        let whole = c
            .whole
            .iter()
            .find(|w| w.state == Some(State::OnCpu) && w.reason.is_none());
        let whole = whole.expect("it computes").difference.base;
        let functions = c
            .functions
            .iter()
            .filter(|f| f.function.name.starts_with("cover_"));
        functions
            .map(|f| (f.function.name.to_string(), f.all.base / whole))
            .collect()
    };
    let truth = shares(&rebuilt(&from));
    let on_cpu = |c: &Comparison, side: fn(&wallscope_model::compare::Difference) -> f64| {
        let row = c
            .whole
            .iter()
            .find(|w| w.state == Some(State::OnCpu) && w.reason.is_none());
        side(&row.expect("it computes").difference)
    };
    for trial in 0..1_000 {
        let dearer = format!("cover_{:02}", trial % 12);
        let runs = if trial % 10 == 0 { 5 } else { 1 };
        let base: Vec<_> = (0..runs)
            .map(|_| resampled(&from, 10, None, &mut r))
            .collect();
        let new: Vec<_> = (0..runs)
            .map(|_| resampled(&from, 10, Some(&dearer), &mut r))
            .collect();
        let c = judge(&base, &new, Normal::Second);
        // On-CPU time is counted: only its division is sampled.
        let (b, n) = (on_cpu(&c, |d| d.base), on_cpu(&c, |d| d.new));
        for (name, share) in &truth {
            let Some(f) = c.functions.iter().find(|f| *f.function.name == **name) else {
                continue;
            };
            let after = if *name == dearer {
                share + 0.05
            } else {
                *share
            } / 1.05;
            let want = after * n - share * b;
            cases += 1;
            held += usize::from(f.all.low <= want && want <= f.all.high);
        }
    }
    let rate = held as f64 / cases as f64;
    println!(
        "intervals that hold the truth: {held} of {cases} in 1,000 trials ({:.1} %)",
        rate * 100.0
    );
    assert!(cases > 15_000, "{cases}");
    assert!(rate >= 0.93, "{rate}");
}

/// All of the long recording's slices, once each, put together as samples are.
fn rebuilt(from: &Recording) -> Recording {
    let mut rec = from.clone();
    for s in &mut rec.samples {
        s.count = s.slices.iter().map(|v| v.count).sum();
        s.ns = s.slices.iter().map(|v| v.ns).sum();
    }
    rec.samples.retain(|s| s.ns > 0);
    rec
}

/// Turns a function's on-CPU time, as far as it stands in one sample, into waiting for a lock.
fn waiting(rec: &mut Recording, function: &str) {
    let at = leaf_sample(rec, function);
    let mut waits = rec.samples.remove(at);
    waits.state = State::Blocked;
    waits.reason = Some(BlockReason::Lock);
    let turned = |mut row: LedgerSlice| {
        let of = waits.slices.iter().filter(|v| v.slice == row.slice);
        let ns: u64 = of.map(|v| v.ns).sum();
        if row.context == waits.context.0 {
            let ns = ns.min(row.on_cpu_ns);
            row.on_cpu_ns -= ns;
            row.blocked[BlockReason::Lock as usize] += ns;
        }
        row
    };
    rec.ledger_slices = rec.ledger_slices.iter().map(turned).collect();
    let ledger = &mut rec.contexts[waits.context.0 as usize].ledger;
    ledger.on_cpu.user -= waits.ns.min(ledger.on_cpu.user);
    ledger.blocked[BlockReason::Lock as usize] += waits.ns;
    rec.samples.push(waits);
}

/// Five runs a side of which the new ones wait where the base computed.
fn moved() -> (Vec<Recording>, Vec<Recording>) {
    let from = long();
    let mut r = Random(14);
    let base: Vec<_> = (0..5).map(|_| resampled(&from, 10, None, &mut r)).collect();
    let mut new: Vec<_> = (0..5).map(|_| resampled(&from, 10, None, &mut r)).collect();
    new.iter_mut().for_each(|rec| waiting(rec, "cover_02"));
    (base, new)
}

#[test]
fn computing_that_became_waiting_is_one_finding() {
    let (base, new) = moved();
    let c = judge(&base, &new, Normal::Second);
    let changed: Vec<_> = c.changed().collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(&*changed[0].function.name, "cover_02");
    assert_eq!(changed[0].what(), "computes less, waits (lock) more");
    let states: Vec<_> = changed[0].states.iter().filter(|s| s.changed).collect();
    assert_eq!(states.len(), 2);
    assert!(
        changed[0].all.low < 0.0 && changed[0].all.high > 0.0,
        "its sum is the same"
    );

    let style = Style {
        width: Some(100),
        colour: false,
        unicode: true,
    };
    let outcomes: Vec<_> = [
        "off-cpu@cover_02:+1%",
        "lock:+1ms",
        "wall:+10%",
        "on-cpu@none:+1%",
    ]
    .iter()
    .map(|c| c.parse::<Condition>().unwrap().judge(&c_of(&base, &new)))
    .collect();
    let verdicts: Vec<_> = outcomes.iter().map(|o| o.verdict).collect();
    use Verdict::{Fired, Holds, Nothing};
    assert_eq!(verdicts, [Fired, Fired, Holds, Nothing]);
    let text = diff::text(
        &c,
        &outcomes,
        diff::Shown {
            noise: 5,
            resolve: Some(0.001),
        },
        &style,
    );
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    for word in [
        "one function changed",
        "computes less, waits (lock) more",
        "noise",
        "FIRED",
        "record",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let md = diff::markdown(&c, &outcomes);
    assert!(md.starts_with("**blocked (lock) in `cover_02` +"), "{md}");
    let junit = diff::junit(&outcomes);
    assert!(
        junit.contains("tests=\"4\" failures=\"2\" errors=\"0\" skipped=\"1\""),
        "{junit}"
    );
    let json: serde_json::Value = serde_json::from_str(&diff::json(&c, &outcomes)).unwrap();
    assert_eq!(json["schema"], "wallscope.diff/1");
    assert_eq!(json["functions"][0]["states"]["blocked"]["reason"], "lock");
    assert_eq!(json["conditions"][0]["verdict"], "fired");
}

fn c_of(base: &[Recording], new: &[Recording]) -> Comparison {
    judge(base, new, Normal::Second)
}

#[test]
fn a_wait_is_one_sample_however_long() {
    let (base, mut new) = moved();
    let waits_more = |new: &[Recording]| {
        let c = c_of(&base, new);
        let is = |f: &&FunctionRow| *f.function.name == *"cover_02";
        let row = c.functions.iter().find(is).expect("it is compared");
        let of = |s: &&InState| s.state == State::Blocked;
        row.states.iter().find(of).expect("it waits").changed
    };
    assert!(waits_more(&new), "thousands of samples");
    for rec in &mut new {
        let waits = rec.samples.last().expect("it waits").clone();
        let mut histogram = Histogram::new(FINE);
        histogram.add(waits.ns, 1.0);
        rec.histograms.push(HistogramRow {
            context: Some(waits.context),
            stack: Some(waits.stack),
            state: waits.state,
            reason: waits.reason,
            part: None,
            histogram,
        });
    }
    assert!(!waits_more(&new), "of five waits");
}

#[test]
fn functions_on_the_same_stacks_are_one_test() {
    let (from, mut r) = (long(), Random(17));
    let mut side = || -> Vec<_> { (0..5).map(|_| resampled(&from, 10, None, &mut r)).collect() };
    let (base, new) = (side(), side());
    // Twenty further callers of everything.
    let called = |rec: &Recording| {
        let mut rec = rec.clone();
        for i in 0..20 {
            let function = FunctionId(rec.functions.len() as u32);
            rec.functions.push(Function {
                name: format!("caller_{i}").into(),
                ..rec.functions[0].clone()
            });
            let id = FrameId(rec.frames.len() as u32);
            rec.frames.push(Frame {
                kind: FrameKind::Native,
                module: None,
                address: i,
                lines: vec![Line { function, line: 0 }],
            });
            rec.stacks.iter_mut().for_each(|s| s.frames.push(id));
        }
        rec
    };
    let judged = |base: &[Recording], new: &[Recording]| {
        let options = Options {
            metric: Metric::Total,
            ..Options::default()
        };
        let c = compare(base, new, &options).expect("one domain");
        let is = |f: &&FunctionRow| *f.function.name == *"cover_00";
        let row = c.functions.iter().find(is).expect("it is compared");
        (row.q, c.prior, c.functions.len())
    };
    let plain = judged(&base, &new);
    let deep: [Vec<Recording>; 2] = [&base, &new].map(|side| side.iter().map(called).collect());
    let deep = judged(&deep[0], &deep[1]);
    assert_eq!(deep.2, plain.2 + 20);
    // All of them are on every stack, which nothing was before, or they are one with an earlier one.
    let tests = |q: Option<f64>| q.expect("it is judged");
    assert!(tests(deep.0) <= 1.2 * tests(plain.0), "{deep:?} {plain:?}");
}

#[test]
fn stacks_of_both_sides_keep_their_sums() {
    let (base, new) = moved();
    let c = c_of(&base, &new);
    let mut out = Vec::new();
    diff::write_folded(&c, &base, &new, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let mut sums = [0.0, 0.0];
    for line in text.lines() {
        let mut columns = line.rsplitn(3, ' ');
        for sum in sums.iter_mut().rev() {
            *sum += columns.next().unwrap().parse::<f64>().unwrap();
        }
        assert!(
            columns.next().unwrap().contains(';') || line.starts_with('['),
            "{line}"
        );
    }
    let total = c.total();
    for (sum, want) in sums.iter().zip([total.base, total.new]) {
        // Rounding, and time that no sample stands for, which the whole counts too.
        assert!((sum / want - 1.0).abs() < 0.01, "{sum} {want}");
    }
    let mut page = Vec::new();
    diff::write_page(&c, [&base, &new], "a → b", &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("default-src 'none'") && !page.contains("{{"));
    let mut pprof = Vec::new();
    diff::write_pprof(&c, &base, &new, &mut pprof).unwrap();
    assert_eq!(pprof[..2], [0x1f, 0x8b]);
}

#[test]
fn more_data_resolves_more() {
    let from = long();
    let mut r = Random(15);
    let mut side = |n: u32| vec![resampled(&from, n, None, &mut r)];
    let (short, long) = (
        judge(&side(10), &side(10), Normal::Second),
        judge(&side(60), &side(60), Normal::Second),
    );
    assert!(
        long.resolves() < 0.6 * short.resolves(),
        "{} {}",
        short.resolves(),
        long.resolves()
    );
    let needs = short.efforts(short.resolves() / 3.0);
    let Effort::Longer(times) = needs[0].1 else {
        panic!("{needs:?}")
    };
    assert!(
        (8.0..10.0).contains(&times),
        "a third of the size, nine times as long: {times}"
    );
}

#[test]
fn different_domains_have_no_difference() {
    let a = long();
    let mut b = a.clone();
    b.domain.backend = "perf".into();
    let error = compare(&[a], &[b], &Options::default()).unwrap_err();
    assert!(error.to_string().contains("backend"), "{error}");
}
