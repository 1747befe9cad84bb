//! Cause and remedy of refused perf events.
//!
//! Three things may refuse them: the kernel's setting (`perf_event_paranoid`), a seccomp filter, as
//! containers have, and a security module. The caller gets the same error from each. The cause follows from
//! the setting, from whether this process has a filter, and from the number of the error. If the setting
//! allows them already, the remedy does not name it.

use std::io;
use wallscope_procfs::kernel_file;

use super::settings::is_first_user_namespace;

/// The highest value of `perf_event_paranoid` at which own processes may be measured.
const OWN: i32 = 2;

/// The restrictions on perf events in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfRestrictions {
    /// `perf_event_paranoid`; `None`: the kernel has no such setting.
    paranoid: Option<i32>,
    /// Whether this process is under a seccomp filter.
    filtered: bool,
    /// Whether this process is exempt from the setting (CAP_PERFMON or CAP_SYS_ADMIN).
    exempt: bool,
}

impl PerfRestrictions {
    /// Reads the restrictions on this process.
    pub fn now() -> PerfRestrictions {
        let paranoid = kernel_file::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
        let status = kernel_file::read_to_string("/proc/self/status").unwrap_or_default();
        let line = |key: &str| {
            let found = status.lines().find_map(|l| l.strip_prefix(key));
            found.map_or("", str::trim)
        };
        let effective = u64::from_str_radix(line("CapEff:"), 16).unwrap_or(0);
        let (admin, perfmon) = (21, 38);
        PerfRestrictions {
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            filtered: line("Seccomp:") == "2",
            exempt: (effective >> admin | effective >> perfmon) & 1 == 1
                && is_first_user_namespace(),
        }
    }

    /// The setting's value, in words.
    pub fn paranoid_in_words(self) -> String {
        self.paranoid
            .map_or_else(|| "not there".into(), |value| value.to_string())
    }

    /// Whether the setting refuses them.
    fn by_setting(self) -> bool {
        !self.exempt && self.paranoid.is_some_and(|value| value > OWN)
    }

    /// Why they are refused with `e`.
    pub fn why(self, e: &io::Error) -> String {
        let by = match e.raw_os_error() {
            _ if self.paranoid.is_none() => {
                "the kernel was built without perf events, or hides that it has them"
            }
            // Only these error numbers are refusals; any other error speaks for itself.
            Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => {
                match (self.by_setting(), self.filtered) {
                    (true, false) => return e.to_string(),
                    (true, true) => {
                        "the setting refuses it, and the seccomp filter of this process may do so too"
                    }
                    (false, true) => {
                        "the setting would allow it: the seccomp filter of this process refuses it, or a security module"
                    }
                    (false, false) => "the setting would allow it: a security module refuses it",
                }
            }
            _ => return e.to_string(),
        };
        format!("{e}: {by}")
    }

    /// Remedy if they are refused with `e`.
    pub fn remedy(self, e: &io::Error) -> &'static str {
        if self.paranoid.is_none() {
            return "a kernel built with CONFIG_PERF_EVENTS=y, and a /proc that shows its settings";
        }
        if !matches!(
            e.raw_os_error(),
            Some(libc::EACCES | libc::EPERM | libc::ENOSYS)
        ) {
            return "what the error names";
        }
        match (self.by_setting(), self.filtered) {
            (true, false) => {
                "sudo sysctl kernel.perf_event_paranoid=2 allows them for own processes, CAP_PERFMON for others"
            }
            (true, true) => {
                "sudo sysctl kernel.perf_event_paranoid=2 or CAP_PERFMON, and a seccomp profile that permits \
                 perf_event_open (wallscope doctor --print docker, k8s)"
            }
            (false, true) => {
                "a seccomp profile that permits perf_event_open (wallscope doctor --print docker, k8s), or \
                 wallscope outside of the container, on the pid that it has there"
            }
            (false, false) => {
                "an exception in the policy of the security module (SELinux: perf_event open; AppArmor: capability \
                 perfmon; its log names the denial)"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restrictions(paranoid: i32, filtered: bool, exempt: bool) -> PerfRestrictions {
        PerfRestrictions {
            paranoid: Some(paranoid),
            filtered,
            exempt,
        }
    }

    #[test]
    fn a_setting_that_allows_them_is_no_remedy() {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        for paranoid in -1..=4 {
            for (filtered, exempt) in [(false, false), (false, true), (true, false), (true, true)] {
                let s = restrictions(paranoid, filtered, exempt);
                let by_setting = paranoid > OWN && !exempt;
                let (why, remedy) = (s.why(&refused), s.remedy(&refused));
                assert_eq!(remedy.contains("sysctl"), by_setting, "{s:?}: {remedy}");
                assert_eq!(
                    remedy.contains("seccomp profile"),
                    filtered,
                    "{s:?}: {remedy}"
                );
                assert_eq!(why.contains("seccomp filter"), filtered, "{s:?}: {why}");
            }
        }
    }

    #[test]
    fn other_errors_are_nobody_s_refusal() {
        let s = restrictions(4, true, false);
        let many = io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(s.why(&many), many.to_string());
        assert!(!s.remedy(&many).contains("sysctl"));
        let none = PerfRestrictions {
            paranoid: None,
            ..s
        };
        assert!(none.remedy(&many).contains("CONFIG_PERF_EVENTS"));
        assert_eq!(none.paranoid_in_words(), "not there");
    }

    #[test]
    fn this_process_is_under_a_filter_or_is_not() {
        let now = PerfRestrictions::now();
        // SAFETY: reads a setting of the calling thread.
        let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP) };
        assert_eq!(now.filtered, mode == 2);
    }
}
