//! HotSpot, the virtual machine of OpenJDK.
//!
//! ```text
//! abi.rs      what the walk in C (`bpf/hotspot_core.h`) is told and tells
//! structs.rs  where things are in the VM's structures, as the VM itself exports it
//! vm.rs       the VM of one process: its code, and what to look things up by
//! code.rs     compiled methods: an address in them → the methods inlined there
//! method.rs   methods → names and lines
//! locks.rs    monitors that threads wait to enter; of which class objects are
//! parking.rs  what threads are parked for
//! vthreads/   virtual threads: which there are, what they wait for, the stacks of those not mounted
//! flags.rs    how the VM was started
//! counters.rs how often and how long the VM stopped its threads
//! ```
//!
//! The frames are walked by the native unwinder, which comes to the VM's code like to any other; so
//! they stand among its words ([`items`]). Names are read from the process soon after: a compiled
//! method is recognised by the number of its compilation, an interpreted one by where its bytecode
//! is.
//!
//! Nothing has to be told to the VM, nothing is started in it: its debugging tables
//! (`gHotSpotVMStructs`) are part of every build. Read with the tables of 17 and 25; those of
//! others are read in the same way.

pub mod abi;
mod code;
mod counters;
mod flags;
mod locks;
mod method;
mod parking;
mod structs;
mod vm;
mod vthreads;

use super::{Facts as AnyFacts, Image, Refusal, Runtime};
use crate::native::FrameWord;

pub use counters::Pauses;
pub use locks::JavaThread;
pub use method::Method;
pub use parking::Parking;
pub use vm::{Miss, Opening, Scope, Vm};
pub use vthreads::{CUT, Told, VirtualThreads, reason};

/// The row of the table.
pub const RUNTIME: Runtime = Runtime {
    name: "HotSpot",
    tried: &["11", "17", "21", "25"],
    recognise,
};

/// Virtual addresses of what describes one of the VM's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Of the pointer to the first entry.
    pub first: u64,
    /// Of the size of an entry; then of offsets in it, by the order of the names asked for.
    pub stride: u64,
    pub fields: Vec<u64>,
}

/// What is known of a file with a HotSpot VM: where it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub(crate) structs: Table,
    pub(crate) types: Table,
}

/// Names of the fields of an entry of `gHotSpotVMStructs`, in [`Table::fields`]' order.
const STRUCT_FIELDS: [&str; 5] = [
    "TypeNameOffset",
    "FieldNameOffset",
    "IsStaticOffset",
    "OffsetOffset",
    "AddressOffset",
];
/// The same of `gHotSpotVMTypes`.
const TYPE_FIELDS: [&str; 2] = ["TypeNameOffset", "SizeOffset"];

fn recognise(image: &Image<'_>) -> Option<Result<AnyFacts, Refusal>> {
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
        (Some(structs), Some(types)) => Ok(AnyFacts::HotSpot(Box::new(Facts { structs, types }))),
        _ => Err(Refusal {
            what: format!("HotSpot in {}", image.name()),
            why: "it does not export the tables that describe it".into(),
        }),
    })
}

/// One frame of a stack that may run through a VM, HotSpot or V8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// A native frame, or in other code of the VM.
    Native(FrameWord),
    /// In a compiled method.
    Compiled(FrameWord, u32),
    /// In an interpreted method.
    Interpreted {
        /// Address of the method.
        method: u64,
        /// Address of the bytecode that runs, as far as could be seen.
        bcp: u64,
    },
    /// In a function of V8's.
    Script {
        /// The machine code that runs.
        frame: FrameWord,
        /// Address of what it shares with others of its source.
        function: u64,
        /// Where in it.
        place: Place,
    },
}

/// Where in a function of V8's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Interpreted: from the bytecode's object on.
    Bytecode(u32),
    /// In machine code; the object that the function has for its own: its address, or the number by which
    /// V8 knows it.
    Code(u64),
    /// One or the other: in no file, where machine code lies, but with what an interpreted function
    /// would have.
    Unsure(u32, u64),
}

/// The frames among `words`, innermost first, and the process that the VM's are of.
pub fn items(words: &[u64]) -> (Option<u32>, Vec<Item>) {
    let kind_of = |word: u64| word & 0xffff << 48;
    let value = |word: u64| word & !(0xffff << 48);
    let pid = words.iter().find(|w| kind_of(**w) == abi::WORD_PID);
    let mut items = Vec::with_capacity(words.len());
    let frames = words.iter().filter(|w| kind_of(**w) != abi::WORD_PID);
    let mut rest = frames.peekable();
    while let Some(word) = rest.next() {
        let next = rest.peek().map(|w| (kind_of(**w), value(**w)));
        match (kind_of(*word), next) {
            (abi::WORD_METHOD, Some((abi::WORD_BCP, bcp))) => {
                rest.next();
                items.push(Item::Interpreted {
                    method: value(*word),
                    bcp,
                });
            }
            (kind, Some((abi::WORD_CODE, id))) if kind < abi::WORD_BYTECODE => {
                rest.next();
                items.push(Item::Compiled(FrameWord(*word), id as u32));
            }
            (kind, Some((abi::WORD_FUNCTION, function))) if kind < abi::WORD_BYTECODE => {
                rest.next();
                let place = match rest.peek().map(|w| (kind_of(**w), value(**w))) {
                    Some((abi::WORD_BYTECODE, offset)) => {
                        rest.next();
                        match rest.peek().map(|w| (kind_of(**w), value(**w))) {
                            Some((abi::WORD_SCRIPT_CODE, code)) => {
                                Place::Unsure(offset as u32, code)
                            }
                            _ => Place::Bytecode(offset as u32),
                        }
                    }
                    Some((abi::WORD_SCRIPT_CODE, code)) => Place::Code(code),
                    // The rest of it was cut off.
                    _ => Place::Code(0),
                };
                items.push(Item::Script {
                    frame: FrameWord(*word),
                    function,
                    place,
                });
            }
            (kind, _) if kind < abi::WORD_BYTECODE => items.push(Item::Native(FrameWord(*word))),
            // The rest of a pair that was cut off.
            _ => {}
        }
    }
    (pid.map(|w| value(*w) as u32), items)
}

/// Whether a stack runs through a VM.
pub fn are_managed(words: &[u64]) -> bool {
    words.iter().any(|w| w >> 48 == abi::WORD_PID >> 48)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_frames_again() {
        let words = [
            0x0007_8000_0000_1234,
            abi::WORD_PID | 77,
            0x0000_8000_dead_0000,
            abi::WORD_CODE | 5,
            abi::WORD_METHOD | 0x8000_1000,
            abi::WORD_BCP | 0x8000_2005,
            0x0000_7f00_dead_0000,
            abi::WORD_METHOD | 0x8000_1000,
        ];
        let (pid, items) = items(&words);
        assert_eq!(pid, Some(77));
        assert_eq!(
            items,
            [
                Item::Native(FrameWord(words[0])),
                Item::Compiled(FrameWord(words[2]), 5),
                Item::Interpreted {
                    method: 0x8000_1000,
                    bcp: 0x8000_2005
                },
                Item::Native(FrameWord(words[6])),
            ]
        );
    }

    #[test]
    fn words_of_scripts_are_frames_again() {
        let words = [
            0x0000_1234_5678_0000,
            abi::WORD_PID | 77,
            abi::WORD_FUNCTION | 0x1_0001,
            abi::WORD_SCRIPT_CODE | 0x2_0001,
            0x0007_0000_0000_0010,
            abi::WORD_FUNCTION | 0x1_0009,
            abi::WORD_BYTECODE | 57,
            0x0007_0000_0000_0020,
            0x0000_1234_5678_0040,
            abi::WORD_FUNCTION | 0x1_0011,
            abi::WORD_BYTECODE | 60,
            abi::WORD_SCRIPT_CODE | 0x2_0011,
            0x0007_0000_0000_0030,
        ];
        let script = |frame: u64, function, place| Item::Script {
            frame: FrameWord(frame),
            function,
            place,
        };
        assert_eq!(
            items(&words).1,
            [
                script(words[0], 0x1_0001, Place::Code(0x2_0001)),
                script(words[4], 0x1_0009, Place::Bytecode(57)),
                Item::Native(FrameWord(words[7])),
                script(words[8], 0x1_0011, Place::Unsure(60, 0x2_0011)),
                Item::Native(FrameWord(words[12])),
            ]
        );
    }

    #[test]
    fn what_is_no_virtual_machine_is_none() {
        let own = std::fs::read(std::env::current_exe().expect("this test")).expect("readable");
        assert!(super::super::recognise(&own, "/usr/lib/libjvm.so").is_none());
    }
}
