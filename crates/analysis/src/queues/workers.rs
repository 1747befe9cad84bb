//! Processes that serve together: workers that one program has forked, distinguished by their titles.
//!
//! Programs with forked workers write each worker's task into its command line, as `setproctitle(3)` does:
//! `postgres: checkpointer`, `nginx: worker process`, `php-fpm: pool www`. Workers with one parent, one executable
//! and one role are one pool. Without a title they are one if their parent runs the same executable: then they
//! were forked, not started. A role holds no name of a user, a database or a host, so that clients do not
//! part workers of one kind.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use wallscope_model::{Process, Recording};

/// Processes that share one server or pool for their threads of one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// A process by itself.
    Process(u32),
    /// Workers of a parent.
    Workers {
        /// The parent's process id.
        parent: u32,
        /// Their executable.
        exe: Arc<str>,
        /// Their role; `None`: no title.
        role: Option<String>,
    },
}

/// The processes of a recording.
pub(super) struct Workers<'r> {
    by_pid: HashMap<u32, &'r Process>,
}

impl<'r> Workers<'r> {
    /// Those of `rec`.
    pub fn of(rec: &'r Recording) -> Workers<'r> {
        Workers {
            by_pid: rec.processes.iter().map(|p| (p.pid, p)).collect(),
        }
    }

    /// The processes with which process `pid` serves.
    pub fn scope(&self, pid: u32) -> Scope {
        let Some(process) = self.by_pid.get(&pid).filter(|p| p.parent != 0) else {
            return Scope::Process(pid);
        };
        let role = role(process);
        let parent = self.by_pid.get(&process.parent);
        let is_forked = parent.is_some_and(|p| !p.exe.is_empty() && p.exe == process.exe);
        match is_forked || role.is_some() {
            true => Scope::Workers {
                parent: process.parent,
                exe: process.exe.clone(),
                role,
            },
            false => Scope::Process(pid),
        }
    }

    /// The name of a queue for threads called `name`, in processes `pids` of `scope`, by their role or parent;
    /// `None`: neither is known.
    pub fn role_name(
        &self,
        name: &Arc<str>,
        scope: &Scope,
        pids: &BTreeSet<u32>,
    ) -> Option<Arc<str>> {
        let count = pids.len();
        let role = match scope {
            Scope::Workers { role, .. } => role.clone(),
            Scope::Process(pid) => self.by_pid.get(pid).and_then(|p| role(p)),
        };
        match (role, scope) {
            (Some(role), _) if count > 1 => {
                Some(format!("{name} ×{count} ({})", plural(&role)).into())
            }
            (Some(role), _) => Some(format!("{name} ({role})").into()),
            (None, Scope::Workers { parent, .. }) if count > 1 => {
                Some(format!("{name} ×{count} (forked by process {parent})").into())
            }
            (None, _) => None,
        }
    }
}

/// The name of a queue among others of that name.
pub fn process_name(name: &Arc<str>, pids: &BTreeSet<u32>) -> Arc<str> {
    let first = pids.first().copied().unwrap_or_default();
    format!("{name} (process {first})").into()
}

/// The role in a process's title, if it has one: `checkpointer` of `postgres: 15/main: checkpointer`.
fn role(process: &Process) -> Option<String> {
    let (program, title) = process.cmdline.split_once(": ")?;
    if program.contains(char::is_whitespace) {
        return None;
    }
    let words: Vec<&str> = title.split_whitespace().collect();
    // PostgreSQL's cluster name comes first, with a colon of its own.
    let cluster = words.iter().take(1).filter(|w| w.ends_with(':')).count();
    let words = &words[cluster..];
    // `parallel worker for PID 1234`: the rest names one of them.
    let is_general = |w: &&str| is_plain(w) && *w != "for";
    let role: Vec<&str> = words.iter().copied().take_while(is_general).collect();
    // PostgreSQL: USER DATABASE HOST(PORT) STATE, or [local] as the host.
    let is_client = words.get(2).is_some_and(|w| is_peer(w)) && words[0] != "walsender";
    match (is_client, &role[..]) {
        (true, _) => Some("client backend".into()),
        (false, []) => None,
        (false, ["walsender", ..]) => Some("walsender".into()),
        (false, role) => Some(role.join(" ")),
    }
}

/// Whether a word of a title may belong to a role: no number, path, address or bracket.
fn is_plain(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '_'))
}

/// `[local]`, `10.0.0.1(5432)`.
fn is_peer(word: &str) -> bool {
    word == "[local]" || (word.ends_with(')') && word.contains('('))
}

/// `client backends`, `worker processes`.
fn plural(role: &str) -> String {
    match role.ends_with('s') {
        true => format!("{role}es"),
        false => format!("{role}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, cmdline: &str) -> Process {
        Process {
            pid,
            parent,
            name: "postgres".into(),
            exe: "/usr/lib/postgresql/15/bin/postgres".into(),
            cmdline: cmdline.into(),
            ..Process::default()
        }
    }

    fn role_of(cmdline: &str) -> Option<String> {
        role(&process(1, 0, cmdline))
    }

    #[test]
    fn a_role_is_a_title_without_its_client() {
        for (title, expect) in [
            ("postgres: checkpointer ", Some("checkpointer")),
            (
                "postgres: 15/main: background writer ",
                Some("background writer"),
            ),
            (
                "postgres: test bench [local] SELECT",
                Some("client backend"),
            ),
            (
                "postgres: app-1 db2 10.0.0.7(51734) idle in transaction",
                Some("client backend"),
            ),
            (
                "postgres: main: app db 10.0.0.7(51734) idle",
                Some("client backend"),
            ),
            (
                "postgres: walsender repl 10.0.0.9(5000) streaming 0/3000060",
                Some("walsender"),
            ),
            (
                "postgres: parallel worker for PID 1234 ",
                Some("parallel worker"),
            ),
            ("nginx: worker process", Some("worker process")),
            (
                "nginx: master process /usr/sbin/nginx -g daemon off;",
                Some("master process"),
            ),
            ("/usr/lib/postgresql/15/bin/postgres -D /var/lib/data", None),
            ("python3 -c print('a: b')", None),
            ("postgres: ", None),
            ("", None),
        ] {
            assert_eq!(role_of(title).as_deref(), expect, "{title}");
        }
    }

    #[test]
    fn workers_of_one_parent_and_role_are_one_pool() {
        let rec = Recording {
            processes: vec![
                process(10, 1, "/usr/lib/postgresql/15/bin/postgres -D /data"),
                process(11, 10, "postgres: checkpointer "),
                process(12, 10, "postgres: a b [local] SELECT"),
                process(13, 10, "postgres: c d 10.0.0.7(4242) idle"),
                process(14, 10, "/usr/lib/postgresql/15/bin/postgres -D /data"),
                process(15, 10, "/usr/lib/postgresql/15/bin/postgres -D /data"),
                // Another server of the same program.
                process(22, 20, "postgres: a b [local] SELECT"),
            ],
            ..Recording::default()
        };
        let workers = Workers::of(&rec);
        assert_eq!(workers.scope(10), Scope::Process(10));
        assert_eq!(workers.scope(12), workers.scope(13));
        assert_eq!(workers.scope(14), workers.scope(15));
        assert_ne!(workers.scope(12), workers.scope(11));
        assert_ne!(workers.scope(12), workers.scope(22));
        assert_eq!(workers.scope(99), Scope::Process(99));
        let name = |pids: &[u32]| {
            let pids: BTreeSet<u32> = pids.iter().copied().collect();
            let scope = workers.scope(*pids.first().unwrap());
            let name = "postgres".into();
            let of_role = workers.role_name(&name, &scope, &pids);
            of_role
                .unwrap_or_else(|| process_name(&name, &pids))
                .to_string()
        };
        assert_eq!(name(&[12, 13]), "postgres ×2 (client backends)");
        assert_eq!(name(&[11]), "postgres (checkpointer)");
        assert_eq!(name(&[14, 15]), "postgres ×2 (forked by process 10)");
        assert_eq!(name(&[14]), "postgres (process 14)");
        assert_eq!(name(&[10]), "postgres (process 10)");
    }
}
