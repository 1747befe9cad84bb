//! HotSpot, the virtual machine of OpenJDK.
//!
//! ```text
//! abi.rs      mirror of the C side (`bpf/hotspot_abi.h`)
//! structs.rs  layout of the VM's structures, from the VM's own exported tables
//! vm.rs       the VM of one process: its code, stubs and caches
//! code.rs     debug data of a compiled method: address → inlined methods
//! scopes.rs   reads it from the process
//! method.rs   methods → names and lines
//! locks.rs    offsets for monitors and lists of threads; monitors.rs reads them
//! parking.rs  offsets for objects that threads are parked for; parked_objects.rs reads them
//! vthreads/   virtual threads: their list, wait reasons, and the stacks of unmounted ones
//! flags.rs    flags of the VM
//! counters.rs number and duration of VM pauses; causes and numbers of collections
//! safepoints.rs places at which collectors stop threads
//! ```
//!
//! The native unwinder walks the frames when it reaches the VM's code, so their words stand among
//! its own ([`items`]). Names are read from the process soon after. A compiled method is identified
//! by its compile id, an interpreted one by its bytecode's address.
//!
//! Nothing is started in the VM: its debugging tables (`gHotSpotVMStructs`) are part of every
//! build. Tested with the tables of 17 and 25; those of other versions are read in the same way.

pub mod abi;
mod code;
mod counters;
mod facts;
mod flags;
mod locks;
mod method;
mod monitors;
mod operations;
mod parked_objects;
mod parking;
mod safepoints;
mod scopes;
mod structs;
mod vm;
mod vthreads;

use crate::native::FrameWord;

pub use counters::Pauses;
pub use facts::Facts;
pub(super) use facts::recognise;
pub use locks::JavaThread;
pub use method::Method;
pub use operations::{Operation, collection};
pub use parked_objects::Parking;
pub use safepoints::SafepointPlaces;
pub use vm::{Miss, Opening, Scope, Vm};
pub use vthreads::{FrameName, STACK_TRUNCATED, VirtualThreads, reason};

/// A frame of a stack that may run through HotSpot or V8 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// A native frame, or a frame of other VM code.
    Native(FrameWord),
    /// A frame of a compiled method, with its compile id.
    Compiled(FrameWord, u32),
    /// A frame of an interpreted method.
    Interpreted {
        /// Address of the method.
        method: u64,
        /// Address of the running bytecode, as far as known.
        bcp: u64,
    },
    /// A frame of a V8 function.
    Script {
        /// The running machine code.
        frame: FrameWord,
        /// Address of its SharedFunctionInfo.
        function: u64,
        /// Position in the function.
        place: ScriptPosition,
    },
}

/// Position in a V8 function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScriptPosition {
    /// Interpreted: bytes from the start of the bytecode array object.
    Bytecode(u32),
    /// Compiled: the function's code object, as its address or V8's number for it.
    Code(u64),
    /// Undecided: anonymous machine code, in a frame that could be an interpreted one.
    Unsure(u32, u64),
}

/// Decodes `words` into frames, innermost first; also returns the process that VM addresses belong
/// to.
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
                                ScriptPosition::Unsure(offset as u32, code)
                            }
                            _ => ScriptPosition::Bytecode(offset as u32),
                        }
                    }
                    Some((abi::WORD_SCRIPT_CODE, code)) => ScriptPosition::Code(code),
                    // The rest was truncated.
                    _ => ScriptPosition::Code(0),
                };
                items.push(Item::Script {
                    frame: FrameWord(*word),
                    function,
                    place,
                });
            }
            (kind, _) if kind < abi::WORD_BYTECODE => items.push(Item::Native(FrameWord(*word))),
            // The rest of a truncated pair.
            _ => {}
        }
    }
    (pid.map(|w| value(*w) as u32), items)
}

/// Whether a stack runs through VM code.
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
                script(words[0], 0x1_0001, ScriptPosition::Code(0x2_0001)),
                script(words[4], 0x1_0009, ScriptPosition::Bytecode(57)),
                Item::Native(FrameWord(words[7])),
                script(words[8], 0x1_0011, ScriptPosition::Unsure(60, 0x2_0011)),
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
