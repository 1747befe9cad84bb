use super::*;

const STAT: &str = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 910 0 3 0 17 5 0 0 20 0 6 0 \
    123456 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0";

#[test]
fn sessions_are_groups_where_no_cgroup_is() {
    assert_eq!(
        parse_session_group("/autogroup-93 nice -5\n"),
        Some((93, -5))
    );
    assert_eq!(parse_session_group("/autogroup-x nice 0"), None);
    assert_eq!(parse_session_group(""), None);
    assert!(in_root_group("9:memory:/a\n8:cpu,cpuacct:/\n0::/\n"));
    assert!(!in_root_group("8:cpu,cpuacct:/jobs\n"));
    assert!(!in_root_group("0::/system.slice/x.service\n"));
}

#[test]
fn stat_with_a_name_full_of_parentheses() {
    let s = Stat::parse(STAT).unwrap();
    assert_eq!((s.pid, s.comm.as_str(), s.state), (4242, "a) b (c", 'S'));
    assert_eq!((s.parent, s.flags), (1, 4_194_560));
    assert_eq!((s.minor_faults, s.major_faults), (910, 3));
    assert_eq!((s.user_ticks, s.system_ticks), (17, 5));
    assert_eq!((s.threads, s.start_ticks, s.cpu), (6, 123_456, 3));
    assert_eq!((s.nice, s.policy), (0, 0));
    let niced = STAT
        .replace(" 20 0 6 ", " 25 -5 6 ")
        .replace(" 17 3 0 0 ", " 17 3 0 1 ");
    let niced = Stat::parse(&niced).unwrap();
    assert_eq!((niced.nice, niced.policy), (-5, 1));
    assert!(!s.is_kernel_thread());
    assert_eq!(Stat::parse("4242 (x) S 1"), None);
    assert_eq!(Stat::parse(""), None);
}

#[test]
fn status_fields() {
    let s = Status::parse(
        "Name:\ta b\nTgid:\t7\nPid:\t9\nPPid:\t1\nUid:\t1000\t1001\t0\t1003\nGid:\t7\t7\t7\t8\nGroups:\t4 24 \nNStgid:\t7\t1\nNSpid:\t9\t3\n\
         Threads:\t4\nVmRSS:\t  12 kB\nVmSwap:\t0 kB\nCpus_allowed_list:\t0-1,4\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\nnonsense",
    );
    assert_eq!((s.name.as_str(), s.tgid, s.pid, s.parent), ("a b", 7, 9, 1));
    assert_eq!((s.uid, s.threads), (1001, 4));
    assert_eq!((s.file_ids.user, s.file_ids.group), (Some(1003), Some(8)));
    assert_eq!(s.file_ids.more_groups, [4, 24]);
    assert_eq!(
        (s.cpus.as_str(), s.resident_bytes),
        ("0-1,4", Some(12 << 10))
    );
    assert_eq!(s.swapped_bytes, Some(0));
    assert_eq!(s.ns_tgids, [7, 1]);
    assert_eq!(s.ns_pids, [9, 3]);
    assert_eq!((s.voluntary_switches, s.involuntary_switches), (12, 3));
}

#[test]
fn limits_and_arguments() {
    let l = SoftLimits::parse(
        "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max processes             unlimited            unlimited            processes \n\
         Max open files            1024                 524288               files     \n",
    );
    assert_eq!((l.open_files, l.processes), (Some(1024), None));
    assert_eq!(split_cmdline(b"a\0b c\0\0"), ["a", "b c", ""]);
    assert!(split_cmdline(b"").is_empty());
    assert_eq!(
        SchedStat::parse("10 20 3\n"),
        Some(SchedStat {
            on_cpu_ns: 10,
            run_delay_ns: 20,
            timeslices: 3
        })
    );
    assert_eq!(SchedStat::parse("10 20"), None);
}

#[test]
fn this_process_reads_itself() {
    let pid = std::process::id();
    assert_eq!(stat(pid).unwrap().pid, pid);
    assert_eq!(status(pid).unwrap().tgid, pid);
    assert!(threads(pid).unwrap().contains(&pid));
    assert!(processes().unwrap().contains(&pid));
    assert_eq!(exe(pid).unwrap(), std::env::current_exe().unwrap());
    assert_eq!(cmdline(pid).unwrap(), std::env::args().collect::<Vec<_>>());
    assert_eq!(comm(pid, pid).unwrap(), stat(pid).unwrap().comm);
    let l = limits(pid).unwrap();
    assert!(l.open_files.is_some_and(|n| n >= 3) && l.threads.is_some_and(|n| n >= 1));
    assert_eq!(
        limits(u32::MAX).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
}
