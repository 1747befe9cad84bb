//! Cgroup paths: runtime, container, pod and unit of a process.
//!
//! Runtimes name groups in a few forms, with the driver `systemd` (`docker-ID.scope`) or `cgroupfs`
//! (`/docker/ID`), below any number of groups of others. The innermost part that has a meaning counts,
//! since containers run in containers.

/// Digits of a container's id that labels hold, as `docker ps` shows them.
const SHORT_ID: usize = 12;
/// Length of a container's id.
const ID: usize = 64;

/// Meaning of a cgroup path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMeaning {
    /// Container runtime: `docker`, `containerd`, `crio`, `podman`, `lxc`, `nspawn`.
    pub runtime: Option<&'static str>,
    /// Container id, shortened; the name for `lxc` and `nspawn`.
    pub container: Option<String>,
    /// Uid of the Kubernetes pod.
    pub pod: Option<String>,
    /// Systemd unit.
    pub unit: Option<String>,
}

impl CgroupMeaning {
    /// The service that the unit stands for: `postgresql` for `postgresql@15-main.service`. Units that
    /// hold a login session's programs are none.
    pub fn service(&self) -> Option<String> {
        if self.container.is_some() || self.pod.is_some() {
            return None;
        }
        let name = self.unit.as_deref()?.strip_suffix(".service")?;
        let name = name.split('@').next()?;
        (name != "user" && !name.is_empty()).then(|| name.to_string())
    }
}

/// The most specific path in `/proc/PID/cgroup`: of version 2, of the hierarchy of systemd, or of the
/// CPU controller; the longest of these.
pub fn path_of(proc_pid_cgroup: &str) -> String {
    let memberships = wallscope_procfs::cgroup::parse_memberships(proc_pid_cgroup);
    let tells = |c: &[String]| {
        c.is_empty()
            || c.iter()
                .any(|c| c == "name=systemd" || c == "cpu" || c == "memory")
    };
    let told = memberships.into_iter().filter(|m| tells(&m.controllers));
    told.map(|m| m.path)
        .max_by_key(String::len)
        .unwrap_or_default()
}

/// The meaning of a cgroup path.
pub fn place(path: &str) -> CgroupMeaning {
    let mut place = CgroupMeaning::default();
    let mut parent = "";
    for part in path.split('/').filter(|p| !p.is_empty()) {
        read_part(&mut place, parent, part);
        parent = part;
    }
    place
}

fn read_part(place: &mut CgroupMeaning, parent: &str, part: &str) {
    let (head, tail) = part.split_once(':').unwrap_or((part, ""));
    if let Some(uid) = pod_uid(head) {
        // A pod within a container (kind): the inner one counts.
        *place = CgroupMeaning {
            pod: Some(uid),
            ..CgroupMeaning::default()
        };
        if tail.is_empty() {
            return;
        }
    }
    if let Some((runtime, container)) = container(parent, part, place.pod.is_some()) {
        place.runtime = runtime;
        place.container = Some(container);
        place.unit = None;
        return;
    }
    if is_unit(part) {
        place.unit = Some(unescaped(part));
    }
}

/// The runtime and id of a group that is a container.
fn container(parent: &str, part: &str, in_pod: bool) -> Option<(Option<&'static str>, String)> {
    const SCOPES: [(&str, &str); 6] = [
        ("docker-", "docker"),
        ("cri-containerd-", "containerd"),
        ("nerdctl-", "containerd"),
        ("crio-", "crio"),
        ("libpod-", "podman"),
        ("podman-", "podman"),
    ];
    const PARENTS: [(&str, &str); 6] = [
        ("docker", "docker"),
        ("containerd", "containerd"),
        ("default", "containerd"),
        ("k8s.io", "containerd"),
        ("libpod_parent", "podman"),
        ("actions_job", "docker"),
    ];
    let short = |id: &str| id[..SHORT_ID].to_string();
    let stem = part.strip_suffix(".scope").unwrap_or(part);
    for (prefix, runtime) in SCOPES {
        if let Some(id) = stem.strip_prefix(prefix).filter(|id| is_id(id)) {
            return Some((Some(runtime), short(id)));
        }
    }
    // Containerd's own form with the systemd driver and no pod: `SLICE:PREFIX:ID`.
    if let Some((rest, id)) = part.rsplit_once(':').filter(|(_, id)| is_id(id)) {
        let runtime = if rest.contains("crio") {
            "crio"
        } else {
            "containerd"
        };
        return Some((Some(runtime), short(id)));
    }
    if is_id(part) {
        let known = PARENTS.iter().find(|(p, _)| *p == parent);
        return match (known, in_pod) {
            (Some((_, runtime)), _) => Some((Some(runtime), short(part))),
            // The driver `cgroupfs` does not say which runtime it is.
            (None, true) => Some((None, short(part))),
            (None, false) => None,
        };
    }
    let nspawn = part
        .strip_prefix("systemd-nspawn@")
        .and_then(|n| n.strip_suffix(".service"));
    if let Some(name) = nspawn {
        return Some((Some("nspawn"), unescaped(name)));
    }
    let lxc = part
        .strip_prefix("lxc.payload.")
        .or((parent == "lxc").then_some(part));
    lxc.map(|name| (Some("lxc"), name.to_string()))
}

fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The pod's uid in a group's name: `pod1f0c…`, `kubepods-burstable-pod1f0c_….slice`.
fn pod_uid(part: &str) -> Option<String> {
    let stem = part.strip_suffix(".slice").unwrap_or(part);
    let uid = match stem.strip_prefix("pod") {
        Some(uid) => uid,
        None if stem.contains("kubepods") => stem.rsplit_once("-pod")?.1,
        None => return None,
    };
    let uid = uid.replace('_', "-");
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let plain = uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    // A static pod has the hash of its file, without dashes.
    (plain && digits == 32).then_some(uid)
}

/// Whether the group is a unit that a person could name.
fn is_unit(part: &str) -> bool {
    let is_service = part.ends_with(".service");
    let is_scope = part.ends_with(".scope") && part != "init.scope";
    is_service || is_scope || part.ends_with(".socket") || part.ends_with(".mount")
}

/// Undoes systemd's `\x2d`.
fn unescaped(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        out.push_str(before);
        let byte = after.get(..2).and_then(|d| u8::from_str_radix(d, 16).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[2..];
            }
            None => {
                out.push_str("\\x");
                rest = after;
            }
        }
    }
    out + rest
}
