//! Types as a chunk's metadata describes them, and values of them.

use rustc_hash::FxHashMap;

use super::cursor::{Cursor, Stop, Text};

/// Maximum depth of nested values. Types of real recordings contain each other three deep.
pub(super) const MAX_DEPTH: usize = 16;

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Number(i64),
    Real(f64),
    Text(Box<str>),
    /// The constant of this type and number.
    Constant(u64, u64),
    Fields(Vec<Value>),
    List(Vec<Value>),
}

/// A field of a type.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub name: String,
    pub type_id: u64,
    /// The value is a number of a constant.
    pub constant: bool,
    pub list: bool,
    /// Unit of a length of time.
    pub timespan: Timespan,
}

/// Unit of a length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Timespan {
    /// Ticks of the chunk's clock.
    #[default]
    Ticks,
    /// A unit of this number of nanoseconds.
    Nanoseconds(u64),
    /// A unit that is unknown here.
    Unknown,
}

impl Timespan {
    /// Unit of that name in an annotation.
    pub(super) fn named(name: &str) -> Timespan {
        match name {
            "TICKS" => Timespan::Ticks,
            "NANOSECONDS" => Timespan::Nanoseconds(1),
            "MICROSECONDS" => Timespan::Nanoseconds(1_000),
            "MILLISECONDS" => Timespan::Nanoseconds(1_000_000),
            "SECONDS" => Timespan::Nanoseconds(1_000_000_000),
            _ => Timespan::Unknown,
        }
    }
}

/// A type.
#[derive(Clone, Debug, Default)]
pub(super) struct Type {
    pub name: String,
    pub fields: Vec<Field>,
}

impl Type {
    /// Place of the field of that name.
    pub(super) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }
}

/// Types by their numbers.
pub(super) type Types = FxHashMap<u64, Type>;

/// Reads values.
pub(super) struct ValueReader<'t> {
    pub types: &'t Types,
    /// Memory that values may still take, bytes.
    pub room: u64,
}

impl ValueReader<'_> {
    fn take(&mut self, bytes: u64) -> Result<(), Stop> {
        self.room = self.room.checked_sub(bytes).ok_or(Stop::Memory)?;
        Ok(())
    }

    /// Reads a value of the type `kind`.
    pub(super) fn value(&mut self, c: &mut Cursor, kind: u64, depth: usize) -> Result<Value, Stop> {
        self.take(64)?;
        if depth > MAX_DEPTH {
            return Err(Stop::Malformed);
        }
        let types = self.types;
        let t = types.get(&kind).ok_or(Stop::Malformed)?;
        Ok(match t.name.as_str() {
            "long" => Value::Number(c.long()? as i64),
            "int" => Value::Number(i64::from(c.int()? as i32)),
            "short" => Value::Number(i64::from(c.number(2)? as i16)),
            "char" => Value::Number(c.number(2)? as i64),
            "byte" | "boolean" => Value::Number(i64::from(c.byte()?)),
            "float" => {
                let bytes = c.bytes(4)?.try_into().unwrap_or_default();
                Value::Real(f32::from_be_bytes(bytes).into())
            }
            "double" => {
                let bytes = c.bytes(8)?.try_into().unwrap_or_default();
                Value::Real(f64::from_be_bytes(bytes))
            }
            "java.lang.String" => match c.text()? {
                Text::Null => Value::Null,
                Text::Constant(id) => Value::Constant(kind, id),
                Text::Own(text) => {
                    self.take(text.len() as u64)?;
                    Value::Text(text)
                }
            },
            _ => {
                let mut fields = Vec::with_capacity(t.fields.len());
                for f in &t.fields {
                    fields.push(self.field(c, f, depth)?);
                }
                Value::Fields(fields)
            }
        })
    }

    /// Reads a field: one value or a list of them.
    fn field(&mut self, c: &mut Cursor, f: &Field, depth: usize) -> Result<Value, Stop> {
        let mut one = |c: &mut Cursor| -> Result<Value, Stop> {
            if f.constant {
                self.take(32)?;
                return Ok(Value::Constant(f.type_id, c.long()?));
            }
            self.value(c, f.type_id, depth + 1)
        };
        if !f.list {
            return one(c);
        }
        let n = c.count()?;
        let mut items = Vec::new();
        for _ in 0..n {
            items.push(one(c)?);
        }
        Ok(Value::List(items))
    }
}
