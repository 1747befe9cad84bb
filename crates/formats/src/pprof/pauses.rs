//! Pauses ↔ their messages.

use std::sync::Arc;

use wallscope_model as model;
use wallscope_model::{MAX_LONGEST, Pause};

use super::super::ReadError;
use super::checks::{damaged, same};
use super::extension as ext;

pub(super) fn to_message(g: &model::PauseGroup) -> ext::PauseGroup {
    ext::PauseGroup {
        pid: g.pid,
        operation: g.operation.to_string(),
        kind: g.kind.to_string(),
        cause: g.cause.to_string(),
        count: g.count,
        total: g.total_ns,
        start: g.longest.iter().map(|p| p.start_ns).collect(),
        length: g.longest.iter().map(|p| p.length_ns).collect(),
    }
}

pub(super) fn from_message(m: ext::PauseGroup) -> Result<model::PauseGroup, ReadError> {
    same(&m.length, m.start.len(), "the pauses of a process")?;
    if m.start.len() > MAX_LONGEST || m.start.len() as u64 > m.count {
        return Err(damaged("a process has more long pauses than pauses"));
    }
    let pause = |(start_ns, length_ns): (&u64, &u64)| Pause {
        start_ns: *start_ns,
        length_ns: *length_ns,
    };
    Ok(model::PauseGroup {
        pid: m.pid,
        longest: m.start.iter().zip(&m.length).map(pause).collect(),
        operation: Arc::from(m.operation),
        kind: Arc::from(m.kind),
        cause: Arc::from(m.cause),
        count: m.count,
        total_ns: m.total,
    })
}
