//! `cargo xtask TASK`.

use std::process::ExitCode;

use xtask::{Outcome, bench, kernels, prove_diff, tidy, verify};

const HELP: &str = "\
usage: cargo xtask TASK

  bench [--quick]      what measuring costs, beside the bare program and other tools
  verify [--quick] [--no-write] [--without NAME]
                       every promised number at full length; writes docs/verification.md, which
                       says what was left out
  verify --only NAME [--quick]
                       one experiment of it, as `ladder`; writes nothing
  prove-diff [--quick] one program against itself, and one function made dearer, live
  kernels VMLINUZ… [EXPERIMENT…]
                       experiments under other kernels, in an emulator
  tidy                 which crate depends on which, lengths of files, paths of this machine

bench, verify and prove-diff need root and a quiet machine. --quick: short, to see that they work; it writes
nothing.
";

fn run(arguments: &[&str]) -> Outcome<bool> {
    match arguments {
        ["bench"] => bench::run(bench::Effort::FULL),
        ["bench", "--quick"] => bench::run(bench::Effort::QUICK),
        ["verify", "--only", name] => verify::only(name, false),
        ["verify", "--only", name, "--quick"] => verify::only(name, true),
        ["verify", flags @ .., "--without", name] if flags.iter().all(known) => {
            verify_with(flags, Some(name))
        }
        ["verify", flags @ ..] if flags.iter().all(known) => verify_with(flags, None),
        ["prove-diff"] => prove_diff::run(false),
        ["prove-diff", "--quick"] => prove_diff::run(true),
        ["kernels", arguments @ ..] => kernels::run(arguments),
        ["inside", names @ ..] => kernels::inside(names),
        ["tidy"] => tidy::run(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => Err(format!("no such task\n{HELP}").into()),
    }
}

fn known(flag: &&str) -> bool {
    ["--quick", "--no-write"].contains(flag)
}

fn verify_with(flags: &[&str], without: Option<&str>) -> Outcome<bool> {
    let quick = flags.contains(&"--quick");
    let write = !quick && !flags.contains(&"--no-write");
    verify::run(quick, write, without)
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
