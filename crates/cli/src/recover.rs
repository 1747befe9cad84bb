//! `wallscope recover`: the spool of a recorder that did not end in order → its recording.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use wallscope_binfmt::elf::Elf;
use wallscope_capture::session::{
    own_vdso,
    recover::{self, EarlyEnd, Extent, Recovered, SameKernel},
};
use wallscope_model::{FrameKind, Limit, ModuleId, ModuleKind, Recording};
use wallscope_observe::{LogReader, is_being_written};
use wallscope_procfs::{
    kernel_file,
    target_file::{Rights, TargetRoot},
};
use wallscope_symbolize::{KernelSymbols, ModuleSource, Sources};

use crate::{
    failure::Failure,
    output::{Output, Readers},
    record,
    replay::{self, NotReplayed},
};

/// Make a recording of the spool that a killed `record` left, up to its last second
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wallscope recover run.pb.gz.spool -o run.pb.gz    what an ended `record -o run.pb.gz` had measured
  wallscope recover kept.log -o run.pb.gz           of a log of `record --keep-log` without an end

Functions of native code are named where this machine has the files that were measured, by their build
ids. The recording says when the recorder ended, and how old its cumulative figures are. The spool stays.")]
pub struct Args {
    /// The spool: it lies beside the output, as OUTPUT.spool
    spool: PathBuf,

    /// Where to write, - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let spool = &args.spool;
    if is_being_written(spool) {
        return Err(Failure::from(anyhow::anyhow!(
            "'{}' belongs to a recording under way: end that, and it writes its output (Ctrl-C, or SIGTERM)",
            spool.display()
        )));
    }
    let mut reader = open(spool)?;
    let extent = recover::extent(&mut reader).map_err(|e| unreadable(spool, &e))?;
    let output = Output::create(&args.output, Readers::Owner)?;
    let mut reader = open(spool)?;
    let early = match extent {
        Extent::Early(early) => early,
        Extent::Whole => {
            return replay::whole(&mut reader, output).map_err(|e| match e {
                NotReplayed::Log(e) => unreadable(spool, &e),
                NotReplayed::Output(e) => e.into(),
            });
        }
    };
    let recording = recovered(spool, &mut reader, &early)?;
    let end = ended(&recording);
    let path = record::write(output, &recording)?;
    eprintln!("wallscope: {end}");
    eprintln!("wallscope: {}", record::written(&path));
    Ok(())
}

fn unreadable(spool: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::unreadable(format!("cannot recover '{}': {why}", spool.display()))
}

fn open(spool: &Path) -> Result<LogReader, Failure> {
    LogReader::open(spool).map_err(|e| unreadable(spool, &e))
}

/// The recording, named as far as this machine can.
fn recovered(spool: &Path, reader: &mut LogReader, early: &EarlyEnd) -> Result<Recording, Failure> {
    let boot = kernel_file::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let recovered = recover::recover(reader, early, boot.trim());
    let mut recovered = recovered.map_err(|e| unreadable(spool, &e))?;
    // The recorder belonged to the owner of its spool, and so do the names in it.
    let owner = spool.metadata().map_err(|e| unreadable(spool, &e))?;
    let sources = sources(&recovered, Rights::of_owner(&owner));
    let unnamed = wallscope_symbolize::resolve(&mut recovered.recording, sources);
    recovered.recording.losses.extend(unnamed);
    record::mark(&mut recovered.recording, &recovered.seen);
    describe(&mut recovered);
    Ok(recovered.recording)
}

/// Sources for names of native code: files under their recorded paths, if they are the builds that were
/// measured, opened with these rights.
fn sources(recovered: &Recovered, rights: Rights) -> Sources {
    let mut sources = Sources {
        root: TargetRoot::of_host(rights).ok().map(Arc::new),
        perf_maps: false,
        ..Sources::default()
    };
    if recovered.kernel == SameKernel::No {
        // Symbols of another boot would be wrong.
        sources.kallsyms = Some(Arc::new(KernelSymbols::new("".into())));
    }
    let vdso = own_vdso();
    let build = vdso.as_deref().and_then(|v| Elf::parse(v).ok()?.build_id());
    for (id, module) in (0..).map(ModuleId).zip(&recovered.recording.modules) {
        if module.kind == ModuleKind::Vdso && build.as_deref() == Some(&*module.build_id) {
            let bytes = vdso.clone().unwrap_or_default();
            sources.modules.insert(id, ModuleSource::from_bytes(bytes));
        }
    }
    sources
}

/// Words of a backend about a recording that was recovered.
struct Words {
    /// Figures that are cumulative.
    figures: &'static str,
    /// The parts that the recording lacks.
    lacks: &'static str,
}

impl Words {
    fn of(backend: &str) -> Words {
        match backend {
            "perf" => Words {
                figures: "ticks of user and kernel code, numbers of switches, CPU clocks of processes, \
                          connections, hits of events and losses",
                lacks: "tasks of runtimes, the processes at the other ends of connections that began after the \
                        recording, and the last reading of the scheduler's counters: what a thread waited for a \
                        CPU since the reading before counts as blocked",
            },
            "proc" => Words {
                figures: "ticks of user and kernel code, numbers of switches, CPU clocks of processes, \
                          connections and losses",
                lacks: "tasks of runtimes, the processes at the other ends of connections that began after the \
                        recording, and the last poll of each thread: a thread that was blocked at its last poll counts \
                        as blocked from then on, and the time of a thread that ran is unknown",
            },
            _ => Words {
                figures: "histograms of lengths, sums of locks, connections, counts of events and the collector's \
                          losses",
                lacks: "tasks of runtimes, the processes at the other ends of connections that began after the \
                        recording, owners of locks in waits that were under way, and stacks of code that was too \
                        new to be unwound at once",
            },
        }
    }
}

/// Notes in the domain that the recorder ended early, and which parts are missing therefore.
fn describe(recovered: &mut Recovered) {
    let end = ended(&recovered.recording);
    let words = Words::of(&recovered.recording.domain.backend);
    let figures = match recovered.figures_age_ns {
        Some(age) => format!(
            "{} are {:.1} s older than its end",
            words.figures,
            age as f64 / 1e9
        ),
        None => format!(
            "it ended before {} were first written, so it has none",
            words.figures
        ),
    };
    let mut frames = recovered.recording.frames.iter();
    let has_kernel = frames.any(|f| f.kind == FrameKind::Kernel);
    let unnamed = (has_kernel && recovered.kernel == SameKernel::No).then_some(
        "functions of the kernel have no names: it has been started anew since, or is another one",
    );
    let domain = &mut recovered.recording.domain;
    domain.notes.push(format!(
        "{end}; the spool ends because {}; {figures}",
        recovered.why
    ));
    domain.notes.extend(unnamed.map(str::to_owned));
    domain.limits.push(Limit {
        what: format!(
            "{}: the recorder reads them at its end, which it did not reach",
            words.lacks
        ),
        remedy: "a recording that ends in order".into(),
    });
}

/// When the recorder ended, and its backend.
fn ended(recording: &Recording) -> String {
    let window = &recording.window;
    let length = window.length_ns();
    let unix = i128::from(window.start_unix_ns) + i128::from(length);
    let time = jiff::Timestamp::from_nanosecond(unix).map(|t| {
        let local = t.to_zoned(jiff::tz::TimeZone::system());
        local.strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    });
    let by = match &*recording.domain.backend {
        "" => String::new(),
        backend => format!(" by the {backend} backend"),
    };
    format!(
        "recovered: the recorder ended early, at {} or up to a second later; the recording{by} has the {:.1} s \
         before",
        time.unwrap_or_else(|_| "an unknown time".into()),
        length as f64 / 1e9
    )
}
