//! A static flame graph as SVG: for a README, a ticket, a slide.
//!
//! One view's stacks, root at the bottom. Each frame is a bar of what its own time was: states in
//! the wall view, reasons off-CPU and in the run queue, the kind of code on-CPU. Frames narrower
//! than a third of a unit are left out (the subtitle says how many). There is no script in it;
//! names, times and shares appear where a viewer shows `<title>`. For more, see [`crate::page`].

use std::io::{self, Write};

use wallscope_model::scale::{NOT_SAMPLED, scale};
use wallscope_model::{BlockReason, Part, Recording, State, Unit, View};

use crate::page::entries::{Entries, Entry, Kind};
use crate::page::trie::Builder;
use crate::text::layout::shorten;
use crate::text::units::value;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const MARGIN: f64 = 10.0;
const HEAD: f64 = 52.0;
const LETTER: f64 = 6.65;
const NARROWEST: f64 = 0.33;
/// More levels than this do not help in a picture that nobody scrolls.
const MOST_LEVELS: usize = 400;

/// What is painted in one colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    State(State),
    Part(Part),
    Reason(BlockReason),
    Own,
    Library,
    Kernel,
    Jit,
    Managed,
    Unknown,
}

impl Class {
    /// The colours of the page (`web/js/palette.js`).
    fn colour(self) -> &'static str {
        match self {
            Class::State(State::OnCpu) => "#eba93b",
            Class::State(State::Runnable) => "#d98cb3",
            Class::State(State::Blocked) => "#6bb5e0",
            Class::State(State::Unknown) => "#909090",
            Class::Unknown => "#9a9a9a",
            Class::Part(Part::Woken) => "#e3a6c4",
            Class::Part(Part::Preempted) => "#c9719f",
            Class::Part(_) => "#b06090",
            Class::Reason(reason) => match reason {
                BlockReason::Lock => "#4f95c9",
                BlockReason::Gil => "#7f8fd0",
                BlockReason::Disk => "#4fb39a",
                BlockReason::Network => "#6bc3e6",
                BlockReason::Pipe => "#93cfc6",
                BlockReason::Timer => "#b7d3ea",
                BlockReason::Poll => "#d3dfe8",
                BlockReason::Child => "#a3a6dd",
                BlockReason::PageFault => "#7fb08d",
                BlockReason::Memory => "#5c9d8c",
                BlockReason::KernelLock => "#7a9fc4",
                BlockReason::Stopped => "#b9bfc7",
                BlockReason::Other => "#8fb3cc",
            },
            Class::Own => "#f0c75e",
            Class::Library => "#93cfa4",
            Class::Kernel => "#e89272",
            Class::Jit => "#b8a2dc",
            Class::Managed => "#7fa8f5",
        }
    }

    fn title(self) -> String {
        match self {
            Class::State(State::OnCpu) => "on CPU".into(),
            Class::State(State::Unknown) => "not seen".into(),
            Class::State(state) => state.name().into(),
            Class::Part(part) => part.name().into(),
            Class::Reason(reason) => reason.name().replace('_', " "),
            Class::Own => "own code".into(),
            Class::Library => "library".into(),
            Class::Kernel => "kernel".into(),
            Class::Jit => "made at run time".into(),
            Class::Managed => "managed (Python, Java)".into(),
            Class::Unknown => "not known".into(),
        }
    }

    /// The class of time in `state`, where a view is painted by time; `None`: by code.
    fn of_time(view: View, state: State, reason: Option<&str>) -> Option<Class> {
        match view {
            View::Wall => Some(Class::State(state)),
            View::OnCpu => None,
            View::OffCpu | View::RunQueue => {
                let block = reason.and_then(BlockReason::from_name).map(Class::Reason);
                let part = || reason.and_then(Part::from_name).map(Class::Part);
                Some(block.or_else(part).unwrap_or(Class::State(state)))
            }
        }
    }

    fn of_code(recording: &Recording, entry: &Entry) -> Class {
        let library = || {
            let module = entry.module.checked_sub(1);
            let path = module.and_then(|m| recording.modules.get(m as usize));
            path.is_some_and(|m| {
                let path = &*m.path;
                let folder = |name| path.contains(name);
                path == "[vdso]"
                    || path.ends_with(".so")
                    || path.contains(".so.")
                    || path.starts_with('<')
                    || ["/python3", "/site-packages/", "/dist-packages/"]
                        .into_iter()
                        .any(folder)
            })
        };
        match entry.kind {
            Kind::Kernel => Class::Kernel,
            Kind::Jit => Class::Jit,
            Kind::Mark => Class::Unknown,
            Kind::Native | Kind::Managed if library() => Class::Library,
            Kind::Managed => Class::Managed,
            Kind::Native => Class::Own,
        }
    }
}

/// The tree of one view, nodes in depth-first order.
struct Tree {
    entry: Vec<u32>,
    parent: Vec<u32>,
    depth: Vec<u32>,
    total: Vec<u64>,
    /// Time at the node itself, by class.
    own: Vec<(u32, Class, u64)>,
}

impl Tree {
    fn of(recording: &Recording, view: View, entries: &mut Entries) -> Tree {
        let scaled = scale(recording);
        let mut builder = Builder::new();
        let mut time = Vec::new();
        let (mut path, mut ids) = (Vec::new(), Vec::new());
        for piece in &scaled.pieces {
            let Some(sample) = recording.samples.get(piece.sample as usize) else {
                continue;
            };
            if !view.includes(sample.state) || piece.ns == 0 {
                continue;
            }
            entries.path(recording, sample.stack.0, &mut path);
            ids.clear();
            ids.extend(path.iter().map(|(entry, _)| *entry));
            let class = Class::of_time(view, sample.state, sample.reason_name());
            time.push((builder.add(&ids, piece.ns), class, piece.ns));
        }
        let mark = entries.mark(NOT_SAMPLED.to_owned());
        for rest in &scaled.unsampled {
            if view.includes(rest.state) && rest.ns > 0 {
                let class = Class::of_time(view, rest.state, rest.reason);
                time.push((builder.add(&[mark], rest.ns), class, rest.ns));
            }
        }
        let trie = builder.finish();
        let n = trie.entry.len();
        let (mut parent, mut depth) = (vec![0u32; n], vec![0u32; n]);
        let mut open = vec![0u32];
        for node in 1..n {
            let above = open.len() - trie.pops[node] as usize;
            open.truncate(above);
            parent[node] = open.last().copied().unwrap_or(0);
            depth[node] = above as u32;
            open.push(node as u32);
        }
        let mut total = vec![0u64; n];
        let mut own = Vec::with_capacity(time.len());
        for (node, class, ns) in time {
            let node = trie.renumbered[node as usize];
            total[node as usize] += ns;
            own.push((node, class.unwrap_or(Class::Unknown), ns));
        }
        for node in (1..n).rev() {
            total[parent[node] as usize] += total[node];
        }
        Tree {
            entry: trie.entry,
            parent,
            depth,
            total,
            own,
        }
    }
}

/// Writes the flame graph of `view`.
///
/// # Errors
/// Those of `out`.
pub fn write(recording: &Recording, view: View, out: &mut dyn Write) -> io::Result<()> {
    let mut entries = Entries::of(recording);
    let tree = Tree::of(recording, view, &mut entries);
    let all = tree.total[0].max(1);
    let unit = (WIDTH - 2.0 * MARGIN) / all as f64;
    let shown = |node: usize| tree.total[node] as f64 * unit >= NARROWEST;
    let n = tree.entry.len();

    // Left ends: children in their order, each after what came before it.
    let mut left = vec![0u64; n];
    let mut next = vec![0u64; n];
    for node in 1..n {
        let p = tree.parent[node] as usize;
        left[node] = next[p];
        next[p] += tree.total[node];
        next[node] = left[node];
    }
    let deep = |n: &usize| tree.depth[*n] as usize >= MOST_LEVELS;
    let drawn: Vec<usize> = (0..n)
        .filter(|n| *n == 0 || shown(*n) && !deep(n))
        .collect();
    let levels = drawn.iter().map(|d| tree.depth[*d]).max().unwrap_or(0) as usize + 1;
    let (parts, classes) = parts(recording, view, &entries, &tree, &drawn);

    let height = HEAD + levels as f64 * ROW + 30.0;
    let title = match recording.domain.target.as_str() {
        "" => view.name().to_string(),
        target => format!("{}: {}", view.name(), shorten(target, 110)),
    };
    let cut = (0..n).filter(deep).count();
    let mut also = String::new();
    if n > drawn.len() + cut {
        also += &format!("; {} frames too narrow to draw", n - drawn.len() - cut);
    }
    if cut > 0 {
        let deepest = tree.depth.iter().max().copied().unwrap_or(0);
        also += &format!("; {cut} frames above level {MOST_LEVELS} of {deepest} left out");
    }
    let threads = match recording.contexts.len() {
        1 => "one thread".to_string(),
        n => format!("{n} threads"),
    };
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"ui-monospace, DejaVu Sans Mono, \
         Menlo, Consolas, monospace\" font-size=\"11\">\n<title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"21\" font-size=\"15\" fill=\"#1b1b1b\">{}</text>\n\
         <text x=\"{MARGIN}\" y=\"39\" fill=\"#62666a\">{}</text>",
        escape(&title),
        escape(&title),
        escape(&format!(
            "{} of {threads}; width is time, not order{also}",
            amount(&recording.domain.unit, tree.total[0])
        )),
    )?;
    for (i, &node) in drawn.iter().enumerate() {
        let name = match node {
            0 => "all",
            _ => &entries.all[tree.entry[node] as usize].name,
        };
        let x = MARGIN + left[node] as f64 * unit;
        let y = HEAD + (levels - 1 - tree.depth[node] as usize) as f64 * ROW;
        let width = tree.total[node] as f64 * unit;
        let amount = amount(&recording.domain.unit, tree.total[node]);
        frame(
            out,
            name,
            &parts[i],
            (tree.total[node], &amount),
            all,
            (x, y, width),
        )?;
    }
    let mut x = MARGIN;
    for class in classes {
        let title = class.title();
        writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{}\"/><text \
             x=\"{:.1}\" y=\"{:.1}\" fill=\"#1b1b1b\">{}</text>",
            height - 20.0,
            class.colour(),
            x + 15.0,
            height - 10.5,
            escape(&title)
        )?;
        x += 32.0 + title.chars().count() as f64 * LETTER;
    }
    writeln!(out, "</svg>")
}

/// By drawn node its time by class, in the classes' order; and the classes there are.
fn parts(
    recording: &Recording,
    view: View,
    entries: &Entries,
    tree: &Tree,
    drawn: &[usize],
) -> (Vec<Vec<(Class, u64)>>, Vec<Class>) {
    let mut parts: Vec<Vec<(Class, u64)>> = vec![Vec::new(); drawn.len()];
    if view == View::OnCpu {
        for (i, &node) in drawn.iter().enumerate().filter(|(_, node)| **node > 0) {
            let class = Class::of_code(recording, &entries.all[tree.entry[node] as usize]);
            parts[i].push((class, tree.total[node]));
        }
    } else {
        let mut place = vec![u32::MAX; tree.entry.len()];
        for (i, &node) in drawn.iter().enumerate() {
            place[node] = i as u32;
        }
        for &(node, class, ns) in &tree.own {
            let mut node = node;
            loop {
                if let Some(list) = parts.get_mut(place[node as usize] as usize) {
                    match list.iter_mut().find(|(c, _)| *c == class) {
                        Some((_, sum)) => *sum += ns,
                        None => list.push((class, ns)),
                    }
                }
                if node == 0 {
                    break;
                }
                node = tree.parent[node as usize];
            }
        }
        for list in &mut parts {
            list.sort();
        }
    }
    let mut classes: Vec<Class> = parts.iter().flatten().map(|(c, _)| *c).collect();
    classes.sort();
    classes.dedup();
    (parts, classes)
}

/// One frame: its parts side by side, its name where there is room.
fn frame(
    out: &mut dyn Write,
    name: &str,
    parts: &[(Class, u64)],
    (ns, amount): (u64, &str),
    all: u64,
    (x, y, width): (f64, f64, f64),
) -> io::Result<()> {
    let gap = if width > 3.0 { 0.7 } else { 0.0 };
    let share = ns as f64 / all as f64;
    write!(
        out,
        "<g><title>{}: {}, {:.2} %</title>",
        escape(&shorten(name, 400)),
        escape(amount),
        share * 100.0
    )?;
    if parts.is_empty() {
        write!(
            out,
            "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"17\" fill=\"#e4e4e0\"/>",
            width - gap
        )?;
    }
    let mut at = x;
    for (class, part) in parts {
        let w = (width - gap) * *part as f64 / ns.max(1) as f64;
        write!(
            out,
            "<rect x=\"{at:.2}\" y=\"{y:.1}\" width=\"{w:.2}\" height=\"17\" fill=\"{}\"/>",
            class.colour()
        )?;
        at += w;
    }
    let room = ((width - 6.0) / LETTER).floor();
    if room >= 3.0 {
        write!(
            out,
            "<text x=\"{:.2}\" y=\"{:.1}\" fill=\"#1b1b1b\">{}</text>",
            x + 3.0,
            y + 12.5,
            escape(&label(name, room as usize))
        )?;
    }
    writeln!(out, "</g>")
}

/// A frame's name in `room` letters. Where not even the last of its names fits, how that begins:
/// a row of narrow frames is read from the left.
fn label(name: &str, room: usize) -> String {
    let short = shorten(name, room);
    let last = name.rsplit("::").next().unwrap_or(name);
    let cut = short
        .strip_prefix('…')
        .is_some_and(|s| !s.starts_with("::"));
    if !cut || last.chars().count() <= room || last.contains(['<', '(', '>', ')']) {
        return short;
    }
    let begins: String = last.chars().take(room.saturating_sub(1)).collect();
    format!("{begins}…")
}

/// A value in the recording's unit.
fn amount(unit: &Unit, v: u64) -> String {
    match unit {
        Unit::Nanoseconds => seconds(v),
        Unit::Bytes => value(unit, v),
        Unit::Count(name) => format!("{} {name}", value(unit, v)),
    }
}

fn seconds(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Text that can neither end its element nor be no XML at all.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Neither control characters nor the two that are no characters are XML; those that
            // turn the direction of writing would rearrange what stands beside them.
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('�'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                out.push('�');
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(recording: &Recording, view: View) -> String {
        let mut out = Vec::new();
        write(recording, view, &mut out).expect("memory can be written");
        String::from_utf8(out).expect("SVG is text")
    }

    fn demo() -> Recording {
        let file = include_bytes!("../../../../web/tests/fixtures/demo.pb.gz");
        let read = crate::format::read(file, crate::format::Bounds::default());
        read.expect("a recording of this project").recording
    }

    /// Widths of the boxes in the picture's lowest row.
    fn lowest_row(svg: &str) -> f64 {
        let frames = svg.lines().find(|l| l.starts_with("<g><title>all:"));
        let frames = frames.expect("the root is drawn");
        frames
            .split("width=\"")
            .skip(1)
            .map(|rest| rest[..rest.find('"').unwrap()].parse::<f64>().unwrap())
            .sum()
    }

    #[test]
    fn every_view_is_drawn_whole_and_named() {
        let recording = demo();
        for view in View::ALL {
            let text = svg(&recording, *view);
            assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
            assert_eq!(text.matches("<g>").count(), text.matches("</g>").count());
            assert!(
                (lowest_row(&text) - (WIDTH - 2.0 * MARGIN)).abs() < 1.0,
                "{view}"
            );
            assert!(text.contains(&format!("{}: command:", view.name())));
        }
        let off = svg(&recording, View::OffCpu);
        assert!(off.contains("cache_get") && off.contains(">lock</text>"));
        assert!(svg(&recording, View::OnCpu).contains(">own code</text>"));
        assert!(svg(&recording, View::Wall).contains(">blocked</text>"));
    }

    #[test]
    fn what_is_left_out_is_told_by_its_cause() {
        let mut recording = demo();
        let subtitle = |recording: &Recording| {
            let text = svg(recording, View::Wall);
            let line = text
                .lines()
                .find(|l| l.contains("width is time, not order"));
            line.expect("a subtitle").to_owned()
        };
        let before = subtitle(&recording);
        assert!(
            before.contains(" frames too narrow to draw</text>"),
            "{before}"
        );
        assert!(!before.contains("left out"));
        // One stack goes a thousand calls deeper.
        let widest = recording.samples.iter().max_by_key(|s| s.ns);
        let stack = widest.expect("a sample").stack.0 as usize;
        let frames = &mut recording.stacks[stack].frames;
        let (levels, leaf) = (frames.len(), frames[0]);
        frames.extend(std::iter::repeat_n(leaf, 1000));
        let after = subtitle(&recording);
        assert!(after.contains(" frames too narrow to draw; "), "{after}");
        let cut = after.split("; ").last().expect("a last part");
        let words: Vec<&str> = cut.split(' ').collect();
        assert_eq!(words[1..5], ["frames", "above", "level", "400"], "{cut}");
        assert!(words[0].parse::<usize>().is_ok_and(|n| n >= 600), "{cut}");
        let deepest: usize = words[6].parse().expect("a level");
        assert!(deepest >= 1000 + levels, "{cut}");
    }

    #[test]
    fn narrow_frames_show_how_their_names_begin() {
        assert_eq!(label("futex_wait_queue", 20), "futex_wait_queue");
        assert_eq!(label("futex_wait_queue", 9), "futex_wa…");
        assert_eq!(label("shop::cart::add_item", 11), "…::add_item");
        assert_eq!(label("shop::cart::add_item", 6), "add_i…");
        assert_eq!(label("std::map<int, shop::Cart>::find", 14), "…::find");
    }

    #[test]
    fn nothing_recorded_is_a_picture_too() {
        let text = svg(&Recording::default(), View::Wall);
        assert!(text.contains("0.0 µs of 0 threads"));
        assert!(text.contains("<g><title>all: 0.0 µs, 0.00 %"));
    }

    #[test]
    fn names_stay_text() {
        let mut recording = demo();
        recording.domain.target = "</text><script>alert(1)</script>\u{1b}\u{202e}".into();
        for f in &mut recording.functions {
            f.name = format!("<b>&{}\u{0}", f.name).into();
        }
        let text = svg(&recording, View::Wall);
        assert!(!text.contains("<script") && !text.contains("<b>") && !text.contains('\u{0}'));
        assert!(!text.contains('\u{202e}'));
        assert!(text.contains("&lt;b&gt;&amp;"));
    }
}
