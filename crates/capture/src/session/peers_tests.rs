use zerocopy::FromZeros;

use super::*;

fn tcp(local: u16, peer: u16, last_ms: (u32, u32, u32), bytes: (u64, u64)) -> Socket {
    let end = |port| SocketAddr::from(([127, 0, 0, 1], port));
    Socket {
        cookie: 1,
        inode: 2,
        listens: false,
        state: "established",
        queues: None,
        retransmits: 0,
        held_back: false,
        ends: Ends::Tcp {
            local: end(local),
            peer: end(peer),
        },
        last_ms: Some(last_ms),
        bytes: Some(bytes),
    }
}

#[test]
fn who_spoke_last_tells_what_is_in_flight() {
    let listening = Listening {
        ports: [80].into(),
        paths: HashSet::new(),
        accepted: HashSet::new(),
    };
    let since = |s: &Socket| record(s, 7, &listening, 1_000_000_000).unwrap().since;
    // We asked 5 ms ago, and heard before that.
    assert_eq!(since(&tcp(4000, 5432, (5, 90, 5), (10, 10))), 995_000_000);
    assert_eq!(since(&tcp(4000, 5432, (90, 5, 90), (10, 10))), 0);
    // Asked 5 ms ago, and not answered.
    assert_eq!(since(&tcp(80, 4000, (90, 5, 90), (10, 10))), 995_000_000);
    assert_eq!(since(&tcp(80, 4000, (5, 90, 5), (10, 10))), 0);
    // Never answered, in the same tick as the connection; never asked anything.
    assert_eq!(since(&tcp(4000, 5432, (4, 4, 4), (10, 0))), 996_000_000);
    assert_eq!(since(&tcp(4000, 5432, (4, 4, 4), (1, 0))), 0);
}

#[test]
fn who_reads_what_it_asked_may_wait_for_an_answer_from_before() {
    let unix = |cookie, path: Option<&str>, listens, peer_inode| Socket {
        cookie,
        inode: cookie as u32,
        listens,
        last_ms: None,
        bytes: None,
        ends: Ends::Unix {
            path: path.map(str::to_owned),
            peer_inode,
        },
        ..tcp(0, 0, (0, 0, 0), (0, 0))
    };
    let at = Some("/run/x");
    let all = [
        unix(1, at, true, 0),
        unix(2, at, false, 3),
        unix(3, None, false, 2),
        unix(4, None, false, 5),
        unix(5, None, false, 4),
    ];
    let listening = Listening::of(&all);
    let asks = |s: &Socket| {
        let record = record(s, 7, &listening, 1).unwrap();
        listening.may_be_asked(s, &record)
    };
    assert!(!asks(&all[1]), "it is asked");
    assert!(asks(&all[2]));
    assert!(!asks(&all[3]), "of a pair nobody knows");
    let hour = 3_600_000;
    let tcp = |last_ms| tcp(4000, 5432, last_ms, (10, 10));
    assert!(asks(&tcp((hour, hour + 9, hour))));
    // Sent in the tick of the last receipt: acknowledged later, so unanswered; then answered within the
    // tick.
    assert!(asks(&tcp((hour, hour, hour - 40))));
    assert!(!asks(&tcp((hour, hour, hour))));
    assert!(!asks(&tcp((hour + 9, hour, hour))));
}

#[test]
fn peers_are_called_by_their_address() {
    let mut s = SocketRecord {
        family: libc::AF_INET as u16,
        peer_port: 5432,
        local_port: 8080,
        ..SocketRecord::default()
    };
    s.peer[..4].copy_from_slice(&[127, 0, 0, 1]);
    assert_eq!(address(&s), "127.0.0.1:5432");
    s.inbound = 1;
    assert_eq!(address(&s), "port 8080");
    let mut s = SocketRecord {
        family: libc::AF_UNIX as u16,
        ..SocketRecord::default()
    };
    s.path[..6].copy_from_slice(b"/run/x");
    assert_eq!(address(&s), "unix:/run/x");
}

#[test]
fn an_open_request_ends_with_its_process() {
    let mut accounts = Accounts::new(0, 1_000_000);
    let figures = |id, pid, now| {
        let mut dump = crate::event::Dump::new_zeroed();
        (dump.id, dump.pid, dump.tid) = (id, pid, id as u32);
        (dump.birth, dump.now, dump.since) = (100, now, 100);
        dump
    };
    // One has ended, with two threads; one lives; of one nothing is known.
    accounts.last_dump(&figures(1, 7, 700));
    accounts.last_dump(&figures(2, 7, 600));
    accounts.dump(&figures(3, 8, 500));
    let mut all: Vec<SocketRecord> = [7, 8, 9]
        .map(|pid| SocketRecord {
            pid,
            since: 400,
            in_flight: 10,
            ..SocketRecord::default()
        })
        .to_vec();
    end_with_processes(&mut all, &accounts);
    let open: Vec<_> = all.iter().map(|s| (s.pid, s.since, s.in_flight)).collect();
    assert_eq!(open, [(7, 0, 310), (8, 400, 10), (9, 400, 10)]);
}

#[test]
fn a_measured_process_that_accepted_is_known_after_its_end() {
    let end = |cookie, pid, (local_port, peer_port), inbound| SocketRecord {
        cookie,
        pid,
        local_port,
        peer_port,
        inbound,
        family: libc::AF_INET as u16,
        peer: [127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        requests: 3,
        ..SocketRecord::default()
    };
    // The kernel programs meet a connection before its own port is chosen.
    let mut all = vec![end(1, 10, (0, 8000), 0), end(2, 20, (8000, 40_000), 1)];
    let mut elsewhere = end(3, 30, (0, 8000), 0);
    elsewhere.peer[0] = 10;
    all.push(elsewhere);
    let other_end = |all: &[SocketRecord], pid| {
        let found = FoundPeers::new(all, &FxHashMap::default(), 0, &|_| None);
        let process = wallscope_model::Process {
            pid: 20,
            name: "server".into(),
            ..wallscope_model::Process::default()
        };
        let mut recording = Recording {
            peers: found.peers(),
            processes: vec![process],
            ..Recording::default()
        };
        name_measured(&mut recording);
        let peer = recording.peers.into_iter().find(|p| p.pid == pid);
        peer.map(|p| (p.peer_pid, p.peer_name.to_string()))
    };
    assert_eq!(other_end(&all, 10), Some((20, "server".into())));
    assert_eq!(
        other_end(&all, 30),
        Some((0, String::new())),
        "another host's"
    );
    // In another container.
    all.push(end(4, 21, (8000, 40_002), 1));
    assert_eq!(other_end(&all, 10), Some((0, String::new())), "either");
}
