//! Triggers: reasons to keep the minutes before a moment.
//!
//! A trigger is a state machine over the clock of windows. [`measure`] reads a condition's figure from a
//! window; [`Machine::step`] decides whether the trigger fires: the condition must hold for a time, the last
//! snap must be a cool-down ago, and the day's number must not be reached. Alerts of a webhook come with
//! their own hold time, and fire at once.
//!
//! What it does not do: requests in flight and quantiles of probed functions are no conditions yet.

mod machine;
mod measure;
mod webhook;

#[cfg(test)]
mod tests;

pub use machine::{Machine, Outcome};
pub use measure::{Reading, measure};
pub use webhook::{Alert, WebhookError, parse_webhook};
