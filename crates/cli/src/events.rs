//! Events by name, as `-e` takes them.

use wallscope_capture::counter::{self, EventError, EventSpec};

use crate::failure::Failure;

/// The events of these lists.
pub fn named(lists: &[String]) -> Result<Vec<EventSpec>, Failure> {
    let names: Vec<&str> = (lists.iter())
        .flat_map(|list| counter::split(list))
        .collect();
    if names.is_empty() && !lists.is_empty() {
        return Err(Failure::usage(
            "-e names no event: -e page-faults, say, or leave it out",
        ));
    }
    names.into_iter().map(one).collect()
}

/// The event of that name.
pub fn one(name: &str) -> Result<EventSpec, Failure> {
    EventSpec::parse(name).map_err(|e| {
        let code = match e {
            EventError::Tracepoint { .. } => 3,
            _ => 2,
        };
        Failure::of(code, anyhow::Error::new(e))
    })
}
