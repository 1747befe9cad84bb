//! Layouts of OTLP profiles: messages changed from release to release while the signal was in
//! development, under the same numbers of fields.
//!
//! | releases | recognised by |
//! |---|---|
//! | 1.10 on | samples: attributes in field 2, values in field 4 |
//! | 1.8, 1.9 | samples: values in field 2, attributes in field 3 |
//! | 1.7 | samples have a range of locations (fields 1 and 2 numbers); a dictionary |
//! | 1.6 | the tables beside the resources |
//! | 1.4, 1.5 | each profile has its own tables (strings in field 10) |
//! | 1.3 | a profile inside a container (field 8) |
//!
//! The first two are read, the others refused by name. A file with samples that fit both of the
//! first two is refused too.

use super::super::ReadError;
use super::super::wire::{Fields, Malformed, Value};

/// A layout that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Releases 1.8 and 1.9.
    V1_8,
    /// Release 1.10 and later ones.
    V1_10,
}

/// Field numbers of a sample.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleFields {
    pub stack: u32,
    pub attributes: u32,
    pub values: u32,
    pub times: u32,
}

impl Layout {
    pub(super) fn sample(self) -> SampleFields {
        match self {
            Layout::V1_8 => SampleFields {
                stack: 1,
                attributes: 3,
                values: 2,
                times: 5,
            },
            Layout::V1_10 => SampleFields {
                stack: 1,
                attributes: 2,
                values: 4,
                times: 5,
            },
        }
    }

    /// The field with a profile's own attributes, where it is the same in all releases of the layout.
    pub(super) fn profile_attributes(self) -> Option<u32> {
        match self {
            Layout::V1_8 => None,
            Layout::V1_10 => Some(11),
        }
    }
}

fn unknown(what: &str) -> ReadError {
    ReadError::UnknownLayout {
        what: what.to_string(),
    }
}

/// The error for an earlier layout: no tool converts such a file.
fn earlier(releases: &str) -> ReadError {
    ReadError::UnknownLayout {
        what: format!(
            "OTLP profiles as release {releases} of opentelemetry-proto defines them; 1.8 and later \
             ones are read (send the profile again from a program that writes those)"
        ),
    }
}

/// Facts about the table of attributes that show the layout.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttributeTable {
    /// Entries, the empty first one included.
    pub length: u64,
    /// Whether a value is a string by its index, which came with 1.10.
    pub by_index: bool,
}

/// Layouts that a sample fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fits {
    v1_8: bool,
    v1_10: bool,
}

impl Fits {
    const ALL: Fits = Fits {
        v1_8: true,
        v1_10: true,
    };

    fn of(sample: &[u8], table: AttributeTable) -> Result<Fits, Malformed> {
        let mut fits = Fits::ALL;
        let (mut second, mut has_second, mut has_fourth, mut times) = (Vec::new(), false, false, 0);
        for item in Fields::new(sample) {
            match item? {
                (1, Value::Number(_)) => {}
                (2, v @ Value::Bytes(_)) => {
                    has_second = true;
                    v.numbers(&mut second)?;
                }
                (3, Value::Bytes(b)) => fits.v1_10 &= b.is_empty(),
                (3, Value::Number(n)) => fits.v1_8 &= n == 0,
                (4, Value::Bytes(b)) => {
                    has_fourth = true;
                    fits.v1_8 &= b.is_empty();
                }
                (4, Value::Number(n)) => fits.v1_10 &= n == 0,
                (5, Value::Bytes(b)) => times += b.len() / 8,
                (5, Value::Number(_)) => times += 1,
                // Field 2 as a number: a range of locations, before 1.8.
                _ => {
                    fits = Fits {
                        v1_8: false,
                        v1_10: false,
                    }
                }
            }
        }
        // If the numbers are attributes, they have to be in the table.
        fits.v1_10 &= second.iter().all(|i| (1..table.length).contains(i));
        // If they are values and there are times, there is one for each time.
        fits.v1_8 &= times == 0 || second.is_empty() || second.len() == times;
        // A sample has a value or a time. Without fields 4 and 5, field 2 has the values, as in 1.8.
        fits.v1_10 &= has_fourth || times > 0 || !has_second;
        Ok(fits)
    }
}

/// The layout of a file by its profiles; `table` is that of its dictionary.
///
/// # Errors
/// [`ReadError::UnknownLayout`] for another layout, and if the layout is ambiguous.
pub(super) fn of_profiles(
    profiles: &[&[u8]],
    table: Option<AttributeTable>,
) -> Result<Layout, ReadError> {
    let mut fits = Fits::ALL;
    let mut samples = 0u64;
    for profile in profiles {
        for item in Fields::new(profile) {
            let Ok((number, value)) = item else { break };
            match (number, value, table) {
                // A container begins with its profile's id of 16 bytes and two times.
                (8, Value::Bytes(b), None) if b.len() > 16 => return Err(earlier("1.3")),
                (10, Value::Bytes(_), None) => return Err(earlier("1.4 or 1.5")),
                // Indices of locations; later a time.
                (3, Value::Bytes(_), Some(_)) => return Err(earlier("1.7")),
                (2, Value::Bytes(sample), Some(table)) => {
                    let own = Fits::of(sample, table)?;
                    fits.v1_8 &= own.v1_8;
                    fits.v1_10 &= own.v1_10;
                    samples += 1;
                }
                _ => {}
            }
        }
    }
    let by_index = table.is_some_and(|t| t.by_index);
    match (fits.v1_8 && !by_index, fits.v1_10) {
        (true, false) => Ok(Layout::V1_8),
        (false, true) => Ok(Layout::V1_10),
        (true, true) if samples == 0 => Ok(Layout::V1_10),
        (false, false) => Err(unknown(
            "the samples of its OTLP profiles are those of no release that is known (1.8 to 1.11)",
        )),
        (true, true) => Err(unknown(
            "the samples of its OTLP profiles may be those of release 1.9 or of 1.10: nothing in the \
             file tells whether a number is a value or an attribute",
        )),
    }
}

/// Refuses a file without a dictionary by the name of its layout.
pub(super) fn without_dictionary(top: &[u32], profiles: &[&[u8]]) -> ReadError {
    // The tables of 1.6 stand beside the resources.
    if top.contains(&6) {
        return earlier("1.6");
    }
    match of_profiles(profiles, None) {
        Err(e @ ReadError::UnknownLayout { .. }) => e,
        _ => super::damaged("its dictionary of strings is missing"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::Writer;
    use super::*;

    fn sample(write: impl Fn(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::default();
        w.number(1, 1);
        write(&mut w);
        w.bytes
    }

    fn layout(samples: &[Vec<u8>]) -> Result<Layout, ReadError> {
        let mut p = Writer::default();
        samples.iter().for_each(|s| p.bytes(2, s));
        let table = AttributeTable {
            length: 8,
            by_index: false,
        };
        of_profiles(&[&p.bytes], Some(table))
    }

    fn list(w: &mut Writer, field: u32) {
        w.packed(field, [5u64, 6].into_iter());
    }

    #[test]
    fn each_release_is_told_by_its_samples() {
        let v8 = sample(|w| list(w, 2));
        let v9 = sample(|w| {
            list(w, 2);
            list(w, 3);
        });
        let v10 = sample(|w| {
            list(w, 2);
            list(w, 4);
        });
        let either = sample(|w| {
            list(w, 2);
            w.bytes(5, &[0; 16]);
        });
        assert_eq!(layout(std::slice::from_ref(&v8)), Ok(Layout::V1_8));
        assert_eq!(layout(std::slice::from_ref(&v9)), Ok(Layout::V1_8));
        assert_eq!(layout(std::slice::from_ref(&v10)), Ok(Layout::V1_10));
        assert_eq!(layout(&[either.clone(), v10]), Ok(Layout::V1_10));
        assert_eq!(layout(&[either.clone(), v9]), Ok(Layout::V1_8));
        let e = layout(&[either]).unwrap_err().to_string();
        assert!(e.contains("1.9 or of 1.10"), "{e}");
        let times_alone = sample(|w| {
            list(w, 2);
            w.bytes(5, &[0; 24]);
        });
        assert_eq!(layout(&[times_alone]), Ok(Layout::V1_10));
        let range = sample(|w| w.number(2, 3));
        assert!(layout(&[range]).is_err());
        let later = sample(|w| w.number(9, 3));
        assert!(layout(&[later]).is_err());
        assert_eq!(layout(&[]), Ok(Layout::V1_10));
    }
}
