//! Facts about a file with a HotSpot VM.

use std::sync::Arc;

use super::operations::{Operation, Symbols};
use crate::runtime::image::{Image, Refusal};

/// Virtual addresses of the symbols that describe one of the VM's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Address of the pointer to the first entry.
    pub first: u64,
    /// Addresses of the entry's size, and of the offsets of its fields in the requested order.
    pub stride: u64,
    pub fields: Vec<u64>,
}

/// Facts about a file with a HotSpot VM: the addresses of its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub(crate) structs: Table,
    pub(crate) types: Table,
    /// `None`: the file does not name them.
    pub(crate) safepoints: Option<Arc<Symbols>>,
}

impl Facts {
    /// The classes of VM operations that the file names.
    pub fn operations(&self) -> &[Operation] {
        self.safepoints.as_ref().map_or(&[], |s| s.operations())
    }
}

/// Names of the fields of a `gHotSpotVMStructs` entry, in the order of [`Table::fields`].
const STRUCT_FIELDS: [&str; 5] = [
    "TypeNameOffset",
    "FieldNameOffset",
    "IsStaticOffset",
    "OffsetOffset",
    "AddressOffset",
];
/// Names of the fields of a `gHotSpotVMTypes` entry.
const TYPE_FIELDS: [&str; 2] = ["TypeNameOffset", "SizeOffset"];

/// The facts of a file that contains the runtime.
pub(in crate::runtime) fn recognise(image: &Image<'_>) -> Option<Result<Facts, Refusal>> {
    let first = image.exported("gHotSpotVMStructs")?.address;
    let table = |first: u64, entry: &str, fields: &[&str]| {
        let word = |name: &str| image.exported(&format!("{entry}{name}")).map(|p| p.address);
        Some(Table {
            first,
            stride: word("ArrayStride")?,
            fields: fields.iter().map(|f| word(f)).collect::<Option<_>>()?,
        })
    };
    let structs = table(first, "gHotSpotVMStructEntry", &STRUCT_FIELDS);
    let types = image
        .exported("gHotSpotVMTypes")
        .and_then(|p| table(p.address, "gHotSpotVMTypeEntry", &TYPE_FIELDS));
    Some(match (structs, types) {
        (Some(structs), Some(types)) => Ok(Facts {
            structs,
            types,
            safepoints: Symbols::of(image).map(Arc::new),
        }),
        _ => Err(Refusal {
            what: format!("HotSpot in {}", image.name()),
            why: "it does not export the tables that describe it".into(),
        }),
    })
}
