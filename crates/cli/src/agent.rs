//! `wallscope agent check`.

use std::path::PathBuf;

use clap::Subcommand;
use wallscope_agent::config::{Config, ConfigError, DEFAULT_FILE};

use crate::failure::Failure;
use crate::output;

/// Always on: check the configuration of an agent
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope agent check                       /etc/wallscope/agent.toml
  wallscope agent check --config my.toml
  wallscope report DIR --from 14:00 --until 14:05 --service checkout   an agent's windows

Exit code 5: the file cannot be read, or a line of it is wrong.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// The action.
#[derive(Subcommand)]
enum Action {
    /// Read the configuration and name the line, the key and the allowed values of a mistake
    Check(Check),
}

/// `agent check`.
#[derive(clap::Args)]
struct Check {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let Action::Check(check) = args.action;
    let config = Config::read(&check.config).map_err(|e| {
        let next = match &e {
            ConfigError::Unreadable { .. } => "; name another with --config FILE",
            ConfigError::Wrong { .. } => "",
        };
        Failure::unreadable(format!("{e}{next}"))
    })?;
    let summary = format!(
        "{}: fine. Windows of {} s in '{}', {} targets, {} triggers, {} rules\n",
        check.config.display(),
        config.windows.length.get_ref().0.as_secs(),
        config.store.dir.display(),
        config.targets.len(),
        config.triggers.len(),
        config.services.rules.len()
    );
    output::to_stdout(|w| w.write_all(summary.as_bytes()))
}
