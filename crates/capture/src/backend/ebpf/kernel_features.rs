//! Features of the running kernel that the eBPF backend uses, found in its BTF and not by its version; and the
//! meaning of a refusal, in words.

use std::{collections::HashSet, fs, io};

use libbpf_rs::btf::{
    Btf, HasSize as _, ReferencesType as _,
    types::{Func, FuncProto, Ptr, Struct, Typedef},
};

use crate::{Error, host_capabilities::attempts};

/// How user stacks of blocked threads are read: see `bpf/deferred_user_stack.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Mechanism {
    /// The thread reads its stack itself before it returns to user mode (Linux 6.18)
    TaskWork,
    /// The thread reads its stack itself, in an interrupt right after it was switched to
    Interrupt,
}

/// The kernel, as far as the programs depend on it.
#[derive(Clone, Debug)]
pub struct KernelFeatures {
    /// `uname -r` and the architecture.
    pub release: String,
    /// `sched_switch` passes the previous task's state (5.18).
    pub switch_has_prev_state: bool,
    /// The clock of tasks leaves interrupt time out (`CONFIG_IRQ_TIME_ACCOUNTING`).
    pub clock_leaves_irq_out: bool,
    /// Task work can be scheduled from programs (6.18).
    pub task_work: bool,
    /// A used-up quota throttles all tasks of a group at once (before 6.18), not each on its way to user mode.
    pub throttles_groups: bool,
    /// Hash maps that allocate as they go may be used from timers (6.1).
    maps_allocate: bool,
    /// Many uprobes can be placed at once (6.6).
    pub uprobe_multi: bool,
    tracepoints: HashSet<String>,
}

impl KernelFeatures {
    /// Reads the running kernel's BTF.
    ///
    /// # Errors
    /// There is no BTF, or processes have other ids here than in the kernel's programs.
    pub fn inspect() -> Result<KernelFeatures, Error> {
        attempts::first_pid_namespace().map_err(|e| Error::NotPermitted {
            what: "eBPF programs see other process ids".into(),
            why: e.to_string(),
            remedy: attempts::PID_REMEDY.into(),
        })?;
        let uname = rustix::system::uname();
        let release = format!(
            "{} {}",
            uname.release().to_string_lossy(),
            uname.machine().to_string_lossy()
        );
        if fs::metadata("/sys/kernel/btf/vmlinux").is_err() {
            return Err(Error::NotSupported {
                what: "BTF (/sys/kernel/btf/vmlinux)".into(),
                release,
                remedy: "the eBPF backend needs a kernel built with CONFIG_DEBUG_INFO_BTF=y, as \
                         those of all large distributions since 2021 are"
                    .into(),
            });
        }
        let btf = Btf::from_vmlinux().map_err(Error::bpf("cannot read the kernel's BTF"))?;
        let tracepoints = btf
            .type_by_kind::<Typedef<'_>>()
            .filter_map(|t| Some(t.name()?.to_str()?.strip_prefix("btf_trace_")?.to_owned()))
            .collect();
        let switch_arguments = btf
            .type_by_name::<Typedef<'_>>("btf_trace_sched_switch")
            .and_then(|t| Ptr::try_from(t.skip_mods_and_typedefs()).ok())
            .and_then(|p| FuncProto::try_from(p.referenced_type().skip_mods_and_typedefs()).ok())
            .map_or(0, |p| p.iter().count());
        let irq = btf.type_by_name::<Struct<'_>>("rq").is_some_and(|rq| {
            rq.size() > 0
                && rq
                    .iter()
                    .any(|m| m.name.is_some_and(|n| n == "prev_irq_time"))
        });
        let throttled =
            |task: Struct<'_>| (task.iter()).any(|m| m.name.is_some_and(|n| n == "throttled"));
        let throttles_groups = !btf
            .type_by_name::<Struct<'_>>("task_struct")
            .is_some_and(throttled);
        let task_work = can_schedule_task_work(|name| arguments_of(&btf, name));
        let uprobe_multi = btf
            .type_by_name::<Struct<'_>>("bpf_uprobe_multi_link")
            .is_some();
        Ok(KernelFeatures {
            uprobe_multi,
            release,
            switch_has_prev_state: switch_arguments >= 5,
            clock_leaves_irq_out: irq,
            task_work,
            throttles_groups,
            maps_allocate: btf.type_by_name::<Struct<'_>>("bpf_mem_alloc").is_some(),
            tracepoints,
        })
    }

    /// Returns itself if the kernel has every feature that the backend cannot do without.
    ///
    /// # Errors
    /// It is too old.
    pub fn with_all_that_is_needed(self) -> Result<KernelFeatures, Error> {
        let needed = [
            (
                self.tracepoints.contains("sched_switch"),
                "hooks of the scheduler with types",
            ),
            (
                self.switch_has_prev_state,
                "sched_switch with the previous state (5.18)",
            ),
            (self.maps_allocate, "maps that allocate in interrupts (6.1)"),
            (
                self.task_work || self.has_hook("ws_irq_work"),
                "a hook of the CPU's interrupts by itself (irq_work_entry)",
            ),
        ];
        match needed.into_iter().find(|(there, _)| !there) {
            None => Ok(self),
            Some((_, what)) => Err(Error::NotSupported {
                what: what.into(),
                release: self.release,
                remedy: "the ebpf backend needs Linux 6.1 or later; --backend perf and proc do \
                         without"
                    .into(),
            }),
        }
    }

    /// The better of the mechanisms that this kernel offers.
    pub fn mechanism(&self) -> Mechanism {
        if self.task_work {
            Mechanism::TaskWork
        } else {
            Mechanism::Interrupt
        }
    }

    /// Whether the hook that program `name` attaches to exists here.
    pub fn has_hook(&self, name: &str) -> bool {
        let tracepoint = match name {
            "ws_cgroup_attach" => "cgroup_attach_task",
            "ws_cgroup_mkdir" => "cgroup_mkdir",
            "ws_irq_work" => "irq_work_entry",
            "ws_fault" => "mm_filemap_fault",
            "ws_migrate" => "sched_migrate_task",
            "ws_sent" => "sock_send_length",
            "ws_received" => "sock_recv_length",
            "ws_sock_state" => "inet_sock_set_state",
            "ws_irq_entry" => "irq_handler_entry",
            "ws_irq_exit" => "irq_handler_exit",
            "ws_softirq_entry" => "softirq_entry",
            "ws_softirq_exit" => "softirq_exit",
            "ws_timer_entry" => "local_timer_entry",
            "ws_timer_exit" => "local_timer_exit",
            "ws_room" => "vm_unmapped_area",
            "ws_timer_set" => "hrtimer_start",
            _ => return true,
        };
        self.tracepoints.contains(tracepoint)
    }

    /// Turns a failure to load into a remedy for the operator.
    /// `complaint`: libbpf's message.
    pub fn explain_load_failure(&self, e: libbpf_rs::Error, complaint: &str) -> Error {
        // The verifier reports the same error for a program that it rejects. A program that is always valid tells
        // whether we lack the privilege.
        if e.kind() == libbpf_rs::ErrorKind::PermissionDenied
            && attempts::bpf_at_scheduler().is_err()
        {
            return Error::NotPermitted {
                what: "eBPF (loading the kernel programs)".into(),
                why: io::Error::from_raw_os_error(libc::EPERM).to_string(),
                remedy: "run as root, or with CAP_BPF and CAP_PERFMON (in a container: \
                         --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE, and a seccomp \
                         profile that permits bpf)"
                    .into(),
            };
        }
        Error::Bpf {
            what: format!("kernel {} refuses the programs ({complaint})", self.release),
            cause: e,
        }
    }
}

/// How many arguments the kernel's function `name` has, if there is one.
fn arguments_of(btf: &Btf<'_>, name: &str) -> Option<usize> {
    let function = btf.type_by_name::<Func<'_>>(name)?;
    let prototype = FuncProto::try_from(function.referenced_type()).ok()?;
    Some(prototype.iter().count())
}

/// Whether programs can schedule task work, by one of the two calls that `bpf/deferred_user_stack.h` knows.
///
/// In Linux 6.18 the function has five arguments and a name that ends in `_impl`. From 7.0 on the
/// verifier adds the fifth argument to the function without that suffix; the `_impl` function exists,
/// but programs may not call it. Older tools write the type information of some 7.0 kernels with five
/// arguments for the function without the suffix: these kernels refuse both ways to call it.
fn can_schedule_task_work(arguments_of: impl Fn(&str) -> Option<usize>) -> bool {
    match arguments_of("bpf_task_work_schedule_resume") {
        Some(arguments) => arguments == 4,
        None => arguments_of("bpf_task_work_schedule_resume_impl") == Some(5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_work_by_the_arguments_that_kernels_have() {
        let kernel = |plain: Option<usize>, inner: Option<usize>| {
            can_schedule_task_work(|name| {
                if name.ends_with("_impl") {
                    inner
                } else {
                    plain
                }
            })
        };
        // As read from the type information of Debian's and Ubuntu's kernels.
        assert!(!kernel(None, None), "6.1 to 6.17");
        assert!(kernel(None, Some(5)), "6.18");
        assert!(
            kernel(Some(4), Some(5)),
            "7.0 of Ubuntu 26.04, 7.3 of Debian"
        );
        assert!(!kernel(Some(5), None), "7.0 for Ubuntu 24.04");
    }

    #[test]
    fn this_kernel() {
        match KernelFeatures::inspect() {
            Ok(k) => {
                assert!(k.tracepoints.contains("sched_switch"), "{}", k.release);
                assert!(k.has_hook("ws_switch"));
            }
            Err(e) => println!("skipped: {e}"),
        }
    }
}
