//! Names of functions, remembered from one recording of a session to the next.
//!
//! Reading a program's debug information takes from milliseconds to many seconds. Two threads do that, each for a small
//! share of the time: one for large files, one for the kernel and all other files. So the kernel and small libraries,
//! which are in most stacks, never wait for a compiler's or a browser's gigabyte.
//!
//! A recording waits for the threads within a bound. Functions that have no name by then are shown by their addresses
//! in this recording, and by their names in later ones.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use wallscope_model::{Frame, Function, FunctionId, Line, Recording};

use crate::Sources;
use crate::lookup::{self, FileSize, Key, Named, News, Question, Request};

/// Each thread may look names up for one part in [`SHARE`] of the time.
const SHARE: u32 = 50;

/// CPU time that a thread may take at once after a rest: enough to read the libraries of a host for the first time.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Maximum addresses with names in one generation. Beyond it a new generation begins, and the one before the last is
/// forgotten.
const MAX_KNOWN: usize = 30_000;

/// Names that were found so far, and the threads that look new ones up.
pub struct Names {
    /// Names that were used since the generation began.
    known: HashMap<Key, Named>,
    /// Names of the generation before.
    former: HashMap<Key, Named>,
    lookups: [Lookup; FileSize::ALL.len()],
    news: Receiver<News>,
}

/// A thread that looks names up.
struct Lookup {
    requests: Sender<Request>,
    /// Whether it is at work.
    is_busy: bool,
    budget: Budget,
}

/// CPU time that a thread may take: one part in [`SHARE`] of the time, and [`AT_ONCE`] after a rest. A file that takes
/// more than is left is still read to its end, and the thread rests until the budget is positive again.
struct Budget {
    left_ns: i64,
    /// Time up to which the budget has grown.
    upto: Instant,
}

impl Budget {
    fn full(now: Instant) -> Budget {
        Budget {
            left_ns: AT_ONCE.as_nanos() as i64,
            upto: now,
        }
    }

    /// The CPU time that may be taken from `now` on; `None`: none.
    fn left(&mut self, now: Instant) -> Option<Duration> {
        let grown = now.saturating_duration_since(self.upto) / SHARE;
        self.upto = now;
        self.left_ns = (self.left_ns + grown.as_nanos() as i64).min(AT_ONCE.as_nanos() as i64);
        (self.left_ns > 0).then(|| Duration::from_nanos(self.left_ns as u64))
    }

    fn spend(&mut self, took: Duration) {
        self.left_ns -= took.as_nanos() as i64;
    }
}

impl Lookup {
    fn start(news: Sender<News>, size: FileSize, resolve: lookup::Resolve) -> io::Result<Lookup> {
        let (requests, asked) = channel();
        std::thread::Builder::new()
            .name("lookup".into())
            .spawn(move || lookup::run(&asked, (size, &news), resolve))?;
        Ok(Lookup {
            requests,
            is_busy: false,
            budget: Budget::full(Instant::now()),
        })
    }

    /// Asks a question, if the thread is idle and may work.
    fn ask(&mut self, question: Question, now: Instant) {
        if self.is_busy || question.is_empty() {
            return;
        }
        if let Some(at_most) = self.budget.left(now) {
            self.is_busy = self.requests.send(Request::Name(question, at_most)).is_ok();
        }
    }
}

impl Names {
    /// Starts the threads. They end when the names are dropped, after the files that they read.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new() -> io::Result<Names> {
        Names::looked_up_by(crate::resolve)
    }

    fn looked_up_by(resolve: lookup::Resolve) -> io::Result<Names> {
        let (to_names, news) = channel();
        let [small, large] = FileSize::ALL;
        Ok(Names {
            known: HashMap::new(),
            former: HashMap::new(),
            lookups: [
                Lookup::start(to_names.clone(), small, resolve)?,
                Lookup::start(to_names, large, resolve)?,
            ],
            news,
        })
    }

    /// Forgets all names, to save memory.
    pub fn forget(&mut self) {
        (self.known, self.former) = Default::default();
        for lookup in &self.lookups {
            // If the thread has ended, there is nothing to forget.
            let _ = lookup.requests.send(Request::Forget);
        }
    }

    /// The functions of an address, if they are remembered.
    fn named(&mut self, key: &Key) -> Option<&Named> {
        if let Some((key, named)) = self.former.remove_entry(key) {
            self.known.insert(key, named);
        }
        self.known.get(key)
    }

    /// Names the frames of `recording` that have a known name, or get one within `wait`.
    pub fn name(&mut self, recording: &mut Recording, sources: Sources, wait: Duration) {
        self.hear(Instant::now());
        let all = (0..recording.frames.len()).map(|i| (i, key(recording, i)));
        let unknown = self.fill(recording, all.collect());
        if unknown.is_empty() {
            return;
        }
        let begin = Instant::now();
        let keys = unknown.iter().map(|(_, key)| key.clone()).collect();
        let questions = Question::by_size(keys, recording, sources);
        for (lookup, question) in self.lookups.iter_mut().zip(questions) {
            lookup.ask(question, begin);
        }
        self.hear(begin + wait);
        self.fill(recording, unknown);
    }

    /// Fills the lines of the `wanted` frames with known names. Returns the other frames.
    fn fill(&mut self, recording: &mut Recording, wanted: Vec<(usize, Key)>) -> Vec<(usize, Key)> {
        let mut ids: HashMap<Function, FunctionId> = (0u32..)
            .zip(&recording.functions)
            .map(|(i, f)| (f.clone(), FunctionId(i)))
            .collect();
        let mut unknown = Vec::new();
        for (i, key) in wanted {
            if !recording.frames[i].lines.is_empty() {
                continue;
            }
            let Some(named) = self.named(&key) else {
                unknown.push((i, key));
                continue;
            };
            let functions = &mut recording.functions;
            let lines = named.lines.iter().map(|(function, line)| Line {
                function: *ids.entry(function.clone()).or_insert_with(|| {
                    functions.push(function.clone());
                    FunctionId((functions.len() - 1) as u32)
                }),
                line: *line,
            });
            recording.frames[i].lines = lines.collect();
            if let Some(module) = &named.kernel_module {
                let id = crate::kernel_module(&mut recording.modules, module);
                recording.frames[i].module = Some(id);
            }
        }
        if self.known.len() > MAX_KNOWN {
            self.former = std::mem::take(&mut self.known);
        }
        unknown
    }

    /// Takes the names that the threads have found; waits for the rest until `deadline`.
    fn hear(&mut self, deadline: Instant) {
        while self.lookups.iter().any(|l| l.is_busy) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left) {
                Ok(News::Found(found)) => self.known.extend(found),
                Ok(News::Done(size, took)) => {
                    let lookup = &mut self.lookups[size as usize];
                    lookup.is_busy = false;
                    lookup.budget.spend(took);
                }
                Err(_) => return,
            }
        }
    }
}

/// The key of frame `i`.
fn key(recording: &Recording, i: usize) -> Key {
    let frame: &Frame = &recording.frames[i];
    let module = frame
        .module
        .and_then(|m| recording.modules.get(m.0 as usize));
    (module.cloned(), frame.kind, frame.address)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use wallscope_model::{FrameKind, Loss, Module, ModuleId, ModuleKind};

    use super::*;

    /// Maximum wait for a lookup that is not delayed.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn names_in_use_outlive_a_generation() {
        let key = |address| (None, FrameKind::Native, address);
        let unnamed = || Named {
            kernel_module: None,
            lines: Vec::new(),
        };
        let mut names = Names::new().unwrap();
        for address in 0..2 {
            names.known.insert(key(address), unnamed());
        }
        names.former = std::mem::take(&mut names.known);
        assert!(names.named(&key(1)).is_some());
        names.former = std::mem::take(&mut names.known);
        assert!(names.named(&key(1)).is_some() && names.named(&key(0)).is_none());
    }

    /// A recording with one frame, in a file that does not exist.
    fn recording() -> Recording {
        Recording {
            modules: vec![Module {
                kind: ModuleKind::Elf,
                path: "/no/such/file".into(),
                build_id: "".into(),
                pid: 0,
            }],
            frames: vec![Frame {
                kind: FrameKind::Native,
                module: Some(ModuleId(0)),
                address: 0x1234,
                lines: Vec::new(),
            }],
            ..Recording::default()
        }
    }

    fn name_of(recording: &Recording) -> Option<&str> {
        let line = recording.frames[0].lines.first()?;
        Some(&recording.functions[line.function.0 as usize].name)
    }

    #[test]
    fn what_has_no_name_is_looked_up_once() {
        let mut names = Names::new().unwrap();
        for _ in 0..2 {
            let mut window = recording();
            names.name(&mut window, Sources::default(), LONG);
            assert_eq!(name_of(&window), Some("file+0x1234"));
            assert!(names.lookups.iter().all(|l| !l.is_busy));
        }
    }

    /// Takes 100 ms of CPU time.
    fn dear(recording: &mut Recording, sources: Sources) -> Vec<Loss> {
        let begin = lookup::cpu_time();
        while lookup::cpu_time() - begin < Duration::from_millis(100) {}
        crate::resolve(recording, sources)
    }

    #[test]
    fn a_dear_answer_does_not_delay_the_next_one() {
        let mut names = Names::looked_up_by(dear).unwrap();
        for address in [0x1234, 0x5678] {
            let mut window = recording();
            window.frames[0].address = address;
            names.name(&mut window, Sources::default(), LONG);
            assert!(name_of(&window).is_some());
        }
    }

    #[test]
    fn a_thread_stops_after_the_file_that_takes_the_rest_of_its_time() {
        let mut names = Names::looked_up_by(dear).unwrap();
        let mut window = recording();
        // Two files of unknown size.
        window.modules.push(Module {
            path: "/no/other/file".into(),
            ..window.modules[0].clone()
        });
        window.frames.push(Frame {
            module: Some(ModuleId(1)),
            ..window.frames[0].clone()
        });
        for lookup in &mut names.lookups {
            lookup.budget.left_ns = 1;
        }
        names.name(&mut window.clone(), Sources::default(), LONG);
        assert_eq!(names.known.len(), 1);
        let large = &mut names.lookups[FileSize::Large as usize];
        assert!(large.budget.left_ns < -90_000_000);
        assert_eq!(large.budget.left(Instant::now()), None);
        // A use of 100 ms takes 5 s to regain.
        let later = Instant::now() + Duration::from_secs(6);
        assert!(large.budget.left(later).is_some());
        names.name(&mut window, Sources::default(), LONG);
        assert!(window.frames.iter().all(|f| !f.lines.is_empty()));
    }

    #[test]
    fn rest_is_saved_up_to_a_bound() {
        let now = Instant::now();
        let mut budget = Budget::full(now);
        budget.spend(Duration::from_secs(3));
        assert_eq!(budget.left(now), None);
        let day = now + Duration::from_secs(86_400);
        assert_eq!(budget.left(day), Some(AT_ONCE));
    }

    static GATE: Mutex<()> = Mutex::new(());

    /// Ends when [`GATE`] is open.
    fn slow(recording: &mut Recording, sources: Sources) -> Vec<Loss> {
        drop(GATE.lock());
        crate::resolve(recording, sources)
    }

    #[test]
    fn a_slow_lookup_holds_no_recording_up() {
        let mut names = Names::looked_up_by(slow).unwrap();
        let closed = GATE.lock().unwrap();
        for _ in 0..2 {
            let mut window = recording();
            names.name(&mut window, Sources::default(), Duration::from_millis(1));
            assert_eq!(name_of(&window), None);
        }
        drop(closed);
        let mut window = recording();
        names.name(&mut window, Sources::default(), LONG);
        assert_eq!(name_of(&window), Some("file+0x1234"));
    }
}
