//! Delivery: each window leaves the host once.
//!
//! A [`Courier`] empties the outbox of one target, oldest window first, one at a time. It takes a window out
//! when the receiver has acknowledged it, and never before. So nothing acknowledged is lost, and a courier
//! that is killed sends the last window again. A receiver of kind `wallscope` has the window's key and
//! counts it once. Receivers of other kinds have no key: windows that they may have counted twice are counted.
//!
//! Attempts that fail are repeated with growing, random distances. A window that the receiver refuses for
//! good (answers such as 400 or 413) is dropped and counted: it would block all later ones.

mod backoff;
mod courier;
mod pyroscope;
mod thread;

pub use backoff::Backoff;
pub use courier::{Courier, CourierError, CourierFigures, Step};
pub use thread::CourierThread;
