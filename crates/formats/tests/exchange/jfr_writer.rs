//! Chunks of flight recordings as recorders write them, with every encoding of integers and texts.

use wallscope_synthetic::Random;

const MS: u64 = 1_000_000;

/// Writes integers and texts of a chunk.
struct Out {
    bytes: Vec<u8>,
    compressed: bool,
}

impl Out {
    fn number(&mut self, n: u64, fixed: usize) {
        if !self.compressed {
            self.bytes.extend(&n.to_be_bytes()[8 - fixed..]);
            return;
        }
        let mut n = n;
        for _ in 0..8 {
            if n < 0x80 {
                return self.bytes.push(n as u8);
            }
            self.bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.bytes.push(n as u8);
    }
    fn long(&mut self, n: u64) {
        self.number(n, 8);
    }
    fn int(&mut self, n: u64) {
        self.number(n, 4);
    }
    /// A text in one of its encodings: UTF-8, UTF-16, Latin-1.
    fn text(&mut self, text: &str, encoding: u8) {
        self.bytes.push(encoding);
        self.int(text.len() as u64);
        for b in text.bytes() {
            match encoding {
                4 => self.number(b.into(), 2),
                _ => self.bytes.push(b),
            }
        }
    }
    /// An event or constant pool with its size before it.
    fn event(&mut self, kind: u64, body: impl FnOnce(&mut Out)) {
        let mut own = Out {
            bytes: Vec::new(),
            compressed: self.compressed,
        };
        own.long(kind);
        body(&mut own);
        // Sizes are padded to four bytes in either form.
        let size = own.bytes.len() as u64 + 4;
        match self.compressed {
            true => (0..4).for_each(|i| {
                let more = if i < 3 { 0x80 } else { 0 };
                self.bytes.push((size >> (7 * i)) as u8 & 0x7f | more);
            }),
            false => self.bytes.extend((size as u32).to_be_bytes()),
        }
        self.bytes.extend(own.bytes);
    }
}

/// Numbers of types.
const LONG: u64 = 10;
const INT: u64 = 11;
const STRING: u64 = 12;
const BOOLEAN: u64 = 13;
const THREAD: u64 = 20;
const CLASS: u64 = 21;
const SYMBOL: u64 = 22;
const METHOD: u64 = 23;
const FRAME: u64 = 24;
const TRACE: u64 = 25;
const STATE: u64 = 26;
const FRAME_TYPE: u64 = 27;
const TIMESPAN: u64 = 30;
const SETTING: u64 = 40;
const RECORDING: u64 = 41;
const FIRST_EVENT: u64 = 50;

/// A field: name, type, whether it is a constant, whether a list, its unit of time.
type Field = (&'static str, u64, bool, bool, &'static str);

const fn plain_field(name: &'static str, kind: u64) -> Field {
    (name, kind, false, false, "")
}
const fn constant(name: &'static str, kind: u64) -> Field {
    (name, kind, true, false, "")
}
const fn span(name: &'static str, unit: &'static str) -> Field {
    (name, LONG, false, false, unit)
}

/// An event type of a recorder.
struct EventType {
    name: &'static str,
    fields: Vec<Field>,
}

fn event_types() -> Vec<EventType> {
    let start = plain_field("startTime", LONG);
    let sampled = constant("sampledThread", THREAD);
    let thread = constant("eventThread", THREAD);
    let stack = constant("stackTrace", TRACE);
    let state = constant("state", STATE);
    let t = |name, fields: &[Field]| EventType {
        name,
        fields: fields.to_vec(),
    };
    vec![
        t("jdk.ExecutionSample", &[start, sampled, stack, state]),
        t(
            "profiler.WallClockSample",
            &[
                start,
                sampled,
                stack,
                state,
                plain_field("samples", INT),
                span("timeSpan", "TICKS"),
            ],
        ),
        t(
            "jdk.CPUTimeSample",
            &[
                start,
                stack,
                thread,
                plain_field("failed", BOOLEAN),
                span("samplingPeriod", "TICKS"),
                plain_field("biased", BOOLEAN),
            ],
        ),
        t(
            "datadog.ExecutionSample",
            &[start, thread, stack, state, plain_field("weight", LONG)],
        ),
        t(
            "datadog.MethodSample",
            &[start, thread, stack, state, plain_field("weight", LONG)],
        ),
        t(
            "jdk.ThreadPark",
            &[start, span("duration", "TICKS"), thread, stack],
        ),
        t(
            "jdk.ThreadSleep",
            &[start, span("duration", "NANOSECONDS"), thread, stack],
        ),
        t(
            "jdk.ObjectAllocationSample",
            &[start, thread, stack, plain_field("weight", LONG)],
        ),
        t(
            "jdk.ObjectAllocationInNewTLAB",
            &[start, thread, stack, plain_field("tlabSize", LONG)],
        ),
        t(
            "jdk.Compilation",
            &[start, span("duration", "TICKS"), thread],
        ),
    ]
}

/// A chunk in the making.
pub struct ChunkWriter {
    out: Out,
    types: Vec<EventType>,
    ticks_per_second: u64,
    start_ns: u64,
    pub duration_ns: u64,
}

/// Functions; stack 1 begins in the first, stack 2 in the second.
pub const FUNCTIONS: [&str; 3] = ["leaf", "run", "main"];
/// Names of the states of threads, by number.
const STATES: [&str; 4] = [
    "STATE_DEFAULT",
    "STATE_RUNNABLE",
    "STATE_SLEEPING",
    "PARKED",
];

impl ChunkWriter {
    pub fn new(random: &mut Random, start_ns: u64) -> ChunkWriter {
        ChunkWriter {
            out: Out {
                bytes: vec![0; 68],
                compressed: random.below(2) == 0,
            },
            types: event_types(),
            ticks_per_second: [1_000_000_000, 10_000_000, 24_000_000][random.below(3) as usize],
            start_ns,
            duration_ns: 60_000 * MS,
        }
    }

    pub fn ticks(&self, ns: u64) -> u64 {
        (u128::from(ns) * u128::from(self.ticks_per_second) / 1_000_000_000) as u64
    }

    fn kind(&self, name: &str) -> u64 {
        let at = self.types.iter().position(|t| t.name == name).unwrap();
        FIRST_EVENT + at as u64
    }

    pub fn setting(&mut self, about: &str, name: &str, value: &str) {
        let kind = if about.is_empty() {
            RECORDING
        } else {
            self.kind(about)
        };
        self.out.event(SETTING, |o| {
            o.long(1000);
            o.long(kind);
            o.text(name, 3);
            o.text(value, 4);
        });
    }

    /// An event of 7 ms after the start; `values` follow its thread, stack and state.
    pub fn event(&mut self, name: &'static str, stack: u64, state: u64, values: &[(&str, u64)]) {
        let kind = self.kind(name);
        let start = 1000 + self.ticks(7 * MS);
        let fields = self.types[(kind - FIRST_EVENT) as usize].fields.clone();
        self.out.event(kind, |o| {
            for (field, type_id, ..) in fields {
                let value = values.iter().find(|(n, _)| *n == field).map(|(_, v)| *v);
                match (field, type_id) {
                    ("startTime", _) => o.long(start),
                    ("sampledThread" | "eventThread", _) => o.long(1),
                    ("stackTrace", _) => o.long(stack),
                    ("state", _) => o.long(state),
                    (_, BOOLEAN) => o.bytes.push(value.unwrap_or(0) as u8),
                    (_, INT) => o.int(value.unwrap_or(0)),
                    _ => o.long(value.unwrap_or(0)),
                }
            }
        });
    }

    fn constants(&mut self) {
        self.out.event(1, |o| {
            (0..3).for_each(|_| o.long(0));
            o.bytes.push(1);
            o.int(6);
            o.long(THREAD);
            o.int(1);
            o.long(1);
            o.text("worker-os", 3);
            o.long(99);
            o.text("worker", 5);
            o.long(12);
            o.long(SYMBOL);
            o.int(FUNCTIONS.len() as u64);
            for (i, name) in FUNCTIONS.iter().enumerate() {
                o.long(i as u64);
                o.text(name, 3 + (i % 3) as u8);
            }
            o.long(METHOD);
            o.int(FUNCTIONS.len() as u64);
            for i in 0..FUNCTIONS.len() as u64 {
                o.long(i);
                o.long(0);
                o.long(i);
            }
            o.long(FRAME_TYPE);
            o.int(1);
            o.long(0);
            o.text("JIT compiled", 3);
            // Stack n begins in function n.
            o.long(TRACE);
            o.int(FUNCTIONS.len() as u64);
            for i in 0..FUNCTIONS.len() {
                o.long(1 + i as u64);
                o.bytes.push(0);
                o.int((FUNCTIONS.len() - i) as u64);
                for method in i..FUNCTIONS.len() {
                    o.long(method as u64);
                    o.int(5);
                    o.long(0);
                }
            }
            o.long(STATE);
            o.int(STATES.len() as u64);
            for (i, name) in STATES.iter().enumerate() {
                o.long(i as u64);
                o.text(name, 3);
            }
        });
    }

    /// The metadata: names and attributes are numbers of texts.
    fn metadata(&mut self) {
        let mut texts: Vec<String> = Vec::new();
        let mut number = |text: &str| -> u64 {
            let at = texts.iter().position(|t| t == text).unwrap_or_else(|| {
                texts.push(text.to_string());
                texts.len() - 1
            });
            at as u64
        };
        let mut types: Vec<(String, u64, Vec<Field>)> = Vec::new();
        let basic = [
            ("long", LONG),
            ("int", INT),
            ("java.lang.String", STRING),
            ("boolean", BOOLEAN),
        ];
        types.extend(basic.map(|(name, id)| (name.to_string(), id, Vec::new())));
        let listed: Field = ("frames", FRAME, false, true, "");
        let other: [(&str, u64, Vec<Field>); 11] = [
            (
                "java.lang.Thread",
                THREAD,
                vec![
                    plain_field("osName", STRING),
                    plain_field("osThreadId", LONG),
                    plain_field("javaName", STRING),
                    plain_field("javaThreadId", LONG),
                ],
            ),
            ("java.lang.Class", CLASS, vec![constant("name", SYMBOL)]),
            (
                "jdk.types.Symbol",
                SYMBOL,
                vec![plain_field("string", STRING)],
            ),
            (
                "jdk.types.Method",
                METHOD,
                vec![constant("type", CLASS), constant("name", SYMBOL)],
            ),
            (
                "jdk.types.StackFrame",
                FRAME,
                vec![
                    constant("method", METHOD),
                    plain_field("lineNumber", INT),
                    constant("type", FRAME_TYPE),
                ],
            ),
            (
                "jdk.types.StackTrace",
                TRACE,
                vec![plain_field("truncated", BOOLEAN), listed],
            ),
            (
                "jdk.types.ThreadState",
                STATE,
                vec![plain_field("name", STRING)],
            ),
            (
                "jdk.types.FrameType",
                FRAME_TYPE,
                vec![plain_field("description", STRING)],
            ),
            (
                "jdk.jfr.Timespan",
                TIMESPAN,
                vec![plain_field("value", STRING)],
            ),
            (
                "jdk.ActiveSetting",
                SETTING,
                vec![
                    plain_field("startTime", LONG),
                    plain_field("id", LONG),
                    plain_field("name", STRING),
                    plain_field("value", STRING),
                ],
            ),
            (
                "jdk.ActiveRecording",
                RECORDING,
                vec![plain_field("startTime", LONG)],
            ),
        ];
        types.extend(other.map(|(name, id, fields)| (name.to_string(), id, fields)));
        for (i, t) in self.types.iter().enumerate() {
            types.push((t.name.to_string(), FIRST_EVENT + i as u64, t.fields.clone()));
        }
        let mut tree = Out {
            bytes: Vec::new(),
            compressed: self.out.compressed,
        };
        tree.int(number("root"));
        tree.int(0);
        tree.int(1);
        tree.int(number("metadata"));
        tree.int(0);
        tree.int(types.len() as u64);
        for (name, id, fields) in &types {
            tree.int(number("class"));
            tree.int(2);
            for (key, value) in [("id", id.to_string()), ("name", name.clone())] {
                tree.int(number(key));
                tree.int(number(&value));
            }
            tree.int(fields.len() as u64);
            for (name, id, is_constant, list, unit) in fields {
                tree.int(number("field"));
                let mut attributes = vec![("name", name.to_string()), ("class", id.to_string())];
                if *is_constant {
                    attributes.push(("constantPool", "true".to_string()));
                }
                if *list {
                    attributes.push(("dimension", "1".to_string()));
                }
                tree.int(attributes.len() as u64);
                for (key, value) in attributes {
                    tree.int(number(key));
                    tree.int(number(&value));
                }
                tree.int(u64::from(!unit.is_empty()));
                if !unit.is_empty() {
                    tree.int(number("annotation"));
                    tree.int(2);
                    for (key, value) in
                        [("class", TIMESPAN.to_string()), ("value", unit.to_string())]
                    {
                        tree.int(number(key));
                        tree.int(number(&value));
                    }
                    tree.int(0);
                }
            }
        }
        self.out.event(0, |o| {
            (0..3).for_each(|_| o.long(0));
            o.int(texts.len() as u64);
            texts.iter().for_each(|t| o.text(t, 3));
            o.bytes.extend(tree.bytes);
        });
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.constants();
        let metadata = self.out.bytes.len() as u64;
        self.metadata();
        let mut file = self.out.bytes;
        let size = file.len() as u64;
        file[..8].copy_from_slice(b"FLR\0\0\x02\0\x01");
        let longs = [
            size,
            0,
            metadata,
            self.start_ns,
            self.duration_ns,
            1000,
            self.ticks_per_second,
        ];
        for (i, n) in longs.into_iter().enumerate() {
            file[8 + 8 * i..16 + 8 * i].copy_from_slice(&n.to_be_bytes());
        }
        file[67] = u8::from(self.out.compressed);
        file
    }
}
