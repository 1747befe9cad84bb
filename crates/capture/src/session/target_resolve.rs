//! Processes and cgroups that a target means when measuring begins.

use std::os::fd::OwnedFd;
use std::time::Duration;

use wallscope_procfs::cgroup::{self, CgroupError};
use wallscope_procfs::process;

use crate::{
    Error,
    target::{Held, Target, cgroup_members, has_ended, watch, with_descendants},
};

/// Processes and cgroups that the target means now.
pub(crate) struct ResolvedTarget {
    /// Processes.
    pub pids: Vec<u32>,
    /// Cgroups, by id: a process that joins one later is measured too.
    pub cgroups: Vec<u64>,
    /// Processes that end the recording when they end.
    pub watch: Vec<OwnedFd>,
}

impl ResolvedTarget {
    /// Returns an error if `target` names processes by their ids and all of them have ended or are ending. A failure
    /// then has that cause. A process that is ending has no files and no memory any more, some time before its end is
    /// announced.
    pub fn gone(&self, target: &Target) -> Option<Error> {
        let Target::Pids(pids) = target else {
            return None;
        };
        let pid = *pids.first()?;
        let exits = |tid: &u32| process::stat(*tid).is_ok_and(|stat| stat.is_exiting());
        let is_ending =
            |pid: &u32| process::threads(*pid).is_ok_and(|threads| threads.iter().all(exits));
        let ended = self.watch.iter().all(has_ended) || pids.iter().all(is_ending);
        ended.then_some(Error::NoSuchProcess { pid })
    }
}

/// Note for a target that ended before the requested time was over.
pub(crate) fn ended_early(target: &Target, asked: Option<Duration>, ns: u64) -> Option<String> {
    let (Target::Pids(_), Some(asked)) = (target, asked) else {
        return None;
    };
    let seconds = |d: Duration| format!("{:.2} s", d.as_secs_f64());
    Some(format!(
        "the target ended after {} of the {} asked for",
        seconds(Duration::from_nanos(ns)),
        seconds(asked)
    ))
}

/// Refuses the id of a thread, and our own.
///
/// # Errors
/// `pid` is one of them.
fn only_others(pid: u32) -> Result<(), Error> {
    let refused = |why| Err(Error::NotAProcess { pid, why });
    if pid == std::process::id() {
        return refused("it is this wallscope itself; start another one to measure one".into());
    }
    match process::status(pid).ok().map(|s| s.tgid) {
        Some(leader) if leader != 0 && leader != pid => refused(format!(
            "it is a thread of process {leader}; measure that (-p {leader}), `wallscope report \
             --thread NAME` then shows threads of one name"
        )),
        _ => Ok(()),
    }
}

/// Looks up the processes and cgroups that `target` means; `held`: the command, if it is one.
///
/// # Errors
/// There is no such process or cgroup, or it may not be watched.
pub(crate) fn resolve_target(
    target: &Target,
    held: Option<&Held>,
) -> Result<ResolvedTarget, Error> {
    let mut chosen = ResolvedTarget {
        pids: Vec::new(),
        cgroups: Vec::new(),
        watch: Vec::new(),
    };
    match target {
        Target::Pids(pids) => {
            for pid in pids {
                only_others(*pid)?;
                let process = watch(*pid)?;
                if has_ended(&process) {
                    return Err(Error::NoSuchProcess { pid: *pid });
                }
                chosen.watch.push(process);
            }
            chosen.pids = with_descendants(pids);
        }
        Target::Command(_) => {
            let pid = held.map(Held::pid).unwrap_or_default();
            chosen.watch.push(watch(pid)?);
            chosen.pids.push(pid);
        }
        Target::Cgroup(path) => {
            let group = cgroup::find(path).map_err(|e| Error::NoSuchCgroup {
                path: path.display().to_string(),
                why: match e {
                    CgroupError::NotFound { .. } => {
                        "no group of processes is there, nor below a mounted hierarchy; \
                         `systemd-cgls`, or `find /sys/fs/cgroup -name cgroup.procs`, lists them"
                            .into()
                    }
                    e => e.to_string(),
                },
            })?;
            (chosen.cgroups, chosen.pids) = cgroup_members(&group.dir)?;
        }
        Target::All => {
            chosen.pids = process::processes()
                .map_err(|e| Error::io("cannot list the machine's processes", e))?;
            chosen.pids.retain(|pid| *pid != std::process::id());
        }
    }
    Ok(chosen)
}
