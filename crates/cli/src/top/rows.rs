//! A snapshot as lines: by thread, by function, and stacks.

use std::collections::HashMap;

use wallscope_analysis::view::{Analysis, Idle};
use wallscope_model::units;
use wallscope_model::{BlockReason, Recording, StackId, State};

/// The thread or function of a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LineOf {
    /// A thread by process and thread id.
    Thread(u32, u32),
    /// A function by name.
    Function(String),
}

/// A line.
#[derive(Clone, Debug)]
pub struct TopRow {
    /// The line's thread or function.
    pub of: LineOf,
    /// Its name.
    pub name: String,
    /// Its thread id, or nothing.
    pub id: String,
    /// Time by state, ns, indexed by `State as usize`.
    pub ns: [u64; State::COUNT],
    /// Its block reasons, most first.
    pub waits: String,
}

impl TopRow {
    /// Time in all states, ns.
    pub fn wall_ns(&self) -> u64 {
        self.ns.iter().sum()
    }

    /// Time in `state`, ns.
    pub fn state_ns(&self, state: State) -> u64 {
        self.ns[state as usize]
    }
}

/// Lines, and the time and lines that were left out.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The lines, in no order.
    pub rows: Vec<TopRow>,
    /// Idle time that is hidden, ns.
    pub hidden_ns: u64,
    /// Lines with idle time only, which are hidden.
    pub hidden: usize,
}

/// A stack and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackLine {
    /// State.
    pub state: State,
    /// Block reason, or part of the state.
    pub reason: Option<&'static str>,
    /// Time, ns.
    pub ns: u64,
    /// Functions, innermost first.
    pub frames: Vec<String>,
}

/// Reasons with their shares of `whole`, most first, those that matter.
fn waits(blocked: &[u64; BlockReason::COUNT], whole: u64) -> String {
    let mut all: Vec<(u64, &str)> = BlockReason::ALL
        .iter()
        .map(|r| (blocked[*r as usize], r.name()))
        .filter(|(ns, _)| *ns > 0 && *ns * 100 >= whole)
        .collect();
    all.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let words: Vec<String> = all
        .iter()
        .take(3)
        .map(|(ns, name)| format!("{name} {}", units::share_of(*ns, whole)))
        .collect();
    words.join(", ")
}

/// Lines by thread.
pub fn threads(recording: &Recording, treat: Idle) -> Rows {
    // Idle time of each thread by reason.
    let mut idle: HashMap<u32, [u64; BlockReason::COUNT]> = HashMap::new();
    let analysis = Analysis::new(recording, Idle::Show);
    for p in &analysis.scaled.pieces {
        let s = &recording.samples[p.sample as usize];
        if let (true, Some(reason)) = (s.idle, s.reason) {
            idle.entry(p.context.0).or_default()[reason as usize] += p.ns;
        }
    }
    let mut out = Rows::default();
    for (i, c) in (0u32..).zip(&recording.contexts) {
        let parked = idle.get(&i).copied().unwrap_or_default();
        let mut blocked = c.ledger.blocked;
        let mut ns = [0; State::COUNT];
        for state in State::ALL {
            ns[*state as usize] = c.ledger.state_ns(*state);
        }
        match treat {
            Idle::Show => {}
            Idle::Hide => {
                for (all, idle) in blocked.iter_mut().zip(parked) {
                    *all = all.saturating_sub(idle);
                }
                out.hidden_ns += parked.iter().sum::<u64>();
            }
            Idle::Only => {
                blocked = parked;
                ns = [0; State::COUNT];
            }
        }
        ns[State::Blocked as usize] = blocked.iter().sum();
        let wall: u64 = ns.iter().sum();
        // A thread that only turned over in its sleep has done nothing worth a line.
        if wall == 0 || (treat == Idle::Hide && wall * 1000 < c.ledger.wall_ns) {
            out.hidden += usize::from(c.ledger.wall_ns > 0);
            continue;
        }
        out.rows.push(TopRow {
            of: LineOf::Thread(c.pid, c.tid),
            name: c.name.to_string(),
            id: c.tid.to_string(),
            ns,
            waits: waits(&blocked, wall),
        });
    }
    out
}

/// Lines by function: the innermost own function of the program on each stack.
pub fn functions(recording: &Recording, treat: Idle) -> Rows {
    let analysis = Analysis::new(recording, treat);
    let c = analysis.calibration(|_| true);
    let mut reasons: HashMap<String, [u64; BlockReason::COUNT]> = HashMap::new();
    for (p, place) in placed(&analysis) {
        if let Some(reason) = recording.samples[p.0].reason {
            reasons.entry(place).or_default()[reason as usize] += p.1;
        }
    }
    let rows = c.rows.into_iter().map(|r| {
        let blocked = reasons.get(&r.function).copied().unwrap_or_default();
        TopRow {
            waits: waits(&blocked, r.wall_ns()),
            of: LineOf::Function(r.function.clone()),
            name: r.function,
            id: String::new(),
            ns: r.ns,
        }
    });
    Rows {
        rows: rows.collect(),
        hidden_ns: c.idle_ns,
        hidden: 0,
    }
}

/// Sample and time of each piece, with its function.
fn placed<'a>(analysis: &'a Analysis<'_>) -> impl Iterator<Item = ((usize, u64), String)> + 'a {
    let mut places: HashMap<StackId, String> = HashMap::new();
    analysis.scaled.pieces.iter().map(move |p| {
        let stack = analysis.recording.samples[p.sample as usize].stack;
        let place = places
            .entry(stack)
            .or_insert_with(|| analysis.place(stack).unwrap_or_default());
        ((p.sample as usize, p.ns), place.clone())
    })
}

/// The stacks of `of`, most time first.
pub fn stacks(recording: &Recording, of: &LineOf, treat: Idle) -> Vec<StackLine> {
    let analysis = Analysis::new(recording, Idle::Show);
    let mut sums: HashMap<(StackId, State, Option<&'static str>), u64> = HashMap::new();
    for p in &analysis.scaled.pieces {
        let s = &recording.samples[p.sample as usize];
        let shown = match treat {
            Idle::Show => true,
            Idle::Hide => !s.idle,
            Idle::Only => s.idle,
        };
        let c = &recording.contexts[p.context.0 as usize];
        let wanted = match of {
            LineOf::Thread(pid, tid) => (c.pid, c.tid) == (*pid, *tid),
            LineOf::Function(name) => analysis.place(s.stack).as_deref() == Some(name),
        };
        if shown && wanted {
            *sums.entry((s.stack, s.state, s.reason_name())).or_default() += p.ns;
        }
    }
    // Stacks that differ only in addresses look the same.
    let mut lines: Vec<StackLine> = Vec::new();
    for ((stack, state, reason), ns) in sums {
        let frames = analysis.folded_frames(stack);
        let same =
            |l: &&mut StackLine| (l.state, l.reason) == (state, reason) && l.frames == frames;
        match lines.iter_mut().find(same) {
            Some(line) => line.ns += ns,
            None => lines.push(StackLine {
                state,
                reason,
                ns,
                frames,
            }),
        }
    }
    lines.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.frames.cmp(&b.frames)));
    lines
}
