//! Follows the recorded hops of sampled waits to their roots.

use std::collections::HashMap;
use std::rc::Rc;

use wallscope_model::scale::{Piece, Scaled};
use wallscope_model::{
    Above, Actor, BlockReason, ContextId, Hop, Label, LabelValue, LabelsId, Part, REQUEST_AWAITED,
    REQUEST_KEY, Recording, Role, StackId, State,
};

use super::children::{Children, may_be_for_child};
use super::hops::Waits;
use super::root::{NotFollowed, Root, RootActor, Roots, divided};

/// Most levels of hops that are followed. The recorder keeps a few; a damaged file may hold more.
const MAX_LEVELS: usize = 64;

/// Roots by index with their time, ns.
type Charged = Vec<(u32, u64)>;

/// A wait while it is followed.
#[derive(Clone, Copy)]
struct Wait {
    /// The thread that waits, if it is measured.
    actor: RootActor,
    /// Process of the waiter, if it is measured.
    pid: Option<u32>,
    reason: Option<BlockReason>,
    stack: Option<StackId>,
    labels: Option<LabelsId>,
    level: usize,
}

impl Wait {
    /// The wait itself as the end of its chain.
    fn root(&self, open: Option<NotFollowed>) -> Root {
        Root {
            actor: self.actor,
            state: State::Blocked,
            reason: self.reason,
            part: None,
            stack: self.stack,
            labels: self.labels,
            open,
        }
    }
}

/// Charges samples one by one.
pub(super) struct Follower<'r> {
    recording: &'r Recording,
    waits: Waits,
    scaled: &'r Scaled,
    children: Children,
    /// Pieces of each context, as indices into [`Scaled::pieces`].
    pieces_of: HashMap<ContextId, Vec<u32>>,
    roots: Roots,
    known_samples: HashMap<u32, Rc<Charged>>,
    known_ledgers: HashMap<ContextId, Rc<Charged>>,
    /// Samples and contexts that are being charged: a cycle is not followed.
    open_samples: Vec<u32>,
    open_contexts: Vec<ContextId>,
    /// By place: the wakers of polls for answers that may have brought one.
    answered: HashMap<StackId, Vec<u32>>,
    /// Whether a poll that ran into its time limit is being charged.
    polls_again: bool,
    /// Number of cycles that were met. A part of a cycle depends on the place of entry, so it is
    /// not kept.
    cycles: u64,
}

impl<'r> Follower<'r> {
    /// Reads the hops and processes of a recording.
    pub fn new(recording: &'r Recording, scaled: &'r Scaled) -> Follower<'r> {
        let mut pieces_of: HashMap<ContextId, Vec<u32>> = HashMap::new();
        for (i, piece) in (0..).zip(&scaled.pieces) {
            pieces_of.entry(piece.context).or_default().push(i);
        }
        Follower {
            recording,
            waits: Waits::new(recording, scaled.pieces.iter()),
            scaled,
            children: Children::new(recording),
            pieces_of,
            answered: answered(recording),
            polls_again: false,
            roots: Roots::default(),
            known_samples: HashMap::new(),
            known_ledgers: HashMap::new(),
            open_samples: Vec::new(),
            open_contexts: Vec::new(),
            cycles: 0,
        }
    }

    /// All roots that were charged.
    pub fn finish(self) -> Vec<Root> {
        self.roots.all
    }

    /// The roots of a blocked sample. Their times sum to its scaled time.
    pub fn sample(&mut self, sample: u32) -> Rc<Charged> {
        if let Some(known) = self.known_samples.get(&sample) {
            return Rc::clone(known);
        }
        let cycles = self.cycles;
        let s = &self.recording.samples[sample as usize];
        let wait = Wait {
            actor: RootActor::Context(s.context),
            pid: self.pid(RootActor::Context(s.context)),
            reason: s.reason,
            stack: Some(s.stack),
            labels: s.labels,
            level: 0,
        };
        let mut out = Charged::new();
        self.open_samples.push(sample);
        let hops = std::mem::take(&mut self.waits.below_sample[sample as usize]);
        self.wait(wait, &hops, self.waits.sample_ns[sample as usize], &mut out);
        self.waits.below_sample[sample as usize] = hops;
        self.open_samples.pop();
        let out = Rc::new(summed(out));
        if self.cycles == cycles {
            self.known_samples.insert(sample, Rc::clone(&out));
        }
        out
    }

    /// Charges `ns` of a wait. `hops` are its wakers and holders.
    fn wait(&mut self, wait: Wait, hops: &[u32], ns: u64, out: &mut Charged) {
        let mut left = ns;
        for id in hops {
            let part = self.waits.ns[*id as usize].min(left);
            left -= part;
            if part > 0 {
                self.waker(wait, *id, part, out);
            }
        }
        if left > 0 {
            self.rest_of_wait(wait, left, out);
        }
    }

    /// Charges the part of a wait that one waker or holder ended.
    fn waker(&mut self, wait: Wait, id: u32, ns: u64, out: &mut Charged) {
        let hop = &self.recording.hops[id as usize];
        if !matches!(hop.role, Role::Woke | Role::Held) {
            // An activity that hangs below the wait itself.
            return self.activity(wait, id, ns, out);
        }
        let below = std::mem::take(&mut self.waits.below[id as usize]);
        let (mut left, mut forgotten) = (ns, 0);
        for child in &below {
            let part = self.waits.ns[*child as usize].min(left);
            left -= part;
            match self.recording.hops[*child as usize].role {
                _ if part == 0 => {}
                Role::Cut => forgotten += part,
                _ => self.activity(wait, *child, part, out),
            }
        }
        self.waits.below[id as usize] = below;
        self.rest_of_waker(wait, hop, (left, NotFollowed::TooShort), out);
        self.rest_of_waker(wait, hop, (forgotten, NotFollowed::TooDeep), out);
    }

    /// Charges an activity of a waker.
    fn activity(&mut self, wait: Wait, id: u32, ns: u64, out: &mut Charged) {
        let hop = &self.recording.hops[id as usize];
        let actor = self.actor(hop);
        let state = match hop.role {
            Role::OnCpu => State::OnCpu,
            Role::Runnable => State::Runnable,
            Role::Blocked | Role::Woke | Role::Held => State::Blocked,
            Role::Circle | Role::Cut => State::Unknown,
        };
        let open = match hop.role {
            Role::Circle => Some(NotFollowed::Circle),
            Role::Cut => Some(NotFollowed::TooDeep),
            _ if wait.level >= MAX_LEVELS => Some(NotFollowed::TooDeep),
            _ => None,
        };
        if state != State::Blocked || open.is_some() {
            let root = Root {
                actor,
                state,
                reason: hop.reason,
                part: hop.part,
                stack: hop.stack,
                labels: hop.labels,
                open,
            };
            return out.push((self.roots.id(root), ns));
        }
        let next = Wait {
            actor,
            pid: self.pid(actor),
            reason: hop.reason,
            stack: hop.stack,
            labels: hop.labels,
            level: wait.level + 1,
        };
        let below = std::mem::take(&mut self.waits.below[id as usize]);
        self.wait(next, &below, ns, out);
        self.waits.below[id as usize] = below;
    }

    /// Charges the part of a wait for which its waker's activity is not known.
    fn rest_of_waker(
        &mut self,
        wait: Wait,
        hop: &Hop,
        (ns, cause): (u64, NotFollowed),
        out: &mut Charged,
    ) {
        if ns == 0 {
            return;
        }
        let thread = match &self.recording.actors[hop.actor.0 as usize] {
            Actor::Context(thread) => *thread,
            Actor::Unknown => return self.rest_of_wait(wait, ns, out),
            Actor::Interrupt(served) if &**served == "timer" && self.answer(wait, ns, out) => {
                return;
            }
            Actor::Interrupt(served) => {
                let root = interrupted(wait, hop, served);
                return out.push((self.roots.id(root), ns));
            }
            // The kernel's own threads complete the requests of devices.
            Actor::Stranger { name, .. } if is_end(wait.reason) && is_kernel_worker(name) => {
                return self.rest_of_wait(wait, ns, out);
            }
            Actor::Stranger { .. } => {
                let root = open_root(hop, self.actor(hop), NotFollowed::NotMeasured);
                return out.push((self.roots.id(root), ns));
            }
        };
        let pid = self.recording.contexts[thread.0 as usize].pid;
        let child = (wait.pid.filter(|_| may_be_for_child(wait.reason)))
            .and_then(|own| self.children.descendant(pid, own));
        if let Some(child) = child {
            return self.children_ledgers(wait, &[child], ns, out);
        }
        let root = open_root(hop, RootActor::Context(thread), cause);
        out.push((self.roots.id(root), ns));
    }

    /// Charges a poll that its time limit ended while a request of its thread was in flight: the thread polls again for
    /// the same answer. Its time is divided like that of the polls at the same place that a peer ended. Returns whether
    /// there were any.
    fn answer(&mut self, wait: Wait, ns: u64, out: &mut Charged) -> bool {
        // The waits of wakers have no such label.
        let awaits = match wait.level {
            0 => awaits_answer(self.recording, wait.reason, wait.labels),
            _ => wait.reason == Some(BlockReason::Poll),
        };
        if !awaits {
            return false;
        }
        if self.polls_again {
            self.cycles += 1;
            return false;
        }
        let place = wait.stack.and_then(|stack| self.answered.get(&stack));
        let hops: Vec<(u32, u64)> = (place.into_iter().flatten())
            .map(|id| (*id, self.waits.ns[*id as usize]))
            .filter(|(_, ns)| *ns > 0)
            .collect();
        self.polls_again = true;
        for (id, part) in divided(ns, &hops) {
            self.waker(wait, id, part, out);
        }
        self.polls_again = false;
        !hops.is_empty()
    }

    /// Charges the part of a wait that has no known waker.
    fn rest_of_wait(&mut self, wait: Wait, ns: u64, out: &mut Charged) {
        if wait.reason == Some(BlockReason::Child) {
            let children = wait
                .pid
                .map_or_else(Vec::new, |pid| self.children.of(pid).to_vec());
            if !children.is_empty() {
                return self.children_ledgers(wait, &children, ns, out);
            }
        }
        let open = (!is_end(wait.reason)).then_some(NotFollowed::WakerNotSeen);
        out.push((self.roots.id(wait.root(open)), ns));
    }

    /// Charges a wait for children to the ledgers of their main threads.
    fn children_ledgers(&mut self, wait: Wait, children: &[ContextId], ns: u64, out: &mut Charged) {
        let mut weights = Charged::new();
        for child in children {
            weights.extend(self.ledger(*child).iter());
        }
        let weights = summed(weights);
        if weights.iter().all(|(_, ns)| *ns == 0) {
            let root = wait.root(Some(NotFollowed::TooShort));
            return out.push((self.roots.id(root), ns));
        }
        out.extend(divided(ns, &weights));
    }

    /// All of a thread's time, with its own waits followed.
    fn ledger(&mut self, thread: ContextId) -> Rc<Charged> {
        if let Some(known) = self.known_ledgers.get(&thread) {
            return Rc::clone(known);
        }
        if self.open_contexts.len() >= MAX_LEVELS || self.open_contexts.contains(&thread) {
            self.cycles += 1;
            return Rc::default();
        }
        let cycles = self.cycles;
        self.open_contexts.push(thread);
        let mut out = Charged::new();
        for i in self.pieces_of.get(&thread).cloned().unwrap_or_default() {
            self.piece(thread, &self.scaled.pieces[i as usize], &mut out);
        }
        for rest in self.scaled.unsampled.iter().filter(|u| u.context == thread) {
            let root = Root {
                actor: RootActor::Context(thread),
                state: rest.state,
                reason: rest.reason.and_then(BlockReason::from_name),
                part: rest.reason.and_then(Part::from_name),
                stack: None,
                labels: None,
                open: None,
            };
            out.push((self.roots.id(root), rest.ns));
        }
        self.open_contexts.pop();
        let out = Rc::new(summed(out));
        if self.cycles == cycles {
            self.known_ledgers.insert(thread, Rc::clone(&out));
        }
        out
    }

    fn piece(&mut self, thread: ContextId, piece: &Piece, out: &mut Charged) {
        let sample = &self.recording.samples[piece.sample as usize];
        // A cycle through a sample that is being charged is its own end here.
        if sample.state == State::Blocked && !self.open_samples.contains(&piece.sample) {
            let charged = self.sample(piece.sample);
            return out.extend(divided(piece.ns, &charged));
        }
        self.cycles += u64::from(sample.state == State::Blocked);
        let root = Root {
            actor: RootActor::Context(thread),
            state: sample.state,
            reason: sample.reason,
            part: sample.part,
            stack: Some(sample.stack),
            labels: sample.labels,
            open: (sample.state == State::Blocked).then_some(NotFollowed::Circle),
        };
        out.push((self.roots.id(root), piece.ns));
    }

    fn actor(&self, hop: &Hop) -> RootActor {
        match self.recording.actors[hop.actor.0 as usize] {
            Actor::Context(thread) => RootActor::Context(thread),
            _ => RootActor::Actor(hop.actor),
        }
    }

    fn pid(&self, actor: RootActor) -> Option<u32> {
        match actor {
            RootActor::Context(thread) => Some(self.recording.contexts[thread.0 as usize].pid),
            RootActor::Actor(_) => None,
        }
    }
}

/// Whether a thread polls for the answer to a request of its own.
fn awaits_answer(
    recording: &Recording,
    reason: Option<BlockReason>,
    labels: Option<LabelsId>,
) -> bool {
    let set = labels.and_then(|id| recording.label_sets.get(id.0 as usize));
    let awaited = |label: &Label| {
        &*label.key == REQUEST_KEY
            && matches!(&label.value, LabelValue::Text(text) if &**text == REQUEST_AWAITED)
    };
    reason == Some(BlockReason::Poll) && set.is_some_and(|set| set.iter().any(awaited))
}

/// By place: the wakers of polls for answers, without time limits and threads of the waiter's own process, which bring
/// no answer.
fn answered(recording: &Recording) -> HashMap<StackId, Vec<u32>> {
    let mut out: HashMap<StackId, Vec<u32>> = HashMap::new();
    for (id, hop) in (0..).zip(&recording.hops) {
        let Above::Sample(sample) = hop.above else {
            continue;
        };
        let sample = &recording.samples[sample as usize];
        let pid = |thread: ContextId| recording.contexts[thread.0 as usize].pid;
        let answers = match &recording.actors[hop.actor.0 as usize] {
            Actor::Interrupt(served) => &**served != "timer",
            Actor::Unknown => false,
            Actor::Stranger { .. } => true,
            Actor::Context(thread) => pid(*thread) != pid(sample.context),
        };
        if answers
            && hop.role == Role::Woke
            && awaits_answer(recording, sample.reason, sample.labels)
        {
            out.entry(sample.stack).or_default().push(id);
        }
    }
    out
}

/// Whether a wait for `reason` is an end of its own: a device or the clock ends it, and no thread
/// has to be followed.
pub(super) fn is_end(reason: Option<BlockReason>) -> bool {
    use BlockReason::{Disk, Memory, PageFault, Stopped, Timer};
    matches!(reason, Some(Disk | Memory | PageFault | Stopped | Timer))
}

/// Beginnings of names of the kernel's threads that complete I/O.
const KERNEL_WORKERS: [&str; 4] = ["kworker/", "ksoftirqd/", "irq/", "jbd2/"];

fn is_kernel_worker(name: &str) -> bool {
    KERNEL_WORKERS.iter().any(|begin| name.starts_with(begin))
}

/// The root of a wait that an interrupt ended.
fn interrupted(wait: Wait, hop: &Hop, served: &str) -> Root {
    match served {
        _ if is_end(wait.reason) => wait.root(None),
        "timer" => wait.root(Some(NotFollowed::TimedOut)),
        "disk" => Root {
            reason: Some(BlockReason::Disk),
            ..wait.root(None)
        },
        _ => open_root(hop, RootActor::Actor(hop.actor), NotFollowed::NotMeasured),
    }
}

/// A waker with an unknown activity.
fn open_root(hop: &Hop, actor: RootActor, cause: NotFollowed) -> Root {
    Root {
        actor,
        state: State::Unknown,
        reason: None,
        part: None,
        stack: hop.stack,
        labels: None,
        open: Some(cause),
    }
}

/// Times of equal roots added up, in the order of roots.
fn summed(mut charged: Charged) -> Charged {
    charged.sort_unstable_by_key(|(root, _)| *root);
    charged.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    charged
}
