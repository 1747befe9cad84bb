//! Reads what the machine shows about programs and itself; parses and decides nothing.
//!
//! * [`elf`]: an ELF file's identity (build id, debug link), its segments, sections and symbols;
//!   [`plt`]: the names of its procedure linkage stubs; [`gopclntab`]: what Go programs know of their
//!   own code; [`mapped`]: a file mapped into memory.
//! * [`maps`], [`process`]: `/proc/PID/maps`, `stat`, `status`, `limits`, `cmdline` and so on.
//! * [`kallsyms`], [`perf_map`], [`jitdump`]: names of kernel code and of code made at run time.
//! * [`cgroup`]: which control groups a process is in, and which processes are in a group.
//! * [`sockets`], [`locks`]: connections, and locks on files, with whose they are.
//! * [`host`]: the host's counters as [`wallscope_model::HostFacts`], cheap enough for each second.
//!
//! Every parser takes bytes or text, so that it can be tested with what other machines show; the
//! readers beside them only open files. What is malformed is an error, `None`, or a counted and
//! skipped line, never a panic: files under `/proc` change while they are read, and a profiled
//! program's files belong to somebody else.
//!
//! Not done here: DWARF (see the crate for symbolisation), unwinding tables, choosing between
//! several names of one address, ELF notes other than the build id, core files.

pub mod cgroup;
pub mod elf;
pub mod gopclntab;
pub mod host;
pub mod jitdump;
pub mod kallsyms;
pub mod locks;
pub mod mapped;
pub mod maps;
pub mod perf_map;
pub mod plt;
pub mod process;
pub mod sockets;
pub mod target_file;
