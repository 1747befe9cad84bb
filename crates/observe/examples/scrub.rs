//! Takes out of a log what tells of the host beside the measured programs, so that it can be a fixture
//! or go with a bug report: `cargo run -p wallscope-observe --example scrub -- LOG OUT`.
//!
//! Facts of the host keep their times, load and CPU counters. Directories before the last part of a
//! source file's path go. Names, command lines and paths of the measured programs stay: look at them
//! with `wallscope report` before you pass a log on.

use std::{env, error::Error, path::Path};

use wallscope_model::{Function, HostFacts, HostSample};
use wallscope_observe::{End, LogFile, LogReader, LogWriter, Observation};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [from, to] = arguments.as_slice() else {
        return Err("two arguments: the log, and the file for the scrubbed one".into());
    };
    let mut reader = LogReader::open(Path::new(from))?;
    let tool = reader.header().tool.clone();
    let mut writer = LogWriter::begin(LogFile::create(Path::new(to))?, &tool, LogFile::BOUND);
    while let Some(observation) = reader.next() {
        match observation {
            Observation::Host(sample) => writer.append(&Observation::Host(Box::new(host(*sample)))),
            Observation::SymbolFunction(f) => {
                writer.append(&Observation::SymbolFunction(function(f)));
            }
            other => writer.append(&other),
        }
    }
    match reader.end() {
        Some(End::Whole(left_out)) if left_out.is_empty() => {}
        end => return Err(format!("the log is not whole: {end:?}").into()),
    }
    let closed = writer.close()?;
    println!("{} bytes", closed.bytes);
    Ok(())
}

fn host(sample: HostSample) -> HostSample {
    let HostFacts {
        load,
        runnable_tasks,
        cpu_ns,
        cpu_busy_ns,
        context_switches,
        ..
    } = sample.facts;
    HostSample {
        facts: HostFacts {
            load,
            runnable_tasks,
            cpu_ns,
            cpu_busy_ns,
            context_switches,
            ..HostFacts::default()
        },
        ..sample
    }
}

fn function(f: Function) -> Function {
    let name = f.file.rsplit('/').next().unwrap_or_default();
    Function {
        file: name.into(),
        ..f
    }
}
