//! Rungs 3 and 4 of the ladder: how often the named functions are called, and how long the calls of
//! the one in the verdict are. Both need probes in the live process, so they are climbed only when
//! asked for (`--go`), and never above the limit; otherwise the commands are printed.

use std::time::Duration;

use serde_json::{Value, json};
use wallscope_capture::Error;
use wallscope_capture::probes::{self, Options, spec::Spec};
use wallscope_capture::target::Target;
use wallscope_explain::ladder::{Cause, Ladder};
use wallscope_model::Recording;
use wallscope_model::calls::Calls;
use wallscope_report::calls::{self, Look};
use wallscope_report::text::units::{count, ns};

use crate::latency::Teller;
use crate::report::style;

/// Functions that are counted.
const MOST: usize = 3;
/// How long each is counted, and the verdict's is timed.
const COUNTED: Duration = Duration::from_secs(2);
const TIMED: Duration = Duration::from_secs(5);

/// A function as probes are placed by.
struct Named<'a> {
    cause: &'a Cause,
    module: String,
    name: String,
}

/// The functions of the program's own code that the causes name, each once: the verdict's first.
fn named<'a>(recording: &Recording, ladder: &'a Ladder) -> Vec<Named<'a>> {
    let verdict = ladder.verdict.function.as_deref();
    let mut causes: Vec<&Cause> = ladder.causes.iter().collect();
    causes.sort_by_key(|c| verdict != Some(&*c.function));
    let mut found: Vec<Named<'_>> = Vec::new();
    for cause in causes {
        let known = found.iter().any(|n| n.cause.function == cause.function);
        let Some(module) = recording
            .modules
            .iter()
            .find(|m| m.name() == &*cause.module)
        else {
            continue;
        };
        let Some(function) = recording
            .functions
            .iter()
            .find(|f| f.name == cause.function)
        else {
            continue;
        };
        if known || !module.path.starts_with('/') || found.len() == MOST {
            continue;
        }
        let raw = match &*function.system_name {
            "" => &*function.name,
            raw => raw,
        };
        found.push(Named {
            cause,
            module: module.name().to_owned(),
            name: raw.split('@').next().unwrap_or(raw).to_owned(),
        });
    }
    found
}

/// The commands that climb them by hand.
pub fn commands(recording: &Recording, ladder: &Ladder) -> Vec<String> {
    let pid = recording.domain.target.strip_prefix("pid ");
    let target = pid.map_or("-p PID".to_owned(), |p| {
        format!("-p {}", p.replace(", ", ","))
    });
    let named = named(recording, ladder);
    let Some(first) = named.first() else {
        return Vec::new();
    };
    let all: Vec<String> = named
        .iter()
        .map(|n| format!("'{}:{}'", n.module, n.name))
        .collect();
    vec![
        format!("wallscope count {} {target} -d 5", all.join(" ")),
        format!(
            "wallscope latency '{}:{}' {target} -d 10",
            first.module, first.name
        ),
    ]
}

/// What the probes found.
pub struct Climbed {
    /// Each function: its name, what rung 2 measured of it, and its calls or why there are none.
    counted: Vec<(String, Duration, Result<Calls, String>)>,
    /// Calls of the verdict's function.
    timed: Option<Result<Calls, String>>,
    /// Length of the recording, ns.
    window_ns: u64,
}

/// Climbs them: places the probes and waits.
pub fn climb(
    recording: &Recording,
    ladder: &Ladder,
    target: &Target,
    max_overhead: f64,
) -> Climbed {
    let by_hand = commands(recording, ladder);
    let measure = |n: &Named<'_>, timed: bool| {
        let options = Options {
            target: target.clone(),
            asked: vec![Spec::Function {
                module: Some(n.module.clone()),
                name: n.name.clone(),
                offset: None,
            }],
            timed,
            duration: Some(if timed { TIMED } else { COUNTED }),
            max_overhead,
            slowest: 5,
            each: false,
        };
        probes::measure(&options, &mut Teller::quiet())
            .map(|m| m.calls)
            .map_err(|e| match e {
                Error::NoSuchProcess { .. } => match by_hand.get(usize::from(timed)) {
                    Some(command) => {
                        format!("the target has ended; beside its next run: {command}")
                    }
                    None => "the target has ended".into(),
                },
                e => e.to_string(),
            })
    };
    let named = named(recording, ladder);
    let counted = named
        .iter()
        .map(|n| {
            let spent = Duration::from_nanos(n.cause.ns);
            (n.cause.function.to_string(), spent, measure(n, false))
        })
        .collect();
    Climbed {
        counted,
        timed: named.first().map(|n| measure(n, true)),
        window_ns: ladder.bottleneck.window_ns,
    }
}

impl Climbed {
    /// Calls a second, and the time that rung 2 saw for each.
    fn rate(&self, calls: &Calls, spent: Duration) -> (f64, Option<u64>) {
        let n: u64 = calls.functions.iter().map(|f| f.tally.entered).sum();
        let rate = n as f64 * 1e9 / calls.window_ns().max(1) as f64;
        let expected = rate * self.window_ns as f64 / 1e9;
        let each = (expected >= 1.0).then(|| (spent.as_nanos() as f64 / expected) as u64);
        (rate, each)
    }

    /// Lines of the two rungs.
    pub fn text(&self) -> String {
        let mut out = String::from("\nRung 3: how often? Counted exactly, after the recording\n");
        for (name, spent, calls) in &self.counted {
            match calls {
                Ok(calls) => {
                    let (rate, each) = self.rate(calls, *spent);
                    let rate = match rate < 10.0 {
                        true => format!("{rate:.1}"),
                        false => count(rate.round() as u64),
                    };
                    let each = each.map_or("not called often enough to divide by".into(), |each| {
                        format!("{} of what rung 2 saw for each", ns(each))
                    });
                    out += &format!("  {name}: {rate} calls a second, {each}\n");
                }
                Err(why) => out += &format!("  {name}: {why}\n"),
            }
        }
        if self.counted.is_empty() {
            out += "  no function of the program's own is named\n";
        }
        out += "\nRung 4: how is it distributed?\n";
        match &self.timed {
            Some(Ok(calls)) => out += &calls::text(calls, &Look::default(), &style()),
            Some(Err(why)) => out += &format!("  {why}\n"),
            None => out += "  no function of the program's own is named\n",
        }
        out
    }

    /// The same for scripts.
    pub fn json(&self) -> Value {
        let of = |calls: &Calls| -> Value {
            serde_json::from_str(&calls::json(calls, &Look::default())).unwrap_or(Value::Null)
        };
        let counted: Vec<Value> = self
            .counted
            .iter()
            .map(|(name, spent, calls)| match calls {
                Ok(calls) => {
                    let (rate, each) = self.rate(calls, *spent);
                    json!({"function": name, "per_second": rate, "ns_per_call": each})
                }
                Err(why) => json!({"function": name, "refused": why}),
            })
            .collect();
        let timed = match &self.timed {
            Some(Ok(calls)) => of(calls),
            Some(Err(why)) => json!({"refused": why}),
            None => Value::Null,
        };
        json!({"counted": counted, "timed": timed})
    }
}
