//! An agent that is killed at random moments: each closed window arrives once, and each gap is told.
//!
//! The receiver fails at random too. `WALLSCOPE_KILLS=200 cargo test -p wallscope-testkit --test agent_killed --
//! --nocapture` kills the agent as often and prints the figures.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver as Lines, channel},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::{Pid, Signal, kill_process};
use wallscope_testkit::{Error, Tool, receiver::Receiver, with_tool, wrong};

/// Kills of a run, unless `WALLSCOPE_KILLS` says otherwise.
const KILLS: u64 = 4;
/// Longest life of an agent, from its start on or from the time at which it records: some windows.
const MAX_LIFE_MS: u64 = 4_000;
/// Length of a window.
const LENGTH_MS: i64 = 1_000;
/// Time from the end of a window until it is on the disk, beside load. It waits for names 250 ms at most.
const HANDLING_MS: i64 = 2_000;
/// Percent of the receiver's requests that fail.
const FAILING: u32 = 30;
/// Longest wait for something that takes seconds.
const LIMIT: Duration = Duration::from_secs(60);

fn system(e: std::io::Error) -> Error {
    wrong(e.to_string())
}

fn check(is: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    match is {
        true => Ok(()),
        false => Err(wrong(what())),
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |d| d.as_millis() as i64)
}

/// A sequence that is the same in each run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A window in the store, by its name.
#[derive(Clone, Debug)]
struct Window {
    path: PathBuf,
    start_ms: i64,
    length_ms: i64,
    epoch: u64,
    sequence: u64,
    /// As the protocol names it.
    key: String,
}

impl Window {
    /// `20261127T140010.000Z+10.000s_HOST_BOOT_EPOCH_SEQUENCE.pb.gz`
    fn parse(path: &Path) -> Option<Window> {
        let name = path.file_name()?.to_str()?.strip_suffix(".pb.gz")?;
        let mut fields = name.split('_');
        let (start, length) = fields.next()?.split_once("Z+")?;
        let seconds: f64 = length.strip_suffix('s')?.parse().ok()?;
        let key: Vec<&str> = fields.collect();
        let [_, _, epoch, sequence] = key[..] else {
            return None;
        };
        Some(Window {
            path: path.to_owned(),
            start_ms: day_ms(start)?,
            length_ms: (seconds * 1e3).round() as i64,
            epoch: epoch.parse().ok()?,
            sequence: sequence.parse().ok()?,
            key: key.join("/"),
        })
    }

    fn end_ms(&self) -> i64 {
        self.start_ms + self.length_ms
    }
}

/// `20261127T140010.000` as ms since the epoch (days by the civil calendar).
fn day_ms(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days - 719_468;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + number(16..19)?)
}

/// Folders of the agent, and its receiver.
struct AgentFolders {
    folder: tempfile::TempDir,
    receiver: Receiver,
}

impl AgentFolders {
    fn new() -> Result<AgentFolders, Error> {
        let folder = tempfile::tempdir().map_err(system)?;
        let received = folder.path().join("received");
        fs::create_dir(&received).map_err(system)?;
        let receiver = Receiver::start(&received, FAILING, 7).map_err(system)?;
        let config = format!(
            "agent.run_dir = {:?}\nstore.dir = {:?}\nwindows.length = \"1s\"\nmetrics.enabled = false\n\
             snaps.memory = \"4MiB\"\n[[target]]\nname = \"server\"\nkind = \"wallscope\"\nurl = \"{}\"\n",
            folder.path().join("run"),
            folder.path().join("store"),
            receiver.url(),
        );
        fs::write(folder.path().join("agent.toml"), config).map_err(system)?;
        Ok(AgentFolders { folder, receiver })
    }

    /// All windows on the disk, oldest first.
    fn windows(&self) -> Vec<Window> {
        let entries = fs::read_dir(self.folder.path().join("store"));
        let entries = entries.into_iter().flatten().flatten();
        let mut windows: Vec<Window> = entries.filter_map(|e| Window::parse(&e.path())).collect();
        windows.sort_by_key(|w| (w.epoch, w.sequence));
        windows
    }

    /// Windows that wait for their delivery.
    fn waiting(&self) -> usize {
        let entries = fs::read_dir(self.folder.path().join("store/outbox/server"));
        let entries = entries.into_iter().flatten().flatten();
        entries
            .filter(|e| Window::parse(&e.path()).is_some())
            .count()
    }
}

/// A running agent.
struct Agent {
    child: Child,
    /// The time at which it said that it records, ms since the epoch.
    ready: Lines<i64>,
    ready_ms: Option<i64>,
    said: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn start(tool: &Tool, place: &AgentFolders) -> Result<Agent, Error> {
        let mut child = Command::new(tool.path())
            .args(["agent", "--config"])
            .arg(place.folder.path().join("agent.toml"))
            .env_remove("NOTIFY_SOCKET")
            .stderr(Stdio::piped())
            .spawn()
            .map_err(system)?;
        let stderr = child.stderr.take().ok_or_else(|| wrong("no stderr"))?;
        let (to, ready) = channel();
        let said = std::thread::spawn(move || {
            let mut said = Vec::new();
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.contains("recording the machine in windows") {
                    let _ = to.send(now_ms());
                }
                said.push(line);
            }
            said
        });
        Ok(Agent {
            child,
            ready,
            ready_ms: None,
            said: Some(said),
        })
    }

    /// All that it said; it has ended.
    fn words(&mut self) -> String {
        let said = self.said.take().map(std::thread::JoinHandle::join);
        let said = said.and_then(Result::ok).unwrap_or_default().join("\n");
        wallscope_testkit::tool::no_panic(&said);
        said
    }

    /// Waits until it records.
    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let ready = self.ready.recv_timeout(LIMIT);
        self.ready_ms = ready.ok();
        check(self.ready_ms.is_some(), || "it does not record".into())
    }

    /// Ends it by `signal`.
    fn end(mut self, signal: Signal) -> Result<Life, Error> {
        if let Some(status) = self.child.try_wait().map_err(system)? {
            let text = format!("the agent ended: {status}: {}", self.words());
            return Err(match status.code() {
                Some(3) => Error::CannotRunHere(text),
                _ => wrong(text),
            });
        }
        let killed_ms = now_ms();
        kill_process(Pid::from_child(&self.child), signal).map_err(|e| wrong(e.to_string()))?;
        let status = self.child.wait().map_err(system)?;
        let said = self.words();
        check(signal == Signal::KILL || status.success(), || {
            format!("{status}: {said}")
        })?;
        Ok(Life {
            ready_ms: self.ready_ms.or(self.ready.try_recv().ok()),
            killed_ms,
        })
    }
}

/// Times of an agent's life, ms since the epoch.
struct Life {
    ready_ms: Option<i64>,
    killed_ms: i64,
}

/// No window vanished, and all that is missing at the end of a life is its open window; the time that is missing, ms.
fn judge_life(life: &Life, before: &[Window], after: &[Window]) -> Result<i64, Error> {
    for window in before {
        check(after.iter().any(|w| w.key == window.key), || {
            format!("{} vanished", window.key)
        })?;
    }
    let Some(ready_ms) = life.ready_ms else {
        return Ok(0);
    };
    let last_ms = after.iter().map(Window::end_ms).max().unwrap_or(0);
    let lost_ms = life.killed_ms - ready_ms.max(last_ms);
    check(lost_ms <= LENGTH_MS + HANDLING_MS, || {
        format!("{lost_ms} ms before a kill are in no window")
    })?;
    Ok(lost_ms.max(0))
}

/// The sequence numbers of each epoch are complete, and no two windows hold the same time.
fn judge_keys(windows: &[Window]) -> Result<(), Error> {
    let mut next = BTreeMap::new();
    for window in windows {
        let expected: &mut u64 = next.entry(window.epoch).or_default();
        check(window.sequence == *expected, || {
            format!("{}, expected sequence {expected}", window.key)
        })?;
        *expected += 1;
    }
    for pair in windows.windows(2) {
        // Names have whole milliseconds.
        check(pair[0].end_ms() <= pair[1].start_ms + 1, || {
            format!("{} and {} overlap", pair[0].key, pair[1].key)
        })?;
    }
    Ok(())
}

/// The receiver has the windows of the store, and no others.
fn judge_delivery(windows: &[Window], place: &AgentFolders) -> Result<(), Error> {
    let kept = place.receiver.windows().map_err(system)?;
    for window in windows {
        let own = fs::read(&window.path).map_err(system)?;
        check(kept.get(&window.key) == Some(&own), || {
            format!("{} did not arrive as it is", window.key)
        })?;
    }
    check(kept.len() == windows.len(), || {
        format!(
            "{} windows arrived, {} were kept",
            kept.len(),
            windows.len()
        )
    })?;
    let received = place.receiver.received();
    let differing = received.iter().find(|(_, r)| r.differed);
    check(differing.is_none(), || format!("{differing:?}"))
}

/// The merged windows name the gaps between them.
fn judge_gaps(tool: &Tool, windows: &[Window], store: &Path) -> Result<usize, Error> {
    // Shorter ones are the time between the end of a window and its start (`MAX_GAP_NS` of the merger).
    let is_gap = |pair: &&[Window]| pair[1].start_ms - pair[0].end_ms() > 102;
    let gaps = windows.windows(2).filter(is_gap).count();
    let dir = store.display().to_string();
    // Many kills take longer than a report looks back by itself.
    let output = tool.run(&["report", &dir, "--from", "-1d", "--until", "now", "--json"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = format!("in {gaps} gaps between its windows");
    check(gaps == 0 || text.contains(&told), || {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("the merged windows do not tell of {gaps} gaps: {text}{said}")
    })?;
    Ok(gaps)
}

#[test]
fn kill_at_random_moments_loses_the_open_window_alone() {
    let kills = std::env::var("WALLSCOPE_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    with_tool("an agent that is killed", |tool| {
        let place = AgentFolders::new()?;
        let mut random = Random(11);
        let (mut windows, mut lost) = (Vec::new(), Vec::new());
        for life in 0..kills {
            let mut agent = Agent::start(tool, &place)?;
            // Every second one is killed at any moment of its start, too.
            if life % 2 == 0 {
                agent.wait_until_ready()?;
            }
            std::thread::sleep(Duration::from_millis(random.below(MAX_LIFE_MS)));
            let life = agent.end(Signal::KILL)?;
            let after = place.windows();
            lost.push(judge_life(&life, &windows, &after)?);
            windows = after;
        }
        place.receiver.set_failing(0);
        let mut agent = Agent::start(tool, &place)?;
        agent.wait_until_ready()?;
        let started = Instant::now();
        while started.elapsed() < LIMIT && place.waiting() > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        agent.end(Signal::TERM)?;
        let windows = place.windows();
        check(place.waiting() == 0, || "windows wait still".into())?;
        check(windows.len() as u64 * 2 >= kills, || {
            format!(
                "{kills} kills left {} windows: the lives were too short",
                windows.len()
            )
        })?;
        judge_keys(&windows)?;
        judge_delivery(&windows, &place)?;
        let gaps = judge_gaps(tool, &windows, &place.folder.path().join("store"))?;
        let again = place
            .receiver
            .received()
            .values()
            .filter(|r| r.times > 1)
            .count();
        println!(
            "{kills} kills: {} windows, all of them delivered, {again} sent more than once; {gaps} gaps, all of them \
             told; at most {} ms lost by a kill",
            windows.len(),
            lost.iter().max().unwrap_or(&0),
        );
        Ok(())
    });
}
