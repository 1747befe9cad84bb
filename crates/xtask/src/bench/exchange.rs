//! Files read and written: time and memory, beside inferno.
//!
//! The files are made here, the same each time: walks down a random program, in which neighbours
//! share most of their callers, as those of real programs do. inferno is taken from `PATH`, or built
//! by cargo in a folder that goes again; where it cannot be had its figures are left out.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use wallscope_testkit::Tool;

use super::figure::Figure;
use crate::{Outcome, installed, median};

/// The inferno that is built: results are compared with this one's.
const INFERNO: &str = "0.12.8";

/// Amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Distinct stacks of the files that are read and written.
    pub stacks: usize,
    /// Bytes of `perf script`'s text.
    pub text: u64,
    /// Rounds of each measurement; medians are taken.
    pub rounds: usize,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// A program: names of functions, and stacks of them.
struct Walker {
    random: Random,
    names: Vec<String>,
    /// The stack that it is at, root first.
    stack: Vec<usize>,
}

const FUNCTIONS: usize = 20_000;
const DEEPEST: usize = 48;

impl Walker {
    fn new(seed: u64) -> Walker {
        const WORDS: [&str; 16] = [
            "parse", "load", "store", "commit", "cache", "index", "merge", "scan", "encode",
            "route", "lock", "flush", "walk", "plan", "batch", "apply",
        ];
        let mut random = Random(seed);
        let names = (0..FUNCTIONS)
            .map(|i| {
                let mut word = || WORDS[random.below(WORDS.len())];
                format!("{}_{}_{}_{i}", word(), word(), word())
            })
            .collect();
        Walker {
            random,
            names,
            stack: vec![0, 1, 2],
        }
    }

    /// Returns from some calls and makes others.
    fn step(&mut self) {
        let kept = self.stack.len() - self.random.below(self.stack.len().min(12));
        self.stack.truncate(kept.clamp(3, DEEPEST - 4));
        for _ in 0..1 + self.random.below(4) {
            // A function calls few others, each of them more or less often.
            let caller = self.stack[self.stack.len() - 1];
            let which = self.random.below(9).min(self.random.below(9));
            let callee = Random(caller as u64 * 16 + which as u64).below(FUNCTIONS);
            self.stack.push(callee);
        }
        let more = 10 + self.random.below(20);
        while self.stack.len() < more {
            let callee = self.random.below(FUNCTIONS);
            self.stack.push(callee);
        }
    }
}

/// Folded text of so many distinct stacks.
fn folded(path: &Path, stacks: usize) -> Outcome<()> {
    let mut walker = Walker::new(1);
    let mut seen = HashSet::new();
    let mut out = BufWriter::new(File::create(path)?);
    while seen.len() < stacks {
        walker.step();
        if !seen.insert(walker.stack.clone()) {
            continue;
        }
        for (i, function) in walker.stack.iter().enumerate() {
            let between = if i > 0 { ";" } else { "" };
            write!(out, "{between}{}", walker.names[*function])?;
        }
        writeln!(out, " {}", 1 + walker.random.below(9))?;
    }
    Ok(out.flush()?)
}

/// `perf script`'s text, at least so many bytes.
fn perf_script(path: &Path, bytes: u64) -> Outcome<()> {
    let mut walker = Walker::new(2);
    let mut out = BufWriter::new(File::create(path)?);
    let mut written = 0u64;
    let mut text = Vec::new();
    let mut sample = 0u64;
    while written < bytes {
        walker.step();
        // Hot programs are met at the same places again and again.
        let times = 1 + walker.random.below(12);
        for _ in 0..times {
            text.clear();
            sample += 1;
            let tid = 4000 + walker.random.below(16);
            let (seconds, micros) = (sample / 4000, sample % 4000 * 250);
            writeln!(
                text,
                "server  4000/{tid}  [{:03}] {seconds}.{micros:06}:    1001001 cpu-clock:ppp: ",
                tid % 4
            )?;
            if walker.random.below(5) == 0 {
                text.extend_from_slice(
                    b"\tffffffff81a2b3c4 copy_user_generic_string+0x24 ([kernel.kallsyms])\n\
                      \tffffffff81000130 entry_SYSCALL_64_after_hwframe+0x76 ([kernel.kallsyms])\n",
                );
            }
            // The innermost is met at some places, a caller where it called.
            let mut place = walker.random.below(8);
            for function in walker.stack.iter().rev() {
                let offset = Random((*function * 8 + place) as u64).below(512);
                let address = 0x5500_0000_0000u64 + (*function * 512 + offset) as u64;
                writeln!(
                    text,
                    "\t{address:16x} {}+0x{offset:x} (/usr/sbin/server)",
                    walker.names[*function]
                )?;
                place = *function % 8;
            }
            text.push(b'\n');
            out.write_all(&text)?;
            written += text.len() as u64;
        }
    }
    Ok(out.flush()?)
}

/// Time and memory of a command.
struct Took {
    seconds: f64,
    /// Peak memory, MiB.
    mib: f64,
}

/// Runs a command to its end; its own output goes to `out`.
fn run(command: &mut Command, out: &Path) -> Outcome<Took> {
    let began = Instant::now();
    let child = command
        .stdin(Stdio::null())
        .stdout(File::create(out)?)
        .stderr(Stdio::null())
        .spawn()?;
    let mut status = 0;
    // SAFETY: all bytes zero are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child has not been waited for, and both places are ours to write.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    let seconds = began.elapsed().as_secs_f64();
    if waited < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let status = ExitStatus::from_raw(status);
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    Ok(Took {
        seconds,
        mib: usage.ru_maxrss as f64 / 1024.0,
    })
}

/// `wallscope export`.
fn export(tool: &Tool, file: &Path, options: &[&str], out: &Path) -> Outcome<Took> {
    let mut command = Command::new(tool.path());
    command.arg("export").arg(file).args(options);
    command.arg("-o").arg(out);
    run(&mut command, Path::new("/dev/null"))
}

/// Reads and writes files of many distinct stacks, in both formats that matter most.
fn stacks(tool: &Tool, size: Size, folder: &Path) -> Outcome<Vec<Figure>> {
    let text = folder.join("stacks.folded");
    let profile = folder.join("stacks.pb.gz");
    let out = folder.join("out");
    folded(&text, size.stacks)?;
    export(tool, &text, &["--format", "pprof"], &profile)?;
    let mut figures = Vec::new();
    for (format, file, names) in [
        (
            "folded",
            &text,
            [
                ("folded-read", "read many distinct folded stacks"),
                ("folded-write", "write them"),
                ("folded-memory", "most memory in both"),
            ],
        ),
        (
            "pprof",
            &profile,
            [
                ("pprof-read", "read pprof of as many"),
                ("pprof-write", "write it"),
                ("pprof-memory", "most memory in both"),
            ],
        ),
    ] {
        let (mut read, mut write, mut mib) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..size.rounds {
            // A table of some lines: next to nothing but reading.
            let mut report = Command::new(tool.path());
            report.args(["report", "--by", "state"]).arg(file);
            let only_read = run(&mut report, Path::new("/dev/null"))?;
            let both = export(tool, file, &["--format", format], &out)?;
            read.push(only_read.seconds);
            write.push(both.seconds - only_read.seconds);
            mib.push(both.mib);
        }
        let values = [(read, "s"), (write, "s"), (mib, "MiB")];
        for ((key, what), (values, unit)) in names.into_iter().zip(values) {
            figures.push(Figure {
                key,
                what,
                value: median(values),
                unit,
            });
        }
    }
    Ok(figures)
}

/// inferno's program, installed or built for this.
fn inferno(folder: &Path) -> Result<PathBuf, String> {
    const PROGRAM: &str = "inferno-collapse-perf";
    if let Some(path) = installed(PROGRAM) {
        return Ok(path);
    }
    let root = folder.join("inferno");
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let status = Command::new(cargo)
        .args(["install", "--quiet", "--locked", "inferno", "--version"])
        .arg(INFERNO)
        .args(["--bin", PROGRAM, "--root"])
        .arg(&root)
        .current_dir(folder)
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("cargo cannot install inferno {INFERNO}"));
    }
    Ok(root.join("bin").join(PROGRAM))
}

/// The sorted lines of a file.
fn lines(path: &Path) -> Outcome<Vec<String>> {
    let text = std::fs::read_to_string(path)?;
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// Folds `perf script`'s text beside inferno, which must give the same lines.
fn beside_inferno(tool: &Tool, size: Size, folder: &Path) -> Outcome<Vec<Figure>> {
    let peer = match inferno(folder) {
        Ok(path) => path,
        Err(why) => {
            println!("left out: inferno: {why}");
            return Ok(Vec::new());
        }
    };
    let text = folder.join("script.txt");
    perf_script(&text, size.text)?;
    let (own_out, peer_out) = (folder.join("own.folded"), folder.join("inferno.folded"));
    let (mut ratios, mut own_seconds, mut mib) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        // Both weigh samples by the file's own periods.
        let options = ["--format", "folded", "--with", "thread"];
        let own = export(tool, &text, &options, &own_out)?;
        let theirs = run(Command::new(&peer).arg("--kernel").arg(&text), &peer_out)?;
        ratios.push(theirs.seconds / own.seconds);
        own_seconds.push(own.seconds);
        mib.push(own.mib);
    }
    if lines(&own_out)? != lines(&peer_out)? {
        return Err("folded stacks differ from inferno's".into());
    }
    Ok(vec![
        Figure {
            key: "script",
            what: "fold the text of perf script",
            value: median(own_seconds),
            unit: "s",
        },
        Figure {
            key: "script-inferno",
            what: "how many times as fast as inferno, the same lines",
            value: median(ratios),
            unit: "",
        },
        Figure {
            key: "script-memory",
            what: "most memory in it",
            value: median(mib),
            unit: "MiB",
        },
    ])
}

/// All of it.
pub(super) fn all(tool: &Tool, size: Size) -> Outcome<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    println!(
        "files of {} distinct stacks, and {} MB of text",
        size.stacks,
        size.text / 1_000_000
    );
    let mut figures = stacks(tool, size, folder.path())?;
    figures.extend(beside_inferno(tool, size, folder.path())?);
    Ok(figures)
}
