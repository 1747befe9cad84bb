//! Hops scaled to the ledger, and other data from which the views of waits are made.

use std::sync::Arc;

use wallscope_model::attribution;
use wallscope_model::{
    Actor, FrameKind, Hop, LabelValue, LabelsId, Part, Role, Stack, StackId, told_by,
};

use super::Analysis;
use super::wait_line::Line;
use crate::blame::Waits;

/// The key of the label that names the resource of a wait.
pub const RESOURCE: &str = "resource";

/// An interrupt in words, by its purpose: `a timer interrupt`.
pub fn interrupt_words(served: &str) -> String {
    match served {
        "" => "an interrupt".into(),
        served => format!("a {served} interrupt"),
    }
}

impl Analysis<'_> {
    /// The recording's hops, scaled as its samples are.
    pub fn waits(&self) -> Waits {
        Waits::new(self.recording, self.pieces())
    }

    /// The resource of a wait, by its set of labels.
    pub fn resource(&self, labels: Option<LabelsId>) -> Option<Arc<str>> {
        let set = self.recording.label_sets.get(labels?.0 as usize)?;
        set.iter().find_map(|l| match &l.value {
            LabelValue::Text(text) if &*l.key == RESOURCE => Some(text.clone()),
            _ => None,
        })
    }

    /// Name of a hop's actor: a thread, an idle CPU or an interrupt.
    pub fn actor(&self, hop: &Hop) -> String {
        match &self.recording.actors[hop.actor.0 as usize] {
            Actor::Context(c) => self.recording.contexts[c.0 as usize].name.to_string(),
            Actor::Stranger { pid: 0, .. } => "an idle CPU".into(),
            Actor::Stranger { pid, name, .. } => format!("{name} ({pid}, not in this recording)"),
            Actor::Interrupt(served) => interrupt_words(served),
            Actor::Unknown => "nobody yet".into(),
        }
    }

    /// Remark behind the name of a waker or holder, else empty: how the waker ended the wait without a hand-over, or
    /// that the holder is read from the lock's memory.
    pub(super) fn how_ended(&self, hop: &Hop) -> &'static str {
        match self.told_by(hop) {
            Some(told) if told.ends_with(told_by::THEN) => {
                return " (so said the lock's own memory)";
            }
            Some(_) => return " (so says the lock's own memory at the end)",
            None => {}
        }
        let actor = &self.recording.actors[hop.actor.0 as usize];
        let stack = hop.stack.map(|s| &self.recording.stacks[s.0 as usize]);
        match (hop.role, stack) {
            (Role::Woke, Some(stack)) => how_it_woke(actor, &self.kernel_names(stack)),
            _ => "",
        }
    }

    /// Source that names a hop's actor as holder of the lock, if no release was seen
    /// ([`wallscope_model::told_by`]).
    pub fn told_by(&self, hop: &Hop) -> Option<&str> {
        let set = self.recording.label_sets.get(hop.labels?.0 as usize)?;
        let told = set
            .iter()
            .find(|l| hop.role == Role::Held && &*l.key == told_by::KEY)?;
        match &told.value {
            LabelValue::Text(text) => Some(text),
            LabelValue::Number(..) => None,
        }
    }

    /// The function from which the waker ended the wait. The kernel's own wake-up functions do not count,
    /// nor does the function that an interrupt met.
    pub(super) fn waker_place(&self, hop: &Hop) -> Option<String> {
        let actor = &self.recording.actors[hop.actor.0 as usize];
        if hop.role == Role::Woke && !matches!(actor, Actor::Context(_)) {
            return None;
        }
        let stack = &self.recording.stacks[hop.stack?.0 as usize];
        let kernel = self.kernel_names(stack);
        if hop.role != Role::Woke || kernel.len() < self.frames(stack).len() {
            return self.place(hop.stack?);
        }
        if !how_it_woke(&self.recording.actors[hop.actor.0 as usize], &kernel).is_empty() {
            return None;
        }
        let own = kernel.iter().find(|name| !only_wakes(name));
        own.map(|name| (*name).to_owned())
    }

    /// The kernel's functions on a stack, innermost first.
    fn kernel_names(&self, stack: &Stack) -> Vec<&str> {
        let frames = stack.frames.iter();
        frames
            .map(|f| &self.recording.frames[f.0 as usize])
            .filter(|f| f.kind == FrameKind::Kernel)
            .flat_map(|f| &f.lines)
            .map(|l| &*self.recording.functions[l.function.0 as usize].name)
            .collect()
    }

    /// The frame for the waker of a wait, or for the holder of the resource.
    pub fn ender(&self, hop: &Hop) -> String {
        let how = match hop.role {
            Role::Held => "held",
            _ => "woken",
        };
        format!("[{how} by {}]", self.actor(hop))
    }

    /// The name of the function that names a stack ([`wallscope_model::attribution`]).
    pub fn place(&self, stack: StackId) -> Option<String> {
        let stack = &self.recording.stacks[stack.0 as usize];
        let function = self.code.place(self.recording, stack)?;
        Some(self.code.functions[function as usize].name.to_string())
    }

    /// The function that [`Analysis::place`] called to wait, if it has a name.
    pub(super) fn through(&self, stack: StackId) -> Option<String> {
        let stack = &self.recording.stacks[stack.0 as usize];
        let function = self.code.through(self.recording, stack)?;
        Some(self.code.functions[function as usize].name.to_string())
    }

    /// The activity of a hop's actor, as one line of a tree.
    pub fn hop_line(&self, hop: &Hop) -> String {
        hop_line(self, hop).to_string()
    }

    /// All functions of a stack, leaf first, as folded output has them.
    pub fn folded_frames(&self, stack: StackId) -> Vec<String> {
        self.frames(&self.recording.stacks[stack.0 as usize])
            .iter()
            .map(|f| format!("{}{}", f.function.name, f.suffix()))
            .collect()
    }
}

/// Target of a runnable thread's wait: the CPU quota of its cgroup, even if CPUs are free, or a CPU.
pub fn queues(part: Option<Part>) -> &'static str {
    match part {
        Some(Part::Throttled) => "is held back by its CPU quota",
        _ => "waits for a CPU",
    }
}

/// Remark on how a waker ended a wait, by the kernel functions on its stack; else empty. A waiter that is
/// killed with its process, or interrupted by a signal, was given nothing. An interrupt gets no remark: its
/// stack shows the code that it interrupted.
fn how_it_woke(waker: &Actor, kernel: &[&str]) -> &'static str {
    if matches!(waker, Actor::Interrupt(_)) {
        return "";
    }
    let inside = |name: &str| kernel.contains(&name);
    if inside("zap_other_threads") {
        " (it ended the process)"
    } else if inside("do_exit") {
        " (it ended)"
    } else if inside("__send_signal_locked") || inside("complete_signal") {
        " (by a signal)"
    } else {
        ""
    }
}

/// Whether a kernel function only wakes.
fn only_wakes(name: &str) -> bool {
    const WAYS: [&str; 13] = [
        "__traceiter_",
        "try_to_wake_up",
        "ttwu_",
        "wake_",
        "__wake_",
        "default_wake_function",
        "autoremove_wake_function",
        "woken_wake_function",
        "var_wake_function",
        "pollwake",
        "ep_poll_callback",
        "complete",
        "swake_up",
    ];
    WAYS.iter().any(|w| name.starts_with(w))
}

/// See [`Analysis::hop_line`].
pub(super) fn hop_line(a: &Analysis<'_>, hop: &Hop) -> Line {
    let stands = hop.stack.and_then(|s| a.place(s));
    let at = |word: &str| {
        stands
            .as_ref()
            .map_or(String::new(), |p| format!(" {word} {p}"))
    };
    let actor = a.actor(hop);
    let line = match hop.role {
        Role::Woke => match a.recording.actors[hop.actor.0 as usize] {
            Actor::Context(_) => {
                let place = a.waker_place(hop);
                let place = place.map_or(String::new(), |p| format!(" in {p}"));
                format!("woken by {actor}{}{place}", a.how_ended(hop))
            }
            Actor::Unknown => "not woken in the recording".into(),
            _ => format!("woken by {actor}"),
        },
        Role::Held => format!("held by {actor}{}", a.how_ended(hop)),
        Role::OnCpu => format!("{actor} computes{}", at("in")),
        Role::Runnable => format!("{actor} {}", queues(hop.part)),
        Role::Blocked => {
            let reason = hop.reason.map_or("blocked", |r| r.name());
            // A word that only this thread parks on says nothing.
            let stack = |s: StackId| &a.recording.stacks[s.0 as usize];
            let parks = (hop.stack).is_some_and(|s| attribution::parks(a.recording, stack(s)));
            let name = a.resource(hop.labels).filter(|_| !parks);
            return Line::blocked(&format!("{actor} is "), reason, name.as_deref(), &at("in"));
        }
        Role::Circle => format!("{actor} waits for somebody above (a circle)"),
        Role::Cut => format!("{actor}: not followed further"),
    };
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_or_a_signal_gives_nothing_and_ways_of_waking_are_no_place() {
        let waker = Actor::Unknown;
        let killed = ["try_to_wake_up", "zap_other_threads", "do_group_exit"];
        assert_eq!(how_it_woke(&waker, &killed), " (it ended the process)");
        let child = ["__wake_up_common", "do_notify_parent", "do_exit"];
        assert_eq!(how_it_woke(&waker, &child), " (it ended)");
        let timer = Actor::Interrupt("timer".into());
        assert_eq!(how_it_woke(&timer, &child), "");
        let signal = ["try_to_wake_up", "complete_signal", "__x64_sys_kill"];
        assert_eq!(how_it_woke(&waker, &signal), " (by a signal)");
        assert_eq!(how_it_woke(&waker, &["futex_wake", "do_futex"]), "");
        assert!(only_wakes("__traceiter_sched_waking") && only_wakes("wake_up_q"));
        assert!(!only_wakes("jbd2_journal_commit_transaction"));
        assert_eq!(
            queues(Some(Part::Throttled)),
            "is held back by its CPU quota"
        );
        assert_eq!(queues(Some(Part::Woken)), "waits for a CPU");
    }
}
