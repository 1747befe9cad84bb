//! `perf.data` in any layout that `perf_event.h` describes, with the sums that it holds.

use std::collections::BTreeMap;

use wallscope_synthetic::Random;

pub const IP: u64 = 1 << 0;
pub const TID: u64 = 1 << 1;
pub const TIME: u64 = 1 << 2;
pub const ADDR: u64 = 1 << 3;
pub const READ: u64 = 1 << 4;
pub const CALLCHAIN: u64 = 1 << 5;
pub const ID: u64 = 1 << 6;
pub const CPU: u64 = 1 << 7;
pub const PERIOD: u64 = 1 << 8;
pub const STREAM_ID: u64 = 1 << 9;
pub const RAW: u64 = 1 << 10;
pub const BRANCH_STACK: u64 = 1 << 11;
pub const REGS_USER: u64 = 1 << 12;
pub const STACK_USER: u64 = 1 << 13;
pub const WEIGHT: u64 = 1 << 14;
pub const IDENTIFIER: u64 = 1 << 16;
pub const REGS_INTR: u64 = 1 << 18;
pub const AUX: u64 = 1 << 20;
pub const WEIGHT_STRUCT: u64 = 1 << 24;
/// One word each, behind the registers.
pub const TAIL: [u64; 6] = [1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 22, 1 << 23];

pub const FORMAT_ID: u64 = 1 << 2;
pub const FORMAT_GROUP: u64 = 1 << 3;

pub const SAMPLE_ID_ALL: u64 = 1 << 18;
pub const HW_INDEX: u64 = 1 << 17;
pub const BRANCH_COUNTERS: u64 = 1 << 19;

pub const BASE: u64 = 0x40_0000;

/// Writes integers in one byte order.
#[derive(Clone)]
pub struct Out {
    pub bytes: Vec<u8>,
    pub big: bool,
}

impl Out {
    pub fn new(big: bool) -> Out {
        Out {
            bytes: Vec::new(),
            big,
        }
    }
    pub fn put(&mut self, little: &[u8]) {
        let mut bytes = little.to_vec();
        if self.big {
            bytes.reverse();
        }
        self.bytes.extend(bytes);
    }
    pub fn long(&mut self, n: u64) {
        self.put(&n.to_le_bytes());
    }
    pub fn int(&mut self, n: u32) {
        self.put(&n.to_le_bytes());
    }
    pub fn short(&mut self, n: u16) {
        self.put(&n.to_le_bytes());
    }
    pub fn text(&mut self, text: &str, length: usize) {
        self.bytes.extend(text.as_bytes());
        self.bytes.extend(vec![0; length - text.len()]);
    }
    pub fn record(&mut self, kind: u32, misc: u16, body: &Out) {
        self.int(kind);
        self.short(misc);
        self.short(8 + body.bytes.len() as u16);
        self.bytes.extend(&body.bytes);
    }
}

/// An event and the sums of its stacks.
pub struct Event {
    pub name: String,
    pub kind: u32,
    pub config: u64,
    pub id: u64,
    /// Value of its counter so far.
    pub counter: u64,
    pub expected: BTreeMap<String, u64>,
}

/// The layout of one file.
pub struct Layout {
    pub big: bool,
    pub sample: u64,
    pub reading: u64,
    pub branch: u64,
    pub user_registers: u64,
    pub interrupt_registers: u64,
    pub fixed_period: u64,
    pub trailer: bool,
}

pub fn drawn(random: &mut Random, events: usize) -> Layout {
    let mut sample = IP | TID;
    let optional = [
        TIME,
        ADDR,
        ID,
        CPU,
        STREAM_ID,
        PERIOD,
        READ,
        CALLCHAIN,
        RAW,
        BRANCH_STACK,
        REGS_USER,
        STACK_USER,
        IDENTIFIER,
        REGS_INTR,
        AUX,
    ];
    for bit in optional.into_iter().chain(TAIL) {
        if random.below(2) == 0 {
            sample |= bit;
        }
    }
    sample |= [0, WEIGHT, WEIGHT_STRUCT][random.below(3) as usize];
    if events > 1 && sample & (ID | IDENTIFIER) == 0 {
        sample |= [ID, IDENTIFIER][random.below(2) as usize];
    }
    // Copied stacks of the user are another test: there the chain is the kernel's.
    if sample & REGS_USER != 0 {
        sample &= !STACK_USER;
    }
    Layout {
        big: random.below(2) == 0,
        sample,
        reading: random.below(32),
        branch: [0, HW_INDEX, BRANCH_COUNTERS, HW_INDEX | BRANCH_COUNTERS]
            [random.below(4) as usize],
        user_registers: random.below(1 << 24),
        interrupt_registers: random.below(1 << 24),
        fixed_period: 1 + random.below(1000),
        trailer: random.below(4) > 0,
    }
}

impl Layout {
    pub fn has(&self, bit: u64) -> bool {
        self.sample & bit != 0
    }

    pub fn attribute(&self, e: &Event) -> Out {
        let mut out = Out::new(self.big);
        let flags = if self.trailer { SAMPLE_ID_ALL } else { 0 };
        out.int(e.kind);
        out.int(136);
        out.long(e.config);
        out.long(self.fixed_period);
        out.long(self.sample);
        out.long(self.reading);
        out.long(if self.big {
            u64::reverse_bits(flags)
        } else {
            flags
        });
        out.long(0);
        out.long(0);
        out.long(0);
        out.long(self.branch);
        out.long(self.user_registers);
        out.int(64);
        out.int(0);
        out.long(self.interrupt_registers);
        out.bytes.resize(136, 0);
        out
    }

    /// The identity that ends a record that is no sample.
    pub fn trailer(&self, out: &mut Out, id: u64) {
        let fields = [
            (TID, 7),
            (TIME, 5),
            (ID, id),
            (STREAM_ID, 3),
            (CPU, 0),
            (IDENTIFIER, id),
        ];
        for (bit, value) in fields.into_iter().filter(|_| self.trailer) {
            if self.has(bit) {
                out.long(value);
            }
        }
    }

    pub fn counters(&self, out: &mut Out, random: &mut Random, events: &[Event], own: usize) {
        let group = self.reading & FORMAT_GROUP != 0;
        let parts: Vec<&Event> = match group {
            true => events.iter().collect(),
            false => vec![&events[own]],
        };
        if group {
            out.long(parts.len() as u64);
        }
        let times = |out: &mut Out, random: &mut Random| {
            (0..(self.reading & 3).count_ones()).for_each(|_| out.long(random.below(1 << 40)));
        };
        if group {
            times(out, random);
        }
        for e in parts {
            out.long(e.counter);
            if !group {
                times(out, random);
            }
            if self.reading & FORMAT_ID != 0 {
                out.long(e.id);
            }
            if self.reading & 16 != 0 {
                out.long(random.below(9));
            }
        }
    }

    pub fn sample(
        &self,
        random: &mut Random,
        events: &[Event],
        (own, period, time): (usize, u64, u64),
        stack: &[u64],
    ) -> Out {
        let mut out = Out::new(self.big);
        let id = events[own].id;
        let first = [(IDENTIFIER, id), (IP, stack[0])];
        for (bit, value) in first {
            if self.has(bit) {
                out.long(value);
            }
        }
        out.int(7);
        out.int(7);
        let words = [(TIME, time), (ADDR, random.below(u64::MAX)), (ID, id)];
        for (bit, value) in words
            .into_iter()
            .chain([(STREAM_ID, random.below(u64::MAX))])
        {
            if self.has(bit) {
                out.long(value);
            }
        }
        if self.has(CPU) {
            out.int(2);
            out.int(0);
        }
        if self.has(PERIOD) {
            out.long(period);
        }
        if self.has(READ) {
            self.counters(&mut out, random, events, own);
        }
        if self.has(CALLCHAIN) {
            out.long(1 + stack.len() as u64);
            out.long(-512i64 as u64);
            stack.iter().for_each(|a| out.long(*a));
        }
        if self.has(RAW) {
            let words = random.below(5);
            out.int(4 + 8 * words as u32);
            out.int(0);
            (0..words).for_each(|_| out.long(random.below(u64::MAX)));
        }
        if self.has(BRANCH_STACK) {
            let n = random.below(4);
            out.long(n);
            if self.branch & HW_INDEX != 0 {
                out.long(random.below(u64::MAX));
            }
            (0..3 * n).for_each(|_| out.long(random.below(u64::MAX)));
            if self.branch & BRANCH_COUNTERS != 0 {
                (0..n).for_each(|_| out.long(random.below(u64::MAX)));
            }
        }
        if self.has(REGS_USER) {
            registers(&mut out, random, self.user_registers);
        }
        if self.has(STACK_USER) {
            let n = 8 * random.below(5);
            out.long(n);
            (0..n / 8).for_each(|_| out.long(random.below(u64::MAX)));
            if n > 0 {
                out.long(n / 2);
            }
        }
        if self.sample & (WEIGHT | WEIGHT_STRUCT) != 0 {
            out.long(random.below(u64::MAX));
        }
        for bit in &TAIL[..2] {
            if self.has(*bit) {
                out.long(random.below(u64::MAX));
            }
        }
        if self.has(REGS_INTR) {
            registers(&mut out, random, self.interrupt_registers);
        }
        for bit in &TAIL[2..] {
            if self.has(*bit) {
                out.long(random.below(u64::MAX));
            }
        }
        if self.has(AUX) {
            let n = random.below(3);
            out.long(8 * n);
            (0..n).for_each(|_| out.long(random.below(u64::MAX)));
        }
        out
    }
}

pub fn registers(out: &mut Out, random: &mut Random, mask: u64) {
    let abi = random.below(3);
    out.long(abi);
    if abi != 0 {
        (0..mask.count_ones()).for_each(|_| out.long(random.below(u64::MAX)));
    }
}

/// Events of a file: names, types, configurations.
pub fn events(random: &mut Random) -> Vec<Event> {
    let all = [
        ("cpu-clock:u", 1, 0),
        ("page-faults", 1, 2),
        ("instructions", 0, 1),
    ];
    let n = 1 + random.below(3) as usize;
    (0..n)
        .map(|i| {
            let (name, kind, config) = all[i];
            Event {
                name: name.to_string(),
                kind,
                config,
                id: 100 + i as u64,
                counter: 0,
                expected: BTreeMap::new(),
            }
        })
        .collect()
}

/// The folded line of a stack: callers are named by the address before the one they return to.
pub fn line(layout: &Layout, stack: &[u64]) -> String {
    let n = if layout.has(CALLCHAIN) {
        stack.len()
    } else {
        1
    };
    let frame = |(i, a): (usize, &u64)| format!("x+{:#x}", a - BASE - u64::from(i > 0));
    let frames: Vec<String> = stack[..n].iter().enumerate().map(frame).rev().collect();
    frames.join(";")
}

/// The records of a file, with the sums in `events`.
pub fn records(layout: &Layout, random: &mut Random, events: &mut [Event]) -> Out {
    let mut out = Out::new(layout.big);
    let mut body = Out::new(layout.big);
    for n in [7u32, 7] {
        body.int(n);
    }
    for n in [BASE, 0x10_0000, 0] {
        body.long(n);
    }
    body.text("/bin/x", 8);
    layout.trailer(&mut body, events[0].id);
    out.record(1, 2, &body);
    let stacks: Vec<Vec<u64>> = (0..4)
        .map(|_| {
            (0..1 + random.below(5))
                .map(|_| BASE + 16 + random.below(0xf_0000))
                .collect()
        })
        .collect();
    for i in 0..40 {
        let own = random.below(events.len() as u64) as usize;
        let stack = &stacks[random.below(4) as usize];
        let group = layout.reading & FORMAT_GROUP != 0;
        for (j, e) in events.iter_mut().enumerate() {
            if layout.has(READ) && layout.reading & FORMAT_ID != 0 && (group || j == own) {
                let went = random.below(3) * 50;
                e.counter += went;
                if went > 0 {
                    *e.expected.entry(line(layout, stack)).or_default() += went;
                }
            }
        }
        let period = 1 + random.below(5000);
        if !(layout.has(READ) && layout.reading & FORMAT_ID != 0) {
            let value = if layout.has(PERIOD) {
                period
            } else {
                layout.fixed_period
            };
            let sums = &mut events[own].expected;
            *sums.entry(line(layout, stack)).or_default() += value;
        }
        let sample = layout.sample(random, events, (own, period, 100 + i), stack);
        out.record(9, 2, &sample);
        if i % 10 == 9 {
            out.record(68, 0, &Out::new(layout.big));
        }
    }
    out
}

/// Names of events as the file's section has them.
pub fn names(layout: &Layout, events: &[Event]) -> Out {
    let mut out = Out::new(layout.big);
    out.int(events.len() as u32);
    out.int(136);
    for e in events {
        out.bytes.extend(layout.attribute(e).bytes);
        out.int(1);
        out.int(64);
        out.text(&e.name, 64);
        out.long(e.id);
    }
    out
}

pub fn with_header(layout: &Layout, records: &Out, events: &[Event]) -> Vec<u8> {
    let mut out = Out::new(layout.big);
    let magic: &[u8] = if layout.big { b"2ELIFREP" } else { b"PERFILE2" };
    out.bytes.extend(magic);
    let ids_at = 104u64;
    let attributes_at = ids_at + 8 * events.len() as u64;
    let data_at = attributes_at + 152 * events.len() as u64;
    let size = records.bytes.len() as u64;
    for n in [
        104,
        152,
        attributes_at,
        152 * events.len() as u64,
        data_at,
        size,
        0,
        0,
    ] {
        out.long(n);
    }
    for n in [1u64 << 12, 0, 0, 0] {
        out.long(n);
    }
    events.iter().for_each(|e| out.long(e.id));
    for (i, e) in events.iter().enumerate() {
        out.bytes.extend(layout.attribute(e).bytes);
        out.long(ids_at + 8 * i as u64);
        out.long(8);
    }
    out.bytes.extend(&records.bytes);
    let names = names(layout, events);
    out.long(data_at + size + 16);
    out.long(names.bytes.len() as u64);
    out.bytes.extend(names.bytes);
    out.bytes
}

pub fn to_pipe(layout: &Layout, records: &Out, events: &[Event]) -> Vec<u8> {
    let mut out = Out::new(layout.big);
    let magic: &[u8] = if layout.big { b"2ELIFREP" } else { b"PERFILE2" };
    out.bytes.extend(magic);
    out.long(16);
    for e in events {
        let mut body = layout.attribute(e);
        body.long(e.id);
        out.record(64, 0, &body);
    }
    let mut body = Out::new(layout.big);
    body.long(12);
    body.bytes.extend(names(layout, events).bytes);
    out.record(80, 0, &body);
    out.bytes.extend(&records.bytes);
    out.bytes
}
