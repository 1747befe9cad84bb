//! Block reasons: one row each (docs/contract.md, "Contexts and states").
//!
//! To add a reason, add a row here and a line to `enum ws_reason` of the kernel programs (a test compares the two),
//! then run `cargo xtask web`, which hands names and colours to the page (all other colours: `colour.rs`). The
//! compiler and the tests name the remaining edits: the calls and places that identify the reason.

use std::fmt;

/// Side that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Another thread, process or device must act: the wait holds its thread up.
    Others,
    /// The waiting side chose the wait: a sleep, or a poll for work.
    Choice,
}

/// A row of the table of block reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonFacts {
    /// The contract's name.
    pub name: &'static str,
    /// Object of "blocked on …" in sentences.
    pub in_words: &'static str,
    /// Colour in pictures, `#rrggbb`: cool, as blocked time is. All are light enough for dark letters, and
    /// differ under every kind of colour vision (`crates/render/web/tests/unit/palette.test.js`).
    pub colour: &'static str,
    /// Whether the thing waited for is a lock, with a holder.
    pub is_lock: bool,
    /// Side that ends the wait.
    pub ended_by: EndedBy,
}

macro_rules! block_reasons {
    ($($(#[$meta:meta])* $reason:ident {
        $name:literal, $in_words:literal, $colour:literal, lock: $is_lock:literal, $ended_by:ident
    })*) => {
        /// The resource or event that a blocked context waits for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BlockReason { $($(#[$meta])* $reason,)* }

        impl BlockReason {
            /// Every reason, in the order of the contract.
            pub const ALL: &'static [BlockReason] = &[$(BlockReason::$reason,)*];

            /// The reason's row.
            pub const fn facts(self) -> ReasonFacts {
                match self {
                    $(BlockReason::$reason => ReasonFacts {
                        name: $name,
                        in_words: $in_words,
                        colour: $colour,
                        is_lock: $is_lock,
                        ended_by: EndedBy::$ended_by,
                    },)*
                }
            }

            /// The reason with the contract's name `name`, if there is one.
            pub fn from_name(name: &str) -> Option<BlockReason> {
                match name { $($name => Some(BlockReason::$reason),)* _ => None }
            }
        }
    };
}

block_reasons! {
    /// A user-space lock, condition, or anything else built on futexes.
    Lock { "lock", "locks", "#8577d5", lock: true, Others }
    /// An interpreter's global lock.
    Gil { "gil", "the interpreter's lock", "#e4ceff", lock: true, Others }
    /// Block I/O, or a file system operation that sleeps.
    Disk { "disk", "the disk", "#878e22", lock: false, Others }
    /// A network socket.
    Network { "network", "the network", "#69aefe", lock: false, Others }
    /// A pipe, FIFO, eventfd, terminal or unix socket.
    Pipe { "pipe", "pipes", "#7ea96a", lock: false, Others }
    /// A sleep that the context asked for.
    Timer { "timer", "timers (it sleeps)", "#acefcc", lock: false, Choice }
    /// `poll`, `select`, `epoll_wait`; waits in `io_uring_enter` that no request explains.
    Poll { "poll", "events (it polls)", "#dbdde5", lock: false, Choice }
    /// A child process.
    Child { "child", "child processes", "#47c69d", lock: false, Others }
    /// A page that had to be brought in.
    PageFault { "page_fault", "page faults", "#dee26e", lock: false, Others }
    /// Memory reclaim or compaction.
    Memory { "memory", "memory reclaim", "#a7da92", lock: false, Others }
    /// A lock inside the kernel.
    KernelLock { "kernel_lock", "locks inside the kernel", "#a28dca", lock: true, Others }
    /// A collector of garbage, which stops or stalls the context.
    Gc { "gc", "garbage collection", "#a373a1", lock: false, Others }
    /// A stop signal, a tracer, or a freezer.
    Stopped { "stopped", "being stopped", "#55916c", lock: false, Others }
    /// Anything else.
    Other { "other", "something else", "#abb1d8", lock: false, Choice }
}

impl BlockReason {
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// The contract's name of this reason.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_colours_tell_reasons_apart() {
        for (i, reason) in BlockReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i);
            assert_eq!(BlockReason::from_name(reason.name()), Some(*reason));
            let colour = reason.facts().colour;
            assert!(colour.len() == 7 && colour.starts_with('#'), "{colour}");
            for other in &BlockReason::ALL[..i] {
                assert_ne!(other.facts().colour, colour);
                assert_ne!(other.name(), reason.name());
            }
        }
        assert_eq!(BlockReason::from_name("nothing"), None);
    }
}
