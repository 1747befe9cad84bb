//! Disk traffic and memory of the target's own processes.

use wallscope_model::Limits;

const MIB: f64 = (1u64 << 20) as f64;
/// Maximum number of processes with a row each. If there are more, one row shows all of them.
const MAX_ROWS: usize = 2;
/// Minimum traffic of a process with a row, bytes a second: the least that one decimal of a MiB shows.
const MIN_RATE: f64 = 0.05 * MIB;

/// Disk traffic and memory of one process of the target, or of several.
#[derive(Default)]
struct OwnTraffic {
    /// Bytes a second.
    read: f64,
    written: f64,
    /// Bytes.
    swapped: u64,
    resident: u64,
}

impl OwnTraffic {
    /// Traffic of the process with limits `l` since `before`, `seconds` earlier.
    fn of(l: &Limits, before: Option<&Limits>, seconds: f64) -> OwnTraffic {
        let rate = |of: fn(&Limits) -> Option<u64>| {
            let grown = of(l)?.saturating_sub(before.and_then(of)?);
            Some(grown as f64 / seconds)
        };
        let (read, written) = rate(|l| l.read_bytes)
            .zip(rate(|l| l.written_bytes))
            .unwrap_or_default();
        OwnTraffic {
            read,
            written,
            swapped: l.swapped_bytes.unwrap_or(0),
            resident: l.resident_bytes.unwrap_or(0),
        }
    }

    /// Bytes a second, both ways.
    fn rate(&self) -> f64 {
        self.read + self.written
    }

    fn is_told(&self) -> bool {
        self.rate() >= MIN_RATE || self.swapped > 0
    }

    fn plus(self, other: &OwnTraffic) -> OwnTraffic {
        OwnTraffic {
            read: self.read + other.read,
            written: self.written + other.written,
            swapped: self.swapped + other.swapped,
            resident: self.resident + other.resident,
        }
    }

    /// Its disk traffic in words, if it has enough.
    fn disk_words(&self) -> Option<String> {
        let (read, written) = (self.read / MIB, self.written / MIB);
        (self.rate() >= MIN_RATE)
            .then(|| format!("reads {read:.1} MiB/s from disk and writes {written:.1} MiB/s"))
    }

    /// The traffic and the swapped memory in words.
    fn words(&self) -> String {
        let mut words = Vec::new();
        words.extend(self.disk_words());
        if self.swapped > 0 {
            words.push(format!("{} MiB swapped out", self.swapped >> 20));
        }
        if self.resident > 0 {
            words.push(format!("{} MiB resident", self.resident >> 20));
        }
        words.join(", ")
    }
}

/// Disk traffic of all processes of the target in words, if there is enough; `first` and `last` are `seconds` apart.
pub(super) fn of_all(first: &[Limits], last: &[Limits], seconds: f64) -> Option<String> {
    let own = |l: &Limits| {
        let before = first.iter().find(|b| b.pid == l.pid);
        OwnTraffic::of(l, before, seconds)
    };
    let all = last.iter().map(own);
    all.fold(OwnTraffic::default(), |sum, own| sum.plus(&own))
        .disk_words()
}

/// Names and words of rows: one for each process, or, for many processes, one for all of them that names the process
/// with most traffic. `first` and `last` are `seconds` apart.
pub(super) fn rows(first: &[Limits], last: &[Limits], seconds: f64) -> Vec<(String, String)> {
    let own = |l: &Limits| {
        let before = first.iter().find(|b| b.pid == l.pid);
        (l.pid, OwnTraffic::of(l, before, seconds))
    };
    let told: Vec<(u32, OwnTraffic)> = last
        .iter()
        .map(own)
        .filter(|(_, own)| own.is_told())
        .collect();
    let most = told.iter().max_by(|a, b| a.1.rate().total_cmp(&b.1.rate()));
    match most {
        Some((pid, _)) if told.len() > MAX_ROWS => {
            let all = told.iter().map(|(_, own)| own);
            let sum = all.fold(OwnTraffic::default(), OwnTraffic::plus);
            let name = format!("itself ({} processes)", told.len());
            vec![(name, format!("{}; most of it: pid {pid}", sum.words()))]
        }
        _ => told
            .iter()
            .map(|(pid, own)| (format!("itself (pid {pid})"), own.words()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_processes_share_a_row() {
        let at = |pid: u32, written: u64| Limits {
            pid,
            read_bytes: Some(0),
            written_bytes: Some(written),
            ..Limits::default()
        };
        let first: Vec<Limits> = (1..=4).map(|pid| at(pid, 0)).collect();
        let two = [at(1, 4 << 20), at(2, 8 << 20), at(3, 10)];
        let names = |last: &[Limits]| -> Vec<String> {
            let rows = rows(&first, last, 2.0).into_iter();
            rows.map(|(name, _)| name).collect()
        };
        assert_eq!(names(&two), ["itself (pid 1)", "itself (pid 2)"]);
        let three = [at(1, 4 << 20), at(2, 8 << 20), at(3, 2 << 20)];
        let row = &rows(&first, &three, 2.0)[0];
        assert_eq!(row.0, "itself (3 processes)");
        assert_eq!(
            row.1,
            "reads 0.0 MiB/s from disk and writes 7.0 MiB/s; most of it: pid 2"
        );
    }
}
