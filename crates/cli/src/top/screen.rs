//! Drawing, and the loop of keys and snapshots.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
use wallscope_analysis::view::Idle;
use wallscope_model::State;
use wallscope_model::units;
use wallscope_render::text::clean;

use super::app::{App, Frame, LineKind, Mode, Sort};
use super::rows::TopRow;

/// Longest wait for a key before the next check for a new snapshot.
const PATIENCE: Duration = Duration::from_millis(150);

/// The colour of a state, as in reports.
fn colour(state: State) -> Color {
    match state {
        State::OnCpu => Color::Green,
        State::Runnable => Color::Yellow,
        State::Blocked => Color::Blue,
        State::Unknown => Color::Magenta,
    }
}

/// Character of a state in a bar.
fn glyph(state: State) -> char {
    match state {
        State::OnCpu => '█',
        State::Runnable => '▓',
        State::Blocked => '░',
        State::Unknown => '?',
    }
}

const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// Shows snapshots until the user quits, or `quit` is set. False: the session was over before the first snapshot.
///
/// # Errors
/// The terminal cannot be used.
pub fn run(mut app: App, frames: &Receiver<Arc<Frame>>, quit: &AtomicBool) -> io::Result<bool> {
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, &mut app, frames, quit);
    ratatui::restore();
    outcome
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    app: &mut App,
    frames: &Receiver<Arc<Frame>>,
    quit: &AtomicBool,
) -> io::Result<bool> {
    let mut stale = true;
    let mut cost = OwnCost::new();
    loop {
        if quit.load(Ordering::Relaxed) {
            return Ok(true);
        }
        loop {
            match frames.try_recv() {
                Ok(frame) => {
                    cost.tick();
                    app.take(frame);
                    stale = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    if app.frame.is_none() {
                        return Ok(false);
                    }
                    stale |= !app.ended;
                    app.ended = true;
                    break;
                }
            }
        }
        if stale {
            terminal.draw(|f| draw(app, cost.share, f.area(), f))?;
            stale = false;
        }
        if event::poll(PATIENCE)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if !app.key(key) {
                        return Ok(true);
                    }
                    stale = true;
                }
                Event::Resize(..) => stale = true,
                _ => {}
            }
        }
    }
}

/// This program's own share of one CPU, measured from snapshot to snapshot.
struct OwnCost {
    last: (Instant, Duration),
    share: Option<f64>,
}

impl OwnCost {
    fn new() -> OwnCost {
        OwnCost {
            last: (Instant::now(), own_cpu()),
            share: None,
        }
    }

    fn tick(&mut self) {
        let now = (Instant::now(), own_cpu());
        let wall = now.0.duration_since(self.last.0).as_secs_f64();
        if wall > 0.1 {
            let cpu = now.1.saturating_sub(self.last.1).as_secs_f64();
            self.share = Some(cpu / wall);
            self.last = now;
        }
    }
}

fn own_cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// The first snapshot as plain text, `width` cells wide and as high as it takes.
pub fn as_text(app: &mut App, width: usize) -> String {
    let height = (app.lines.len() + 6).clamp(10, 60) as u16;
    let width = width.clamp(40, 400) as u16;
    let area = Rect::new(0, 0, width, height);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|f| draw(app, None, area, f));
    let buffer = terminal.backend().buffer();
    let mut out = String::new();
    // The last line explains keys, which have no effect here.
    for y in 0..height - 1 {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let kept = out.trim_end().len();
    out.truncate(kept);
    out.push('\n');
    out
}

fn draw(app: &mut App, cost: Option<f64>, area: Rect, f: &mut ratatui::Frame<'_>) {
    let (width, height) = (area.width as usize, area.height as usize);
    let mut lines = head(app, cost, width);
    let room = height.saturating_sub(lines.len() + 1);
    match &app.mode {
        _ if app.frame.is_none() => {}
        Mode::Help => lines.extend(help()),
        Mode::Stacks(_, name, first) => {
            let title = format!("stacks of {}", clean(name));
            lines.push(Line::styled(fit(&title, width), STRONG));
            lines.extend(stacks(app, *first, width, room.saturating_sub(1)));
        }
        Mode::Lines | Mode::Typing => {
            let room = room.saturating_sub(1);
            // The selected line is always among those shown.
            let p = &mut app.position;
            p.first = p
                .first
                .min(p.selected)
                .max((p.selected + 1).saturating_sub(room.max(1)));
            lines.extend(table(app, width, room));
        }
    }
    lines.truncate(height.saturating_sub(1));
    while lines.len() + 1 < height {
        lines.push(Line::default());
    }
    lines.push(foot(app, width));
    f.render_widget(Paragraph::new(lines), area);
}

/// The target, and the sum of all lines.
fn head(app: &App, cost: Option<f64>, width: usize) -> Vec<Line<'static>> {
    let mut title = format!(
        "wallscope top  {}  {} backend",
        clean(&app.header.target),
        app.header.backend
    );
    let Some(frame) = &app.frame else {
        title += "  measuring…";
        return vec![Line::styled(fit(&title, width), STRONG)];
    };
    let window = &frame.recording.window;
    let length = window.length_ns();
    title += &format!(
        "  {} in {}, at {:.0} s",
        match frame.recording.contexts.len() {
            1 => "1 thread".to_string(),
            n => format!("{n} threads"),
        },
        units::ns(length),
        frame.elapsed.as_secs_f64()
    );
    if let Some(share) = cost {
        title += &format!("  own CPU {:.1} %", share * 100.0);
    }
    if frame.skipped > 0 {
        title += &format!("  {} intervals left out", frame.skipped);
    }
    if app.paused {
        title += "  PAUSED";
    }
    if app.ended {
        title += "  ENDED";
    }
    let mut sum = [0u64; State::COUNT];
    for row in &app.lines {
        for (sum, ns) in sum.iter_mut().zip(row.ns) {
            *sum += ns;
        }
    }
    let all: u64 = sum.iter().sum();
    let mut total = vec![Span::raw("all  ")];
    let cells = width.saturating_sub(75).clamp(8, 40);
    total.extend(bar(&sum, all.max(1), cells));
    for (state, name) in [
        (State::OnCpu, "on-CPU"),
        (State::Runnable, "runq"),
        (State::Blocked, "blocked"),
    ] {
        let share = units::share_of(sum[state as usize], all);
        total.push(Span::raw("  "));
        total.push(Span::styled(
            format!("{name} {share}"),
            Style::new().fg(colour(state)),
        ));
    }
    if app.rows.hidden_ns > 0 {
        let hidden = match app.rows.hidden {
            0 => format!("  {} idle hidden", units::ns(app.rows.hidden_ns)),
            n => format!(
                "  {} idle and {n} idle threads hidden",
                units::ns(app.rows.hidden_ns)
            ),
        };
        total.push(Span::styled(hidden, FAINT));
    } else if app.idle == Idle::Only {
        total.push(Span::styled("  idle time only", FAINT));
    }
    vec![
        Line::styled(fit(&title, width), STRONG),
        Line::from(total),
        Line::default(),
    ]
}

/// A bar of `cells` cells; its full length is `whole` ns.
fn bar(ns: &[u64; State::COUNT], whole: u64, cells: usize) -> Vec<Span<'static>> {
    let (mut sum, mut given) = (0u64, 0usize);
    let mut out = Vec::new();
    for state in State::ALL {
        let part = ns[*state as usize];
        sum += part;
        let upto = (sum as f64 / whole as f64 * cells as f64).round() as usize;
        let own = upto
            .saturating_sub(given)
            .max(usize::from(part > whole / 200))
            .min(cells - given);
        given += own;
        let run: String = std::iter::repeat_n(glyph(*state), own).collect();
        out.push(Span::styled(run, Style::new().fg(colour(*state))));
    }
    out.push(Span::raw(" ".repeat(cells - given)));
    out
}

fn table(app: &App, width: usize, room: usize) -> Vec<Line<'static>> {
    let by_thread = app.by == LineKind::Threads;
    let name = match width {
        0..80 => 16,
        80..120 if by_thread => 16,
        _ if by_thread => 20,
        w => (w * 2 / 5).max(24),
    };
    let cells = if width < 90 { 10 } else { 20 };
    let what = if by_thread { "thread" } else { "function" };
    let id = if by_thread { 8 } else { 0 };
    let mark = |sort: Sort, text: &str| {
        if app.sort == sort {
            format!("{text}*")
        } else {
            text.to_string()
        }
    };
    let mut head = format!("{:<name$}", mark(Sort::Name, what));
    if by_thread {
        head += &format!(" {:>7}", "tid");
    }
    head += &format!(
        " {:cells$} {:>8} {:>8} {:>8} {:>8}  waits for",
        "",
        mark(Sort::Wall, "wall"),
        mark(Sort::OnCpu, "on-CPU"),
        mark(Sort::Runq, "runq"),
        mark(Sort::Blocked, "blocked"),
    );
    let mut out = vec![Line::styled(fit(&head, width), FAINT)];
    let most = app.lines.iter().map(TopRow::wall_ns).max().unwrap_or(0);
    for (i, row) in app
        .lines
        .iter()
        .enumerate()
        .skip(app.position.first)
        .take(room)
    {
        let mut spans = vec![Span::raw(pad(&clean(&row.name), name))];
        if by_thread {
            spans.push(Span::raw(format!(" {:>7}", row.id)));
        }
        spans.push(Span::raw(" "));
        spans.extend(bar(&row.ns, most.max(1), cells));
        spans.push(Span::raw(format!(" {:>8}", units::ns(row.wall_ns()))));
        for state in [State::OnCpu, State::Runnable, State::Blocked] {
            let share = units::share_of(row.state_ns(state), row.wall_ns());
            spans.push(Span::styled(
                format!(" {share:>8}"),
                Style::new().fg(colour(state)),
            ));
        }
        let used = name + id + 1 + cells + 9 * 4;
        spans.push(Span::raw(format!(
            "  {}",
            fit(&row.waits, width.saturating_sub(used + 2))
        )));
        let line = Line::from(spans);
        let selected = i == app.position.selected;
        out.push(if selected {
            line.style(Style::new().add_modifier(Modifier::REVERSED))
        } else {
            line
        });
    }
    if app.lines.is_empty() && app.frame.is_some() {
        out.push(Line::raw(if app.filter.is_empty() {
            "nothing but idle time in this interval (i shows it)".to_string()
        } else {
            format!(
                "no line has '{}' in its name (Esc clears the filter)",
                app.filter
            )
        }));
    }
    out
}

fn stacks(app: &App, first: usize, width: usize, room: usize) -> Vec<Line<'static>> {
    let all: u64 = app.stacks.iter().map(|s| s.ns).sum();
    let mut out = Vec::new();
    for stack in app.stacks.iter().skip(first) {
        let state = match stack.reason {
            Some(reason) => format!("{} ({reason})", stack.state.name()),
            None => stack.state.name().to_string(),
        };
        let head = format!(
            "{:>7} {:>9}  ",
            units::share_of(stack.ns, all),
            units::ns(stack.ns)
        );
        out.push(Line::from(vec![
            Span::styled(head, STRONG),
            Span::styled(state, Style::new().fg(colour(stack.state))),
        ]));
        for frame in &stack.frames {
            let kernel = frame.ends_with("_[k]");
            let text = fit(&format!("{:19}{}", "", clean(frame)), width);
            out.push(if kernel {
                Line::styled(text, FAINT)
            } else {
                Line::raw(text)
            });
        }
        if out.len() >= room {
            break;
        }
    }
    if app.stacks.is_empty() {
        out.push(Line::raw("no stack was taken of it in this interval"));
    }
    out.truncate(room);
    out
}

fn help() -> Vec<Line<'static>> {
    [
        "t  threads               f  functions (the innermost of the program's own)",
        "Enter, →  stacks of the selected line          Esc, ←  back",
        "s  sort by wall, on-CPU, runq, blocked, name   /  filter by name",
        "Space  pause             i  idle time: hide, show, only",
        "↑ ↓ PgUp PgDn Home End, j k  move              q  quit",
        "",
        "A bar's parts: █ on a CPU, ▓ waiting for a CPU, ░ blocked. Its whole length is the longest",
        "line's time. A function's time is that of all threads in it. Totals by thread are counted;",
        "what functions and stacks get of them is sampled: some ten samples are a rough figure.",
        "",
        "Any key goes back.",
    ]
    .into_iter()
    .map(Line::raw)
    .collect()
}

fn foot(app: &App, width: usize) -> Line<'static> {
    let text = match &app.mode {
        Mode::Typing => format!("filter: {}▏  Enter keeps it, Esc clears it", app.filter),
        Mode::Stacks(..) => "Esc back  ↑↓ scroll  Space pause  i idle  q quit".to_string(),
        _ => {
            let filter = match app.filter.as_str() {
                "" => String::new(),
                filter => format!("  filter: {filter}"),
            };
            format!(
                "t threads  f functions  Enter stacks  s sort ({})  / filter  Space pause  i idle  ? help  q quit{filter}",
                app.sort.name()
            )
        }
    };
    Line::styled(fit(&text, width), FAINT)
}

/// `text` in at most `width` cells; a truncated text is marked.
fn fit(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let mut used = 1;
    let mut out: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect();
    if width > 0 {
        out.push('…');
    }
    out
}

/// `text` in exactly `width` cells, truncated or padded.
fn pad(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let missing = width.saturating_sub(text.width());
    text + &" ".repeat(missing)
}
