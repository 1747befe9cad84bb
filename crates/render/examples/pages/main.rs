//! Writes pages of made-up recordings, for looking at and for the tests in `web/`:
//! `cargo run --release -p wallscope-render --example pages -- OUT-DIR [NAME…]`.

mod maker;
mod programs;
mod switches;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::json;
use wallscope_model::*;
use wallscope_render::page::{self, Choice, PageOptions, Verdict};

use crate::maker::SECOND;
use crate::programs::{deep, hostile, many, shop};

/// The recording's stacks in speedscope's own format, the quickest it reads.
fn speedscope(r: &Recording, out: &mut impl Write) -> std::io::Result<()> {
    let name = |f: &Frame| r.functions[f.lines[0].function.0 as usize].name.to_string();
    let frames: Vec<_> = r
        .frames
        .iter()
        .map(|f| json!({ "name": name(f) }))
        .collect();
    let stacks = || {
        r.samples
            .iter()
            .map(|s| &r.stacks[s.stack.0 as usize].frames)
    };
    let samples: Vec<Vec<u32>> = stacks()
        .map(|s| s.iter().rev().map(|f| f.0).collect())
        .collect();
    let weights: Vec<u64> = r.samples.iter().map(|s| s.ns).collect();
    let profile = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": { "frames": frames },
        "profiles": [{
            "type": "sampled", "name": "wall", "unit": "nanoseconds", "startValue": 0,
            "endValue": weights.iter().sum::<u64>(), "samples": samples, "weights": weights,
        }],
    });
    serde_json::to_writer(out, &profile).map_err(std::io::Error::from)
}

/// A verdict on all blocked time. Its words are the recording's own names: of threads and functions.
fn verdict(r: &Recording) -> Verdict {
    let waits = r.samples.iter().enumerate();
    let waits: Vec<u32> = waits
        .filter(|(_, s)| s.state == State::Blocked)
        .map(|(i, _)| i as u32)
        .collect();
    let name = |of: Option<&Function>| of.map_or_else(String::new, |f| f.name.to_string());
    let (first, last) = (name(r.functions.first()), name(r.functions.last()));
    let choice = Choice::of_samples(r, &waits);
    Verdict {
        lines: vec![
            ("Cause", format!("Threads wait in {first}")),
            ("Evidence", format!("{} waits in {last}", waits.len())),
        ],
        advice: Some(format!("look at {first}")),
        command: Some(format!("wallscope why FILE --function '{first}'")),
        assumes: Some("the recording is made up"),
        sentence: format!("All of it is made up, {last} too."),
        details: vec![("rule", first.clone())],
        evidence: Some(choice.clone()),
        roots: vec![(format!("{first} waits"), Some(choice))],
    }
}

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(dir) = args.next() else {
        eprintln!("pages: no folder given; run: pages OUT-DIR [NAME…]");
        std::process::exit(2);
    };
    let chosen: Vec<String> = args.collect();
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    type Make = fn() -> Recording;
    let all: &[(&str, Make)] = &[
        ("shop", || shop(SECOND / 20)),
        ("coarse", || shop(SECOND)),
        ("deep", || deep(5_000)),
        ("hostile", hostile),
        ("empty", Recording::default),
        ("switches", || switches::switches(1_000_000)),
        ("100k", || many(100_000, 60, 16)),
        ("1m", || many(1_000_000, 60, 64)),
    ];
    for (name, make) in all {
        if !chosen.is_empty() && !chosen.iter().any(|c| c == name) {
            continue;
        }
        let recording = make();
        let path = dir.join(format!("{name}.html"));
        let mut out = BufWriter::new(File::create(&path)?);
        let verdict = verdict(&recording);
        let options = PageOptions {
            verdict: matches!(*name, "hostile" | "100k" | "1m").then_some(&verdict),
            ..PageOptions::default()
        };
        page::write(&recording, &options, &mut out)?;
        out.flush()?;
        println!(
            "{}: {} bytes",
            path.display(),
            std::fs::metadata(&path)?.len()
        );
        if matches!(*name, "100k" | "1m") {
            let path = dir.join(format!("{name}.speedscope.json"));
            let mut out = BufWriter::new(File::create(path)?);
            speedscope(&recording, &mut out)?;
            out.flush()?;
        }
    }
    Ok(())
}
