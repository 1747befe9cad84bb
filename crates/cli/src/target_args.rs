//! Arguments of every verb that measures: its target.

use std::{ffi::OsString, path::PathBuf};

use wallscope_capture::target::Target;

/// The live target of a verb.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    /// Processes to measure, with their threads and children
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        group = "target"
    )]
    pid: Vec<u32>,

    /// A cgroup (v1 or v2) to measure: a directory, or a path below the hierarchy's mount
    #[arg(long, value_name = "PATH", group = "target")]
    cgroup: Option<PathBuf>,

    /// Measure every process of the machine
    #[arg(short, long, group = "target")]
    all: bool,

    /// A command to start and measure
    #[arg(last = true, value_name = "CMD", group = "target")]
    command: Vec<OsString>,
}

impl TargetArgs {
    /// The target that was named, if one was.
    pub fn target(&self) -> Option<Target> {
        if !self.pid.is_empty() {
            let mut pids: Vec<u32> = Vec::new();
            for pid in &self.pid {
                if !pids.contains(pid) {
                    pids.push(*pid);
                }
            }
            Some(Target::Pids(pids))
        } else if let Some(path) = &self.cgroup {
            Some(Target::Cgroup(path.clone()))
        } else if self.all {
            Some(Target::All)
        } else if !self.command.is_empty() {
            Some(Target::Command(self.command.clone()))
        } else {
            None
        }
    }
}
