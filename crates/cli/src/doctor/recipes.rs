//! How to give the least rights that are enough, ready to paste.
//!
//! Statements about container runtimes come from their own profiles and checks. Commands for this host
//! follow from its settings: no pasted line fails, and none takes a right away that is there.

use wallscope_capture::host_capabilities::Setting;

/// Where rights are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Recipe {
    /// `docker run`
    Docker,
    /// A Kubernetes pod
    K8s,
    /// Settings of the kernel, for ordinary users
    Sysctl,
    /// Capabilities of the program file
    Setcap,
}

impl Recipe {
    /// The recipe for a host with `settings`; `program` is the path of wallscope itself.
    pub(super) fn text(self, settings: &[Setting], program: &str) -> String {
        match self {
            Recipe::Docker => DOCKER.to_owned(),
            Recipe::K8s => K8S.to_owned(),
            Recipe::Sysctl => sysctl(settings),
            Recipe::Setcap => setcap(program),
        }
    }
}

/// File capabilities for the ebpf backend, as `setcap` takes them.
const CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog+ep";

const DOCKER: &str = "\
# eBPF in a container that measures itself and its neighbours. Docker's own seccomp profile permits
# bpf, perf_event_open, ptrace and process_vm_readv to containers with these capabilities since Docker 23;
# before that, and with runtimes of which the profile refuses them: --security-opt seccomp=unconfined
# Where AppArmor is in force (Ubuntu, Debian) Docker's profile lets containers read each other's memory only:
# to measure processes outside of containers add --security-opt apparmor=unconfined
docker run --pid=host \\
  --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE --cap-add SYSLOG --cap-add CHECKPOINT_RESTORE \\
  -v /sys/kernel/btf:/sys/kernel/btf:ro IMAGE wallscope record -p PID

# Without any capability: measure what the container starts itself.
docker run IMAGE wallscope record -- CMD
";

const K8S: &str = "\
# eBPF, for the pod's processes and the node's: eBPF programs see the node's process ids, so the pod has to
# use them (hostPID). Where nodes have a seccomp profile that refuses these calls in spite of the capabilities,
# add seccompProfile: {type: Unconfined}; where AppArmor is in force, appArmorProfile: {type: Unconfined}.
# SETUID, SETGID, CHECKPOINT_RESTORE: a file that only its owner may read is read with the rights of the process
# that maps it. Without them, stacks through such a file are truncated.
spec:
  hostPID: true
  containers:
    - name: wallscope
      image: IMAGE
      securityContext:
        runAsUser: 0
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
          add: [BPF, PERFMON, SYS_PTRACE, SYSLOG, SETUID, SETGID, CHECKPOINT_RESTORE]
---
# Where hostPID is not permitted, the perf backend, for the pod's other containers only. A pod cannot have both
# hostPID and shareProcessNamespace.
spec:
  shareProcessNamespace: true
  containers:
    - name: wallscope
      image: IMAGE
      securityContext:
        runAsUser: 0
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
          add: [PERFMON, SYS_PTRACE, SYSLOG, SETUID, SETGID, CHECKPOINT_RESTORE]
";

/// The highest value of `perf_event_paranoid` at which users may measure their own processes.
const OWN_PROCESSES: i64 = 2;

fn sysctl(settings: &[Setting]) -> String {
    let value = |name: &str| {
        let setting = settings.iter().find(|s| s.name == name);
        setting.and_then(|s| s.value.parse::<i64>().ok())
    };
    let mut out = String::from(
        "# For ordinary users, until the next start; lines without `sudo sysctl -w` go to /etc/sysctl.d/ to stay.\n",
    );
    let mut row = |what: &str, key: &str, present: Option<i64>, enough: i64, without: &str| {
        out += &format!("# {what}:\n");
        out += &match present {
            Some(v) if v > enough => format!("sudo sysctl -w {key}={enough}\n"),
            Some(v) => format!("# nothing to do: {key} is {v}, and {enough} is enough\n"),
            None => format!("# nothing to do: {without}\n"),
        };
    };
    row(
        "Perf events of own processes",
        "kernel.perf_event_paranoid",
        value("perf_event_paranoid"),
        OWN_PROCESSES,
        "this kernel has no perf events, or hides its setting",
    );
    row(
        "Reading own processes that wallscope did not start (-p)",
        "kernel.yama.ptrace_scope",
        value("yama.ptrace_scope"),
        0,
        "this kernel has no Yama, which is what would refuse it",
    );
    out
}

fn setcap(program: &str) -> String {
    format!(
        "\
# eBPF without root, for all users that may run this file:
sudo setcap {CAPABILITIES} {}
# cap_bpf and cap_perfmon alone measure, but neither read other users' memory nor name the kernel's
# functions. Stacks of another user's process are truncated at a file that only that user may read.
# Files on file systems mounted with nosuid keep no capabilities. Undo: sudo setcap -r FILE
",
        quoted(program)
    )
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(paranoid: &str, yama: &str) -> Vec<Setting> {
        [
            ("perf_event_paranoid", paranoid),
            ("yama.ptrace_scope", yama),
        ]
        .map(|(name, value)| Setting {
            name,
            value: value.into(),
        })
        .into()
    }

    /// Lines that are no comments.
    fn commands(text: &str) -> Vec<&str> {
        text.lines().filter(|l| !l.starts_with('#')).collect()
    }

    #[test]
    fn settings_are_changed_only_where_they_refuse() {
        let of = |paranoid, yama| Recipe::Sysctl.text(&settings(paranoid, yama), "");
        let both = of("4", "1");
        assert_eq!(
            commands(&both),
            [
                "sudo sysctl -w kernel.perf_event_paranoid=2",
                "sudo sysctl -w kernel.yama.ptrace_scope=0"
            ]
        );
        // Where a key is not there, sysctl fails; where more is allowed, it would be taken away.
        assert_eq!(commands(&of("2", "not there")), [""; 0]);
        assert_eq!(commands(&of("-1", "0")), [""; 0]);
        assert!(of("-1", "0").contains("kernel.perf_event_paranoid is -1"));
        assert!(of("2", "not there").contains("no Yama"));
    }

    #[test]
    fn a_pod_has_the_nodes_process_ids_or_those_of_its_containers() {
        let text = Recipe::K8s.text(&[], "");
        let pods: Vec<_> = text.split("---\n").map(commands).collect();
        assert_eq!(pods.len(), 2);
        for pod in pods {
            let has = |what: &str| pod.iter().any(|l| l.trim_start().starts_with(what));
            assert!(has("hostPID: true") != has("shareProcessNamespace: true"));
            // Kernel programs see the node's ids: without those, the right to load them gives nothing.
            let bpf = pod.iter().any(|l| l.contains("add: [BPF,"));
            assert_eq!(bpf, has("hostPID: true"));
        }
    }

    #[test]
    fn capabilities_go_to_the_file_that_runs() {
        let text = Recipe::Setcap.text(&[], "/opt/it's here/wallscope");
        let command = commands(&text)[0];
        assert!(command.starts_with("sudo setcap cap_bpf,"), "{command}");
        assert!(
            command.ends_with(r"+ep '/opt/it'\''s here/wallscope'"),
            "{command}"
        );
    }
}
