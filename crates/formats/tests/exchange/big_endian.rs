//! Conversion of a `perf.data` file to big-endian byte order.
//!
//! Every field of the header, of the event attributes, and of the records that samples need is
//! byte-swapped by its size. The flags of an event are a C bit field, so their bits are reversed in each
//! byte. All other records and features (kernel symbols, BPF programs) are left out.

/// Byte-swaps fields one after the other.
struct Turner {
    bytes: Vec<u8>,
    at: usize,
}

impl Turner {
    fn turn(&mut self, sizes: &[usize]) {
        for size in sizes {
            self.bytes[self.at..self.at + size].reverse();
            self.at += size;
        }
    }
    fn longs(&mut self, n: usize) {
        (0..n).for_each(|_| self.turn(&[8]));
    }
    fn long(&self, at: usize) -> usize {
        let b = self.bytes[at..at + 8].try_into().unwrap();
        u64::from_le_bytes(b) as usize
    }
    fn int(&self, at: usize) -> usize {
        let b = self.bytes[at..at + 4].try_into().unwrap();
        u32::from_le_bytes(b) as usize
    }
    fn short(&self, at: usize) -> usize {
        let b = self.bytes[at..at + 2].try_into().unwrap();
        usize::from(u16::from_le_bytes(b))
    }

    /// The attributes of an event, which end at `end`.
    fn event(&mut self, end: usize) {
        self.turn(&[4, 4, 8, 8, 8, 8]);
        for b in &mut self.bytes[self.at..self.at + 8] {
            // A big-endian bit field begins at the high bit of its first byte.
            *b = b.reverse_bits();
        }
        self.at += 8;
        let rest = [4, 4, 8, 8, 8, 8, 4, 4, 8, 4, 2, 2, 4, 4, 8];
        for size in rest {
            if self.at + size <= end {
                self.turn(&[size]);
            }
        }
        self.at = end;
    }

    /// A string after its length.
    fn text(&mut self) {
        let length = self.int(self.at);
        self.turn(&[4]);
        self.at += length;
    }
}

const IDENTIFIER: usize = 1 << 16;

/// Sizes of the fields that end every record except samples (`sample_id`); `kind`: the `sample_type`.
fn identity(kind: usize) -> Vec<usize> {
    let fields: [(usize, &[usize]); 6] = [
        (1 << 1, &[4, 4]),
        (1 << 2, &[8]),
        (1 << 6, &[8]),
        (1 << 9, &[8]),
        (1 << 7, &[4, 4]),
        (IDENTIFIER, &[8]),
    ];
    let has = |(bit, _): &&(usize, &[usize])| kind & bit != 0;
    (fields.iter().filter(has))
        .flat_map(|(_, sizes)| sizes.iter().copied())
        .collect()
}

/// `file` as a big-endian machine would write it.
pub fn turned(file: &[u8]) -> Vec<u8> {
    let mut t = Turner {
        bytes: file.to_vec(),
        at: 0,
    };
    let (size, attributes, data) = (t.long(16), t.long(24), t.long(40));
    let (attributes_end, data_end) = (attributes + t.long(32), data + t.long(48));
    let kind = t.long(attributes + 24);
    let features: Vec<usize> = (0..256)
        .filter(|bit| file[72 + bit / 8] >> (bit % 8) & 1 == 1)
        .collect();
    t.longs(13);
    for event in (attributes..attributes_end).step_by(size) {
        t.at = event;
        t.event(event + size - 16);
        let (ids, length) = (t.long(t.at), t.long(t.at + 8));
        t.longs(2);
        t.at = ids;
        t.longs(length / 8);
    }
    let mut at = data;
    while at < data_end {
        t.at = at;
        let (record, misc, length) = (t.int(at), t.short(at + 4), t.short(at + 6));
        t.turn(&[4, 2, 2]);
        at += length;
        let tail = identity(kind);
        let tail_at = at - tail.iter().sum::<usize>();
        match record {
            // A process or thread is named, ends, or is born.
            3 => t.turn(&[4, 4]),
            4 | 7 => t.turn(&[4, 4, 4, 4, 8]),
            // Something is mapped.
            1 => t.turn(&[4, 4, 8, 8, 8]),
            10 => {
                t.turn(&[4, 4, 8, 8, 8]);
                match misc & (1 << 14) != 0 {
                    true => t.at += 24,
                    false => t.turn(&[4, 4, 8, 8]),
                }
                t.turn(&[4, 4]);
            }
            9 => {
                let before: [(usize, &[usize]); 8] = [
                    (IDENTIFIER, &[8]),
                    (1 << 0, &[8]),
                    (1 << 1, &[4, 4]),
                    (1 << 2, &[8]),
                    (1 << 6, &[8]),
                    (1 << 9, &[8]),
                    (1 << 7, &[4, 4]),
                    (1 << 8, &[8]),
                ];
                for (bit, sizes) in before {
                    if kind & bit != 0 {
                        t.turn(sizes);
                    }
                }
                if kind & (1 << 5) != 0 {
                    let frames = t.long(t.at);
                    t.longs(1 + frames);
                }
                continue;
            }
            _ => continue,
        }
        t.at = tail_at;
        t.turn(&tail);
    }
    for (i, feature) in features.iter().enumerate() {
        t.at = data_end + 16 * i;
        let (start, length) = (t.long(t.at), t.long(t.at + 8));
        t.longs(2);
        t.at = start;
        match feature {
            // Release, version, machine.
            4..=6 => t.text(),
            // CPUs.
            7 => t.turn(&[4, 4]),
            // The command line.
            11 => {
                let words = t.int(t.at);
                t.turn(&[4]);
                (0..words).for_each(|_| t.text());
            }
            12 => {
                let (events, size) = (t.int(t.at), t.int(t.at + 4));
                t.turn(&[4, 4]);
                for _ in 0..events {
                    t.event(t.at + size);
                    let ids = t.int(t.at);
                    t.turn(&[4]);
                    t.text();
                    t.longs(ids);
                }
            }
            // Build ids: records of their own, process and id.
            2 => {
                while t.at < start + length {
                    let next = t.at + t.short(t.at + 6);
                    t.turn(&[4, 2, 2, 4]);
                    t.at = next;
                }
            }
            _ => {}
        }
    }
    t.bytes
}
