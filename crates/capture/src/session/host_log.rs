//! Facts about the host, taken at the start, each second, and at the end.

use wallscope_model::{HostFacts, HostSample};
use wallscope_object::{host::HostReader, process};

use super::now;

/// Processes whose limits are read.
const MOST: usize = 16;

/// The facts so far.
pub(crate) struct HostLog {
    reader: HostReader,
    pids: Vec<u32>,
    facts: Vec<HostSample>,
    next_ns: u64,
}

impl HostLog {
    /// Opens what is read; `pids` are the targets, as far as they are known.
    pub fn open(pids: &[u32]) -> HostLog {
        HostLog {
            reader: HostReader::open(pids.first().copied()),
            pids: pids.iter().take(MOST).copied().collect(),
            facts: Vec::new(),
            next_ns: 0,
        }
    }

    /// Takes everything, with the limits of the targets, which is more costly.
    pub fn take_all(&mut self) {
        let limits = self
            .pids
            .iter()
            .filter_map(|pid| process::limits(*pid).ok())
            .collect();
        let facts = HostFacts {
            limits,
            ..self.reader.read()
        };
        self.push(facts);
    }

    /// Takes what changes, once a second; whether it was time to.
    pub fn tick(&mut self, now: u64) -> bool {
        if now < self.next_ns {
            return false;
        }
        let facts = self.reader.read();
        self.push(facts);
        true
    }

    fn push(&mut self, facts: HostFacts) {
        let time_ns = now();
        self.next_ns = time_ns + 1_000_000_000;
        self.facts.push(HostSample { time_ns, facts });
    }

    /// Takes everything a last time.
    pub fn finish(mut self) -> Vec<HostSample> {
        self.take_all();
        self.facts
    }
}
