//! Descriptions of stacks at events, and of their limits.

use wallscope_model::{EventSource, Limit};

use super::{Event, EventSampler, FLOODED_CHECKS};
use crate::counter::Source;

impl EventSampler {
    /// For the domain.
    pub fn describe(&self) -> Vec<EventSource> {
        let user = if self.with_kernel {
            ""
        } else {
            ", in user mode only"
        };
        let describe = |e: &Event| {
            let what = match e.spec.source {
                Source::Software => "a software event",
                Source::Hardware => "a hardware counter",
                Source::Tracepoint => "a tracepoint",
            };
            EventSource {
                what: format!("stacks at {}", e.spec.name),
                event: format!("{what} of each thread{user}"),
                rate: if self.is_fixed {
                    format!(
                        "hits counted, a stack every {} of a thread and CPU",
                        e.gap()
                    )
                } else {
                    format!(
                        "hits counted, about {} stacks a second (at last one every {} hits of a thread and CPU)",
                        self.hz,
                        e.gap()
                    )
                },
            }
        };
        self.events.iter().map(describe).collect()
    }

    /// Limits of its view.
    pub fn limits(&self) -> Vec<Limit> {
        let limit = |what: String, remedy: &str| Limit {
            what,
            remedy: remedy.into(),
        };
        let mut limits = vec![limit(
            "how often an event happened to each of several threads that one has made, as all of a command's are, and that live to the end: their sum is counted, and divided by the stacks that came. Of those that ended the kernel tells the count, but some from Linux 5.13 on do not: then theirs is divided as well".into(),
            "the ebpf backend",
        )];
        if !self.with_kernel {
            limits.push(limit(
                "events that happen while the kernel works for a thread".into(),
                "sudo sysctl kernel.perf_event_paranoid=1, or the ebpf backend",
            ));
        }
        for event in self.events.iter().filter(|e| e.flooded >= FLOODED_CHECKS) {
            limits.push(limit(
                format!("{} after a while: stacks came far too often from threads that had inherited a small gap, and were switched off", event.spec.name),
                "--event-period N, or the ebpf backend",
            ));
        }
        if self.left_out > 0 {
            limits.push(limit(
                format!(
                    "events of {} threads: too many files were open",
                    self.left_out
                ),
                "a higher limit of open files (ulimit -n), or the ebpf backend",
            ));
        }
        limits
    }
}
