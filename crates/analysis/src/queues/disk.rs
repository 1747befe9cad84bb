//! Block devices as queues, from the host's counters of each second.
//!
//! The counters are of all processes. A device is one server here: while it has requests in flight it
//! is busy. Flash serves several requests at once, so that a busy device may have room left.

use wallscope_model::{DiskFacts, Recording};

use crate::queueing::{Discipline, Moments};

use super::known::Known;
use super::queue::{Absent, Queue, QueueKind, Queues, System};
use super::seconds::seconds;

/// Devices with less busy time than this are no queue.
const MIN_BUSY: f64 = 0.01;
/// Fewest intervals between readings for an interval.
const MIN_READINGS: usize = 4;

pub(super) fn queues(rec: &Recording, found: &mut Queues) {
    let first = rec.host.first().map_or(&[][..], |h| &h.facts.disks);
    for disk in first {
        let blocks = blocks(rec, &disk.name);
        let whole = Moments::total(&blocks);
        if whole.span > 0.0 && whole.utilisation(1) >= MIN_BUSY && whole.jobs > 0.0 {
            found.push(queue(disk, blocks));
        }
    }
}

fn queue(disk: &DiskFacts, blocks: Vec<Moments>) -> Result<Queue, Absent> {
    if blocks.len() < MIN_READINGS {
        return Err(Absent {
            kind: QueueKind::Disk,
            name: disk.name.as_str().into(),
            reason: format!(
                "its counters were read {} times: record {MIN_READINGS} s or longer",
                blocks.len() + 1
            ),
        });
    }
    let known = Known {
        kind: QueueKind::Disk,
        name: disk.name.as_str().into(),
        system: System::Open,
        because: "requests of all processes; no record says which thread waits for which of them".into(),
        servers: 1,
        discipline: Discipline::Fifo,
        others: 0.0,
        waits_known: true,
        variation_known: false,
        notes: vec![
            "busy counts any time with a request in flight: a flash disk may serve several at once and have room"
                .into(),
            "the wait comes from the number of requests in flight, read each second".into(),
        ],
        blocks,
    };
    let prediction = known.open().from_sums(&known.blocks);
    Ok(known.queue(Some(prediction)))
}

/// Sums between readings of the counters.
fn blocks(rec: &Recording, name: &str) -> Vec<Moments> {
    let reading = |h: &wallscope_model::HostSample| -> Option<(u64, DiskFacts)> {
        let disk = h.facts.disks.iter().find(|d| d.name == name)?;
        Some((h.time_ns, disk.clone()))
    };
    let readings: Vec<(u64, DiskFacts)> = rec.host.iter().filter_map(reading).collect();
    let pairs = readings.iter().zip(readings.iter().skip(1));
    let blocks = pairs.map(|((from, before), (to, after))| {
        let span = seconds(to.saturating_sub(*from));
        let requests = (after.reads + after.writes).saturating_sub(before.reads + before.writes);
        let busy = (after.busy_ms.saturating_sub(before.busy_ms) as f64 / 1e3).min(span);
        Moments {
            span,
            jobs: requests as f64,
            service: busy,
            wait: (after.in_flight as f64 * span - busy).max(0.0),
            ..Moments::default()
        }
    });
    blocks.filter(|m| m.span > 0.0).collect()
}
