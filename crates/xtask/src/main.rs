//! `cargo xtask TASK`.

use std::{path::Path, process::ExitCode};

use xtask::prove_diff::{self, Length};
use xtask::verify::{Earlier, Extent, Page};
use xtask::{
    Outcome, bench, dist, fixtures, kernels, same_code, same_output, soak, tidy, verify, web,
};

const HELP: &str = "\
usage: cargo xtask TASK

  bench [--quick]      what measuring costs, beside the bare program and other tools
  bench --only NAME [--quick]
                       one workload of it: pingpong, fixed, python, java, go or node
  bench --files [--quick]
                       files read and written: time, memory, beside inferno
  bench --real [--quick]
                       databases, servers and compilers of Debian's, where installed: their ledgers,
                       whole stacks, and how much slower they get
  bench --overhead [LOAD] [--quick]
                       throughput that servers keep under a recording (postgres, redis, nginx, memcached,
                       go-echo, tokio), cost of the pingpong, of 10,000 sleepers and of 1,000 starts a second,
                       and the printed overhead beside the measured one. On a machine with other work,
                       run it in a cgroup of its own, of high weight (cpu.shares, cpu.weight)
  bench --floor [LOAD] [--quick]
                       the same loads under hooks that do nothing and under perf's timer alone: the least that
                       a recording costs here
  bench --blame [--quick]
                       what it costs to follow waits, tasks and garbage collection, on a busy PostgreSQL
  bench --agent [--quick]
                       what the agent costs on an idle host, at 5,000 and at 50,000 switches a second
  verify [--quick] [--no-write] [--continue] [--without NAME]
                       every promised number at full length; writes docs/verification.md, which
                       says what was left out. --continue: makes what an interrupted run of this binary lacks
  verify --dist [--suite NAME] [--system DIR] [--deb FILE] [--boot VMLINUZ]
                       the Debian package in a fresh Debian (bookworm unless told; debootstrap, root):
                       installed, used and purged; with --boot, systemd starts, reloads and restarts the agent
                       in an emulator, too; writes nothing
  verify --only NAME [--quick]
                       one experiment of it, as `ladder`; writes nothing
  prove-diff [--quick | PAIRS TRIALS]
                       one program against itself, and one function made dearer, live: 20 trials of
                       5 runs against 5, of which 80 pairs of equals, and 20 further pairs unless
                       told; 20 minutes of recordings on two CPUs, and the comparisons
  dist [--binary PATH] [--static-binary PATH] [--output DIR]
                       the packages that people install, into target/dist: .deb, static archive, OCI
                       image, Kubernetes manifests, checksums
  fixtures [NAME…]     logs of truth programs, and their books, made anew for the tests that replay them: all, or
                       those of these names
  fixtures --scrub LOG OUT
                       a kept log without what tells of this host beside the measured programs
  kernels VMLINUZ… [EXPERIMENT…]
                       experiments under other kernels, in an emulator
  same-code [BASE] [PATHS…]
                       whether files changed since BASE (HEAD~1 unless told) differ in comments
                       only; names the first token that differs in each other one
  same-output OLD NEW FOLDER
                       whether two binaries read each file of FOLDER to the same outputs; names
                       each difference
  soak [--minutes N]   memory of an agent under a storm of processes and cgroups, for 10 minutes unless
                       told and two before them: it may grow by 1 MiB from the second tenth to the last
  tidy [--shrink]      dependencies, import cycles, sizes, prose; exceptions are listed in
                       crates/xtask/ratchet. --shrink: write the lists anew, never larger
  web [--check]        bundle the page's modules with esbuild (needs npm); --check: compare only

bench, verify, fixtures, soak and prove-diff need root and a quiet machine. --quick: short, to see that they work; it writes
nothing.
";

/// `bench --overhead` or `--floor`, as `part` tells, with these arguments.
fn bench_loads(part: &str, rest: &[&str]) -> Outcome<bool> {
    let watched = match part {
        "--floor" => bench::Watched::Floors,
        _ => bench::Watched::Recordings,
    };
    let (effort, rest) = match rest {
        [rest @ .., "--quick"] => (bench::Effort::QUICK, rest),
        _ => (bench::Effort::FULL, rest),
    };
    match rest {
        [] => bench::run(effort, bench::Selection::Overhead(watched, None)),
        [load] => bench::run(effort, bench::Selection::Overhead(watched, Some(load))),
        _ => Err(format!("bench {part} takes one load at most").into()),
    }
}

fn run(arguments: &[&str]) -> Outcome<bool> {
    match arguments {
        ["bench", "--only", name] => bench::run(bench::Effort::FULL, bench::Selection::Only(name)),
        ["bench", "--only", name, "--quick"] => {
            bench::run(bench::Effort::QUICK, bench::Selection::Only(name))
        }
        ["bench", part @ ("--overhead" | "--floor"), rest @ ..] => bench_loads(part, rest),
        ["bench", "--blame"] => bench::run(bench::Effort::FULL, bench::Selection::Blame),
        ["bench", "--blame", "--quick"] => {
            bench::run(bench::Effort::QUICK, bench::Selection::Blame)
        }
        ["bench", "--agent"] => bench::run(bench::Effort::FULL, bench::Selection::Agent),
        ["bench", "--agent", "--quick"] => {
            bench::run(bench::Effort::QUICK, bench::Selection::Agent)
        }
        ["bench", flags @ ..]
            if flags
                .iter()
                .all(|f| ["--quick", "--files", "--real"].contains(f)) =>
        {
            let effort = match flags.contains(&"--quick") {
                true => bench::Effort::QUICK,
                false => bench::Effort::FULL,
            };
            let what = match (flags.contains(&"--files"), flags.contains(&"--real")) {
                (true, _) => bench::Selection::Files,
                (_, true) => bench::Selection::Real,
                _ => bench::Selection::Usual,
            };
            bench::run(effort, what)
        }
        ["verify", "--dist", rest @ ..] => dist::verify(rest),
        ["verify", "--only", name] => verify::only(name, Extent::Full),
        ["verify", "--only", name, "--quick"] => verify::only(name, Extent::Quick),
        ["verify", flags @ .., "--without", name] if flags.iter().all(known) => {
            verify_with(flags, Some(name))
        }
        ["verify", flags @ ..] if flags.iter().all(known) => verify_with(flags, None),
        ["prove-diff"] => prove_diff::run(Length::FULL),
        ["prove-diff", "--quick"] => prove_diff::run(Length::QUICK),
        ["prove-diff", pairs, trials] => prove_diff::run(Length {
            pairs: pairs.parse()?,
            trials: trials.parse()?,
            ..Length::FULL
        }),
        ["dist", arguments @ ..] => dist::run(&dist::Options::parse(arguments)?),
        ["fixtures", "--scrub", log, out] => {
            let bytes = fixtures::scrub(Path::new(log), Path::new(out))?;
            println!("{bytes} bytes");
            Ok(true)
        }
        ["fixtures", names @ ..] => fixtures::run(names),
        ["kernels", arguments @ ..] => kernels::run(arguments),
        ["inside", names @ ..] => kernels::inside(names),
        ["same-code", arguments @ ..] => same_code::run(arguments),
        ["same-output", old, new, folder] => same_output::run(old, new, folder),
        ["soak"] => soak::run(10),
        ["soak", "--minutes", minutes] => soak::run(minutes.parse()?),
        ["tidy"] => tidy::run(),
        ["web"] => web::run(web::Mode::Write),
        ["web", "--check"] => web::run(web::Mode::Check),
        ["tidy", "--shrink"] => tidy::shrink(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => Err(format!("no such task\n{HELP}").into()),
    }
}

fn known(flag: &&str) -> bool {
    ["--quick", "--no-write", "--continue"].contains(flag)
}

fn verify_with(flags: &[&str], without: Option<&str>) -> Outcome<bool> {
    let extent = match flags.contains(&"--quick") {
        true => Extent::Quick,
        false => Extent::Full,
    };
    let page = match extent == Extent::Full && !flags.contains(&"--no-write") {
        true => Page::Written,
        false => Page::Printed,
    };
    let earlier = match flags.contains(&"--continue") {
        true => Earlier::Taken,
        false => Earlier::Dropped,
    };
    verify::run(extent, page, earlier, without)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
