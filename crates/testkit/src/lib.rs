//! Programs that know their own truth, and a scorer that holds wallscope to it.
//!
//! A truth program (`programs/`, C, built without frame pointers) measures its own named functions
//! by the clock and writes down its own stacks by glibc's `backtrace()`. Here is what starts one,
//! records it with the real `wallscope` binary, reads `report --json` and `export --format folded`
//! as anyone's script would, and compares. Nothing of wallscope's own code is linked in, so a
//! fault in it cannot hide itself.
//!
//! `program` starts and releases a truth program (`python`, `java`, `go` and `node` those in these
//! languages), `truth` is what it tells; `tool` drives the wallscope binary, `probing` its verbs that
//! place probes; `report` and `folded` read its output; `score` compares and prints rows; `scenarios`
//! are processes with a known trouble, and what the ladder's verdict on them has to be; `checks` are
//! whole experiments, each with its length as a parameter, so that the live tests run them short and
//! the full verification long.
//!
//! It does not judge how a page looks or what a report says in words.

pub mod calm;
pub mod checks;
pub mod folded;
pub mod go;
pub mod java;
pub mod node;
pub mod php;
pub mod probing;
pub mod program;
pub mod python;
pub mod receiver;
pub mod report;
pub mod ruby;
pub mod scenarios;
pub mod score;
pub mod tool;
pub mod truth;

pub use program::Program;
pub use score::{Row, Scorecard};
pub use tool::{Tool, with_tool};
pub use truth::Truth;

/// Why an experiment could not be made (as against: it was made, and failed).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot run the program, for the reason given.
    #[error("cannot run here: {0}")]
    CannotRunHere(String),
    /// A process could not be started.
    #[error("could not start {0}")]
    Start(String),
    /// A truth program did not keep to the protocol.
    #[error("{0}")]
    Protocol(String),
    /// The wallscope binary failed, or printed something else than the contract has.
    #[error("{0}")]
    Output(String),
}
