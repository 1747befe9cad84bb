//! A machine that starts processes without end: its recording has every nanosecond, and a bounded size.

use wallscope_model::{Recording, State};
use zerocopy::IntoBytes;

use super::*;
use crate::{
    event::Head,
    session::{
        accounts::number,
        answers::Answers,
        assemble::{Assembled, Snapshots},
    },
};

const SHELL: u32 = 10;
/// Ten times as many as may stand for themselves and those that are folded in one go.
const STARTS: u64 = 50_000;
/// Time from one start to the next, ns.
const EVERY: u64 = 1_000_000;

fn comm(name: &str) -> [u8; 16] {
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    comm
}

fn head(kind: u32) -> Head {
    Head { kind, size: 0 }
}

/// A machine with a shell that starts one process after the other. The shell waits for each.
struct Machine {
    estimator: Estimator,
    now: u64,
    /// Expected sums of all processes and of their samples, ns.
    on_cpu: u64,
    waits: u64,
}

impl Machine {
    fn new() -> Machine {
        let begin = Begin {
            start_ns: 1 << 40,
            slice_ns: 100_000_000,
            ..Begin::default()
        };
        let mut machine = Machine {
            estimator: Estimator::new(&begin),
            now: 1 << 40,
            on_cpu: 0,
            waits: 0,
        };
        machine.thread(1, SHELL, 1, "sh");
        machine
    }

    fn event(&mut self, bytes: &[u8]) {
        self.estimator.observe(&Observation::Event(bytes));
    }

    fn thread(&mut self, id: u64, pid: u32, parent: u32, name: &str) {
        let mut e = ThreadEvent::new_zeroed();
        (e.head, e.how, e.comm) = (head(kind::THREAD), how::BORN, comm(name));
        (e.id, e.pid, e.tid, e.parent, e.time) = (id, pid, pid, parent, self.now);
        self.event(e.as_bytes());
        self.estimator.observe(&Observation::Process(Process {
            pid,
            parent,
            name: name.into(),
            cmdline: format!("{name} --number {id}").into(),
            ..Process::default()
        }));
    }

    fn sample(&mut self, id: u64, pid: u32, state: u8, ns: u64) -> SampleEvent {
        let mut s = SampleEvent::new_zeroed();
        (s.head, s.state, s.flags, s.count) = (head(kind::SAMPLE), state, SAMPLE_NO_USER, 1);
        (s.id, s.pid, s.tid, s.ns) = (id, pid, pid, ns);
        (s.begin, s.end) = (self.now, self.now + ns);
        s
    }

    /// One process computes, and the shell waits for its end.
    fn start(&mut self, id: u64) {
        let (pid, ns) = (100 + id as u32, 1000 + id % 977);
        let name = ["cut", "sed", "grep"][id as usize % 3];
        self.thread(id, pid, SHELL, name);
        let s = self.sample(id, pid, state::ON_CPU, ns);
        self.event(s.as_bytes());
        let mut wait = self.sample(1, SHELL, state::BLOCKED, ns);
        let hash = number(&[&pid.to_string()]).into();
        (wait.resource, wait.detail) = (hash, wallscope_model::BlockReason::Child as u8);
        let mut r = ResourceEvent::new_zeroed();
        (r.hash, r.address, r.kind) = (hash, pid.into(), resource_kind::PROCESS);
        r.head = head(kind::RESOURCE);
        let bytes = resource_bytes(&r);
        self.event(&bytes);
        let named = wallscope_observe::ResourceName {
            hash,
            name: format!("end of process {name} ({pid})").into(),
        };
        self.estimator.observe(&Observation::ResourceName(named));
        self.event(wait.as_bytes());
        let mut d = Dump::new_zeroed();
        (d.head, d.id, d.pid, d.tid, d.comm) = (head(kind::EXIT), id, pid, pid, comm(name));
        (d.birth, d.since, d.now) = (self.now, self.now + ns, self.now + ns);
        d.acc.on_cpu = ns;
        self.event(d.as_bytes());
        (self.on_cpu, self.waits) = (self.on_cpu + ns, self.waits + ns);
        self.now += EVERY;
        if id.is_multiple_of(100) {
            let time = self.now;
            let tick = Observation::Mark(Mark::Tick { time });
            self.estimator.observe(&tick);
        }
    }

    /// The recording of `starts`.
    fn recording(mut self, starts: u64) -> (Recording, [u64; 2]) {
        (2..starts + 2).for_each(|id| self.start(id));
        let mut d = Dump::new_zeroed();
        (d.id, d.pid, d.tid, d.comm) = (1, SHELL, SHELL, comm("sh"));
        (d.birth, d.since, d.now) = (1 << 40, 1 << 40, self.now);
        (d.state, d.detail) = (state::BLOCKED, wallscope_model::BlockReason::Child as u8);
        self.estimator
            .observe(&Observation::LastBooks(d.as_bytes()));
        let end = Observation::Mark(Mark::End { time: self.now });
        self.estimator.observe(&end);
        let answers = Answers::default();
        let Assembled { recording, .. } = self.estimator.finish(answers.names(), Snapshots::None);
        (recording, [self.on_cpu, self.waits])
    }
}

fn resource_bytes(r: &ResourceEvent) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<ResourceEvent>()];
    bytes[..8].copy_from_slice(r.head.as_bytes());
    bytes[8..16].copy_from_slice(&r.hash.to_ne_bytes());
    bytes[16..24].copy_from_slice(&r.address.to_ne_bytes());
    bytes[24..28].copy_from_slice(&r.kind.to_ne_bytes());
    bytes
}

fn sampled(recording: &Recording, state: State) -> u64 {
    let of = recording.samples.iter().filter(|s| s.state == state);
    of.map(|s| s.ns).sum()
}

#[test]
fn a_storm_s_recording_has_each_nanosecond_and_few_threads() {
    let (recording, [on_cpu, waits]) = Machine::new().recording(STARTS);
    let ledgers = || recording.contexts.iter().map(|c| &c.ledger);
    assert_eq!(ledgers().map(|l| l.on_cpu.total()).sum::<u64>(), on_cpu);
    assert!(ledgers().all(|l| l.residue_ns() == 0));
    assert_eq!(sampled(&recording, State::OnCpu), on_cpu);
    assert_eq!(sampled(&recording, State::Blocked), waits);
    let slices = recording.ledger_slices.iter();
    assert_eq!(slices.map(|row| row.on_cpu_ns).sum::<u64>(), on_cpu);
    for n in [
        recording.contexts.len(),
        recording.samples.len() / 2,
        recording.processes.len(),
        recording.label_sets.len(),
    ] {
        assert!(n < 6_500, "{n} of {STARTS}");
    }
    let told = recording.domain.limits.iter();
    let told = told.filter(|l| l.what.starts_with("single ended threads: "));
    assert_eq!(told.count(), 1);
}

#[test]
fn processes_of_a_group_have_their_program_s_name() {
    let (recording, _) = Machine::new().recording(STARTS / 4);
    let mut names: Vec<(&str, &str)> = Vec::new();
    for c in recording.contexts.iter().filter(|c| c.pid >= 1 << 30) {
        let process = recording.processes.iter().find(|p| p.pid == c.pid);
        names.push((&c.name, process.map_or("", |p| &p.name)));
    }
    names.sort_unstable();
    assert_eq!(names, [("cut", "cut"), ("grep", "grep"), ("sed", "sed")]);
}

#[test]
fn few_processes_are_not_folded() {
    let (recording, _) = Machine::new().recording(3_000);
    assert_eq!(recording.contexts.len(), 3_001);
    assert!(recording.contexts.iter().all(|c| c.pid < 1 << 30));
}
