//! Facts about a process, from which its labels follow.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;

use wallscope_model::Process;
use wallscope_procfs::kernel_file;

use super::{cgroup, process_context};

/// Facts about a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Path of its cgroup.
    pub cgroup: String,
    /// Variables of its environment that name a service; no others are kept.
    pub environ: BTreeMap<String, String>,
    /// Resource attributes that its OpenTelemetry SDK publishes.
    pub context: BTreeMap<String, String>,
    /// Name of its first thread.
    pub comm: String,
    /// Path of its executable; empty for threads of the kernel.
    pub exe: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The process, or the group of ended ones, is not there any more.
    pub is_gone: bool,
}

/// Variables that are kept.
const VARIABLES: [&str; 2] = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"];

impl Facts {
    /// Reads the facts that `/proc` has about a process; the others stay empty.
    pub fn read(process: &Process) -> Facts {
        let text = |file: &str| -> String {
            let bytes = kernel_file::read(format!("/proc/{}/{file}", process.pid));
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        };
        let environ = text("environ");
        let variables = environ.split('\0').filter_map(|v| v.split_once('='));
        let args = text("cmdline");
        Facts {
            cgroup: cgroup::path_of(&text("cgroup")),
            environ: variables
                .filter(|(name, _)| VARIABLES.contains(name))
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
            context: process_context::read(&text("maps"), &|at, length| {
                memory(process.pid, at, length)
            }),
            comm: process.name.to_string(),
            exe: process.exe.to_string(),
            args: args.split_terminator('\0').map(str::to_string).collect(),
            is_gone: kernel_file::open(format!("/proc/{}/stat", process.pid)).is_err(),
        }
    }
}

/// Bytes of a process's memory.
fn memory(pid: u32, at: u64, length: usize) -> Option<Vec<u8>> {
    let file = kernel_file::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}
