//! Programs that know their own truth, and a scorer that holds wallscope to it.
//!
//! A truth program (`programs/`, C, built without frame pointers) measures its own named functions
//! by the clock and writes down its own stacks by glibc's `backtrace()`. The testkit starts one, records it
//! with the real `wallscope` binary, reads `report --json` and `export --format folded` as a script would, and
//! compares. It links no code of wallscope, so that a fault there cannot hide itself.
//!
//! | module | content |
//! |---|---|
//! | `program`, `python`, `java`, `go`, `node`, `php`, `ruby` | starts and releases a truth program |
//! | `truth` | a program's own account |
//! | `tool`, `probing` | drives the wallscope binary, and its verbs that place probes |
//! | `report`, `folded` | reads its output |
//! | `score` | compares and prints rows; `score::chance` has the sampling error |
//! | `checks` | whole experiments; the live tests run them short, the full verification long |
//! | `scenarios` | processes with a known trouble, and the verdict that the ladder has to give |
//! | `live`, `disturbance`, `known` | attempts of a live test, disturbances by other programs, known weaknesses |
//!
//! The testkit does not judge the look of a page or the words of a report.

pub mod books;
pub mod checks;
pub mod disturbance;
pub mod folded;
pub mod go;
pub mod java;
pub mod known;
mod launched;
pub mod live;
pub mod node;
mod options;
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

pub use live::{with_tool, with_tool_alone};
pub use program::Program;
pub use score::{Row, Scorecard};
pub use tool::Tool;
pub use truth::Truth;

/// Reason why an experiment could not be made. An experiment that was made and failed is no error.
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

/// The wallscope binary did not do as the contract says: `what`.
pub fn wrong(what: impl Into<String>) -> Error {
    Error::Output(what.into())
}
