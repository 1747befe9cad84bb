//! Settings of the host and of this process that explain the outcomes of the attempts.

use std::{fs, io};
use wallscope_procfs::kernel_file;

/// A setting and its present value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name as an operator knows it.
    pub name: &'static str,
    /// Its value in words.
    pub value: String,
}

/// Capabilities that matter here, by bit.
const CAPABILITIES: [(u32, &str); 6] = [
    (21, "CAP_SYS_ADMIN"),
    (19, "CAP_SYS_PTRACE"),
    (34, "CAP_SYSLOG"),
    (24, "CAP_SYS_RESOURCE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];

/// Reads all settings; the value of an unreadable setting says so.
pub fn settings() -> Vec<Setting> {
    let sysctl = |path: &str| {
        kernel_file::read_to_string(format!("/proc/sys/kernel/{path}"))
            .map_or_else(|_| "not there".to_owned(), |v| v.trim().to_owned())
    };
    let status = kernel_file::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |key: &str| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(key))
            .map_or("", str::trim)
    };
    let effective = u64::from_str_radix(line("CapEff:"), 16).unwrap_or(0);
    let held: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    let uid = rustix::process::geteuid().as_raw();
    let setting = |name, value: String| Setting { name, value };
    vec![
        setting(
            "kernel",
            rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
        ),
        setting(
            "user",
            if uid == 0 {
                "root".into()
            } else {
                format!("uid {uid}")
            },
        ),
        setting(
            "capabilities",
            if held.is_empty() {
                "none of those that help".into()
            } else {
                held.join(", ")
            },
        ),
        setting("perf_event_paranoid", sysctl("perf_event_paranoid")),
        setting("perf_event_mlock_kb", sysctl("perf_event_mlock_kb")),
        setting("yama.ptrace_scope", sysctl("yama/ptrace_scope")),
        setting("kptr_restrict", sysctl("kptr_restrict")),
        setting(
            "unprivileged_bpf_disabled",
            sysctl("unprivileged_bpf_disabled"),
        ),
        setting(
            "seccomp",
            match line("Seccomp:") {
                "0" => "no filter".into(),
                "1" => "strict".into(),
                "2" => "a filter".into(),
                _ => "not known".into(),
            },
        ),
        setting(
            "lockdown",
            kernel_file::read_to_string("/sys/kernel/security/lockdown")
                .ok()
                .and_then(|t| Some(t.split_once('[')?.1.split_once(']')?.0.to_owned()))
                .unwrap_or_else(|| "not there".into()),
        ),
        setting("user namespace", user_namespace()),
        setting("container", container()),
    ]
}

/// Whether this is the host's user namespace: only there do capabilities count for the whole kernel.
pub(super) fn is_first_user_namespace() -> bool {
    let map = kernel_file::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

fn user_namespace() -> String {
    if is_first_user_namespace() {
        "the first one".into()
    } else {
        "not the first one: its root is not the host's".into()
    }
}

fn container() -> String {
    let marks = [
        ("/.dockerenv", "docker"),
        ("/run/.containerenv", "podman"),
        ("/var/run/secrets/kubernetes.io", "kubernetes"),
    ];
    let found = marks.iter().find(|(path, _)| fs::metadata(path).is_ok());
    match found {
        Some((_, name)) => (*name).into(),
        None => std::env::var("container").unwrap_or_else(|_| "none that shows".into()),
    }
}

/// Whether `/proc` belongs to our own pid namespace.
///
/// # Errors
/// It does not show us under our own id, or is not there.
pub fn proc_is_ours() -> io::Result<()> {
    let named = fs::read_link("/proc/self")?;
    if named.as_os_str() == std::process::id().to_string().as_str() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it is that of another pid namespace: there we are {}, here {}",
        named.display(),
        std::process::id()
    )))
}
