//! Attributes: keys with values of any type, in the dictionary or beside a resource.

use wallscope_model::LabelValue;

use super::super::ReadError;
use super::super::import::Import;
use super::super::wire::{Fields, Malformed, Value};
use super::tables::Tables;

/// An attribute's key and value.
#[derive(Clone, Debug)]
pub(super) struct Attribute {
    pub key: String,
    pub value: LabelValue,
}

/// Field numbers of `AnyValue`.
mod any {
    pub const STRING: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const INT: u32 = 3;
    pub const DOUBLE: u32 = 4;
    pub const BYTES: u32 = 7;
    /// An index into the table of strings, from release 1.10 on.
    pub const STRING_INDEX: u32 = 8;
}

/// The attributes of a dictionary, and how many have a value that a label cannot hold.
pub(super) struct AttributeList {
    pub list: Vec<Option<Attribute>>,
    pub left_out: u64,
}

impl AttributeList {
    /// All entries of the dictionary's table.
    pub(super) fn of(t: &Tables, to: &mut Import) -> Result<AttributeList, ReadError> {
        let mut out = AttributeList {
            list: Vec::with_capacity(t.attributes.len()),
            left_out: 0,
        };
        for (i, bytes) in t.attributes.iter().enumerate() {
            let (mut key, mut unit, mut value) = (0, 0, None);
            for item in Fields::new(bytes) {
                match item? {
                    (1, v) => key = v.number(),
                    (2, v) => value = Some(v.bytes()),
                    (3, v) => unit = v.number(),
                    _ => {}
                }
            }
            let value = match value {
                Some(bytes) => value_of(bytes, &t.string(unit)?, t, to)?,
                // Only the first attribute, which means none, has no value.
                None => None,
            };
            out.left_out += u64::from(value.is_none() && i > 0);
            let key = t.string(key)?;
            out.list.push(value.map(|value| Attribute { key, value }));
        }
        Ok(out)
    }

    /// The attributes that `indices` refer to.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] for one that is not there.
    pub(super) fn get<'s>(
        &'s self,
        indices: &'s [u64],
    ) -> impl Iterator<Item = Result<&'s Attribute, ReadError>> {
        indices.iter().filter_map(|i| {
            let entry = usize::try_from(*i).ok().and_then(|i| self.list.get(i));
            match entry {
                Some(attribute) => attribute.as_ref().map(Ok),
                None => Some(Err(super::damaged(
                    "an attribute is referred to that is not there",
                ))),
            }
        })
    }

    /// The attributes of a resource. Their keys stand beside their values, not in the dictionary.
    pub(super) fn resource(
        &mut self,
        bytes: &[u8],
        t: &Tables,
        to: &mut Import,
    ) -> Result<Vec<Attribute>, ReadError> {
        let mut out = Vec::new();
        for item in Fields::new(bytes) {
            let (1, pair) = item? else { continue };
            let (mut key, mut value) = (String::new(), None);
            for item in Fields::new(pair.bytes()) {
                match item? {
                    (1, v) => key = String::from_utf8_lossy(v.bytes()).into_owned(),
                    (2, v) => value = value_of(v.bytes(), "", t, to)?,
                    (3, v) => key = t.string(v.number())?,
                    _ => {}
                }
            }
            match value {
                Some(value) => out.push(Attribute { key, value }),
                None => self.left_out += 1,
            }
        }
        Ok(out)
    }
}

/// A value as a label; `None` for lists, maps, and values of no type.
fn value_of(
    bytes: &[u8],
    unit: &str,
    t: &Tables,
    to: &mut Import,
) -> Result<Option<LabelValue>, ReadError> {
    let mut value = None;
    for item in Fields::new(bytes) {
        value = match item? {
            (any::STRING, v) => Some(to.text(&String::from_utf8_lossy(v.bytes()))?),
            (any::STRING_INDEX, v) => Some(to.text(&t.string(v.number())?)?),
            (any::BOOL, v) => Some(to.text(if v.number() == 0 { "false" } else { "true" })?),
            (any::DOUBLE, v) => Some(to.text(&f64::from_bits(v.number()).to_string())?),
            (any::BYTES, v) => Some(to.text(&hex(v.bytes()))?),
            (any::INT, v) => {
                let number = v.number() as i64;
                return Ok(Some(LabelValue::Number(number, to.text(unit)?)));
            }
            _ => value,
        };
    }
    Ok(value.map(LabelValue::Text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether some value of the table is a string by its index.
pub(super) fn any_by_index(attributes: &[&[u8]]) -> Result<bool, Malformed> {
    for bytes in attributes {
        for item in Fields::new(bytes) {
            let (2, Value::Bytes(value)) = item? else {
                continue;
            };
            if Fields::new(value).any(|f| matches!(f, Ok((any::STRING_INDEX, Value::Number(_))))) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
