//! Native code: unwinding by the call frame information that compilers write.

pub mod abi;
mod cfi;
mod conduct;
mod contexts;
mod go;
mod image;
mod mapping;
mod room;
mod rules;
mod sink;
mod snapshot;
mod store;
pub mod table;

pub use abi::{End, FrameWord, MAX_FRAMES, Mapping, Proc, RawStack, Rule};
pub use image::ImageError;
pub use mapping::{FileKey, MappingSpec, Source};
pub use rules::{Row, RuleSet};
pub use sink::{Capacity, KernelTables, MemoryTables, SinkError, TableSink, UnwindMaps};
pub use snapshot::{Registers, Unwinder, Unwound};
pub use store::{StoreStats, TableStore};
pub use table::{Code, Table, Undescribed};
