//! `wallscope doctor`: privileges and features of this host, the losses without them, and remedies.

mod process;
mod recipes;

use std::io::{self, Write};

use anyhow::Context as _;
use wallscope_capture::{
    host_capabilities::{self, Finding, Setting, Tier},
    survey::{self, Survey},
};

use crate::failure::Failure;
use recipes::Recipe;

/// Show the rights that this host gives, the losses without them, and how to give them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each thing is tried, not guessed from versions. Nothing on the host is changed.
With -p: what would be seen of that process: runtimes of managed code and whether their versions were
tested, names of code made at run time and the flags that give them, unwinding tables, debug
information, build ids.

Examples:
  wallscope doctor                  what works here
  wallscope doctor -p 4711          what would be seen of process 4711
  wallscope doctor --print setcap   the least rights that are enough, ready to paste")]
pub struct Args {
    /// What would be seen of this process
    #[arg(short, long, value_name = "PID", conflicts_with = "print")]
    pid: Option<u32>,

    /// As JSON
    #[arg(long, conflicts_with = "print")]
    json: bool,

    /// Print how to give the least rights that are enough
    #[arg(long, value_enum, value_name = "WHERE")]
    print: Option<Recipe>,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let text = match args.print {
        Some(recipe) => recipe.text(&host_capabilities::settings(), &own_path()),
        None => {
            let survey = args.pid.map(survey::of).transpose();
            let survey = survey.map_err(|e| Failure::of(e.exit_code(), e.into()))?;
            let (findings, settings) = (host_capabilities::probe(), host_capabilities::settings());
            match (args.json, &survey) {
                (true, _) => json(&findings, &settings, survey.as_ref()),
                (false, None) => words(&findings, &settings),
                (false, Some(survey)) => {
                    format!("{}\n\n{}", verdict(&findings), process::words(survey))
                }
            }
        }
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::reader_gone()),
        other => Ok(other.context("cannot write to standard output")?),
    }
}

/// Path of this program; its name if the path is not known.
fn own_path() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| "wallscope".into());
    path.to_string_lossy().into_owned()
}

/// The best backend that the findings permit.
fn best(findings: &[Finding]) -> Option<Tier> {
    let whole = |tier: Tier| {
        let mut needed = findings.iter().filter(|f| f.tier == tier);
        needed.all(|f| f.outcome.is_ok())
    };
    if whole(Tier::Ebpf) {
        Some(Tier::Ebpf)
    } else if !["proc_own", "child_schedstat"]
        .iter()
        .all(|id| host_capabilities::allowed(findings, id))
    {
        None
    } else if whole(Tier::Perf) {
        Some(Tier::Perf)
    } else {
        Some(Tier::Proc)
    }
}

fn verdict(findings: &[Finding]) -> &'static str {
    match best(findings) {
        Some(Tier::Ebpf) => {
            "Everything the best backend (ebpf) needs is allowed: exact ledgers and all stacks."
        }
        Some(Tier::Perf) if host_capabilities::allowed(findings, "other_memory") => {
            "eBPF is refused. The perf backend works, for own processes that run (-p) and for \
             commands: exact computing and queueing times, stacks of running and waiting threads."
        }
        Some(Tier::Perf) => {
            "eBPF is refused. The perf backend works for what wallscope starts itself (wallscope \
             record -- CMD): exact computing and queueing times, stacks of running and waiting \
             threads. Processes that already run (-p) show without stacks of their waits."
        }
        Some(_) if host_capabilities::allowed(findings, "other_memory") => {
            "eBPF is refused. The proc backend works, for running processes (-p) and for commands: \
             exact computing and queueing times, stacks of waiting threads."
        }
        Some(_) if host_capabilities::allowed(findings, "child_memory") => {
            "eBPF is refused. The proc backend works best for what wallscope starts itself \
             (wallscope record -- CMD): exact computing and queueing times, stacks of waiting \
             threads. Processes that already run (-p) show without stacks."
        }
        Some(_) => {
            "eBPF is refused, and so is reading memory. The proc backend still tells computing, \
             queueing and waiting apart, without stacks."
        }
        None => "Nothing that wallscope could measure with is allowed here.",
    }
}

fn words(findings: &[Finding], settings: &[Setting]) -> String {
    let mut out = format!("{}\n\n", verdict(findings));
    for f in findings {
        match &f.outcome {
            Ok(()) => out += &format!("  yes  {}\n", f.what),
            Err(why) => {
                out += &format!("  NO   {}: {why}\n", f.what);
                out += &format!("         lost:  {}\n", f.lost);
                out += &format!("         helps: {}\n", f.remedy);
            }
        }
    }
    out.push('\n');
    for s in settings {
        out += &format!("  {:<26} {}\n", s.name, s.value);
    }
    out
}

fn json(findings: &[Finding], settings: &[Setting], survey: Option<&Survey>) -> String {
    let items: Vec<_> = findings
        .iter()
        .map(|f| {
            serde_json::json!({
                "id": f.id,
                "what": f.what,
                "needed_for": f.tier.name(),
                "allowed": f.outcome.is_ok(),
                "error": f.outcome.as_ref().err(),
                "lost_without": f.lost,
                "remedy": f.remedy,
            })
        })
        .collect();
    let settings: serde_json::Map<_, _> = settings
        .iter()
        .map(|s| (s.name.to_owned(), s.value.clone().into()))
        .collect();
    let mut whole = serde_json::json!({
        "schema": "wallscope.doctor/1",
        "backend": best(findings).map(Tier::name),
        "verdict": verdict(findings),
        "items": items,
        "settings": settings,
    });
    if let Some(survey) = survey {
        whole["process"] = process::json(survey);
    }
    wallscope_render::json::text(&whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: &'static str, tier: Tier, works: bool) -> Finding {
        Finding {
            id,
            what: "a thing",
            tier,
            outcome: if works {
                Ok(())
            } else {
                Err("Operation not permitted".into())
            },
            lost: "knowledge",
            remedy: "a command",
        }
    }

    #[test]
    fn the_verdict_follows_what_was_tried() {
        let of = |bpf, perf, own, books| {
            [
                finding("bpf_sched", Tier::Ebpf, bpf),
                finding("perf_own", Tier::Perf, perf),
                finding("proc_own", Tier::Proc, own),
                finding("child_schedstat", Tier::Proc, books),
            ]
        };
        assert_eq!(best(&of(true, true, true, true)), Some(Tier::Ebpf));
        assert_eq!(best(&of(false, true, true, true)), Some(Tier::Perf));
        assert_eq!(best(&of(false, false, true, true)), Some(Tier::Proc));
        assert_eq!(best(&of(false, true, true, false)), None);
        assert_eq!(best(&of(false, true, false, true)), None);
    }

    #[test]
    fn a_refusal_shows_loss_and_remedy() {
        let text = words(&[finding("x", Tier::Extra, false)], &[]);
        assert!(
            text.contains("NO   a thing: Operation not permitted"),
            "{text}"
        );
        assert!(
            text.contains("lost:  knowledge") && text.contains("helps: a command"),
            "{text}"
        );
        let parsed: serde_json::Value =
            serde_json::from_str(&json(&[finding("x", Tier::Extra, false)], &[], None)).unwrap();
        assert_eq!(parsed["items"][0]["allowed"], false);
    }
}
