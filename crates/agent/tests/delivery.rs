//! Delivery to a receiver that fails at random: nothing acknowledged is lost, nothing counts twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wallscope_agent::config::{Config, Target};
use wallscope_agent::delivery::{Courier, CourierThread, Step};
use wallscope_agent::store::{Caps, Store, WindowKey, undelivered};
use wallscope_synthetic::windows::window;
use wallscope_testkit::receiver::Receiver;

const CAPS: Caps = Caps {
    bytes: 1 << 30,
    age: Duration::from_secs(1 << 30),
};

/// Variable that turns this test into a delivering process: `STORE EPOCH URL FIRST`.
const CHILD: &str = "WALLSCOPE_DELIVERING_PROCESS";

fn key(epoch: u64, sequence: u64) -> WindowKey {
    WindowKey {
        host: "web-3".to_string(),
        boot: "b".to_string(),
        epoch,
        sequence,
    }
}

fn target(kind: &str, url: &str, more: &str) -> Target {
    let text = format!("[[target]]\nname = \"server\"\nkind = \"{kind}\"\nurl = \"{url}\"\n{more}");
    let config = Config::parse(Path::new("a.toml"), &text).unwrap();
    config.targets.into_iter().next().unwrap()
}

fn store(dir: &Path) -> Store {
    Store::open(dir, CAPS, &["server".to_string()]).unwrap()
}

fn courier(store: &Store, target: Target) -> Courier {
    Courier::new(target, store.outboxes()[0].1.clone(), 7).unwrap()
}

/// Takes steps until the outbox is empty, without the waits between attempts.
fn drain(courier: &mut Courier) -> usize {
    let mut failures = 0;
    loop {
        match courier.step() {
            Step::Empty => return failures,
            Step::Done => {}
            Step::Wait(time) => {
                assert!(time <= Duration::from_secs(300));
                failures += 1;
                assert!(failures < 10_000, "{:?}", courier.figures().error);
            }
        }
    }
}

#[test]
fn a_failing_receiver_gets_every_window_once() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(kept.path(), 60, 3).unwrap();
    let mut store = store(dir.path());
    for i in 0..60 {
        store.add(window(i), key(1, i)).unwrap();
    }
    let mut courier = courier(&store, target("wallscope", &receiver.url(), ""));
    let failures = drain(&mut courier);
    assert!(failures > 30, "{failures}");
    let windows = receiver.windows().unwrap();
    for stored in store.windows() {
        let own = std::fs::read(&stored.path).unwrap();
        assert_eq!(windows.get(&stored.name.key.path()), Some(&own));
    }
    let received = receiver.received();
    assert_eq!((windows.len(), received.len()), (60, 60));
    assert!(received.values().any(|r| r.times > 1), "no answer was lost");
    assert!(
        received
            .values()
            .all(|r| r.acknowledged == 1 && !r.differed)
    );
    let figures = courier.figures().figures;
    assert_eq!((figures.delivered, figures.pending), (60, 0));
    assert_eq!(figures.failures as usize, failures);
}

/// The delivering process of the next test; does nothing as a test.
#[test]
fn delivering_process() {
    let Ok(told) = std::env::var(CHILD) else {
        return;
    };
    let words: Vec<&str> = told.split(' ').collect();
    let [dir, epoch, url, first] = words[..] else {
        panic!("{told}");
    };
    let (epoch, first): (u64, u64) = (epoch.parse().unwrap(), first.parse().unwrap());
    let mut store = store(Path::new(dir));
    let mut courier = courier(&store, target("wallscope", url, ""));
    for sequence in 0.. {
        let added = store
            .add(window(first + sequence), key(epoch, sequence))
            .unwrap();
        // On standard error: the test harness keeps standard output. In one write, which no kill divides.
        let line = format!("added {}\n", added.name.key.path());
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        for _ in 0..3 {
            courier.step();
        }
    }
}

#[test]
fn kill_at_random_moments_loses_no_closed_window() {
    let kills: u64 = std::env::var("WALLSCOPE_KILLS").map_or(20, |n| n.parse().unwrap());
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(kept.path(), 30, 5).unwrap();
    let mut random = wallscope_synthetic::Random(11);
    let mut added = BTreeSet::new();
    for epoch in 1..=kills {
        let told = format!(
            "{} {epoch} {} {}",
            dir.path().display(),
            receiver.url(),
            epoch * 1000
        );
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["delivering_process", "--exact", "--nocapture"])
            .env(CHILD, told)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let reader = std::thread::spawn(move || -> Vec<String> {
            let added = |l: String| l.strip_prefix("added ").map(str::to_string);
            lines.map_while(Result::ok).filter_map(added).collect()
        });
        std::thread::sleep(Duration::from_millis(60 + random.below(250)));
        child.kill().unwrap();
        child.wait().unwrap();
        added.extend(reader.join().unwrap());
    }
    let store = store(dir.path());
    drain(&mut courier(
        &store,
        target("wallscope", &receiver.url(), ""),
    ));
    let windows = receiver.windows().unwrap();
    let received = receiver.received();
    println!(
        "{kills} kills: {} windows told as closed, {} delivered, {} sent more than once",
        added.len(),
        windows.len(),
        received.values().filter(|r| r.times > 1).count()
    );
    assert!(
        added.len() as u64 > kills,
        "the processes hardly ran: {}",
        added.len()
    );
    // Every closed window is there; a window that was closed and not told may be, too.
    for path in &added {
        assert!(windows.contains_key(path), "{path} is lost");
    }
    assert!(windows.len() <= added.len() + kills as usize);
    let mut wall = BTreeMap::new();
    for (path, bytes) in &windows {
        let key = WindowKey::from_path(path).unwrap();
        let expected = window(key.epoch * 1000 + key.sequence);
        let read = wallscope_formats::read(bytes, Default::default())
            .unwrap()
            .recording;
        assert_eq!(read.contexts, expected.contexts, "{path}");
        *wall.entry(key.epoch).or_insert(0) += 1;
    }
    assert!(received.values().all(|r| !r.differed));
    // No outbox holds an acknowledged window.
    assert!(store.outboxes()[0].1.pending().unwrap().is_empty());
}

#[test]
fn a_refused_window_does_not_block_the_others() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(kept.path(), 0, 1).unwrap();
    let mut store = store(dir.path());
    for i in 0..3 {
        store.add(window(i), key(1, i)).unwrap();
    }
    // The receiver knows no such path: 400 for each.
    let url = format!("{}/elsewhere", receiver.url());
    let mut courier = courier(&store, target("wallscope", &url, ""));
    assert_eq!(drain(&mut courier), 0);
    let state = courier.figures();
    assert_eq!((state.figures.refused, state.figures.delivered), (3, 0));
    assert!(
        state
            .error
            .as_deref()
            .is_some_and(|e| e.contains("answer 400"))
    );
}

/// A receiver that is away for so long that windows are dropped hears of each of them when it is back: a dropped
/// window takes along its report of those before it, and that report is not forgotten.
#[test]
fn a_receiver_that_was_away_hears_of_each_dropped_window() {
    const WINDOWS: u64 = 30;
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let size = store(dir.path()).add(window(0), key(1, 0)).unwrap().bytes;
    let caps = Caps {
        bytes: 8 * size,
        ..CAPS
    };
    let mut store = Store::open(dir.path(), caps, &["server".to_string()]).unwrap();
    let away = {
        let gone = Receiver::start(kept.path(), 0, 1).unwrap();
        target("wallscope", &gone.url(), "")
    };
    let mut courier = self::courier(&store, away);
    for i in 1..WINDOWS {
        assert!(matches!(courier.step(), Step::Wait(_)));
        store.add(window(i), key(1, i)).unwrap();
    }
    let state = courier.figures();
    assert_eq!(state.figures.failures, WINDOWS - 1);
    assert!(state.error.is_some() && state.figures.delivered == 0);
    let receiver = Receiver::start(kept.path(), 0, 1).unwrap();
    let back = target("wallscope", &receiver.url(), "");
    assert_eq!(drain(&mut self::courier(&store, back)), 0);
    let windows = receiver.windows().unwrap();
    assert!((2..WINDOWS as usize).contains(&windows.len()));
    let cause = undelivered("server");
    let mut told = store.untold().get(&cause).copied().unwrap_or(0);
    for bytes in windows.values() {
        let read = wallscope_formats::read(bytes, Default::default()).unwrap();
        let losses = read.recording.losses.iter();
        told += losses
            .filter(|l| l.cause == cause)
            .map(|l| l.count)
            .sum::<u64>();
    }
    assert_eq!(told + windows.len() as u64, WINDOWS);
}

#[test]
fn the_thread_wakes_drains_and_ends() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(kept.path(), 0, 1).unwrap();
    let mut store = store(dir.path());
    let courier = courier(&store, target("wallscope", &receiver.url(), ""));
    let thread = CourierThread::start(courier).unwrap();
    for i in 0..5 {
        store.add(window(i), key(1, i)).unwrap();
        thread.wake();
    }
    let figures = thread.drain(Duration::from_secs(20)).figures;
    assert_eq!(
        (figures.delivered, receiver.windows().unwrap().len()),
        (5, 5)
    );
    // A receiver that is away does not hold the end up.
    let url = receiver.url();
    drop(receiver);
    let courier = self::courier(&store, target("wallscope", &url, ""));
    store.add(window(9), key(1, 9)).unwrap();
    let thread = CourierThread::start(courier).unwrap();
    let started = Instant::now();
    let state = thread.drain(Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(state.figures.pending, 1);
    assert!(state.error.is_some());
}
