//! pprof: the file wallscope writes, and the one every other tool reads.
//!
//! The profile proper serves other readers: samples scaled to the ledger, one value per state,
//! threads and reasons as labels. All other parts are in field 1000 (`schema/wallscope.proto`), from which
//! a recording is read back whole and unscaled. A file of another tool is read with its own values; states
//! that it lacks are unknown, and the domain says so. Units other than time and memory are counts with the
//! unit's name. References beyond a table are damage.
//!
//! A file is written as a stream, so memory never holds a second copy of a large recording. A file that is
//! read is untrusted: sizes are bounded before anything is allocated, every index is checked, and sums that
//! would overflow are refused.

mod budget;
mod checks;
mod chosen;
pub(super) mod columns;
mod compress;
mod convert;
mod extension;
mod foreign;
mod histograms;
mod host;
mod labels;
mod names;
mod pauses;
mod peers;
mod prune;
mod read;
mod restore;
mod sums;
mod tables;
mod tasks;
mod timeline;
mod waits;
mod write;

pub use compress::{write, write_small};
pub(super) use read::{detect, read};

/// Field numbers of the pprof messages (`profile.proto`).
mod field {
    pub mod profile {
        pub const SAMPLE_TYPE: u32 = 1;
        pub const SAMPLE: u32 = 2;
        pub const MAPPING: u32 = 3;
        pub const LOCATION: u32 = 4;
        pub const FUNCTION: u32 = 5;
        pub const STRING: u32 = 6;
        pub const DROP_FRAMES: u32 = 7;
        pub const KEEP_FRAMES: u32 = 8;
        pub const TIME_NANOS: u32 = 9;
        pub const DURATION_NANOS: u32 = 10;
        pub const PERIOD_TYPE: u32 = 11;
        pub const PERIOD: u32 = 12;
        pub const COMMENT: u32 = 13;
        pub const DEFAULT_SAMPLE_TYPE: u32 = 14;
        pub const RECORDING: u32 = 1000;
    }
    pub mod value_type {
        pub const TYPE: u32 = 1;
        pub const UNIT: u32 = 2;
    }
    pub mod sample {
        pub const LOCATION: u32 = 1;
        pub const VALUE: u32 = 2;
        pub const LABEL: u32 = 3;
    }
    pub mod label {
        pub const KEY: u32 = 1;
        pub const STR: u32 = 2;
        pub const NUM: u32 = 3;
        pub const UNIT: u32 = 4;
    }
    pub mod mapping {
        pub const ID: u32 = 1;
        pub const START: u32 = 2;
        pub const LIMIT: u32 = 3;
        pub const OFFSET: u32 = 4;
        pub const FILE: u32 = 5;
        pub const BUILD_ID: u32 = 6;
        pub const HAS_FUNCTIONS: u32 = 7;
        pub const HAS_FILENAMES: u32 = 8;
        pub const HAS_LINE_NUMBERS: u32 = 9;
        pub const HAS_INLINE_FRAMES: u32 = 10;
    }
    pub mod location {
        pub const ID: u32 = 1;
        pub const MAPPING: u32 = 2;
        pub const ADDRESS: u32 = 3;
        pub const LINE: u32 = 4;
    }
    pub mod line {
        pub const FUNCTION: u32 = 1;
        pub const LINE: u32 = 2;
    }
    pub mod function {
        pub const ID: u32 = 1;
        pub const NAME: u32 = 2;
        pub const SYSTEM_NAME: u32 = 3;
        pub const FILE: u32 = 4;
        pub const START_LINE: u32 = 5;
    }
}

/// The sample types in the contract's order: name and unit.
const SAMPLE_TYPES: [(&str, &str); 5] = [
    ("samples", "count"),
    ("on_cpu", "nanoseconds"),
    ("runnable", "nanoseconds"),
    ("blocked", "nanoseconds"),
    ("wall", "nanoseconds"),
];
