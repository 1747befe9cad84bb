//! `wallscope completions`: the script with which a shell completes verbs, options and their values.

use clap::Command;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// Write the completions of a shell, made of the same definitions as --help
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope completions bash > ~/.local/share/bash-completion/completions/wallscope
  wallscope completions zsh > ~/.zfunc/_wallscope        with ~/.zfunc in fpath
  wallscope completions fish > ~/.config/fish/completions/wallscope.fish")]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the verb for `command`.
pub fn run(args: Args, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "wallscope", &mut script);
    output::to_stdout(|w| w.write_all(&script))
}
