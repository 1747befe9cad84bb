//! The records of a file in the order of their time.

use super::file::{File, Identity};
use super::records::{self, Record, Records};
use super::sample::{Sample, Trailer};

/// Records of the kernel in the order of their time.
pub(super) struct Sorted {
    /// Time and place of each record.
    list: Vec<(u64, usize)>,
    /// The records end before the end of the bytes.
    pub cut: bool,
}

impl Sorted {
    /// Sorts by time; records of equal time keep their order.
    ///
    /// A record without a time is placed where perf handles it: at once, behind all records that perf has
    /// emitted by then. perf emits the records of one round at the end of the next.
    pub(super) fn new(file: &File, identity: &Identity) -> Sorted {
        let order = file.order;
        let mut list = Vec::new();
        let (mut given_out, mut round, mut latest) = (0, 0, 0);
        let mut walk = Records::new(&file.records, order);
        loop {
            let at = walk.at;
            let Some(r) = walk.next() else { break };
            if r.kind == records::FINISHED_ROUND {
                given_out = round;
                round = latest;
            }
            if !r.is_kernels() && r.kind != records::AUXTRACE {
                continue;
            }
            let time = time(&r, file, identity).unwrap_or(given_out);
            latest = latest.max(time);
            list.push((time, at));
        }
        list.sort_by_key(|(time, _)| *time);
        Sorted {
            list,
            cut: walk.at < file.records.len(),
        }
    }

    /// The places of the records.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.list.iter().map(|(_, at)| *at)
    }
}

fn time(r: &Record, file: &File, identity: &Identity) -> Option<u64> {
    let attribute = |i: usize| &file.events[i].attribute;
    match r.kind {
        records::AUXTRACE => None,
        records::SAMPLE => {
            let event = identity.of_sample(r.body, file.order)?;
            Sample::time(r.body, file.order, attribute(event))
        }
        _ => {
            let event = identity.of_other(r.body, file.order);
            Trailer::parse(r.body, file.order, attribute(event)).time
        }
    }
}
