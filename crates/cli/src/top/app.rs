//! The shown state of a snapshot, and the effect of keys.

use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use wallscope_analysis::view::Idle;
use wallscope_model::{Recording, State};

use super::rows::{self, LineOf, Rows, StackLine, TopRow};

/// A snapshot with names.
pub struct Frame {
    /// The recording of its interval.
    pub recording: Recording,
    /// Time since the start.
    pub elapsed: Duration,
    /// Snapshots left out before it, as naming took too long.
    pub skipped: usize,
}

/// The part that does not change.
#[derive(Clone, Debug, Default)]
pub struct Header {
    /// The target in words.
    pub target: String,
    /// The contract's name of the backend.
    pub backend: &'static str,
}

/// What lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LineKind {
    /// Threads
    Threads,
    /// The program's own functions
    Functions,
}

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// All time
    Wall,
    /// Computing
    OnCpu,
    /// Waiting for a CPU
    Runq,
    /// Waiting for something else
    Blocked,
    /// The alphabet
    Name,
}

impl Sort {
    /// All, in the order in which a key goes through them.
    const ALL: [Sort; 5] = [
        Sort::Wall,
        Sort::OnCpu,
        Sort::Runq,
        Sort::Blocked,
        Sort::Name,
    ];

    /// Its name on the screen.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Wall => "wall",
            Sort::OnCpu => "on-CPU",
            Sort::Runq => "runq",
            Sort::Blocked => "blocked",
            Sort::Name => "name",
        }
    }

    fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|s| *s == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    fn value(self, row: &TopRow) -> u64 {
        match self {
            Sort::Wall => row.wall_ns(),
            Sort::OnCpu => row.state_ns(State::OnCpu),
            Sort::Runq => row.state_ns(State::Runnable),
            Sort::Blocked => row.state_ns(State::Blocked),
            Sort::Name => 0,
        }
    }
}

/// Where keys go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The lines.
    Lines,
    /// The stacks of one of them, from this one on.
    Stacks(LineOf, String, usize),
    /// A filter is being typed.
    Typing,
    /// The help for keys is shown.
    Help,
}

/// State of the view.
pub struct App {
    /// The part that does not change.
    pub header: Header,
    /// What lines are.
    pub by: LineKind,
    /// What comes first.
    pub sort: Sort,
    /// Treatment of idle time.
    pub idle: Idle,
    /// Only lines with this in their name.
    pub filter: String,
    /// Where keys go.
    pub mode: Mode,
    /// Whether the shown snapshot stays.
    pub paused: bool,
    /// The target has ended.
    pub ended: bool,
    /// The snapshot that is shown.
    pub frame: Option<Arc<Frame>>,
    /// Its lines, sorted and filtered.
    pub lines: Vec<TopRow>,
    /// Time and lines that were left out of them.
    pub rows: Rows,
    /// The stacks of the line that was entered.
    pub stacks: Vec<StackLine>,
    /// The user's place among the lines.
    pub position: Position,
    newest: Option<Arc<Frame>>,
}

/// A place among the lines.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// The selected line.
    pub selected: usize,
    /// The first line on the screen.
    pub first: usize,
    /// The thread or function that the selection follows.
    follows: Option<LineOf>,
}

impl App {
    /// An app with nothing to show yet.
    pub fn new(by: LineKind, sort: Sort, idle: Idle, filter: String) -> App {
        App {
            header: Header::default(),
            by,
            sort,
            idle,
            filter,
            mode: Mode::Lines,
            paused: false,
            ended: false,
            frame: None,
            lines: Vec::new(),
            rows: Rows::default(),
            stacks: Vec::new(),
            position: Position::default(),
            newest: None,
        }
    }

    /// Takes a new snapshot; it is shown at once unless paused.
    pub fn take(&mut self, frame: Arc<Frame>) {
        self.newest = Some(frame.clone());
        if !self.paused {
            self.frame = Some(frame);
            self.renew();
        }
    }

    /// Makes the lines anew.
    fn renew(&mut self) {
        let Some(frame) = self.frame.clone() else {
            return;
        };
        let recording = &frame.recording;
        self.rows = match self.by {
            LineKind::Threads => rows::threads(recording, self.idle),
            LineKind::Functions => rows::functions(recording, self.idle),
        };
        let wanted = self.filter.to_lowercase();
        let mut lines: Vec<TopRow> = std::mem::take(&mut self.rows.rows)
            .into_iter()
            .filter(|r| r.name.to_lowercase().contains(&wanted) || r.id == wanted)
            .collect();
        lines.sort_by(|a, b| {
            let value = |r: &TopRow| (self.sort.value(r), r.wall_ns());
            let by_value = match self.sort {
                Sort::Name => std::cmp::Ordering::Equal,
                _ => value(b).cmp(&value(a)),
            };
            by_value
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a.id.cmp(&b.id))
        });
        self.lines = lines;
        // The selection stays on its thread or function when that moves to another line.
        if let Some(at) = self
            .position
            .follows
            .as_ref()
            .and_then(|f| self.lines.iter().position(|r| r.of == *f))
        {
            self.position.selected = at;
        }
        self.select(self.position.selected);
        if let Mode::Stacks(of, ..) = &self.mode {
            self.stacks = rows::stacks(recording, of, self.idle);
        }
    }

    fn select(&mut self, at: usize) {
        self.position.selected = at.min(self.lines.len().saturating_sub(1));
    }

    fn move_to(&mut self, at: usize) {
        self.select(at);
        self.position.follows = self.lines.get(self.position.selected).map(|r| r.of.clone());
    }

    fn show_by(&mut self, by: LineKind) {
        if self.by != by {
            (self.by, self.position) = (by, Position::default());
        }
        self.mode = Mode::Lines;
        self.renew();
    }

    /// A key; whether to go on.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return false;
        }
        match &self.mode {
            Mode::Typing => self.type_key(key),
            Mode::Help => {
                self.mode = Mode::Lines;
                return key.code != KeyCode::Char('q');
            }
            Mode::Lines | Mode::Stacks(..) => return self.command(key),
        }
        true
    }

    fn type_key(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => self.mode = Mode::Lines,
            KeyCode::Esc => {
                self.mode = Mode::Lines;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.renew();
    }

    fn command(&mut self, key: KeyEvent) -> bool {
        let page = 10;
        let at = match &mut self.mode {
            Mode::Stacks(_, _, first) => first,
            _ => &mut self.position.selected,
        };
        let to = match key.code {
            KeyCode::Up | KeyCode::Char('k') => Some(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => Some(*at + 1),
            KeyCode::PageUp => Some(at.saturating_sub(page)),
            KeyCode::PageDown => Some(*at + page),
            KeyCode::Home => Some(0),
            KeyCode::End => Some(usize::MAX),
            _ => None,
        };
        if let Some(to) = to {
            match &mut self.mode {
                Mode::Stacks(_, _, first) => *first = to.min(self.stacks.len().saturating_sub(1)),
                _ => self.move_to(to),
            }
            return true;
        }
        match key.code {
            KeyCode::Char('q') => return false,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('t') => self.show_by(LineKind::Threads),
            KeyCode::Char('f') => self.show_by(LineKind::Functions),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.renew();
            }
            KeyCode::Char('i') => {
                self.idle = match self.idle {
                    Idle::Hide => Idle::Show,
                    Idle::Show => Idle::Only,
                    Idle::Only => Idle::Hide,
                };
                self.renew();
            }
            KeyCode::Char(' ' | 'p') => {
                self.paused = !self.paused;
                if !self.paused && self.newest.is_some() {
                    self.frame = self.newest.clone();
                    self.renew();
                }
            }
            KeyCode::Char('/') => self.mode = Mode::Typing,
            KeyCode::Enter | KeyCode::Right => {
                if let (Mode::Lines, Some(row)) =
                    (&self.mode, self.lines.get(self.position.selected))
                {
                    self.position.follows = Some(row.of.clone());
                    self.mode = Mode::Stacks(row.of.clone(), row.name.clone(), 0);
                    self.renew();
                }
            }
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => {
                if self.mode == Mode::Lines && !self.filter.is_empty() {
                    self.filter.clear();
                }
                self.mode = Mode::Lines;
                self.renew();
            }
            _ => {}
        }
        true
    }
}
