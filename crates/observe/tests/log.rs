//! Logs as files: entries are read again, up to the end or to the first damage.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use proptest::prelude::*;
use tempfile::TempDir;
use wallscope_model::{
    BlockReason, CgroupFacts, Column, Cost, Domain, EventSource, FrameKind, Function, HostFacts,
    HostSample, Limit, Limits, Module, ModuleKind, Neighbour, Pressure, Process, StackEnd, State,
    Unit, WaitSeen,
};
use wallscope_observe::*;

/// A record of the kernel programs: kind, size, and words.
fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let size = 8 + 8 * words.len() as u32;
    let mut bytes = [kind.to_le_bytes(), size.to_le_bytes()].concat();
    bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    bytes
}

fn function(name: &str) -> Function {
    Function {
        name: name.into(),
        system_name: format!("_Z{name}").into(),
        file: "src/a.c".into(),
        start_line: 7,
    }
}

fn frame(module: CodeModule) -> NamedFrame {
    NamedFrame {
        kind: FrameKind::Python,
        module,
        address: 0x1234,
        lines: vec![NamedLine {
            function: function("f"),
            line: 9,
        }],
    }
}

fn host() -> HostSample {
    HostSample {
        time_ns: 5,
        facts: HostFacts {
            load: Some([0.25, 1.5, -0.0]),
            cpu_ns: Some([1, 2, 3, 4, 5, 6, 7, 8]),
            cpu_busy_ns: vec![u64::MAX, 0],
            psi_io: Some(Pressure {
                some_avg10: 12.5,
                ..Pressure::default()
            }),
            cgroup: Some(CgroupFacts {
                path: "/a.slice".into(),
                quota_us: Some(50_000),
                ..CgroupFacts::default()
            }),
            limits: vec![Limits {
                pid: 7,
                cpus: "0-1".into(),
                ..Limits::default()
            }],
            neighbours: vec![Neighbour {
                pid: 9,
                nice: -5,
                ..Neighbour::default()
            }],
            ..HostFacts::default()
        },
    }
}

fn domain() -> DescribedDomain {
    DescribedDomain {
        domain: Domain {
            tool: "wallscope".into(),
            events: vec![EventSource {
                what: "ledger".into(),
                event: "sched_switch".into(),
                rate: "each event".into(),
            }],
            columns: vec![Column {
                state: State::Blocked,
                exact: true,
                how: "counted".into(),
            }],
            limits: vec![Limit {
                what: "x".into(),
                remedy: "y".into(),
            }],
            notes: vec!["ü".into(), String::new()],
            unit: Unit::Count("cycles".into()),
            ..Domain::default()
        },
        timeline_note: 1,
    }
}

/// One observation of each kind at least, without the last, which the writer makes.
fn each(records: &[Vec<u8>; 6]) -> Vec<Observation<'_>> {
    use Observation as O;
    let name: Arc<str> = "a name".into();
    let words = [3, u64::MAX, 0, 1];
    vec![
        O::Begin(Begin {
            start_ns: 1 << 50,
            timeline_bytes: Some(1),
            interrupts: vec![InterruptCode {
                start: u64::MAX - 9,
                end: u64::MAX,
                serves: "timer".into(),
            }],
            ..Begin::default()
        }),
        O::Event(&records[0]),
        O::Turn(&records[1]),
        O::Books(&records[2]),
        O::LastBooks(&records[3]),
        O::Socket(&records[4]),
        O::FirstBooks(&records[5]),
        O::Mark(Mark::Released { pid: 7, time: 9 }),
        O::Mark(Mark::Tick { time: 10 }),
        O::Mark(Mark::End { time: 11 }),
        O::Mark(Mark::Figures { time: 12 }),
        O::Stack(UnwoundStack {
            hash: 1,
            end: StackEnd::NotSampled,
            frames: vec![1, 2],
        }),
        O::CodeChanges(CodeChanges {
            pid: 1,
            kept: 3,
            times: vec![1, 2],
        }),
        O::Sleeping(SleepingThread { record: 4 }),
        O::LockOwner(LockOwner {
            record: 4,
            begin: 5,
            holder: LockHolder::Stranger {
                pid: 1,
                tid: 2,
                name: name.clone(),
            },
            evidence: 3,
            at_end: true,
        }),
        O::LockOwner(LockOwner {
            record: 4,
            begin: 5,
            holder: LockHolder::Record(6),
            evidence: 0,
            at_end: false,
        }),
        O::ResourceName(ResourceName {
            hash: 8,
            name: name.clone(),
        }),
        O::SameLock(SameLock { hash: 1, first: 2 }),
        O::Connected(Connected {
            followed: true,
            talkers: vec![1, 5],
        }),
        O::OtherEnd(OtherEnd {
            cookie: 1,
            process: Some((2, "x".into())),
            before: true,
        }),
        O::Histogram(Histogram {
            class: 3,
            longest_ns: 5,
            counts: vec![0, 1, 0],
        }),
        O::LockWaits(LockWaits {
            record: 1,
            address: 2,
            call: 202,
            total_ns: 3,
            longest_ns: 4,
            count: 5,
            name: name.clone(),
        }),
        O::CountedEvent(CountedEvent {
            name: "page-faults".into(),
            counted: true,
        }),
        O::EventHits(EventHits {
            event: 0,
            record: 2,
            hits: 3,
        }),
        O::Loss(CountedLoss {
            by: Counter::Symboliser,
            cause: "c".into(),
            count: 3,
        }),
        O::Cost(Cost {
            own_cpu_ns: 4,
            ..Cost::default()
        }),
        O::Host(Box::new(host())),
        O::Domain(domain()),
        O::Process(Process {
            pid: 7,
            cmdline: "a b".into(),
            ..Process::default()
        }),
        O::Module(Module {
            kind: ModuleKind::Vdso,
            path: "[vdso]".into(),
            build_id: "ab".into(),
            pid: 0,
        }),
        O::Tasks(ObservedTasks {
            pid: 1,
            kind: "goroutine".into(),
            name: name.clone(),
            seen: 3,
            polls: 4,
        }),
        O::TaskTime(ObservedTaskTime {
            state: State::Runnable,
            reason: "".into(),
            detail: "d".into(),
            stack: Some(0),
            labels: vec![("k".into(), "v".into())],
            count: 1,
            ns: 2,
        }),
        O::TaskStack(TaskStack {
            pid: 1,
            end: StackEnd::Root,
            native: vec![1],
            managed: vec![2, 3],
        }),
        O::TaskWords(TaskWords {
            note: "n".into(),
            limit: Limit::default(),
        }),
        O::UnwinderFile(UnwinderFile {
            late: true,
            file: 7,
            module: 9,
        }),
        O::LeftOut(LeftOut {
            wakes: 1,
            ..LeftOut::default()
        }),
        O::FrameName(FrameName {
            key: FrameKey {
                pid: 1,
                code: u64::MAX,
                late: false,
                words,
            },
            frame: frame(CodeModule::File(3)),
        }),
        O::FrameName(FrameName {
            key: FrameKey {
                pid: 1,
                code: 0,
                late: true,
                words,
            },
            frame: frame(CodeModule::Jit(3)),
        }),
        O::ManagedName(ManagedName {
            key: ManagedKey {
                pid: 1,
                code: 2,
                check: 3,
                lasti: -1,
            },
            frame: frame(CodeModule::Source("a.py".into())),
            coroutine: Some("g".into()),
        }),
        O::FrameRoles(FrameRoles {
            pid: 1,
            frames: vec![1, 2],
            roles: vec![0, 3],
        }),
        O::ProgramName(ProgramName {
            pid: 1,
            former: 2,
            name: None,
        }),
        O::KernelFunction(KernelFunction {
            stack: 1,
            name: name.clone(),
        }),
        O::CodeMaker(CodeMaker {
            pid: 1,
            maker: Some(("V8".into(), "a flag".into())),
        }),
        O::SymbolFunction(function("g")),
        O::Symbol(Symbol {
            kind: FrameKind::Kernel,
            module: Some(1),
            address: 2,
            moved_to: Some(Module {
                kind: ModuleKind::Kernel,
                path: "[ext4]".into(),
                build_id: "".into(),
                pid: 0,
            }),
            lines: vec![
                SymbolLine::Found(0, 5),
                SymbolLine::Known(NamedLine {
                    function: function("h"),
                    line: 0,
                }),
            ],
        }),
        O::Note(name),
    ]
}

fn records() -> [Vec<u8>; 6] {
    [kind::SAMPLE, 5, 0x10002, 0x10002, 9, 0x10002].map(|kind| record(kind, &[1, 2, 3 << 40, 0]))
}

/// One observation of each kind of recorded switches.
fn switches() -> Vec<Observation<'static>> {
    use Observation as O;
    let thread = 3;
    let (time, counters) = (1 << 50, SchedCounters::default());
    let steps = [
        SwitchStep::In,
        SwitchStep::Out { preempted: false },
        SwitchStep::Out { preempted: true },
        SwitchStep::End,
    ];
    let states = [
        FirstState::Unknown,
        FirstState::Born,
        FirstState::Blocked,
        FirstState::OnCpu,
    ];
    let mut all = vec![
        O::Mark(Mark::Drained { time }),
        O::Mark(Mark::RecordsLost { time }),
        O::SwitchRecording(SwitchRecording {
            samples_kernel: true,
            tick_ns: 4_000_000,
        }),
        O::CounterReading(CounterReading {
            thread,
            time,
            counters: SchedCounters {
                on_cpu_ns: 1,
                run_delay_ns: 2,
                timeslices: u64::MAX,
            },
            last: true,
        }),
        O::RunningSample(RunningSample {
            thread,
            stack: 1,
            time,
            ns: 10_101_010,
            user_mode: true,
        }),
        O::WaitProbe(WaitProbe {
            thread,
            at: time,
            spacing_ns: 1,
            late_ns: 2,
            call: ProbedCall {
                until: time + 1,
                reason: BlockReason::Lock,
                sp: u64::MAX,
            },
            until: time + 2,
            reason: BlockReason::Gil,
            copied: time + 3,
            called: true,
            stack: 4,
            whole: false,
            seen: WaitSeen::default(),
        }),
        O::ProbedReason(ProbedReason {
            thread,
            reason: BlockReason::Network,
        }),
        O::UnfollowedWait(UnfollowedWait { thread }),
        O::QueuedPoll(QueuedPoll {
            thread,
            begin: 5,
            at: 6,
            read: 7,
            stack: Some(8),
            ns: 9,
            late: true,
        }),
        O::OpenWait(OpenWait { thread, begin: 5 }),
        O::EventStack(EventStack {
            event: 1,
            thread,
            stack: 2,
            time,
            hits: 101,
            user_mode: false,
        }),
        O::HitsOfEnded(HitsOfEnded {
            event: 1,
            thread,
            hits: 7,
        }),
        O::CounterHeir(CounterHeir { thread, of: 1 }),
    ];
    all.extend(steps.map(|step| O::Switch(Switch { thread, time, step })));
    all.extend(states.map(|state| {
        O::RecordsBegin(RecordsBegin {
            thread,
            time,
            counters,
            state,
            by_counters: true,
            unrecorded_ns: 1,
        })
    }));
    for cause in [RecordsEndCause::Closed, RecordsEndCause::Stopped] {
        all.push(O::RecordsEnd(RecordsEnd { thread, cause }));
    }
    for taken in [
        PreemptedStackTaken::AtSwitch(9),
        PreemptedStackTaken::Before(9),
    ] {
        all.push(O::PreemptedStack(PreemptedStack {
            thread,
            stack: 1,
            taken,
        }));
    }
    all
}

/// A log of these observations at `path`, as it is before it is closed, and closed.
fn write(path: &Path, all: &[Observation<'_>]) -> (Vec<u8>, Vec<u8>) {
    let mut writer = LogWriter::begin(
        LogFile::create(path).unwrap(),
        "wallscope 0",
        LogFile::BOUND,
    );
    for observation in all {
        writer.append(observation);
    }
    writer.flush();
    let plain = fs::read(path).unwrap();
    let closed = writer.close().unwrap();
    let packed = fs::read(path).unwrap();
    assert_eq!(closed.bytes, packed.len() as u64);
    (plain, packed)
}

/// The observations of a log, in words, and how it ended.
fn read(bytes: &[u8]) -> (Vec<String>, End) {
    let mut reader = LogReader::new(bytes).unwrap();
    let mut all = Vec::new();
    while let Some(observation) = reader.next() {
        all.push(format!("{observation:?}"));
    }
    (all, reader.end().unwrap().clone())
}

#[test]
fn each_observation_is_read_as_it_was_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let records = records();
    let mut all = each(&records);
    all.extend(switches());
    let (plain, packed) = write(&path, &all);
    let expected: Vec<String> = all.iter().map(|o| format!("{o:?}")).collect();
    let (got, end) = read(&packed);
    assert_eq!(got, expected);
    assert_eq!(end, End::Whole(LeftOut::default()));
    let (got, end) = read(&plain);
    assert_eq!(got, expected);
    assert!(matches!(end, End::Early { frames: 1, .. }), "{end:?}");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_cut_log_is_read_up_to_the_cut_and_says_so() {
    let folder = TempDir::new().unwrap();
    let noise = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let event = |i: u64| {
        record(
            kind::SAMPLE,
            &std::array::from_fn::<u64, 12, _>(|n| noise(i + n as u64)),
        )
    };
    let events: Vec<Vec<u8>> = (0..6000).map(|i| event(100 * i)).collect();
    let all: Vec<Observation<'_>> = events.iter().map(|e| Observation::Event(e)).collect();
    let (plain, packed) = write(&folder.path().join("log"), &all);
    assert!(plain.len() > 2 * MAX_PAYLOAD, "several frames");
    for bytes in [plain, packed] {
        let mut last = 0;
        for part in 1..8 {
            let cut = bytes.len() * part / 8;
            let mut reader = LogReader::new(&bytes[..cut]).unwrap();
            let mut got = 0;
            while let Some(observation) = reader.next() {
                assert_eq!(Some(&observation), all.get(got), "cut at {cut}");
                got += 1;
            }
            assert!(matches!(reader.end(), Some(End::Early { .. })));
            assert!(got >= last && got < all.len());
            last = got;
        }
        assert!(last > 0);
    }
}

#[test]
fn a_log_keeps_its_books_beyond_its_bound() {
    let folder = TempDir::new().unwrap();
    let bound = 512 << 10;
    let log = LogFile::create(&folder.path().join("log")).unwrap();
    let mut writer = LogWriter::begin(log, "wallscope 0", bound);
    let mut state = 1u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state
    };
    for _ in 0..8000 {
        for kind in [kind::WAKE, kind::SAMPLE, 0x10002] {
            let words: [u64; 4] = std::array::from_fn(|_| noise());
            writer.append(&Observation::Event(&record(kind, &words)));
        }
    }
    let closed = writer.close().unwrap();
    let LeftOut {
        wakes,
        samples,
        too_large,
    } = closed.left_out;
    assert!(
        wakes > samples && samples > 0 && too_large == 0,
        "{closed:?}"
    );
    let mut reader = LogReader::open(&folder.path().join("log")).unwrap();
    let mut kept = [0u64; 4];
    while let Some(o) = reader.next() {
        kept[o.importance() as usize] += 1;
    }
    assert_eq!(kept, [8000 - wakes, 8000 - samples, 0, 8000]);
    assert_eq!(reader.end(), Some(&End::Whole(closed.left_out)));
}

#[test]
fn records_that_are_too_long_are_counted() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let mut writer = LogWriter::begin(
        LogFile::create(&path).unwrap(),
        "wallscope 0",
        LogFile::BOUND,
    );
    writer.append(&Observation::Event(&vec![0; 100 << 10]));
    let times = (0..MAX_PAYLOAD as u64).collect();
    writer.append(&Observation::CodeChanges(CodeChanges {
        pid: 1,
        kept: 0,
        times,
    }));
    writer.append(&Observation::Mark(Mark::Tick { time: 1 }));
    let closed = writer.close().unwrap();
    assert_eq!(closed.left_out.too_large, 2);
    let (got, _) = read(&fs::read(&path).unwrap());
    assert_eq!(got, ["Mark(Tick { time: 1 })"]);
}

#[test]
fn other_files_and_other_versions_are_refused() {
    let refused = |bytes: &[u8]| LogReader::new(bytes).err().map(|e| e.to_string());
    assert!(refused(b"\x1f\x8b").unwrap().contains("no log"));
    let newer = Header {
        version: VERSION + 1,
        ..Header::new("wallscope 9")
    };
    let why = refused(newer.text().as_bytes()).unwrap();
    assert!(why.contains("wallscope 9"), "{why}");
    let folder = TempDir::new().unwrap();
    let why = LogFile::create(folder.path()).unwrap_err();
    assert!(why.kind() != std::io::ErrorKind::NotFound, "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_is_found_and_does_no_harm(at in any::<prop::sample::Index>(), bit in 0..8u8, packed: bool) {
        let folder = TempDir::new().unwrap();
        let records = records();
        let all = each(&records);
        let (plain, closed) = write(&folder.path().join("log"), &all);
        let mut bytes = if packed { closed } else { plain };
        let head = bytes.windows(2).position(|w| w == b"\n\n").unwrap() + 2;
        let at = head + at.index(bytes.len() - head);
        bytes[at] ^= 1 << bit;
        let (got, end) = read(&bytes);
        let expected: Vec<String> = all.iter().map(|o| format!("{o:?}")).collect();
        prop_assert!(got.len() <= expected.len() && got[..] == expected[..got.len()]);
        // Behind the last observation only the checksum of the compressed bytes is left.
        let whole = packed && got.len() == expected.len();
        prop_assert!(whole || matches!(end, End::Early { .. }), "{:?}", end);
    }

    #[test]
    fn hostile_payloads_do_no_harm(payload in prop::collection::vec(any::<u8>(), 0..600), number in 0..64u8) {
        let mut bytes = Header::new("wallscope").text().into_bytes();
        let payload = [vec![number], payload].concat();
        let mut crc = crc32fast::Hasher::new();
        crc.update(&0u32.to_le_bytes());
        crc.update(&payload);
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(crc.finalize().to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(payload);
        read(&bytes);
    }
}
