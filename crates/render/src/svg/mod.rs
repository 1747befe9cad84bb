//! A static flame graph as SVG: for a README, a ticket, a slide.
//!
//! One view's stacks, root at the bottom. Each frame is a bar divided by its own time: states in
//! the wall view, reasons off-CPU and in the run queue, the kind of code on-CPU. Frames narrower
//! than a third of a unit are left out (the subtitle says how many). There is no script in it;
//! names, times and shares appear where a viewer shows `<title>`. For more, see [`crate::page`].

mod class;
mod draw;

use std::io::{self, Write};

use wallscope_model::scale::{NOT_SAMPLED, scale};
use wallscope_model::{INK, Recording, View};

use crate::page::entries::Entries;
use crate::page::trie::Builder;
use crate::text::layout::shorten;
use class::Class;
use draw::{FrameBox, LETTER, amount, escape, frame};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const MARGIN: f64 = 10.0;
const HEAD: f64 = 52.0;
const NARROWEST: f64 = 0.33;
/// Most levels: more do not help in a picture that is not scrolled.
const MAX_LEVELS: usize = 400;

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

/// Left ends of nodes: children in their order, each after the one before it.
fn left_ends(tree: &Tree) -> Vec<u64> {
    let n = tree.entry.len();
    let mut left = vec![0u64; n];
    let mut next = vec![0u64; n];
    for node in 1..n {
        let p = tree.parent[node] as usize;
        left[node] = next[p];
        next[p] += tree.total[node];
        next[node] = left[node];
    }
    left
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

    let left = left_ends(&tree);
    let deep = |n: &usize| tree.depth[*n] as usize >= MAX_LEVELS;
    let drawn: Vec<usize> = (0..n)
        .filter(|n| *n == 0 || shown(*n) && !deep(n))
        .collect();
    let levels = drawn.iter().map(|d| tree.depth[*d]).max().unwrap_or(0) as usize + 1;
    let (parts, classes) = parts((recording, view), &entries, &tree, &drawn);

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
        also += &format!("; {cut} frames above level {MAX_LEVELS} of {deepest} left out");
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
         <text x=\"{MARGIN}\" y=\"21\" font-size=\"15\" fill=\"{INK}\">{}</text>\n\
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
        let drawn = FrameBox {
            name,
            parts: &parts[i],
            ns: tree.total[node],
            amount: &amount,
            all,
            place: (x, y, width),
        };
        frame(out, &drawn)?;
    }
    legend(&classes, height, out)?;
    writeln!(out, "</svg>")
}

/// The colours' meanings, at the foot of a picture of this height.
fn legend(classes: &[Class], height: f64, out: &mut dyn Write) -> io::Result<()> {
    let mut x = MARGIN;
    for class in classes {
        let title = class.title();
        writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{}\"/><text \
             x=\"{:.1}\" y=\"{:.1}\" fill=\"{INK}\">{}</text>",
            height - 20.0,
            class.colour(),
            x + 15.0,
            height - 10.5,
            escape(&title)
        )?;
        x += 32.0 + title.chars().count() as f64 * LETTER;
    }
    Ok(())
}

/// Time of each drawn node by class, in the classes' order; and the classes.
fn parts(
    (recording, view): (&Recording, View),
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

#[cfg(test)]
mod tests {
    use super::draw::label;
    use super::*;

    fn svg(recording: &Recording, view: View) -> String {
        let mut out = Vec::new();
        write(recording, view, &mut out).expect("memory can be written");
        String::from_utf8(out).expect("SVG is text")
    }

    fn demo() -> Recording {
        let file = include_bytes!("../../web/tests/fixtures/demo.pb.gz");
        let read = wallscope_formats::read(file, wallscope_formats::Bounds::default());
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
