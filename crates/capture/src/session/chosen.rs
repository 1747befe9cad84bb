//! Whom a target means at the moment at which measuring begins.

use std::os::fd::OwnedFd;

use wallscope_object::{cgroup, process};

use crate::{
    Error,
    target::{Held, Target, cgroup_members, watch, with_descendants},
};

/// Whom the target means, now.
pub(crate) struct Chosen {
    /// Processes.
    pub pids: Vec<u32>,
    /// Cgroups, by id: whoever comes into them is meant too.
    pub cgroups: Vec<u64>,
    /// Processes whose end ends the recording.
    pub watch: Vec<OwnedFd>,
}

/// Looks up whom `target` means; `held`: the command, if it is one.
///
/// # Errors
/// There is no such process or cgroup, or it may not be watched.
pub(crate) fn choose(target: &Target, held: Option<&Held>) -> Result<Chosen, Error> {
    let mut chosen = Chosen {
        pids: Vec::new(),
        cgroups: Vec::new(),
        watch: Vec::new(),
    };
    match target {
        Target::Pids(pids) => {
            for pid in pids {
                chosen.watch.push(watch(*pid)?);
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
                why: e.to_string(),
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
