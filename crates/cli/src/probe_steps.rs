//! Rungs 3 and 4 of the ladder: how often the named functions are called, and how long the calls of
//! the one in the verdict are. Both need probes in the live process, so they are climbed only when
//! asked for (`--go`), and never above the limit; otherwise the commands are printed.

use std::time::Duration;

use serde_json::{Value, json};
use wallscope_capture::Error;
use wallscope_capture::session::Stop;
use wallscope_capture::target::Target;
use wallscope_capture::uprobes::{self, Measured, Options, spec::Spec};
use wallscope_diagnose::ladder::{Cause, Ladder};
use wallscope_model::calls::Calls;
use wallscope_model::units::{count, ns};
use wallscope_model::{Function, ModuleKind, Recording};
use wallscope_render::calls::{self, CallsDisplay};

use crate::latency::Teller;
use crate::report::style;

/// Functions that are counted.
const MAX_COUNTED: usize = 3;
/// Least share of active time of a counted function; the verdict's function may have less.
const MIN_SHARE: f64 = 0.01;
/// Time for which each function is counted, and time for which the verdict's is timed.
const COUNTED: Duration = Duration::from_secs(2);
const TIMED: Duration = Duration::from_secs(5);

/// A function with the specification of its probes.
struct Named<'a> {
    cause: &'a Cause,
    spec: Spec,
    /// The specification as a command takes it.
    text: String,
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
        // Probes need machine code, and a function that takes next to no time needs no probe.
        let probed = module.kind == ModuleKind::Elf && module.path.starts_with('/');
        let small = cause.share < MIN_SHARE && verdict != Some(&*cause.function);
        if known || !probed || small || found.len() == MAX_COUNTED {
            continue;
        }
        let Some((spec, text)) = asked(module.name(), function) else {
            continue;
        };
        found.push(Named { cause, spec, text });
    }
    found
}

/// Specification of a function of `module`: by its name, or by its offset if it has no name.
fn asked(module: &str, function: &Function) -> Option<(Spec, String)> {
    if function.is_unnamed() {
        let (_, digits) = function.name.rsplit_once("+0x")?;
        let place = Spec::Place {
            module: module.to_owned(),
            offset: u64::from_str_radix(digits, 16).ok()?,
        };
        return Some((place, function.name.to_string()));
    }
    let raw = match &*function.system_name {
        "" => &*function.name,
        raw => raw,
    };
    let name = raw.split('@').next().unwrap_or(raw).to_owned();
    let text = format!("{module}:{name}");
    let spec = Spec::Function {
        module: Some(module.to_owned()),
        name,
        offset: None,
    };
    Some((spec, text))
}

/// A run of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetRun {
    /// The recorded one, which still runs.
    Recorded,
    /// The next one: the recorded one has ended.
    Next,
}

/// The commands that climb them by hand, on that run of the target.
pub fn commands(recording: &Recording, ladder: &Ladder, run: TargetRun) -> Vec<String> {
    let pid = recording.domain.target.strip_prefix("pid ");
    let pid = pid.filter(|_| run == TargetRun::Recorded);
    let target = pid.map_or("-p PID".to_owned(), |p| {
        format!("-p {}", p.replace(", ", ","))
    });
    let named = named(recording, ladder);
    let Some(first) = named.first() else {
        return Vec::new();
    };
    let all: Vec<String> = named.iter().map(|n| format!("'{}'", n.text)).collect();
    vec![
        format!("wallscope count {} {target} -d 5", all.join(" ")),
        format!("wallscope latency '{}' {target} -d 10", first.text),
    ]
}

/// Why a climb ends early.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EarlyEnd {
    /// The target ended.
    Target,
    /// A signal asked for it, as Ctrl-C does.
    User,
}

impl EarlyEnd {
    /// Why a measurement that stopped so ended early; `None`: it did not.
    pub fn of(stop: Stop) -> Option<EarlyEnd> {
        match stop {
            Stop::Duration => None,
            Stop::TargetEnded => Some(EarlyEnd::Target),
            Stop::Signal => Some(EarlyEnd::User),
        }
    }
}

/// The early end of a climb, and the results that are missing.
pub struct Ended {
    why: EarlyEnd,
    /// The rung: 2 to 4.
    rung: u8,
    /// The time before the end, in words.
    after: String,
    /// The missing results, in words.
    missing: Vec<String>,
}

impl Ended {
    /// While the target was recorded.
    pub fn recorded(why: EarlyEnd, recording: &Recording, ladder: &Ladder) -> Ended {
        let ns = ladder.bottleneck.window_ns;
        let named = named(recording, ladder);
        let names: Vec<&str> = named.iter().map(|n| &*n.cause.function).collect();
        Ended {
            why,
            rung: 2,
            after: format!("after {:.2} s of recording", ns as f64 / 1e9),
            missing: missing(&names, names.first().copied()),
        }
    }

    /// Whether the target is no longer there.
    pub fn is_gone(&self) -> bool {
        self.why == EarlyEnd::Target
    }

    /// Cause of the end, and the rest in words.
    pub fn says(&self) -> (&'static str, String) {
        let what = match self.why {
            EarlyEnd::Target => "the target ended",
            EarlyEnd::User => "stopped by a signal",
        };
        let missing = match &self.missing[..] {
            [] => String::new(),
            all => format!("; so it is not known {}", all.join(", nor ")),
        };
        (
            what,
            format!("on rung {}, {}{missing}", self.rung, self.after),
        )
    }

    /// The interrupted ladder for scripts.
    pub fn json(&self) -> Value {
        let by = match self.why {
            EarlyEnd::Target => "target",
            EarlyEnd::User => "signal",
        };
        json!({"by": by, "rung": self.rung, "after": self.after, "missing": self.missing})
    }
}

/// The missing results if these functions were not counted, and that function was not timed.
fn missing(uncounted: &[&str], untimed: Option<&str>) -> Vec<String> {
    let often = match uncounted {
        [] => None,
        [one] => Some(format!("how often {one} is called")),
        all => Some(format!("how often {} are called", all.join(", "))),
    };
    let long = untimed.map(|name| format!("how long calls of {name} take"));
    often.into_iter().chain(long).collect()
}

/// Result of probes on one function.
struct Probed {
    function: String,
    /// Time of the function, measured on rung 2.
    spent: Duration,
    /// Or why there was nothing to measure any more.
    outcome: Result<Result<Measured, Error>, EarlyEnd>,
}

impl Probed {
    /// Its calls, or why there are none.
    fn calls(&self) -> Result<&Calls, String> {
        match &self.outcome {
            Ok(Ok(measured)) => Ok(&measured.calls),
            Ok(Err(e)) => Err(e.to_string()),
            Err(EarlyEnd::Target) => Err("the target had ended".into()),
            Err(EarlyEnd::User) => Err("stopped before".into()),
        }
    }

    /// If the climb ended meanwhile or before: why, and for how long calls had been counted or timed.
    fn ended_after(&self) -> Option<(EarlyEnd, Duration)> {
        match &self.outcome {
            Ok(Ok(m)) => Some((
                EarlyEnd::of(m.stop)?,
                Duration::from_nanos(m.calls.window_ns()),
            )),
            Ok(Err(_)) => None,
            Err(why) => Some((*why, Duration::ZERO)),
        }
    }
}

/// Results of the probes.
pub struct Climbed {
    counted: Vec<Probed>,
    /// Calls of the verdict's function.
    timed: Option<Probed>,
    /// Length of the recording, ns.
    window_ns: u64,
}

/// Climbs both rungs: places the probes and waits.
pub fn climb(
    recording: &Recording,
    ladder: &Ladder,
    target: &Target,
    max_overhead: f64,
) -> Climbed {
    let mut ended = None;
    let mut probe = |n: &Named<'_>, timed: bool| {
        let function = n.cause.function.to_string();
        let outcome = match ended {
            Some(why) => Err(why),
            None => {
                let (rung, how) = if timed {
                    (4, "timing")
                } else {
                    (3, "counting")
                };
                eprintln!("wallscope: rung {rung}: {how} calls of {function}");
                measured(n, timed, target, max_overhead)
            }
        };
        let probed = Probed {
            function,
            spent: Duration::from_nanos(n.cause.ns),
            outcome,
        };
        ended = probed.ended_after().map(|(why, _)| why);
        probed
    };
    let named = named(recording, ladder);
    Climbed {
        counted: named.iter().map(|n| probe(n, false)).collect(),
        timed: named.first().map(|n| probe(n, true)),
        window_ns: ladder.bottleneck.window_ns,
    }
}

/// Counts or times calls of `n` in the processes of `target` that have not ended, unless all have.
fn measured(
    n: &Named<'_>,
    timed: bool,
    target: &Target,
    max_overhead: f64,
) -> Result<Result<Measured, Error>, EarlyEnd> {
    loop {
        let options = Options {
            target: target.alive().ok_or(EarlyEnd::Target)?,
            asked: vec![n.spec.clone()],
            timed,
            duration: Some(if timed { TIMED } else { COUNTED }),
            max_overhead,
            slowest: 5,
            each: false,
        };
        match uprobes::measure(&options, &mut Teller::quiet()) {
            // One of them has just ended: the others are still there.
            Err(Error::NoSuchProcess { .. }) => {}
            outcome => return Ok(outcome),
        }
    }
}

impl Climbed {
    /// The early end of the climb, if any.
    pub fn ended(&self) -> Option<Ended> {
        let lacks = |p: &&Probed| p.outcome.is_err();
        let uncounted = self.counted.iter().filter(lacks);
        let uncounted: Vec<&str> = uncounted.map(|p| &*p.function).collect();
        let untimed = self.timed.as_ref().filter(lacks).map(|p| &*p.function);
        let of = |rung, doing: &str, probed: &Probed| {
            let (why, length) = probed.ended_after()?;
            let after = match length.is_zero() {
                true => format!("before calls of {} were {doing}", probed.function),
                false => format!(
                    "after calls of {} had been {doing} for {:.2} s",
                    probed.function,
                    length.as_secs_f64()
                ),
            };
            Some(Ended {
                why,
                rung,
                after,
                missing: missing(&uncounted, untimed),
            })
        };
        let on_third = self.counted.iter().find_map(|p| of(3, "counted", p));
        on_third.or_else(|| of(4, "timed", self.timed.as_ref()?))
    }

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
        for probed in &self.counted {
            let name = &probed.function;
            match probed.calls() {
                Ok(calls) => {
                    let (rate, each) = self.rate(calls, probed.spent);
                    let rate = match rate < 10.0 {
                        true => format!("{rate:.1}"),
                        false => count(rate.round() as u64),
                    };
                    let each = each.map_or("not called often enough to divide by".into(), |each| {
                        format!("{} of what rung 2 saw for each", ns(each))
                    });
                    let short = probed.ended_after().map_or_else(String::new, |(_, t)| {
                        format!("; counted for {:.2} s", t.as_secs_f64())
                    });
                    out += &format!("  {name}: {rate} calls a second, {each}{short}\n");
                }
                Err(why) => out += &format!("  {name}: {why}\n"),
            }
        }
        if self.counted.is_empty() {
            out += "  no function of the program's own is named\n";
        }
        out += "\nRung 4: how is it distributed?\n";
        match self.timed.as_ref().map(Probed::calls) {
            Some(Ok(calls)) => out += &calls::text(calls, &CallsDisplay::default(), &style()),
            Some(Err(why)) => out += &format!("  {why}\n"),
            None => out += "  no function of the program's own is named\n",
        }
        out
    }

    /// Both rungs for scripts.
    pub fn json(&self) -> Value {
        let of = |calls: &Calls| -> Value {
            serde_json::from_str(&calls::json(calls, &CallsDisplay::default()))
                .unwrap_or(Value::Null)
        };
        let counted: Vec<Value> = self
            .counted
            .iter()
            .map(|probed| match probed.calls() {
                Ok(calls) => {
                    let (rate, each) = self.rate(calls, probed.spent);
                    json!({"function": probed.function, "per_second": rate, "ns_per_call": each,
                        "window_ns": calls.window_ns()})
                }
                Err(why) => json!({"function": probed.function, "refused": why}),
            })
            .collect();
        let timed = match self.timed.as_ref().map(Probed::calls) {
            Some(Ok(calls)) => of(calls),
            Some(Err(why)) => json!({"refused": why}),
            None => Value::Null,
        };
        json!({"counted": counted, "timed": timed})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_asked_for_by_name_or_by_where_they_begin() {
        let function = |name: &str, raw: &str| Function {
            name: name.into(),
            system_name: raw.into(),
            file: "".into(),
            start_line: 0,
        };
        let text = |f: &Function| asked("app", f).map(|(_, text)| text);
        let named = function("ns::f(int)", "_ZN2ns1fEi");
        assert_eq!(text(&named).as_deref(), Some("app:_ZN2ns1fEi"));
        let versioned = function("memcpy", "memcpy@@GLIBC_2.14");
        assert_eq!(text(&versioned).as_deref(), Some("app:memcpy"));
        let (spec, text) = asked("app", &function("app+0x40c0", "")).unwrap();
        let offset = 0x40c0;
        let module = "app".to_owned();
        assert_eq!(spec, Spec::Place { module, offset });
        // What is asked for by the text is the same, but that a function may be called so.
        let name = "app".to_owned();
        let parsed = wallscope_capture::uprobes::spec::parse(&text);
        let (module, offset) = (None, Some(offset));
        assert_eq!(
            parsed,
            Ok(Spec::Function {
                module,
                name,
                offset
            })
        );
    }
}
