//! Native code: unwinding by the call frame information that compilers write.

pub mod abi;
mod cfi;
mod cfi_synthesis;
mod go;
mod image;
mod mapping;
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
pub use mapping::{FileKey, MappingSpec, Source};
pub use rules::{Row, RuleSet};
pub use sink::{Capacity, KernelTables, MemoryTables, SinkError, TableSink, UnwindMaps};
pub use store::{StoreStats, TableStore};
pub use table::{FallbackMethod, Table, UnwindMethod};
pub use user_unwinder::{Registers, Unwinder, Unwound};
