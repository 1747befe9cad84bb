//! One chunk: types as its metadata describes them, constants, and events as values.

use rustc_hash::FxHashMap;

use super::super::ReadError;

/// Values nest no deeper than types refer to each other in place; hostile ones may.
const DEEPEST: usize = 16;

/// What stands in front of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub size: u64,
    pub metadata: u64,
    pub start_ns: u64,
    pub start_ticks: i64,
    pub ticks_per_second: u64,
    /// Numbers are of variable length.
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
        (size >= Header::LEN as u64).then_some(Header {
            size,
            metadata: long(24),
            start_ns: long(32),
            start_ticks: long(48) as i64,
            ticks_per_second: long(56).max(1),
            compressed: bytes[67] & 1 == 1,
        })
    }
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Number(i64),
    Text(Box<str>),
    /// A constant of a type.
    Constant(u64, u64),
    Fields(Vec<Value>),
    List(Vec<Value>),
}

/// A field of a type.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub name: String,
    type_id: u64,
    constant: bool,
    list: bool,
}

/// A type.
#[derive(Clone, Debug, Default)]
pub(super) struct Type {
    pub name: String,
    pub fields: Vec<Field>,
}

impl Type {
    /// Where a field stands.
    pub(super) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }
}

/// A chunk, its types and constants known.
pub(super) struct Chunk<'a> {
    pub header: Header,
    bytes: &'a [u8],
    pub types: FxHashMap<u64, Type>,
    constants: FxHashMap<(u64, u64), Value>,
    /// Memory that constants may still take.
    room: u64,
    limit: u64,
}

/// The bytes end, or do not have the form they should have.
#[derive(Debug)]
pub(super) enum Stop {
    Malformed,
    Memory,
}

fn damaged(what: &str) -> ReadError {
    ReadError::Damaged {
        what: what.to_string(),
    }
}

/// Reads numbers and texts.
#[derive(Clone)]
struct Cursor<'a> {
    rest: &'a [u8],
    compressed: bool,
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        let (own, rest) = self.rest.split_at_checked(n).ok_or(Stop::Malformed)?;
        self.rest = rest;
        Ok(own)
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        Ok(self.bytes(1)?[0])
    }

    /// A number of variable length: seven bits a byte, the ninth byte whole.
    fn number(&mut self, fixed: usize) -> Result<u64, Stop> {
        if !self.compressed {
            let b = self.bytes(fixed)?;
            return Ok(b.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
        }
        let mut v = 0u64;
        for i in 0..9 {
            let b = self.byte()?;
            if i == 8 {
                return Ok(v | u64::from(b) << 56);
            }
            v |= u64::from(b & 0x7f) << (7 * i);
            if b & 0x80 == 0 {
                break;
            }
        }
        Ok(v)
    }

    fn long(&mut self) -> Result<u64, Stop> {
        self.number(8)
    }

    fn int(&mut self) -> Result<u64, Stop> {
        self.number(4)
    }

    /// A count of things, each of which takes a byte at least.
    fn count(&mut self) -> Result<usize, Stop> {
        let n = usize::try_from(self.int()?).map_err(|_| Stop::Malformed)?;
        if n > self.rest.len() {
            return Err(Stop::Malformed);
        }
        Ok(n)
    }

    /// A text, or a reference to one.
    fn text(&mut self, strings: u64) -> Result<Value, Stop> {
        Ok(match self.byte()? {
            0 => Value::Null,
            1 => Value::Text("".into()),
            2 => Value::Constant(strings, self.long()?),
            3 => {
                let n = self.count()?;
                Value::Text(String::from_utf8_lossy(self.bytes(n)?).into())
            }
            4 => {
                let n = self.count()?;
                let mut text = String::new();
                for _ in 0..n {
                    let c = u32::try_from(self.number(2)?).ok().and_then(char::from_u32);
                    text.push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                Value::Text(text.into())
            }
            5 => {
                let n = self.count()?;
                Value::Text(self.bytes(n)?.iter().map(|b| char::from(*b)).collect())
            }
            _ => return Err(Stop::Malformed),
        })
    }
}

/// An element of the metadata's tree.
struct Element {
    name: usize,
    attributes: Vec<(usize, usize)>,
    children: Vec<Element>,
}

impl<'a> Chunk<'a> {
    /// Reads the types, then every constant.
    pub(super) fn new(header: &Header, bytes: &'a [u8], memory: u64) -> Result<Self, ReadError> {
        let mut chunk = Chunk {
            header: *header,
            bytes,
            types: FxHashMap::default(),
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
            strings.push(match c.text(0)? {
                Value::Text(t) => t.into_string(),
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
        for class in classes {
            let of = |e: &Element, key: &str| -> Option<String> {
                let (_, v) = e.attributes.iter().find(|(k, _)| text(*k) == key)?;
                Some(text(*v).to_string())
            };
            let Some(id) = of(class, "id").and_then(|id| id.parse().ok()) else {
                continue;
            };
            let fields = class
                .children
                .iter()
                .filter(|e| text(e.name) == "field")
                .filter_map(|f| {
                    Some(Field {
                        name: of(f, "name")?,
                        type_id: of(f, "class")?.parse().ok()?,
                        constant: of(f, "constantPool").as_deref() == Some("true"),
                        list: of(f, "dimension").as_deref() == Some("1"),
                    })
                })
                .collect();
            let name = of(class, "name").unwrap_or_default();
            self.types.insert(id, Type { name, fields });
        }
        Ok(())
    }

    /// The events: type and what follows it.
    pub(super) fn events(&self) -> impl Iterator<Item = (u64, &'a [u8])> + '_ {
        let mut at = Header::LEN;
        std::iter::from_fn(move || {
            let rest = self.bytes.get(at..)?;
            let mut c = self.cursor(rest);
            let size = usize::try_from(c.int().ok()?).ok().filter(|n| *n > 0)?;
            // A cut file ends within its last event.
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
                        what: "what it describes needs more memory",
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
        let mut room = self.room;
        let value = value(c, &types, kind, depth, &mut room);
        self.types = types;
        self.room = room;
        value
    }

    /// An event's fields.
    pub(super) fn event(&self, kind: u64, bytes: &'a [u8]) -> Option<Vec<Value>> {
        let mut c = self.cursor(bytes);
        let mut room = 1 << 20;
        match value(&mut c, &self.types, kind, 0, &mut room) {
            Ok(Value::Fields(fields)) => Some(fields),
            _ => None,
        }
    }

    /// What a value refers to, itself if to nothing.
    pub(super) fn follow<'v>(&'v self, value: &'v Value) -> &'v Value {
        match value {
            Value::Constant(kind, id) => self.constants.get(&(*kind, *id)).unwrap_or(&Value::Null),
            value => value,
        }
    }

    /// A field of a constant of the type named.
    pub(super) fn part<'v>(&'v self, value: &'v Value, kind: &str, field: &str) -> &'v Value {
        let Value::Fields(fields) = self.follow(value) else {
            return &Value::Null;
        };
        let of = match value {
            Value::Constant(id, _) => self.types.get(id),
            _ => self.types.values().find(|t| t.name == kind),
        };
        let at = of.and_then(|t| t.field(field));
        at.and_then(|i| fields.get(i)).unwrap_or(&Value::Null)
    }

    /// A text, wherever it stands: itself, a constant, or a type of nothing but a text.
    pub(super) fn words<'v>(&'v self, value: &'v Value) -> &'v str {
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

    /// The time of a tick, ns since the epoch.
    pub(super) fn time(&self, ticks: i64) -> u64 {
        let since = i128::from(ticks) - i128::from(self.header.start_ticks);
        let ns = since * 1_000_000_000 / i128::from(self.header.ticks_per_second);
        u64::try_from(i128::from(self.header.start_ns) + ns).unwrap_or(0)
    }

    /// A length of so many ticks, ns.
    pub(super) fn length(&self, ticks: i64) -> u64 {
        let ns = i128::from(ticks) * 1_000_000_000 / i128::from(self.header.ticks_per_second);
        u64::try_from(ns).unwrap_or(0)
    }
}

fn element(c: &mut Cursor, depth: usize) -> Result<Element, Stop> {
    if depth > DEEPEST {
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

fn value(
    c: &mut Cursor,
    types: &FxHashMap<u64, Type>,
    kind: u64,
    depth: usize,
    room: &mut u64,
) -> Result<Value, Stop> {
    *room = room.checked_sub(64).ok_or(Stop::Memory)?;
    if depth > DEEPEST {
        return Err(Stop::Malformed);
    }
    let t = types.get(&kind).ok_or(Stop::Malformed)?;
    Ok(match t.name.as_str() {
        "long" => Value::Number(c.long()? as i64),
        "int" => Value::Number(i64::from(c.int()? as i32)),
        "short" => Value::Number(i64::from(c.number(2)? as i16)),
        "char" => Value::Number(c.number(2)? as i64),
        "byte" | "boolean" => Value::Number(i64::from(c.byte()?)),
        "float" => {
            c.bytes(4)?;
            Value::Null
        }
        "double" => {
            c.bytes(8)?;
            Value::Null
        }
        "java.lang.String" => {
            let text = c.text(kind)?;
            if let Value::Text(t) = &text {
                *room = room.checked_sub(t.len() as u64).ok_or(Stop::Memory)?;
            }
            text
        }
        _ => {
            let mut fields = Vec::with_capacity(t.fields.len());
            for f in &t.fields {
                let mut one = |c: &mut Cursor| -> Result<Value, Stop> {
                    if f.constant {
                        *room = room.checked_sub(32).ok_or(Stop::Memory)?;
                        return Ok(Value::Constant(f.type_id, c.long()?));
                    }
                    value(c, types, f.type_id, depth + 1, room)
                };
                fields.push(if f.list {
                    let n = c.count()?;
                    let mut items = Vec::new();
                    for _ in 0..n {
                        items.push(one(c)?);
                    }
                    Value::List(items)
                } else {
                    one(c)?
                });
            }
            Value::Fields(fields)
        }
    })
}
