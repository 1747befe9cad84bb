//! OpenTelemetry's profiles (OTLP, alpha: the format may still change) ↔ recording.
//!
//! Protocol Buffers, as collectors exchange and store them. Known are the layouts of releases 1.8 to
//! 1.11 of opentelemetry-proto, recognised by their samples; earlier ones are refused by name (`layout`).
//! The layout of 1.10 is written. A profile has one type of values; several of one unit are read
//! together.
//!
//! Attributes of samples, profiles and resources become process, thread, state or reason by their names, and
//! labels otherwise. From 1.10 on a string in them may be an index. Lists and maps as values are counted and
//! left out.

mod attributes;
mod choice;
mod layout;
mod read;
mod sample;
mod tables;
mod write;

use super::ReadError;
use super::wire::{Fields, Value};

pub(super) use read::read;
pub(super) use write::write;

/// Field numbers of the messages.
mod field {
    pub const DICTIONARY: u32 = 2;
    pub const RESOURCE_PROFILES: u32 = 1;
    pub const SCOPE_PROFILES: u32 = 2;
    pub const PROFILES: u32 = 2;
    pub mod dictionary {
        pub const MAPPING: u32 = 1;
        pub const LOCATION: u32 = 2;
        pub const FUNCTION: u32 = 3;
        pub const LINK: u32 = 4;
        pub const STRING: u32 = 5;
        pub const ATTRIBUTE: u32 = 6;
        pub const STACK: u32 = 7;
    }
    pub const RESOURCE: u32 = 1;
    pub mod profile {
        pub const SAMPLE_TYPE: u32 = 1;
        pub const SAMPLES: u32 = 2;
        pub const TIME: u32 = 3;
        pub const DURATION: u32 = 4;
    }
    /// Field numbers of written samples: those of release 1.10.
    pub mod sample {
        pub const STACK: u32 = 1;
        pub const ATTRIBUTES: u32 = 2;
        pub const VALUES: u32 = 4;
    }
}

/// Whether it is OTLP: resources, then a dictionary. Such a file has no field that tells it from others
/// at once, so every field is checked.
pub(super) fn detect(head: &[u8]) -> bool {
    if !head.iter().any(|b| *b < 9) {
        return false;
    }
    let (mut seen, mut resources) = (0, false);
    for item in Fields::new(head) {
        let Ok((number, value)) = item else { break };
        let Value::Bytes(bytes) = value else {
            return false;
        };
        let plausible = match number {
            field::RESOURCE_PROFILES => {
                resources |= !bytes.is_empty();
                Fields::new(bytes).all(|f| matches!(f, Ok((1..=3 | 1000, Value::Bytes(_)))))
            }
            field::DICTIONARY => {
                let tables = Fields::new(bytes).all(|f| matches!(f, Ok((1..=7, Value::Bytes(_)))));
                // A mapping, in release 1.6.
                tables || resources && Fields::new(bytes).all(|f| matches!(f, Ok((1..=9, _))))
            }
            // Release 1.6 has its tables here.
            3..=8 => resources,
            _ => false,
        };
        if !plausible {
            return false;
        }
        seen += 1;
    }
    // The resources are larger than the head, so only their beginning can be checked.
    seen > 0 || nested(head)
}

/// Whether the head begins with a resource that does not fit into it.
fn nested(head: &[u8]) -> bool {
    let mut rest = head;
    let mut key = |number: u32| -> bool {
        let Some((first, after)) = rest.split_first() else {
            return false;
        };
        if u32::from(*first) != number << 3 | 2 {
            return false;
        }
        let len = after
            .iter()
            .position(|b| b & 0x80 == 0)
            .unwrap_or(after.len());
        rest = after.get(len + 1..).unwrap_or_default();
        true
    };
    (key(1) || key(2)) && (key(1) || key(2))
}

fn damaged(what: &str) -> ReadError {
    ReadError::Damaged {
        what: what.to_string(),
    }
}
