//! `wallscope man`: manual pages from the same definitions as `--help`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;
use roff::{Roff, roman};

use crate::failure::Failure;
use crate::output::{self, Output, Readers};

/// Write manual pages, made of the texts of --help
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope man | man -l -                   read wallscope(1)
  wallscope man record | man -l -            read wallscope-record(1)
  wallscope man -o ~/.local/share/man/man1   keep the pages of all verbs")]
pub struct Args {
    /// The verb; without one, wallscope itself
    verb: Option<String>,
    /// Write the pages of wallscope and of each verb into this folder
    #[arg(short, long, value_name = "DIR", conflicts_with = "verb")]
    output: Option<PathBuf>,
}

/// Runs the verb; `command` is the command line that the pages describe.
pub fn run(args: Args, mut command: Command) -> Result<(), Failure> {
    command = command.disable_help_subcommand(true);
    command.build();
    if let Some(folder) = args.output {
        for page in std::iter::once(&command).chain(command.get_subcommands()) {
            let mut out = Output::create(
                &folder.join(Man::new(page.clone()).get_filename()),
                Readers::Umask,
            )?;
            write(page, &mut out).map_err(anyhow::Error::new)?;
            out.finish()?;
        }
        return Ok(());
    }
    let page = match &args.verb {
        None => &command,
        Some(verb) => command.find_subcommand(verb).ok_or_else(|| {
            let verbs: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
            Failure::usage(format!(
                "there is no verb '{verb}'; name one of {}",
                verbs.join(", ")
            ))
        })?,
    };
    output::to_stdout(|w| write(page, w))
}

/// One page in roff.
fn write(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let man = Man::new(command.clone());
    let title = man.get_filename().trim_end_matches(".1").to_uppercase();
    let version = env!("CARGO_PKG_VERSION");
    writeln!(
        out,
        ".TH {title} 1 \"\" \"wallscope {version}\" \"wallscope\""
    )?;
    man.render_name_section(out)?;
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    lines("SYNOPSIS", usage, out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    // The renderer would join lines here, and examples need their line breaks.
    let after = command.get_after_help().map(ToString::to_string);
    let (mut examples, mut notes) = (Vec::new(), Vec::new());
    let mut inside = false;
    for line in after.as_deref().unwrap_or_default().lines() {
        let indented = line.is_empty() || line.starts_with(' ');
        if line == "Examples:" {
            inside = true;
            continue;
        }
        inside &= indented;
        if inside { &mut examples } else { &mut notes }.push(line);
    }
    for (title, text) in [("EXAMPLES", examples), ("NOTES", notes)] {
        let text = text.join("\n");
        if !text.trim().is_empty() {
            lines(title, text.trim_end(), out)?;
        }
    }
    Ok(())
}

/// A section in which line breaks are kept.
fn lines(title: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut section = Roff::new();
    section.control("SH", [title]).control("nf", []);
    for line in text.lines() {
        section.text([roman(line)]);
    }
    section.control("fi", []);
    section.to_writer(out)
}
