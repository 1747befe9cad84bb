//! Control groups: which ones a process is in, and which processes are in one.
//!
//! Reads version 1 (one hierarchy for each controller), version 2 (one for all), and hosts that
//! mount both. Paths in `/proc/PID/cgroup` are relative to a hierarchy; `/proc/self/mountinfo` says
//! where the hierarchy is mounted, and which part of it: a container sees only its own part.

use crate::kernel_file;
use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Version, 1 or 2.
    pub version: u8,
    /// Its controllers for version 1 (`cpu`, `memory`…); empty for version 2.
    pub controllers: Vec<String>,
    /// The part of the hierarchy that is mounted.
    pub root: String,
    /// Directory of the mount.
    pub mount_point: PathBuf,
}

/// A group a process is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Controllers of the hierarchy; empty for version 2.
    pub controllers: Vec<String>,
    /// Path of the group within the hierarchy.
    pub path: String,
}

/// The directory of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Version of its hierarchy, 1 or 2.
    pub version: u8,
    /// Path within the hierarchy.
    pub path: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Mount point of its hierarchy: the topmost ancestor that can be seen.
    pub mount_point: PathBuf,
}

impl Group {
    /// The directories of this group and its ancestors, from inside out.
    pub fn lineage(&self) -> impl Iterator<Item = &Path> {
        self.dir
            .ancestors()
            .take_while(|d| d.starts_with(&self.mount_point))
    }
}

/// Reason for which a group that the user named cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// Nothing there.
    #[error(
        "no cgroup {path:?}: it is neither a directory under {mounts} nor a path within one; \
         list the groups with: find {mounts} -name cgroup.procs"
    )]
    NotFound {
        /// The requested path.
        path: PathBuf,
        /// Mount points of the hierarchies, separated by blanks.
        mounts: String,
    },
    /// This host shows no hierarchy.
    #[error(
        "no cgroup hierarchy is mounted here; mount one with: mount -t cgroup2 none /sys/fs/cgroup"
    )]
    NoHierarchy,
    /// It exists and cannot be read.
    #[error("cgroup {path:?} cannot be read: {source}")]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Parses `mountinfo`: the mounted hierarchies.
pub fn parse_mounts(text: &str) -> Vec<Hierarchy> {
    text.lines().filter_map(parse_mount).collect()
}

fn parse_mount(line: &str) -> Option<Hierarchy> {
    let (head, tail) = line.split_once(" - ")?;
    let mut fields = head.split(' ').skip(3);
    let (root, mount_point) = (fields.next()?, fields.next()?);
    let mut fields = tail.split(' ');
    let version = match fields.next()? {
        "cgroup" => 1,
        "cgroup2" => 2,
        _ => return None,
    };
    let options = fields.nth(1)?;
    let controllers = if version == 1 {
        options
            .split(',')
            .filter(|o| !matches!(*o, "rw" | "ro"))
            .map(str::to_owned)
            .collect()
    } else {
        Vec::new()
    };
    Some(Hierarchy {
        version,
        controllers,
        root: unescape(root),
        mount_point: PathBuf::from(unescape(mount_point)),
    })
}

/// Undoes the kernel's `\040` for blanks and the like.
fn unescape(field: &str) -> String {
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = field
            .get(at + 1..at + 4)
            .filter(|_| bytes[at] == b'\\')
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        out.push(octal.unwrap_or(bytes[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Parses `/proc/PID/cgroup`.
pub fn parse_memberships(text: &str) -> Vec<Membership> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            Some(Membership {
                controllers: controllers
                    .split(',')
                    .filter(|c| !c.is_empty())
                    .map(str::to_owned)
                    .collect(),
                path: path.strip_suffix(" (deleted)").unwrap_or(path).to_owned(),
            })
        })
        .collect()
}

/// The hierarchies mounted here.
///
/// # Errors
/// The error of reading `/proc/self/mountinfo`.
pub fn hierarchies() -> io::Result<Vec<Hierarchy>> {
    let bytes = kernel_file::read("/proc/self/mountinfo")?;
    Ok(parse_mounts(&String::from_utf8_lossy(&bytes)))
}

/// The group of process `pid` that governs `controller` (`cpu`, `memory`). `None` where its
/// directory cannot be seen from here.
pub fn group_of(pid: u32, controller: &str) -> Option<Group> {
    let bytes = kernel_file::read(format!("/proc/{pid}/cgroup")).ok()?;
    let memberships = parse_memberships(&String::from_utf8_lossy(&bytes));
    locate(&hierarchies().ok()?, &memberships, controller).filter(|g| g.dir.is_dir())
}

/// Joins memberships and mounts to find the group that governs `controller`. A controller with a
/// hierarchy of its own (version 1) is governed there, any other by version 2.
pub fn locate(
    hierarchies: &[Hierarchy],
    memberships: &[Membership],
    controller: &str,
) -> Option<Group> {
    let has = |names: &[String]| names.iter().any(|c| c == controller);
    let pair = |version: u8| {
        let hierarchy = hierarchies
            .iter()
            .find(|h| h.version == version && (version == 2 || has(&h.controllers)))?;
        let membership = memberships.iter().find(|m| match version {
            1 => has(&m.controllers),
            _ => m.controllers.is_empty(),
        })?;
        Some((hierarchy, membership))
    };
    let (hierarchy, membership) = pair(1).or_else(|| pair(2))?;
    Some(Group {
        version: hierarchy.version,
        path: membership.path.clone(),
        dir: directory(hierarchy, &membership.path)?,
        mount_point: hierarchy.mount_point.clone(),
    })
}

/// The directory of `path` within `hierarchy`; `None` where it lies outside the mounted part.
fn directory(hierarchy: &Hierarchy, path: &str) -> Option<PathBuf> {
    let inner = Path::new(path)
        .strip_prefix(&hierarchy.root)
        .or_else(|_| Path::new(path).strip_prefix("/"))
        .ok()?;
    // A process outside our cgroup namespace shows as `/../x`: that is not below the mount.
    if inner.components().any(|c| c == Component::ParentDir) {
        return None;
    }
    Some(hierarchy.mount_point.join(inner))
}

/// Finds the group that the user named: a directory, or a path within a hierarchy (`/docker/abc`).
/// Hierarchies that count CPU time are tried first.
///
/// # Errors
/// [`CgroupError::NoHierarchy`] or [`CgroupError::NotFound`].
pub fn find(named: &Path) -> Result<Group, CgroupError> {
    let mut all = hierarchies().unwrap_or_default();
    if all.is_empty() {
        return Err(CgroupError::NoHierarchy);
    }
    all.sort_by_key(|h| match h.version {
        2 => 1,
        _ if h.controllers.iter().any(|c| c == "cpu") => 0,
        _ => 2,
    });
    let is_group = |dir: &Path| dir.join("cgroup.procs").exists();
    let full = std::fs::canonicalize(named).unwrap_or_else(|_| named.to_owned());
    if is_group(&full)
        && let Some(h) = all.iter().find(|h| full.starts_with(&h.mount_point))
    {
        return Ok(group_at(h, full));
    }
    let relative = named.strip_prefix("/").unwrap_or(named);
    if !relative.components().any(|c| c == Component::ParentDir) {
        for h in &all {
            let dir = h.mount_point.join(relative);
            if is_group(&dir) {
                return Ok(group_at(h, dir));
            }
        }
    }
    let mounts: Vec<_> = all
        .iter()
        .map(|h| h.mount_point.to_string_lossy())
        .collect();
    Err(CgroupError::NotFound {
        path: named.to_owned(),
        mounts: mounts.join(" "),
    })
}

fn group_at(hierarchy: &Hierarchy, dir: PathBuf) -> Group {
    let inner = dir
        .strip_prefix(&hierarchy.mount_point)
        .unwrap_or(Path::new(""));
    Group {
        version: hierarchy.version,
        path: Path::new("/").join(inner).to_string_lossy().into_owned(),
        dir,
        mount_point: hierarchy.mount_point.clone(),
    }
}

/// The processes in the group at `dir` and all groups below it, ascending, each once. Groups that
/// vanish meanwhile are left out; so are processes outside our pid namespace.
///
/// # Errors
/// [`CgroupError::Unreadable`] where `dir` itself cannot be read.
pub fn processes(dir: &Path) -> Result<Vec<u32>, CgroupError> {
    let mut pids = BTreeSet::new();
    let mut open = vec![dir.to_owned()];
    let mut first = true;
    while let Some(d) = open.pop() {
        match members(&d) {
            Ok(found) => pids.extend(found),
            Err(source) if first => {
                return Err(CgroupError::Unreadable { path: d, source });
            }
            Err(_) => continue,
        }
        first = false;
        let Ok(entries) = std::fs::read_dir(&d) else {
            continue;
        };
        open.extend(
            entries
                .flatten()
                .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
                .map(|e| e.path()),
        );
    }
    pids.remove(&0);
    Ok(pids.into_iter().collect())
}

fn members(dir: &Path) -> io::Result<Vec<u32>> {
    let procs = kernel_file::read_to_string(dir.join("cgroup.procs"));
    if let Ok(text) = &procs {
        return Ok(text.lines().filter_map(|l| l.parse().ok()).collect());
    }
    // Threaded groups of version 2 refuse `cgroup.procs`; their threads tell their processes.
    let Ok(text) = kernel_file::read_to_string(dir.join("cgroup.threads")) else {
        return procs.map(|_| Vec::new());
    };
    Ok(text
        .lines()
        .filter_map(|l| l.parse().ok())
        .filter_map(|tid| crate::process::status(tid).ok())
        .map(|s| s.tgid)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw,nsdelegate
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
";

    #[test]
    fn controllers_of_version_1_come_before_version_2() {
        let mounts = parse_mounts(MIXED);
        assert_eq!(mounts.len(), 3);
        let memberships =
            parse_memberships("4:memory:/app\n1:cpu,cpuacct:/web/a:b\n9:name=systemd:/\n0::/v2\n");
        let cpu = locate(&mounts, &memberships, "cpu").unwrap();
        assert_eq!((cpu.version, cpu.path.as_str()), (1, "/web/a:b"));
        assert_eq!(cpu.dir, Path::new("/sys/fs/cgroup/cpu,cpuacct/web/a:b"));
        let lineage: Vec<_> = cpu.lineage().collect();
        assert_eq!(lineage.len(), 3);
        assert_eq!(lineage[2], Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        let io = locate(&mounts, &memberships, "io").unwrap();
        assert_eq!(io.version, 2);
        assert_eq!(io.dir, Path::new("/sys/fs/cgroup/uni fied/v2"));
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let mounts = parse_mounts("1 2 0:3 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
        let inside = parse_memberships("0::/docker/abc/worker\n");
        let group = locate(&mounts, &inside, "cpu").unwrap();
        assert_eq!(group.dir, Path::new("/sys/fs/cgroup/worker"));
        let outside = parse_memberships("0::/../other\n");
        assert_eq!(locate(&mounts, &outside, "cpu"), None);
    }

    #[test]
    fn own_group_lists_this_process() {
        let pid = std::process::id();
        let Some(group) = group_of(pid, "cpu") else {
            println!("skipped: no cgroup hierarchy with this process in it is mounted here");
            return;
        };
        assert!(processes(&group.dir).unwrap().contains(&pid));
        let again = find(&group.dir).unwrap();
        assert_eq!(again.dir, group.dir.canonicalize().unwrap());
    }

    #[test]
    fn a_group_that_does_not_exist_is_named_in_the_error() {
        match find(Path::new("/no/such/group")) {
            Err(CgroupError::NotFound { path, .. }) => {
                assert_eq!(path, Path::new("/no/such/group"));
            }
            Err(CgroupError::NoHierarchy) => println!("skipped: no cgroup hierarchy here"),
            other => panic!("{other:?}"),
        }
    }
}
