//! `wallscope calibrate` for the terminal and as JSON: the CPU-only profile beside the wall-clock profile of
//! the same window, and conclusions from the difference.

use serde::Serialize;
use wallscope_model::{Recording, State};

use crate::text::Style;
use crate::text::layout::{Ink, cells, clean, pad, shorten, wrap};
use wallscope_analysis::view::{Calibration, CalibrationRow};
use wallscope_model::units::{count, ns, share, share_of};

/// Rows of the table; the others become one.
const MAX_ROWS: usize = 10;
/// Share of on-CPU time from which on a CPU profile is the right first picture.
const CPU_FIRST: f64 = 0.5;

/// Conclusions from the two profiles, in sentences.
pub fn sentences(c: &Calibration) -> Vec<String> {
    let wall = c.wall_ns();
    if wall == 0 {
        return vec!["All of the time was idle: neither picture has anything to show.".into()];
    }
    let of_wall = |ns: u64| share_of(ns, wall);
    let on_cpu = c.state_ns(State::OnCpu);
    let mut out = Vec::new();
    let shown = format!(
        "{} of {} ({})",
        ns(on_cpu),
        ns(wall),
        share_of(on_cpu, wall)
    );
    out.push(if on_cpu as f64 >= CPU_FIRST * wall as f64 {
        format!("A CPU profile is the right first picture here: it shows {shown}.")
    } else {
        format!(
            "A CPU profile would show {shown} of this program's time, and nothing of the other {}.",
            of_wall(wall - on_cpu)
        )
    });
    if let Some(first) = c
        .by_cpu()
        .into_iter()
        .find(|r| !r.function.starts_with('['))
    {
        let own = first.state_ns(State::OnCpu);
        out.push(format!(
            "By it one would work on {}: {} of computing, but {} of wall time. If it cost nothing, that \
             is what would be saved, and what now queues or waits behind it.",
            clean(&first.function),
            share_of(own, on_cpu),
            of_wall(own),
        ));
    }
    let untouchable = c.untouchable_ns();
    if untouchable == 0 {
        out.push(if c.behind_cpu_ns > 0 {
            "What of it was blocked waited for threads that computed or queued.".into()
        } else {
            "Nothing of it was blocked: all of it computed or waited for a CPU.".into()
        });
        return out;
    }
    let mut last = format!(
        "No CPU optimisation can touch {} of it: blocked",
        of_wall(untouchable)
    );
    if c.behind_cpu_ns > 0 {
        last += &format!(
            ", and not behind a thread that computed or queued ({} was)",
            of_wall(c.behind_cpu_ns)
        );
    } else if !c.has_chains {
        last += " (the thread waited for is not known here: where it computed, this is less)";
    }
    last += &match wall as f64 / untouchable as f64 {
        most if most < 1.005 => {
            ". With all computing free it would be as slow as it is.".to_string()
        }
        most if most < 100.0 => {
            format!(". With all computing free it would be {most:.2} times as fast.")
        }
        _ => ".".to_string(),
    };
    out.push(last);
    out
}

/// Both pictures for the terminal.
pub fn text(recording: &Recording, c: &Calibration, style: &Style) -> String {
    let mut page = String::new();
    let mut say = |ink: Ink, text: &str, indent: usize| {
        for line in wrap(text, style.width, indent) {
            page.push_str(style.ink(ink, &line).trim_end());
            page.push('\n');
        }
    };
    for (i, sentence) in sentences(c).iter().enumerate() {
        say(if i == 0 { Ink::Strong } else { Ink::Plain }, sentence, 0);
    }
    say(Ink::Plain, "", 0);
    let window = recording.window.length_ns();
    let mut about = format!(
        "{}, {} recorded; {} samples, {} of them of computing",
        clean(&recording.domain.target),
        ns(window),
        count(c.samples),
        count(c.on_cpu_samples)
    );
    if c.idle_ns > 0 {
        about += &format!("; {} idle set apart", ns(c.idle_ns));
    }
    say(Ink::Faint, &about, 2);
    if c.wall_ns() > 0 {
        table(&mut page, c, style);
    }
    if c.on_cpu_samples == 0 && c.state_ns(State::OnCpu) > 0 {
        let why = "No stack of computing was seen, so the CPU profile has no functions here: see the \
                   limits in `wallscope report`, and `wallscope doctor` for what would allow more.";
        for line in wrap(why, style.width, 0) {
            page.push_str(&line);
            page.push('\n');
        }
    }
    page
}

fn table(page: &mut String, c: &Calibration, style: &Style) {
    let wall = c.wall_ns();
    let on_cpu = c.state_ns(State::OnCpu);
    // The top functions of either picture, in the order of wall time.
    let mut shown: Vec<&CalibrationRow> = c.rows.iter().take(MAX_ROWS - 3).collect();
    for row in c.by_cpu() {
        if shown.len() < MAX_ROWS && !shown.contains(&row) {
            shown.push(row);
        }
    }
    let mut rest = CalibrationRow {
        function: String::new(),
        ns: [0; State::COUNT],
    };
    let others: Vec<_> = c.rows.iter().filter(|r| !shown.contains(r)).collect();
    for row in &others {
        for (sum, ns) in rest.ns.iter_mut().zip(row.ns) {
            *sum += ns;
        }
    }
    rest.function = format!("{} more", count(others.len() as u64));
    shown.sort_by_key(|r| std::cmp::Reverse(r.wall_ns()));
    if !others.is_empty() {
        shown.push(&rest);
    }
    let columns = ["CPU profile", "wall time", "computing", "queued", "blocked"];
    let used: usize = columns.iter().map(|c| cells(c) + 2).sum::<usize>() + 4;
    let room = style
        .width
        .map_or(usize::MAX, |w| w.saturating_sub(used).max(12));
    let widest = shown.iter().map(|r| cells(&r.function)).max().unwrap_or(0);
    let name = widest.max(cells("function")).min(room);
    let line = |cellsof: [String; 5], function: &str| {
        let mut text = format!("  {}", pad(function, name as isize));
        for (value, head) in cellsof.iter().zip(columns) {
            text += &format!("  {}", pad(value, -(cells(head) as isize)));
        }
        text
    };
    let head = line(columns.map(str::to_string), "function");
    *page += &format!("{}\n", style.ink(Ink::Faint, &head));
    for row in shown {
        let of = |ns: u64| share(ns as f64 / wall as f64);
        let values = [
            share_of(row.state_ns(State::OnCpu), on_cpu),
            of(row.wall_ns()),
            of(row.state_ns(State::OnCpu)),
            of(row.state_ns(State::Runnable)),
            of(row.state_ns(State::Blocked)),
        ];
        *page += &line(values, &shorten(&row.function, name));
        page.push('\n');
    }
}

#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    target: &'a str,
    backend: &'a str,
    wall_ns: u64,
    on_cpu_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    unknown_ns: u64,
    idle_ns: u64,
    blocked_behind_cpu_ns: u64,
    behind_is_known: bool,
    untouchable_ns: u64,
    on_cpu_fraction: f64,
    untouchable_fraction: f64,
    samples: u64,
    on_cpu_samples: u64,
    functions: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    name: &'a str,
    wall_ns: u64,
    on_cpu_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    unknown_ns: u64,
}

/// Both pictures as JSON, schema `wallscope.calibrate/1`; all functions, most wall time first.
pub fn json(recording: &Recording, c: &Calibration) -> String {
    let wall = c.wall_ns();
    let fraction = |ns: u64| ns as f64 / wall.max(1) as f64;
    let out = Json {
        schema: "wallscope.calibrate/1",
        target: &recording.domain.target,
        backend: &recording.domain.backend,
        wall_ns: wall,
        on_cpu_ns: c.state_ns(State::OnCpu),
        runnable_ns: c.state_ns(State::Runnable),
        blocked_ns: c.state_ns(State::Blocked),
        unknown_ns: c.state_ns(State::Unknown),
        idle_ns: c.idle_ns,
        blocked_behind_cpu_ns: c.behind_cpu_ns,
        behind_is_known: c.has_chains,
        untouchable_ns: c.untouchable_ns(),
        on_cpu_fraction: fraction(c.state_ns(State::OnCpu)),
        untouchable_fraction: fraction(c.untouchable_ns()),
        samples: c.samples,
        on_cpu_samples: c.on_cpu_samples,
        functions: c
            .rows
            .iter()
            .map(|r| JsonRow {
                name: &r.function,
                wall_ns: r.wall_ns(),
                on_cpu_ns: r.state_ns(State::OnCpu),
                runnable_ns: r.state_ns(State::Runnable),
                blocked_ns: r.state_ns(State::Blocked),
                unknown_ns: r.state_ns(State::Unknown),
            })
            .collect(),
    };
    crate::json::text(&out)
}
