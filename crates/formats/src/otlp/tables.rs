//! The tables of a file, nothing copied.

use super::super::ReadError;
use super::super::wire::{Fields, Malformed};
use super::{damaged, field};

/// The file's tables, nothing copied.
#[derive(Default)]
pub(super) struct Tables<'a> {
    pub strings: Vec<&'a [u8]>,
    pub mappings: Vec<&'a [u8]>,
    pub locations: Vec<&'a [u8]>,
    pub functions: Vec<&'a [u8]>,
    pub attributes: Vec<&'a [u8]>,
    pub stacks: Vec<&'a [u8]>,
    pub resources: Vec<&'a [u8]>,
    /// Profiles, and their resources by place.
    pub profiles: Vec<(&'a [u8], usize)>,
    /// Numbers of the outermost fields, and whether a dictionary is among them.
    pub top: Vec<u32>,
    /// The file is truncated: a missing entry is no damage.
    pub cut: bool,
}

impl<'a> Tables<'a> {
    /// Adds an outermost field.
    pub(super) fn add(&mut self, number: u32, bytes: &'a [u8]) -> Result<(), Malformed> {
        if !self.top.contains(&number) {
            self.top.push(number);
        }
        match number {
            field::RESOURCE_PROFILES => self.resource(bytes),
            field::DICTIONARY => self.dictionary(bytes),
            _ => Ok(()),
        }
    }

    fn resource(&mut self, bytes: &'a [u8]) -> Result<(), Malformed> {
        let place = self.resources.len();
        self.resources.push(&[]);
        for item in Fields::new(bytes) {
            match item? {
                (field::RESOURCE, resource) => self.resources[place] = resource.bytes(),
                (field::SCOPE_PROFILES, scope) => {
                    for profile in Fields::new(scope.bytes()) {
                        if let (field::PROFILES, p) = profile? {
                            self.profiles.push((p.bytes(), place));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn dictionary(&mut self, bytes: &'a [u8]) -> Result<(), Malformed> {
        use field::dictionary as d;
        for item in Fields::new(bytes) {
            let (number, value) = item?;
            match number {
                d::MAPPING => self.mappings.push(value.bytes()),
                d::LOCATION => self.locations.push(value.bytes()),
                d::FUNCTION => self.functions.push(value.bytes()),
                d::STRING => self.strings.push(value.bytes()),
                d::ATTRIBUTE => self.attributes.push(value.bytes()),
                d::STACK => self.stacks.push(value.bytes()),
                _ => {}
            }
        }
        Ok(())
    }

    /// The string with this index.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] for one that is not there, unless the file is truncated.
    pub(super) fn string(&self, index: u64) -> Result<String, ReadError> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        match self.strings.get(at) {
            Some(s) => Ok(String::from_utf8_lossy(s).into_owned()),
            None if self.cut => Ok("[name cut off]".to_string()),
            None => Err(damaged("a string is referred to that is not there")),
        }
    }
}
