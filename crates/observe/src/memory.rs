//! Stack memory, which a log holds only on request.

use crate::wire::{Input, Malformed, Wire, fields, get_length};

/// Memory of a thread's stack, as a collector copied it to unwind it. It is for people that examine an unwinding: no
/// recorder reads it, and a replay gives the same result without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackMemory {
    /// When it was copied, ns on the recording's clock.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread; 0: only the ticket is known.
    pub tid: u32,
    /// The ticket by which samples of the kernel programs name the stack; 0: none.
    pub ticket: u64,
    /// Program counter.
    pub pc: u64,
    /// The other registers by DWARF's numbers (System V ABI, x86-64), those that are known; the rest is 0.
    pub registers: [u64; 16],
    /// Address of the first byte.
    pub start: u64,
    /// A bit for each page that could not be read, from the page of the first byte on. The bytes of such a page mean
    /// nothing.
    pub holes: u64,
    /// The memory.
    pub bytes: StackBytes,
}

/// Bytes of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackBytes(pub Vec<u8>);

impl Wire for StackBytes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u64).put(out);
        out.extend_from_slice(&self.0);
    }

    fn get(from: &mut Input<'_>) -> Result<StackBytes, Malformed> {
        let length = get_length(from)?;
        from.take(length).map(|bytes| StackBytes(bytes.to_vec()))
    }
}

fields! {
    StackMemory { time, pid, tid, ticket, pc, registers, start, holes, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogFile, LogReader, LogWriter, Observation};

    #[test]
    fn a_log_holds_memory_where_it_is_asked_for_and_says_so() {
        let memory = StackMemory {
            time: 7,
            pid: 1,
            tid: 2,
            ticket: 0,
            pc: 0x1000,
            registers: std::array::from_fn(|n| n as u64),
            start: 0x7fff_0000,
            holes: 2,
            bytes: StackBytes((0..=255).collect()),
        };
        let folder = tempfile::tempdir().unwrap();
        for asked in [true, false] {
            let path = folder.path().join(asked.to_string());
            let mut file = LogFile::create(&path).unwrap();
            if asked {
                file = file.with_memory();
            }
            let mut log = LogWriter::begin(file, "test 1.0", LogFile::BOUND);
            log.keep_memory(|| memory.clone());
            log.close().unwrap();
            let mut read = LogReader::open(&path).unwrap();
            assert_eq!(read.header().memory, asked);
            let expected = asked.then(|| Observation::StackMemory(Box::new(memory.clone())));
            assert_eq!(read.next(), expected);
            assert_eq!(read.next(), None);
        }
    }
}
