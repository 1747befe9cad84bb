//! Parts of a recording that are given up so that measuring costs less, and the hooks that go with them.

/// Hooks that only serve interrupt time.
pub(super) const IRQ_HOOKS: &[&str] = &[
    "ws_irq_entry",
    "ws_irq_exit",
    "ws_softirq_entry",
    "ws_softirq_exit",
    "ws_timer_entry",
    "ws_timer_exit",
];

/// Hooks that follow requests.
const OF_REQUESTS: &[&str] = &["ws_sent", "ws_received", "ws_sock_state"];

/// Hooks of stacks and wakers.
const OF_STACKS: &[&str] = &[
    "ws_on_cpu",
    "ws_timer_set",
    "ws_waking",
    "ws_fault",
    "ws_room",
    "ws_irq_work",
];

/// Hooks of switches, and of migrations, which are of use only beside switches. The hooks of fork, exec and exit
/// stay.
const OF_SCHEDULER: &[&str] = &["ws_switch", "ws_migrate"];

/// What is given up. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum GivenUp {
    /// Nothing.
    #[default]
    Nothing,
    /// Requests in flight: the hooks at each send and receive.
    Requests,
    /// Stacks and wakers.
    Stacks,
    /// Block reasons of threads that switch very often.
    FewReasons,
    /// All hooks of the scheduler: the kernel's counters remain.
    Hooks,
}

impl GivenUp {
    /// All steps, in their order.
    pub const ALL: [GivenUp; 5] = [
        GivenUp::Nothing,
        GivenUp::Requests,
        GivenUp::Stacks,
        GivenUp::FewReasons,
        GivenUp::Hooks,
    ];

    /// What the step gives up, in words.
    pub fn name(self) -> &'static str {
        match self {
            GivenUp::Nothing => "nothing",
            GivenUp::Requests => "request tracking",
            GivenUp::Stacks => "stacks and wakers",
            GivenUp::FewReasons => {
                "block reasons of threads that switch more than 10,000 times a second"
            }
            GivenUp::Hooks => "all scheduler hooks",
        }
    }

    /// The columns that are not exact meanwhile, in words.
    pub fn inexact(self) -> &'static str {
        match self {
            GivenUp::Nothing => "",
            GivenUp::Requests => "requests in flight, peers, idle time by requests",
            GivenUp::Stacks => {
                "stacks of all views (they stand for the time with stacks), wakers, lengths of waits by stack"
            }
            GivenUp::FewReasons => "blocked by reason (`other` has more), waits by lock",
            GivenUp::Hooks => {
                "blocked by reason (`other` has all that moved), parts of runnable, lengths of intervals, switches; \
                 on-CPU, runnable and blocked are the kernel's counters, and count as repaired"
            }
        }
    }

    /// The next step down.
    pub fn next(self) -> Option<GivenUp> {
        GivenUp::ALL.get(self as usize + 1).copied()
    }

    /// The step that this one followed.
    pub fn before(self) -> Option<GivenUp> {
        (self as usize).checked_sub(1).map(|n| GivenUp::ALL[n])
    }
}

impl GivenUp {
    /// Whether a program stays attached.
    pub(super) fn keeps(self, program: &str) -> bool {
        let is_one_of = |hooks: &[&str]| hooks.contains(&program);
        !(self >= GivenUp::Requests && is_one_of(OF_REQUESTS)
            || self >= GivenUp::Stacks && is_one_of(OF_STACKS)
            || self >= GivenUp::Hooks && (is_one_of(OF_SCHEDULER) || is_one_of(IRQ_HOOKS)))
    }
}
