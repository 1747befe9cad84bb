//! One chunk: its header, types, constants and events.

use rustc_hash::FxHashMap;

use super::super::ReadError;
use super::cursor::{Cursor, Stop, Text};
use super::value::{Field, MAX_DEPTH, Timespan, Type, Types, Value, ValueReader};

/// The header of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Version of the format: major, minor.
    pub version: (u16, u16),
    pub size: u64,
    pub metadata: u64,
    pub start_ns: u64,
    /// Duration; 0 if the recorder ended before it could write it.
    pub duration_ns: u64,
    pub start_ticks: i64,
    pub ticks_per_second: u64,
    /// Integers have a variable length.
    pub compressed: bool,
}

impl Header {
    pub(super) const LEN: usize = 68;

    pub(super) fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.get(..Header::LEN)?;
        if !bytes.starts_with(b"FLR\0") {
            return None;
        }
        let long = |at: usize| {
            let b: [u8; 8] = bytes[at..at + 8].try_into().unwrap_or_default();
            u64::from_be_bytes(b)
        };
        let size = long(8);
        let short = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        (size >= Header::LEN as u64).then_some(Header {
            version: (short(4), short(6)),
            size,
            metadata: long(24),
            start_ns: long(32),
            duration_ns: long(40),
            start_ticks: long(48) as i64,
            ticks_per_second: long(56).max(1),
            compressed: bytes[67] & 1 == 1,
        })
    }
}

/// A chunk with its types and constants.
pub(super) struct Chunk<'a> {
    pub header: Header,
    bytes: &'a [u8],
    pub types: Types,
    constants: FxHashMap<(u64, u64), Value>,
    /// Memory that constants may still take, bytes.
    room: u64,
    limit: u64,
}

fn damaged(what: &str) -> ReadError {
    ReadError::Damaged {
        what: what.to_string(),
    }
}

/// An element of the metadata's tree.
struct Element {
    name: usize,
    attributes: Vec<(usize, usize)>,
    children: Vec<Element>,
}

impl<'a> Chunk<'a> {
    /// Reads the types only: events can be distinguished and counted, but have no texts or stacks.
    ///
    /// # Errors
    /// [`ReadError::Damaged`].
    pub(super) fn outline(
        header: &Header,
        bytes: &'a [u8],
        memory: u64,
    ) -> Result<Self, ReadError> {
        let mut chunk = Chunk {
            header: *header,
            bytes,
            types: Types::default(),
            constants: FxHashMap::default(),
            room: memory / 2,
            limit: memory,
        };
        let at = usize::try_from(header.metadata).unwrap_or(usize::MAX);
        let metadata = bytes.get(at..).filter(|_| at >= Header::LEN);
        let metadata =
            metadata.ok_or_else(|| damaged("a chunk without descriptions of its types"))?;
        chunk
            .metadata(metadata)
            .map_err(|_| damaged("the descriptions of its types"))?;
        Ok(chunk)
    }

    /// Reads the types, then every constant.
    ///
    /// # Errors
    /// [`ReadError::Damaged`], [`ReadError::TooLarge`].
    pub(super) fn new(header: &Header, bytes: &'a [u8], memory: u64) -> Result<Self, ReadError> {
        let mut chunk = Chunk::outline(header, bytes, memory)?;
        chunk.checkpoints()?;
        Ok(chunk)
    }

    fn cursor(&self, rest: &'a [u8]) -> Cursor<'a> {
        Cursor {
            rest,
            compressed: self.header.compressed,
        }
    }

    fn metadata(&mut self, bytes: &'a [u8]) -> Result<(), Stop> {
        let mut c = self.cursor(bytes);
        let _size = c.int()?;
        let _type = c.long()?;
        let (_start, _duration, _id) = (c.long()?, c.long()?, c.long()?);
        let n = c.count()?;
        let mut strings = Vec::with_capacity(n);
        for _ in 0..n {
            strings.push(match c.text()? {
                Text::Own(t) => t.into_string(),
                _ => String::new(),
            });
        }
        let root = element(&mut c, 0)?;
        let text = |i: usize| strings.get(i).map_or("", |s| s.as_str());
        let classes = root
            .children
            .iter()
            .filter(|e| text(e.name) == "metadata")
            .flat_map(|m| &m.children)
            .filter(|e| text(e.name) == "class");
        let attribute = |e: &Element, key: &str| -> Option<&str> {
            let (_, v) = e.attributes.iter().find(|(k, _)| text(*k) == key)?;
            Some(text(*v))
        };
        let classes: Vec<&Element> = classes.collect();
        // Annotations name their types by number.
        let timespan = (classes.iter())
            .find(|c| attribute(c, "name") == Some("jdk.jfr.Timespan"))
            .and_then(|c| attribute(c, "id"));
        let unit = |field: &Element| {
            let annotation = (field.children.iter())
                .filter(|e| text(e.name) == "annotation")
                .find(|e| timespan.is_some() && attribute(e, "class") == timespan)?;
            // The JDK writes an annotation's values as a list.
            let value = attribute(annotation, "value").or(attribute(annotation, "value-0"));
            Some(value.map_or(Timespan::Unknown, Timespan::named))
        };
        for class in classes {
            let Some(id) = attribute(class, "id").and_then(|id| id.parse().ok()) else {
                continue;
            };
            let fields = (class.children.iter())
                .filter(|e| text(e.name) == "field")
                .filter_map(|f| {
                    Some(Field {
                        name: attribute(f, "name")?.to_string(),
                        type_id: attribute(f, "class")?.parse().ok()?,
                        constant: attribute(f, "constantPool") == Some("true"),
                        list: attribute(f, "dimension") == Some("1"),
                        timespan: unit(f).unwrap_or_default(),
                    })
                })
                .collect();
            let name = attribute(class, "name").unwrap_or_default().to_string();
            self.types.insert(id, Type { name, fields });
        }
        Ok(())
    }

    /// The events: number of the type, then the bytes of the fields.
    pub(super) fn events(&self) -> impl Iterator<Item = (u64, &'a [u8])> + '_ {
        let mut at = Header::LEN;
        std::iter::from_fn(move || {
            let rest = self.bytes.get(at..)?;
            let mut c = self.cursor(rest);
            let size = usize::try_from(c.int().ok()?).ok().filter(|n| *n > 0)?;
            // A truncated file ends within its last event.
            let own = rest.get(..size)?;
            at += size;
            let kind = c.long().ok()?;
            let from = rest.len() - c.rest.len();
            Some((kind, own.get(from..).unwrap_or_default()))
        })
    }

    fn checkpoints(&mut self) -> Result<(), ReadError> {
        let pools: Vec<&[u8]> = self
            .events()
            .filter(|(t, _)| *t == 1)
            .map(|(_, b)| b)
            .collect();
        for bytes in pools {
            match self.checkpoint(bytes) {
                Ok(()) => {}
                Err(Stop::Memory) => {
                    return Err(ReadError::TooLarge {
                        what: "its constants need more memory",
                        limit_mib: self.limit >> 20,
                    });
                }
                Err(Stop::Malformed) => return Err(damaged("its constants")),
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, bytes: &'a [u8]) -> Result<(), Stop> {
        let mut c = self.cursor(bytes);
        let (_start, _duration, _delta) = (c.long()?, c.long()?, c.long()?);
        let _mask = c.byte()?;
        let pools = c.int()?;
        for _ in 0..pools {
            let kind = c.long()?;
            let n = c.count()?;
            for _ in 0..n {
                let id = c.long()?;
                let value = self.value(&mut c, kind, 0)?;
                self.constants.insert((kind, id), value);
            }
        }
        Ok(())
    }

    /// A value of the type with that number.
    fn value(&mut self, c: &mut Cursor<'a>, kind: u64, depth: usize) -> Result<Value, Stop> {
        let types = std::mem::take(&mut self.types);
        let mut reader = ValueReader {
            types: &types,
            room: self.room,
        };
        let value = reader.value(c, kind, depth);
        self.room = reader.room;
        self.types = types;
        value
    }

    /// An event's fields.
    pub(super) fn event(&self, kind: u64, bytes: &'a [u8]) -> Option<Vec<Value>> {
        let mut c = self.cursor(bytes);
        let mut reader = ValueReader {
            types: &self.types,
            room: 1 << 20,
        };
        match reader.value(&mut c, kind, 0) {
            Ok(Value::Fields(fields)) => Some(fields),
            _ => None,
        }
    }

    /// The constant that `value` refers to, or `value` itself.
    pub(super) fn follow<'v>(&'v self, value: &'v Value) -> &'v Value {
        match value {
            Value::Constant(kind, id) => self.constants.get(&(*kind, *id)).unwrap_or(&Value::Null),
            value => value,
        }
    }

    /// A field of `value`, which is of the type named `kind` or refers to a constant.
    pub(super) fn part<'v>(&'v self, value: &'v Value, kind: &str, field: &str) -> &'v Value {
        let Value::Fields(fields) = self.follow(value) else {
            return &Value::Null;
        };
        let type_ = match value {
            Value::Constant(id, _) => self.types.get(id),
            _ => self.types.values().find(|t| t.name == kind),
        };
        let at = type_.and_then(|t| t.field(field));
        at.and_then(|i| fields.get(i)).unwrap_or(&Value::Null)
    }

    /// The text of `value`: itself, a constant, or the first field of a type around a text.
    pub(super) fn text<'v>(&'v self, value: &'v Value) -> &'v str {
        let mut value = value;
        for _ in 0..4 {
            match self.follow(value) {
                Value::Text(t) => return t,
                Value::Fields(f) => match f.first() {
                    Some(first) => value = first,
                    None => return "",
                },
                _ => return "",
            }
        }
        ""
    }

    /// The time of a tick, ns since the epoch; `None` before the epoch.
    pub(super) fn time(&self, ticks: i64) -> Option<u64> {
        let since = i128::from(ticks) - i128::from(self.header.start_ticks);
        let ns = since * 1_000_000_000 / i128::from(self.header.ticks_per_second);
        u64::try_from(i128::from(self.header.start_ns) + ns).ok()
    }

    /// A length of time in `unit`, ns; `None` where the unit is unknown or the length negative.
    pub(super) fn length(&self, n: i64, unit: Timespan) -> Option<u64> {
        let ns = match unit {
            Timespan::Ticks => {
                i128::from(n) * 1_000_000_000 / i128::from(self.header.ticks_per_second)
            }
            Timespan::Nanoseconds(factor) => i128::from(n) * i128::from(factor),
            Timespan::Unknown => return None,
        };
        u64::try_from(ns).ok()
    }
}

fn element(c: &mut Cursor, depth: usize) -> Result<Element, Stop> {
    if depth > MAX_DEPTH {
        return Err(Stop::Malformed);
    }
    let name = c.int()? as usize;
    let mut attributes = Vec::new();
    for _ in 0..c.count()? {
        attributes.push((c.int()? as usize, c.int()? as usize));
    }
    let mut children = Vec::new();
    for _ in 0..c.count()? {
        children.push(element(c, depth + 1)?);
    }
    Ok(Element {
        name,
        attributes,
        children,
    })
}
