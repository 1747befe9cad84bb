//! The specification of one event.

use perf_event_open_sys::bindings as b;

/// Source of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The kernel itself.
    Software,
    /// The CPU's counters, or another device's.
    Hardware,
    /// A place in the kernel that reports each pass.
    Tracepoint,
}

/// An event to count, or to take stacks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventSpec {
    /// As it was asked for.
    pub name: String,
    /// Its source.
    pub source: Source,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `config1` and `config2`.
    pub more: [u64; 2],
    /// Only in user mode, only in the kernel.
    pub only: (bool, bool),
    /// `precise_ip`.
    pub precise: u8,
    /// Whether its values are nanoseconds.
    pub is_time: bool,
    /// Whether it is a member of a group. The leader is the last event before it that is no member.
    pub in_group: bool,
}

impl EventSpec {
    pub(super) fn new(name: &str, source: Source, kind: u32, config: u64) -> EventSpec {
        EventSpec {
            name: name.to_string(),
            source,
            kind,
            config,
            more: [0; 2],
            only: (false, false),
            precise: 0,
            is_time: false,
            in_group: false,
        }
    }

    /// Whether it happens in the kernel only, so that user mode alone has none of it.
    pub fn is_of_the_kernel(&self) -> bool {
        let kernel = [
            b::PERF_COUNT_SW_CONTEXT_SWITCHES,
            b::PERF_COUNT_SW_CPU_MIGRATIONS,
            b::PERF_COUNT_SW_CGROUP_SWITCHES,
        ];
        let software = self.kind == b::PERF_TYPE_SOFTWARE;
        self.source == Source::Tracepoint
            || (software && kernel.iter().any(|k| u64::from(*k) == self.config))
    }

    /// The kernel's description of it.
    pub fn attributes(&self) -> b::perf_event_attr {
        let mut a = b::perf_event_attr {
            size: size_of::<b::perf_event_attr>() as u32,
            type_: self.kind,
            config: self.config,
            ..Default::default()
        };
        a.__bindgen_anon_3.config1 = self.more[0];
        a.__bindgen_anon_4.config2 = self.more[1];
        a.set_exclude_kernel(self.only.0.into());
        a.set_exclude_user(self.only.1.into());
        a.set_precise_ip(self.precise.into());
        a
    }
}
