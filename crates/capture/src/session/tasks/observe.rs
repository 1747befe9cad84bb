//! From polls of tasks to observations: reasons from the words of the runtime, stacks in those of the unwinder.

use std::{collections::BTreeMap, time::Duration};

use rustc_hash::FxHashMap;
use wallscope_model::{Limit, StackEnd, State};
use wallscope_observe::{ObservedTaskTime, ObservedTasks, TaskStack, TaskWords};
use wallscope_unwind::{
    native::TableSink,
    runtime::{Facts, go, hotspot, python::asyncio, tasks::TaskStatus},
};

use super::super::{estimator::TaskFacts, java::Meaning, managed::Word, processes::Processes};
use super::{PolledTasks, TaskSource, watch::Group};

/// Returns the facts and the losses of `seen`, in a window of `window` ns.
pub fn observe<S: TableSink>(
    seen: Vec<PolledTasks>,
    window: u64,
    processes: &Processes<S>,
) -> (TaskFacts, Vec<(String, u64)>) {
    let (mut facts, mut losses) = (TaskFacts::default(), Vec::new());
    let mut kinds: BTreeMap<&str, KindPolls> = BTreeMap::new();
    for mut seen in seen {
        let kind = match seen.eye {
            TaskSource::Go(_) => "goroutine",
            TaskSource::Python(_) => "asyncio task",
            TaskSource::Java(_) => "virtual thread",
        };
        if let TaskSource::Java(threads) = &seen.eye {
            let own = threads.losses().into_iter().filter(|(_, n)| *n > 0);
            losses.extend(own.map(|(cause, n)| (cause.to_owned(), n)));
            let why = threads.refused();
            losses.extend(why.map(|why| (format!("virtual threads not read: {why}"), 1)));
        }
        losses.push((
            "pause of Go's collector that its runtime no longer told".to_owned(),
            seen.pauses_missed,
        ));
        facts.pauses.append(&mut seen.pauses);
        if seen.polls == 0 {
            let cause = match seen.gone {
                true => "the process ended before there were any to be seen",
                false => "their list was not found",
            };
            if seen.lost {
                losses.push((format!("{kind}s not read: {cause}"), 1));
            }
            continue;
        }
        let polls = kinds.entry(kind).or_default();
        polls.broken += seen.broken;
        polls.number += seen.polls;
        polls.span_ns += window;
        polls.spent += seen.spent;
        groups(&mut facts, seen, kind, processes);
    }
    for (kind, polls) in kinds {
        let cause = format!("{kind} stack that could not be followed");
        losses.push((cause, polls.broken));
        facts.words.push(words(kind, &polls));
    }
    (facts, losses)
}

/// Polls of tasks of one kind.
#[derive(Default)]
struct KindPolls {
    /// Stacks that were lost.
    broken: u64,
    number: u64,
    /// The time that they are spread over.
    span_ns: u64,
    /// Their CPU time.
    spent: Duration,
}

/// Words on the observation of tasks of a kind.
fn words(kind: &str, polls: &KindPolls) -> TaskWords {
    let number = polls.number;
    let every = polls.span_ns as f64 / number as f64 / 1e6;
    let cost = 100.0 * polls.spent.as_secs_f64() / (polls.span_ns.max(1) as f64 / 1e9);
    // A share of one task's time is the worst case: 1.96 × √(¼ / n) of it.
    let points = 98.0 / (number as f64).sqrt();
    TaskWords {
        note: format!(
            "{kind}s: sampled by {number} polls of the runtime's own list, one each {every:.0} ms on \
             average; no thread was stopped. A share of one task's time is known to ±{points:.1} points or \
             better (95 %), of several tasks' better; the polls cost {cost:.2} % of one CPU"
        ),
        limit: Limit {
            what: format!(
                "what {kind}s do between two polls; the functions of tasks that run (the stacks of their \
                 threads have them)"
            ),
            remedy: String::new(),
        },
    }
}

fn groups<S: TableSink>(
    to: &mut TaskFacts,
    seen: PolledTasks,
    kind: &str,
    processes: &Processes<S>,
) {
    let Ok(facts) = &*seen.subject.found else {
        return;
    };
    let pid = seen.subject.pid;
    // Names the frames of each stack, and the thing that its task waits for.
    let namer = match (facts, seen.eye) {
        (Facts::Go(facts), _) => Namer::Go(facts),
        (_, TaskSource::Go(_)) => return,
        (_, TaskSource::Python(tasks)) => Namer::Python(tasks.words()),
        (_, TaskSource::Java(threads)) => Namer::Java(threads.wait_words().to_vec()),
    };
    let mut numbers = FxHashMap::default();
    for group in seen.groups.into_values() {
        let Group {
            name,
            ids: members,
            times,
        } = group;
        let observed = ObservedTasks {
            pid,
            kind: kind.into(),
            name: name.into(),
            seen: members.len() as u64,
            polls: seen.polls,
        };
        let mut out = Vec::with_capacity(times.len());
        for ((doing, stack, labels), (count, ns)) in times {
            let words = stack.map(|s| (s, seen.stacks[s as usize].as_slice()));
            let (reason, detail) = match doing {
                TaskStatus::Waiting(number) => {
                    namer.reason(number, words.map_or(&[], |w| w.1), pid, processes)
                }
                TaskStatus::Syscall => ("syscall", String::new()),
                TaskStatus::Runnable | TaskStatus::Running => ("", String::new()),
            };
            let state = match doing {
                TaskStatus::Running => State::OnCpu,
                TaskStatus::Runnable => State::Runnable,
                _ => State::Blocked,
            };
            let stack = words.map(|(index, words)| {
                *numbers.entry(index).or_insert_with(|| {
                    to.stacks.push(namer.stack(words, &seen.subject));
                    to.stacks.len() as u32 - 1
                })
            });
            out.push(ObservedTaskTime {
                state,
                reason: reason.into(),
                detail: detail.into(),
                stack,
                labels: (seen.labels[labels as usize].iter())
                    .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                    .collect(),
                count,
                ns,
            });
        }
        to.groups.push((observed, out));
    }
}

/// Gives a runtime's words their meaning.
enum Namer<'f> {
    Go(&'f go::Facts),
    /// Words for the things that tasks wait for, by number.
    Python(Vec<String>),
    Java(Vec<String>),
}

impl Namer<'_> {
    /// Returns the block reason of a task with a stack of the runtime's words, and the runtime's word for it.
    fn reason<S: TableSink>(
        &self,
        number: u32,
        words: &[u64],
        pid: u32,
        processes: &Processes<S>,
    ) -> (&'static str, String) {
        match self {
            Namer::Go(facts) => {
                let (word, table) = (facts.reason(number), facts.functions());
                let functions = words.iter().filter_map(|a| {
                    let function = table.as_ref()?.at(a.saturating_sub(1))?;
                    std::str::from_utf8(function.name()).ok()
                });
                (go::reason(word, functions), word.to_owned())
            }
            Namer::Python(all) => {
                let word = all.get(number as usize).cloned().unwrap_or_default();
                let codes = Word::all(words).filter_map(|w| processes.managed().code(pid, w));
                let functions = codes.map(|c| (c.file.as_str(), c.name.as_str()));
                (asyncio::reason(&word, functions), word)
            }
            Namer::Java(all) => {
                let word = all.get(number as usize).map_or("", |w| w);
                let (_, items) = hotspot::items(words);
                let meanings = items
                    .iter()
                    .filter_map(|i| processes.managed().java.meaning(pid, *i));
                let methods = meanings.flat_map(|meaning| match meaning {
                    Meaning::Methods(scopes) => scopes,
                    _ => &[],
                });
                hotspot::reason(word, methods.map(|s| s.method.name.as_str()))
            }
        }
    }

    /// The stack of these words.
    fn stack(&self, words: &[u64], subject: &super::Subject) -> TaskStack {
        let stack = TaskStack {
            pid: subject.pid,
            end: StackEnd::Root,
            native: Vec::new(),
            managed: Vec::new(),
        };
        match self {
            Namer::Go(facts) => TaskStack {
                native: (words.iter())
                    .filter_map(|a| facts.offset_of(*a))
                    .map(|offset| u64::from(subject.file) << 48 | offset)
                    .collect(),
                ..stack
            },
            Namer::Python(_) => TaskStack {
                managed: words.to_vec(),
                ..stack
            },
            Namer::Java(_) => TaskStack {
                native: words.to_vec(),
                end: match words.last() {
                    Some(&hotspot::STACK_TRUNCATED) => StackEnd::NoUnwindInfo,
                    _ => StackEnd::Root,
                },
                ..stack
            },
        }
    }
}
