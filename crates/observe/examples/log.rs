//! Writes a log, loses its end as a killed recorder would, and reads the rest:
//! `cargo run -p wallscope-observe --example log`

use std::error::Error;

use wallscope_observe::{LogFile, LogReader, LogWriter, Mark, Observation};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let mut log = LogWriter::begin(LogFile::create(&path)?, "example 1.0", LogFile::BOUND);
    for second in 1..=3 {
        let time = second * 1_000_000_000;
        log.append(&Observation::Mark(Mark::Tick { time }));
        log.flush();
    }
    // Never flushed and never closed: the writer is gone before.
    let time = 4_000_000_000;
    log.append(&Observation::Mark(Mark::Tick { time }));
    std::mem::forget(log);

    let mut read = LogReader::open(&path)?;
    println!("written by {}", read.header().tool);
    while let Some(observation) = read.next() {
        println!("{observation:?}");
    }
    println!("{:?}", read.end());
    Ok(())
}
