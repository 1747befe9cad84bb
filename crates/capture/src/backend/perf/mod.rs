//! Perf events of an ordinary user: what running threads run, and every switch.
//!
//! ```text
//! mod.rs      the events and their rings
//! record.rs   what lies in the rings
//! course.rs   a thread's time by its switches: the totals of this backend
//! intake.rs   records -> threads, their courses, samples
//! running.rs  stacks of running threads
//! hits/       stacks at events by name
//! queued.rs   whose stacks threads have that were woken and wait for a CPU
//! waits.rs    whose stacks those waits have that no look fell into
//! ration.rs   threads that switch too often for a record of each
//! attention.rs  whether samples are read at once
//! nearby.rs   on which CPU they are read
//! leaving.rs  stacks of threads that are put off their CPU
//! ```
//!
//! One software clock event for each thread there is and each CPU, inherited by what the thread
//! makes later, writes to one ring a CPU: samples with user registers and 8 KiB of stack, which are
//! unwound here; each switch, with whether the thread was put off the CPU or left it; births, ends,
//! names, new mappings and programs. Waiting threads are looked at as the `proc` backend does. How
//! long a woken thread waited for its CPU is in no record: that alone is taken from the scheduler's
//! counters, which otherwise serve as the second witness.
//!
//! Where the kernel may not be sampled (`perf_event_paranoid` 2), samples fall on user code only;
//! the rest of the time on a CPU is told by the tick. It does not see kernel stacks, nor where threads are when
//! they are put off their CPU.

mod attention;
mod event_sampling;
mod intake;
mod nearby;
mod oncpu_stacks;
mod perf_attr;
mod preempt_samples;
mod queued;
mod ran_since;
mod record;
mod runnable_stacks;
mod switch_throttle;
mod switch_timeline;
mod thread_events;
mod throttle_turns;
pub(crate) mod waits;

pub use attention::Attention;
pub use event_sampling::Hits;
pub use nearby::Nearby;
pub(in crate::backend) use queued::told_apart;
pub use queued::{Crowd, Place, Places, Queued};
pub use record::{BELOW, Record, Running};
pub use switch_throttle::Ration;
pub use switch_timeline::{Course, Lag};
pub use thread_events::{Clock, DATA_PAGES};
