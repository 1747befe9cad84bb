//! Names of perf's events, as `perf.data` and the text of `perf script` have them.

/// Meaning of an event's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nanoseconds on a CPU.
    Clock,
    /// Context switches.
    Switch,
    /// Nanoseconds for which a thread was blocked (`perf record --off-cpu`).
    OffCpu,
    /// Events of any other kind: they count themselves.
    Count,
}

impl Meaning {
    /// Whether each sample has its own time.
    pub(super) fn is_length(self) -> bool {
        matches!(self, Meaning::Clock | Meaning::OffCpu)
    }

    /// Whether samples show when a thread was off its CPU.
    pub(super) fn is_off_cpu(self) -> bool {
        matches!(self, Meaning::Switch | Meaning::OffCpu)
    }

    /// Meaning of the event with this name.
    pub(super) fn of(event: &str) -> Meaning {
        match base(event) {
            "cpu-clock" | "task-clock" => Meaning::Clock,
            "sched:sched_switch" => Meaning::Switch,
            "offcpu-time" => Meaning::OffCpu,
            _ => Meaning::Count,
        }
    }
}

/// Whether an event is a tracepoint (`sched:sched_waking`) and not one of a CPU (`cycles:upp`).
pub(super) fn is_tracepoint(event: &str) -> bool {
    event
        .split_once(':')
        .is_some_and(|(_, rest)| !event.contains('/') && !is_modifiers(rest))
}

/// Letters behind an event's name: user, kernel, precise, and the like.
fn is_modifiers(text: &str) -> bool {
    text.bytes().all(|c| b"ukhpPGHISDWebR:".contains(&c))
}

/// The event's name without its PMU and its modifiers: `cycles` of `cpu_core/cycles/P` and of
/// `cycles:upp`.
pub(super) fn base(event: &str) -> &str {
    let mut parts = event.splitn(3, '/');
    let inner = match (parts.next(), parts.next(), parts.next()) {
        // Terms that change how the event is sampled follow a comma: `cpu/cycles,period=1/`.
        (Some(_), Some(terms), Some(_)) => terms.split(',').next().unwrap_or(terms),
        _ => event,
    };
    let name = match inner.split_once(':') {
        Some((name, rest)) if is_modifiers(rest) => name,
        _ => inner,
    };
    match name {
        "cpu-cycles" => "cycles",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_known_under_every_form_of_its_name() {
        for name in [
            "cycles",
            "cycles:P",
            "cpu_core/cycles/",
            "cpu_atom/cpu-cycles/upp",
            "cpu/cycles,period=1000/",
        ] {
            assert_eq!(base(name), "cycles", "{name}");
            assert_eq!(Meaning::of(name), Meaning::Count);
            assert!(!is_tracepoint(name), "{name}");
        }
        assert_eq!(base("sched:sched_switch"), "sched:sched_switch");
        assert!(is_tracepoint("sched:sched_waking"));
        assert_eq!(Meaning::of("cpu-clock:ppp"), Meaning::Clock);
        assert_eq!(Meaning::of("sched:sched_switch"), Meaning::Switch);
    }
}
