//! Takes out of a log what tells of the host beside the measured programs, so that it can be a fixture
//! or go with a bug report: `cargo run -p wallscope-observe --example scrub -- LOG OUT`.
//!
//! Facts of the host keep their times, load and CPU counters. Directories before the last part of a
//! source file's path go, those of programs outside of `/usr` and `/lib`, names of threads and processes that were not measured, and the kernel's number
//! for its boot. Names, command lines and paths of the measured programs stay: look at them with
//! `wallscope report` before you pass a log on.

use std::{env, error::Error, path::Path, sync::Arc};

use wallscope_model::{Function, HostFacts, HostSample, Module, Process};
use wallscope_observe::{
    Begin, End, LockHolder, LockOwner, LogFile, LogReader, LogWriter, Observation, OtherEnd, kind,
};

/// Name of all that was not measured.
const STRANGER: &str = "stranger";
/// Places in a waker's record (`struct ws_wake`) of the number of its thread's record, which is 0 for one
/// that was not measured, and of its name.
const WAKER: std::ops::Range<usize> = 32..40;
const WAKER_NAME: std::ops::Range<usize> = 72..88;

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
            Observation::Event(record) => writer.append(&Observation::Event(&event(record))),
            Observation::Begin(begin) => writer.append(&Observation::Begin(Begin {
                boot: String::new(),
                ..begin
            })),
            Observation::OtherEnd(end) => writer.append(&Observation::OtherEnd(OtherEnd {
                process: end.process.map(|(pid, _)| (pid, STRANGER.into())),
                ..end
            })),
            Observation::Module(module) => writer.append(&Observation::Module(Module {
                path: path(&module.path),
                ..module
            })),
            Observation::Process(process) => writer.append(&Observation::Process(Process {
                exe: path(&process.exe),
                ..process
            })),
            Observation::LockOwner(owner) => writer.append(&Observation::LockOwner(holder(owner))),
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

/// A record, in which a waker that was not measured has no name of its own.
fn event(record: &[u8]) -> Vec<u8> {
    let mut record = record.to_vec();
    let first = record.get(..4).and_then(|b| b.try_into().ok());
    let is_wake = first.map(u32::from_le_bytes) == Some(kind::WAKE);
    if is_wake
        && record
            .get(WAKER)
            .is_some_and(|id| id.iter().all(|b| *b == 0))
    {
        let mut name = STRANGER.as_bytes().to_vec();
        name.resize(WAKER_NAME.len(), 0);
        if let Some(place) = record.get_mut(WAKER_NAME) {
            place.copy_from_slice(&name);
        }
    }
    record
}

fn holder(owner: LockOwner) -> LockOwner {
    match owner.holder {
        LockHolder::Stranger { pid, tid, .. } => LockOwner {
            holder: LockHolder::Stranger {
                pid,
                tid,
                name: STRANGER.into(),
            },
            ..owner
        },
        LockHolder::Record(_) => owner,
    }
}

/// A file's path, without the directories of what no distribution installs.
fn path(path: &str) -> Arc<str> {
    let installed = ["/usr/", "/lib", "["].iter().any(|p| path.starts_with(p));
    match path.rsplit('/').next() {
        Some(name) if !installed && !name.is_empty() => format!("/opt/{name}").into(),
        _ => path.into(),
    }
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
