//! Reads a profile of any known format and writes it as pprof; without arguments it makes a small file,
//! writes it in every format, and reads each one back:
//! `cargo run -p wallscope-formats --example convert -- FILE OUT.pb.gz`

use std::error::Error;
use std::fs::File;

use wallscope_formats::{Bounds, Format, Options, WriteOptions, open, read};

const FOLDED: &str = "shop;handle;reserve;lock 700\nshop;handle;render 250\nshop;idle 50\n";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [from, to] => convert(from, to),
        _ => round_trips(),
    }
}

fn convert(from: &str, to: &str) -> Result<(), Box<dyn Error>> {
    let file = open(File::open(from)?, Options::default())?;
    for warning in &file.warnings {
        eprintln!("{from}: {warning}");
    }
    let pprof = Format::named("pprof").ok_or("pprof is always known")?;
    let mut out = File::create(to)?;
    for left_out in pprof.write(&file.recording, &WriteOptions::default(), &mut out)? {
        eprintln!("{to}: {left_out}");
    }
    Ok(())
}

fn round_trips() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("small.folded");
    std::fs::write(&path, FOLDED)?;
    let recording = open(File::open(&path)?, Options::default())?.recording;
    for format in Format::written() {
        let mut bytes = Vec::new();
        format.write(&recording, &WriteOptions::default(), &mut bytes)?;
        let back = match read(&bytes, Bounds::default()) {
            Ok(back) => format!("{} stacks read back", back.recording.stacks.len()),
            Err(why) => format!("not read back: {why}"),
        };
        println!("{:<12} {:>6} bytes, {back}", format.name, bytes.len());
    }
    Ok(())
}
