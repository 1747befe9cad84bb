//! `wallscope view FILE`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use wallscope_render::page::{self, PageOptions};

use crate::failure::Failure;
use crate::output::{Output, Readers};
use crate::report::IdleArg;
use crate::select::SelectArgs;
use crate::{input, output, verdict};

/// Write a recording as one HTML page to look at, and open it where there is a browser
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope view rec.pb.gz                   writes rec.html beside it, and opens it
  wallscope view rec.pb.gz -o /tmp/rec.html --no-open
  ssh host cat rec.pb.gz | wallscope view -

The page needs nothing but itself: send it, attach it, open it offline. It makes no request.")]
pub struct Args {
    /// A recording, or a profile of another tool (see export --help); - reads standard input
    file: PathBuf,
    #[command(flatten)]
    reading: input::Reading,
    /// Where to write the page, - for standard output; without it, FILE with the ending .html
    #[arg(short, long, value_name = "OUT.html")]
    output: Option<PathBuf>,
    /// What the page does with idle time (blocked while no request is in flight) at first
    #[arg(long, value_enum, default_value_t = IdleArg::Hide)]
    idle: IdleArg,
    /// Only write the page
    #[arg(long)]
    no_open: bool,
    #[command(flatten)]
    select: SelectArgs,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let path = args.output.unwrap_or_else(|| beside(&args.file));
    // A page on standard output has no path that could be printed or opened.
    let file = match path == Path::new("-") {
        true => None,
        // The place is tried before the work is done.
        false => Some(Output::create(&path, Readers::Umask)?),
    };
    let recording = args
        .select
        .of(input::recording(&args.file, &args.reading)?)?;
    let found = wallscope_diagnose::finding(&recording);
    let verdict = verdict::of_page(&recording, &found, &args.file.display().to_string());
    let options = PageOptions {
        verdict: Some(&verdict),
        idle: args.idle.into(),
        ..PageOptions::default()
    };
    let Some(mut out) = file else {
        return output::to_stdout(|w| page::write(&recording, &options, w));
    };
    page::write(&recording, &options, &mut out).with_context(|| output::unwritable(&path))?;
    out.finish()?;
    if !args.no_open && open(&path) {
        eprintln!("wallscope: opening it in the browser");
    }
    output::to_stdout(|w| writeln!(w, "{}", path.display()))
}

/// The page's place when none is named: the recording's, or here for standard input.
fn beside(file: &Path) -> PathBuf {
    if file == Path::new("-") || input::is_address(file) {
        return PathBuf::from("wallscope.html");
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let stem = [".pb.gz", ".pprof.gz", ".pprof", ".gz", ".pb"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    let mut page = OsString::from(stem);
    page.push(".html");
    // Never over the input itself.
    if *page == *name {
        page.push(".html");
    }
    file.with_file_name(page)
}

/// Hands the page to the desktop's browser, if there is a desktop; returns whether it did.
fn open(path: &Path) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    if !set("DISPLAY") && !set("WAYLAND_DISPLAY") {
        return false;
    }
    Command::new("xdg-open")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lies_beside_its_recording_and_never_over_it() {
        let at = |file: &str| beside(Path::new(file)).display().to_string();
        assert_eq!(at("/a/rec.pb.gz"), "/a/rec.html");
        assert_eq!(at("cpu.pprof"), "cpu.html");
        assert_eq!(at("noext"), "noext.html");
        assert_eq!(at("odd.html"), "odd.html.html");
        assert_eq!(at("-"), "wallscope.html");
    }
}
