//! The lines of a verdict, for every verb that shows one: `ladder`, `view`, `export`.

use wallscope_diagnose::ladder::{ACTIVE, RootShare, Verdict};
use wallscope_diagnose::{Finding, recorded_name};
use wallscope_model::{BlockReason, Recording, State};
use wallscope_render::page::{self, Choice};

/// Share of the computing from which a function's stacks are shown alone.
const HOT_SPOT: f64 = 0.5;
/// Least share of the waits from which the page lists a root.
const MIN_ROOT_SHARE: f64 = 0.01;

/// A verdict, with the file that it is about as the user named it.
#[derive(Clone, Copy)]
pub struct VerdictLines<'a> {
    /// The verdict.
    pub verdict: &'a Verdict,
    /// The file.
    pub file: &'a str,
}

impl VerdictLines<'_> {
    /// The verdict in at most five lines, each with its name.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        let mut out = self.without_next();
        let next = match &self.verdict.parts.advice {
            Some(advice) => format!("{advice}; see {}", self.next()),
            None => self.next(),
        };
        out.push(("Next", next));
        out
    }

    /// All lines but the last: at most four.
    pub fn without_next(&self) -> Vec<(&'static str, String)> {
        let v = self.verdict;
        let parts = &v.parts;
        let mut evidence = parts.evidence.join("; ");
        let mut out = vec![("Cause", v.cause.clone())];
        if !parts.impact.is_empty() {
            out.push(("Impact", parts.impact.clone()));
        }
        out.extend(parts.root.clone().map(|root| ("Root", root)));
        // Where a root is known, the blind spot shares the line of the figures.
        let apart = parts.not_seen.clone().filter(|_| parts.root.is_none());
        if let Some(not_seen) = parts.not_seen.as_ref().filter(|_| apart.is_none()) {
            let joint = if evidence.is_empty() { "" } else { "; " };
            evidence = format!("{evidence}{joint}not seen: {not_seen}");
        }
        if !evidence.is_empty() {
            out.push(("Evidence", evidence));
        }
        out.extend(apart.map(|not_seen| ("Not seen", not_seen)));
        out
    }

    /// The command that shows more.
    pub fn next(&self) -> String {
        let (v, file) = (self.verdict, self.file);
        if let Some(pid) = v.look_at {
            return format!("wallscope ladder -p {pid}");
        }
        if v.whole != ACTIVE {
            return format!("wallscope report {file}");
        }
        match (v.state, v.reason, &v.function) {
            (Some(State::Blocked), Some("lock"), _) => format!("wallscope locks {file}"),
            (Some(State::Blocked), _, Some(function)) => {
                let function = recorded_name(function);
                format!("wallscope why {file} --function '{function}'")
            }
            (Some(State::OnCpu), ..) => format!("wallscope view {file} (view on-cpu)"),
            (Some(State::Runnable), ..) => format!("wallscope view {file} (view runq)"),
            _ => format!("wallscope report {file}"),
        }
    }

    /// Facts behind the verdict.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        let v = self.verdict;
        let mut out: Vec<(&str, String)> = v.more.iter().map(|says| ("", says.clone())).collect();
        out.push(("rule", v.rule.to_owned()));
        if let Some(resource) = &v.resource {
            out.push(("waited for", resource.clone()));
        }
        if v.bottleneck {
            out.push(("explains", format!("{} of {}", percent(v.share), v.whole)));
            out.push(("fixing it saves", v.bound.clone()));
        }
        if !v.also.is_empty() {
            out.push(("also true", v.also.join(", ")));
        }
        if !v.confidence.is_empty() {
            out.push(("confidence", v.confidence.clone()));
        }
        if let Some(assumes) = v.assumes {
            out.push(("assumes", assumes.to_owned()));
        }
        out.retain(|(_, says)| !says.is_empty());
        out
    }
}

/// A share of 1 as a percentage.
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0095 {
        format!("{:.1} %", share * 100.0)
    } else {
        format!("{:.0} %", share * 100.0)
    }
}

/// The verdict as the page opens with it.
pub fn of_page(recording: &Recording, finding: &Finding, file: &str) -> page::Verdict {
    let Some(verdict) = &finding.verdict else {
        return page::Verdict {
            lines: vec![("Cause", finding.sentence.clone())],
            details: vec![("rule", rule(finding))],
            ..page::Verdict::default()
        };
    };
    let lines = VerdictLines { verdict, file };
    let command = lines.next();
    let mut details = lines.details();
    let lines = lines.without_next();
    details.retain(|(name, says)| {
        let told = lines.iter().any(|(_, line)| line.contains(says.as_str()))
            || verdict.parts.advice.as_ref() == Some(says);
        *name != "rule" && !told
    });
    details.push(("rule", rule(finding)));
    details.extend(finding.evidence.iter().cloned());
    let also = finding.also.iter();
    details.extend(also.map(|(rule, says)| ("also", format!("{says} [{rule}]"))));
    page::Verdict {
        lines,
        advice: verdict.parts.advice.clone(),
        // The page is the view.
        command: Some(command).filter(|command| !command.starts_with("wallscope view")),
        assumes: verdict.assumes,
        sentence: finding.sentence.clone(),
        details,
        evidence: evidence(recording, finding.rule, verdict),
        roots: roots(recording, verdict),
    }
}

fn rule(finding: &Finding) -> String {
    format!("{}, which speaks when {}", finding.rule, finding.when)
}

/// The time that a verdict rests on; `None`: all time, as nothing stands out.
fn evidence(recording: &Recording, rule: &str, verdict: &Verdict) -> Option<Choice> {
    // No thread waits where a task does.
    if rule.starts_with("tasks-") {
        return Some(Choice::of_tasks(verdict.function.as_deref()));
    }
    let samples = verdict.samples();
    let choice = match samples.is_empty() {
        true if !verdict.bottleneck => return None,
        true => Choice::of_state(verdict.state, verdict.reason),
        false => Choice::of_samples(recording, samples),
    };
    // A verdict on waits is about all of them, and so is one on a flat profile: the function is the
    // main place among others.
    let only = verdict.state == Some(State::OnCpu)
        && Choice::share_of_state(recording, samples) >= HOT_SPOT;
    let function = verdict.function.as_deref();
    Some(match only {
        true => choice.through(function),
        false => choice.marking(function),
    })
}

/// The roots of the waits, each with its own time where the recording has it.
fn roots(recording: &Recording, verdict: &Verdict) -> Vec<(String, Option<Choice>)> {
    let roots = verdict.parts.blame.iter();
    let roots = roots.filter(|root| root.share >= MIN_ROOT_SHARE);
    roots
        .map(|root| {
            let says = format!("{} ({})", root.words(), percent(root.share));
            (says, time_of(recording, root))
        })
        .collect()
}

/// The time of a root; `None`: it is no thread of the recording, or the wait itself.
fn time_of(recording: &Recording, root: &RootShare) -> Option<Choice> {
    if root.own || root.state == State::Unknown {
        return None;
    }
    let contexts = recording.contexts.iter().enumerate();
    let threads: Vec<u32> = contexts
        .filter(|(_, thread)| root.is_of(&thread.name))
        .map(|(i, _)| i as u32)
        .collect();
    if threads.is_empty() {
        return None;
    }
    let reason = root.reason.map(BlockReason::name);
    let choice = Choice {
        threads,
        // The root may have waited for work while others waited for it.
        idle: true,
        ..Choice::of_state(Some(root.state), reason)
    };
    Some(choice.marking(Some(&root.function)))
}
