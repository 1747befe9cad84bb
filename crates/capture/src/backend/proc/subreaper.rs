//! Processes whose parent ends before they are found, as daemons and what shells leave in the background.
//!
//! A search goes from parents to their children, and by `/proc` nobody else tells of these. Of a command that we
//! have started we are the parent: a process may ask that what its descendants leave behind becomes its own
//! children (`PR_SET_CHILD_SUBREAPER`, any user may), so that it finds them there. When we end they are
//! the first process's children, as they would have been.

use wallscope_procfs::process;

use super::target_tracker::children_of;

/// The children that fall to us, as long as this lives.
pub struct Subreaper {
    /// The command itself, of which others ask how it ended.
    command: u32,
}

impl Subreaper {
    /// From now on, of a command that has been started; `None`: that is refused.
    pub fn of(command: u32) -> Option<Subreaper> {
        ask(true).ok().map(|()| Subreaper { command })
    }

    /// Processes that exist.
    pub fn living(&self) -> Vec<u32> {
        let own = std::process::id();
        let threads = process::threads(own).unwrap_or_default();
        let mut children: Vec<u32> = threads
            .into_iter()
            .flat_map(|tid| children_of(own, tid))
            .filter(|pid| *pid != self.command)
            .collect();
        children.retain(|pid| !is_over(*pid));
        children
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        let _ = ask(false);
    }
}

fn ask(wanted: bool) -> rustix::io::Result<()> {
    rustix::process::set_child_subreaper(wanted.then(rustix::process::getpid))
}

/// Whether a child has ended, which is asked for here, as nobody else does.
fn is_over(pid: u32) -> bool {
    let over = process::stat(pid).is_ok_and(|s| s.state == 'Z');
    if let (true, Some(pid)) = (over, rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    }
    over
}
