//! Native code: unwinding by the call frame information that compilers write.

pub mod abi;
mod cfi;
mod cfi_synthesis;
mod go;
mod image;
#[cfg(feature = "bpf")]
mod kernel_tables;
mod mapping;
mod packed_rows;
mod rules;
mod sink;
mod slot_allocator;
mod stack_switch;
mod store;
pub mod table;
mod user_unwinder;

pub(crate) use abi::Pc;
pub use abi::{End, FrameWord, MAX_FRAMES, Mapping, Proc, RawStack, Rule};
pub use image::ImageError;
#[cfg(feature = "bpf")]
pub use kernel_tables::{KernelTables, UnwindMaps};
pub use mapping::{FileKey, MappingSpec, Source};
pub use rules::{RuleRow, RuleSet};
pub use sink::{Capacity, MemoryTables, SinkError, TableSink};
pub use store::{StoreStats, TableStore};
pub use table::{FallbackMethod, Table, UnwindMethod};
pub use user_unwinder::{CopiedMemory, Registers, StackStart, Unwinder, Unwound};
