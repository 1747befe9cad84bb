//! The states of an execution context, their parts, and the views over them (docs/contract.md, "Contexts
//! and states").

use std::fmt;

macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every value, in the order of the contract.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// How many values there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The contract's name of this value.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The value with the contract's name `name`, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }
    };
}

named_enum! {
    /// State of an execution context; every nanosecond is in exactly one.
    State {
        /// Scheduled on a CPU.
        OnCpu => "on_cpu",
        /// Wants a CPU, has none.
        Runnable => "runnable",
        /// Waits for something other than a CPU.
        Blocked => "blocked",
        /// Not seen by the instrument, always for a named cause.
        Unknown => "unknown",
    }
}

named_enum! {
    /// The parts of [`State::OnCpu`] and [`State::Runnable`]; the parts of blocked time are
    /// [`BlockReason`]s. It is the `reason` label of a sample, if one applies.
    Part {
        /// On-CPU in user mode.
        User => "user",
        /// On-CPU in the kernel on its own behalf.
        Kernel => "kernel",
        /// On-CPU time that interrupts and softirqs took from it.
        Irq => "irq",
        /// On-CPU time that the hypervisor took from it.
        Stolen => "stolen",
        /// Runnable since it was woken (or created).
        Woken => "woken",
        /// Runnable after a preemption.
        Preempted => "preempted",
        /// Runnable, throttled by a cgroup's CPU quota.
        Throttled => "throttled",
    }
}

named_enum! {
    /// Reason why the instrument did not see a range of time.
    UnknownCause {
        /// The thread's record could not be created in time (kernel out of memory, or busy).
        NoRecord => "no_record",
        /// The capture lost the events for this time.
        LostEvents => "lost_events",
        /// The source of this profile does not tell (imported files).
        NotInSource => "not_in_source",
    }
}

named_enum! {
    /// A view of a recording; its values are nanoseconds (docs/contract.md, "Views and values").
    View {
        /// Time on a CPU.
        OnCpu => "on-cpu",
        /// Blocked time only.
        OffCpu => "off-cpu",
        /// Runnable time.
        RunQueue => "runq",
        /// All states.
        Wall => "wall",
    }
}

impl View {
    /// Whether time spent in `state` belongs to this view.
    pub fn includes(self, state: State) -> bool {
        match self {
            View::OnCpu => state == State::OnCpu,
            View::OffCpu => state == State::Blocked,
            View::RunQueue => state == State::Runnable,
            View::Wall => true,
        }
    }
}
