//! Native code: unwinding by what compilers write for exceptions.

pub mod abi;
mod cfi;
mod go;
mod image;
mod rules;
mod sink;
mod snapshot;
mod store;
pub mod table;

pub use abi::{End, FrameWord, MAX_FRAMES, Mapping, Proc, RawStack, Rule, WINDOW_BYTES};
pub use image::ImageError;
pub use rules::{Row, RuleSet};
pub use sink::{Capacity, KernelTables, MemoryTables, SinkError, TableSink, UnwindMaps};
pub use snapshot::{Registers, Unwinder, Unwound};
pub use store::{FileKey, MappingSpec, Source, StoreStats, TableStore};
pub use table::{Code, Table};
