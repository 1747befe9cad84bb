//! Perf events of an ordinary user: stacks of running threads, and every switch.
//!
//! ```text
//! thread_events.rs    the events of each thread, and their rings; perf_attr.rs: how they are asked for
//! record.rs           the records in the rings
//! switch_timeline/    a thread's time by its switches: the totals of this backend
//! intake.rs           records -> threads, observations
//! estimate.rs         observations of switches, samples and polls -> a thread's time; reads nothing of the machine
//! pending_wait.rs     polls of a wait that is not over yet; recorded.rs: state of all threads' records
//! oncpu_stacks.rs     stacks of running threads; ran_since.rs: how old a sample is
//! event_sampling/     stacks at events by name
//! known_wait_sites.rs where threads waited lately; runnable_stacks.rs: stacks of threads that were woken there
//! wait_strata.rs      waits by length
//! switch_throttle.rs  threads that switch too often for a record of each; throttle_turns.rs: their turns
//! ring_wakeup_policy.rs
//!                     whether a sample wakes the reader of its ring
//! cpu_affinity.rs     the CPU that rings are read on
//! preempt_samples.rs  stacks of threads that are preempted
//! newborns.rs         samples of threads that compute for less than a sampling period
//! ```
//!
//! Each thread has one software clock event for each CPU, inherited by the threads that it makes later. These
//! events write to one ring a CPU: samples with user registers and 8 to 32 KiB of stack, which are unwound here;
//! each switch, with whether the thread was preempted or switched voluntarily; births, ends, names, new mappings
//! and programs. Waiting threads are polled as in the `proc` backend. The run-queue latency of a woken thread is in
//! no record: that alone is taken from the scheduler's counters, which otherwise serve as the second witness.
//!
//! Where the kernel may not be sampled (`perf_event_paranoid` 2), samples fall on user code only; the tick tells
//! the rest of the time on a CPU. Kernel stacks are not seen then, nor the stacks at which threads are preempted.

mod cpu_affinity;
mod estimate;
mod event_sampling;
mod intake;
mod known_wait_sites;
mod newborns;
mod oncpu_stacks;
mod pending_wait;
mod perf_attr;
mod preempt_samples;
mod ran_since;
mod record;
mod recorded;
mod ring_wakeup_policy;
mod runnable_stacks;
mod switch_throttle;
mod switch_timeline;
mod thread_events;
mod throttle_turns;
pub(crate) mod wait_strata;

pub use cpu_affinity::CpuAffinity;
pub use event_sampling::{EventFamilies, EventSampler, EventSampling};
pub(in crate::backend) use known_wait_sites::told_apart;
pub use known_wait_sites::{KnownWaitSites, RunnableSampling, WaitSite};
pub use pending_wait::{PendingWait, Preemption};
pub use record::{BELOW, Record, Running};
pub use recorded::{RecordedSwitches, SwitchRecords};
pub use ring_wakeup_policy::RingWakeupPolicy;
pub use switch_throttle::SwitchThrottle;
pub use switch_timeline::{SwitchRecordLatency, SwitchTimeline};
pub use thread_events::{DATA_PAGES, ThreadEvents};
