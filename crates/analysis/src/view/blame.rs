//! Waits beside their roots: "waited at" and "because of", with shares and intervals.

use std::collections::{BTreeSet, HashMap};

use wallscope_model::stats::{MAX_BLOCKS, share_interval};
use wallscope_model::{Actor, BlockReason, ContextId, Sample, SliceValue, State};

use super::waits::interrupt_words;
use super::{Analysis, Subject};
use crate::blame::timeline::{self, ExactBlame};
use crate::blame::{Blame, NotFollowed, Root, RootActor};

/// Blocked time of one function for one reason that one root explains.
#[derive(Clone, Debug, PartialEq)]
pub struct BlameRow {
    /// The function that waits; empty: no stack is known.
    pub waited_at: String,
    /// The block reason.
    pub reason: Option<BlockReason>,
    /// Number of threads that wait.
    pub waiters: usize,
    /// The thread or device at the end of the chain.
    pub root: String,
    /// Its state.
    pub state: State,
    /// The activity in words, with its function.
    pub because_of: String,
    /// Cause for which the chain was not followed further.
    pub open: Option<NotFollowed>,
    /// Time, ns.
    pub ns: u64,
    /// 95 % interval of that time, ns.
    pub low_ns: u64,
    /// Its upper end, ns.
    pub high_ns: u64,
}

/// A wait and its root by threads alone: every wait of a timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactBlameRow {
    /// Name of the thread that waits.
    pub waiter: String,
    /// The block reason.
    pub reason: Option<BlockReason>,
    /// Name of the thread at the end of the chain.
    pub root: String,
    /// Its state.
    pub state: State,
    /// The activity in words.
    pub because_of: String,
    /// Cause for which the chain was not followed further.
    pub open: Option<NotFollowed>,
    /// Time, ns.
    pub ns: u64,
}

/// Wait and root of a row. Threads with names that differ by a number are one.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    waited_at: String,
    reason: Option<BlockReason>,
    family: String,
    state: State,
    /// The activity in words, without its subject.
    activity: String,
    open: Option<NotFollowed>,
}

/// A row in the making.
#[derive(Default)]
struct Sum {
    ns: u64,
    samples: f64,
    blocks: Vec<f64>,
    waiters: Vec<ContextId>,
    roots: BTreeSet<String>,
}

/// Time by block of the recording, ns.
struct Blocks {
    slices: usize,
    blocks: usize,
}

impl Blocks {
    fn add(&self, to: &mut Vec<f64>, slices: &[SliceValue], scale: f64) {
        to.resize(self.blocks, 0.0);
        for v in slices {
            let block = (v.slice as usize).min(self.slices - 1) * self.blocks / self.slices;
            to[block] += v.ns as f64 * scale;
        }
    }
}

impl Analysis<'_> {
    /// Blocked time that is shown, by the place of the wait and its root, largest first.
    pub fn blame(&self) -> Vec<BlameRow> {
        self.blame_where(|_| true)
    }

    /// The part of it that a thread or function waited.
    pub fn blame_of(&self, subject: &Subject) -> Vec<BlameRow> {
        self.blame_where(|sample| self.concerns(subject, sample))
    }

    fn blame_where(&self, wanted: impl Fn(&Sample) -> bool) -> Vec<BlameRow> {
        let rec = self.recording;
        let blame = Blame::new(rec, &self.scaled);
        let slices = rec.slices.count.max(1) as usize;
        let grid = Blocks {
            slices,
            blocks: slices.min(MAX_BLOCKS),
        };
        let mut sums: HashMap<Key, Sum> = HashMap::new();
        let (mut whole, mut whole_blocks, mut samples) = (0, Vec::new(), 0.0);
        for part in &blame.parts {
            let sample = &rec.samples[part.sample as usize];
            if !self.shows(sample.idle) || !wanted(sample) {
                continue;
            }
            let root = blame.root(part);
            let name = self.root_actor(root.actor);
            let key = Key {
                waited_at: self.place(sample.stack).unwrap_or_default(),
                reason: sample.reason,
                family: family(&name).to_owned(),
                state: root.state,
                activity: self.activity(sample.context, root),
                open: root.open,
            };
            let scale = part.ns as f64 / sample.ns.max(1) as f64;
            let sum = sums.entry(key).or_default();
            sum.ns += part.ns;
            sum.samples += sample.count as f64 * scale;
            sum.waiters.push(sample.context);
            sum.roots.insert(name);
            grid.add(&mut sum.blocks, &sample.slices, scale);
            grid.add(&mut whole_blocks, &sample.slices, scale);
            whole += part.ns;
            samples += sample.count as f64 * scale;
        }
        let all = Sum {
            ns: whole,
            samples,
            blocks: whole_blocks,
            ..Sum::default()
        };
        let mut rows: Vec<BlameRow> = (sums.into_iter())
            .map(|(key, sum)| row(key, sum, &all))
            .collect();
        rows.sort_by(|a, b| {
            let order =
                |r: &BlameRow| (r.waited_at.clone(), r.reason, r.because_of.clone(), r.open);
            b.ns.cmp(&a.ns).then_with(|| order(a).cmp(&order(b)))
        });
        rows
    }

    /// Every wait of the timeline with its root, largest first; empty without a timeline.
    pub fn exact_blame(&self) -> Vec<ExactBlameRow> {
        let shown = timeline::blame(self.recording);
        let shown = shown.into_iter().filter(|row| self.shows(row.waiter.idle));
        shown.map(|row| self.exact_row(&row)).collect()
    }

    fn exact_row(&self, row: &ExactBlame) -> ExactBlameRow {
        let name = |c: ContextId| self.recording.contexts[c.0 as usize].name.to_string();
        let root = Root {
            actor: RootActor::Context(row.root.context),
            state: row.root.state,
            reason: row.root.reason,
            part: row.root.part,
            stack: None,
            labels: None,
            open: row.root.open,
        };
        ExactBlameRow {
            waiter: name(row.waiter.context),
            reason: row.waiter.reason,
            root: name(row.root.context),
            state: row.root.state,
            because_of: self.root_words(row.waiter.context, &root),
            open: row.root.open,
            ns: row.ns,
        }
    }

    /// A root in words: `back sleeps in sleep_ns`.
    pub fn root_words(&self, waiter: ContextId, root: &Root) -> String {
        let subject = self.root_actor(root.actor);
        sentence(&subject, &self.activity(waiter, root))
    }

    /// A root in words, without its subject but for a space; a wait that is its own end stands alone.
    fn activity(&self, waiter: ContextId, root: &Root) -> String {
        if root.is_own(waiter) && root.state == State::Blocked {
            return match (root.open, root.reason) {
                (Some(open), _) => open.frame(),
                (None, Some(BlockReason::Disk)) => "the disk".into(),
                (None, Some(BlockReason::Timer)) => "its own timer".into(),
                (None, reason) => {
                    format!("its own wait ({})", reason.map_or("blocked", |r| r.name()))
                }
            };
        }
        // The place at which a thread lost its CPU tells nothing of its wait for one.
        let place = root.stack.filter(|_| root.state != State::Runnable);
        let place = place.and_then(|s| self.place(s));
        let place = place.map_or_else(String::new, |p| format!(" in {p}"));
        let open = root
            .open
            .map_or_else(String::new, |o| format!(" {}", o.frame()));
        match root.deed() {
            "" => open,
            deed => format!(" {deed}{place}{open}"),
        }
    }

    /// The thread or device of a root in words.
    pub fn root_actor(&self, actor: RootActor) -> String {
        match actor {
            RootActor::Context(c) => self.recording.contexts[c.0 as usize].name.to_string(),
            RootActor::Actor(id) => actor_words(&self.recording.actors[id.0 as usize], self),
        }
    }
}

fn actor_words(actor: &Actor, analysis: &Analysis<'_>) -> String {
    match actor {
        Actor::Context(c) => analysis.recording.contexts[c.0 as usize].name.to_string(),
        Actor::Stranger { pid: 0, .. } => "an idle CPU".into(),
        Actor::Stranger { pid, name, .. } => format!("{name} (pid {pid})"),
        Actor::Interrupt(served) => interrupt_words(served),
        Actor::Unknown => "an unknown thread".into(),
    }
}

/// A subject with its activity, which begins with a space; other words stand alone.
fn sentence(subject: &str, activity: &str) -> String {
    match activity.starts_with(' ') {
        true => format!("{subject}{activity}"),
        false => activity.to_owned(),
    }
}

/// A thread's name without its number: `worker-3` and `worker-12` are of one family.
fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn row(key: Key, mut sum: Sum, all: &Sum) -> BlameRow {
    let root = match (sum.roots.len(), sum.roots.first()) {
        (1, Some(name)) => name.clone(),
        (n, _) => format!("{}* ({n} threads)", key.family),
    };
    sum.waiters.sort_unstable();
    sum.waiters.dedup();
    let interval = share_interval(&sum.blocks, &all.blocks, all.samples);
    let share = sum.ns as f64 / all.ns.max(1) as f64;
    let of_whole = |share: f64| (share * all.ns as f64) as u64;
    BlameRow {
        because_of: sentence(&root, &key.activity),
        waited_at: key.waited_at,
        reason: key.reason,
        waiters: sum.waiters.len(),
        root,
        state: key.state,
        open: key.open,
        ns: sum.ns,
        low_ns: of_whole(interval.low.min(share)).min(sum.ns),
        high_ns: of_whole(interval.high.max(share)).max(sum.ns),
    }
}
