//! The report at a terminal, for a tired person: one sentence, then the ledger, then where in the
//! code, then how far all of it can be trusted.
//!
//! The report says which parts are left out; nothing is truncated silently. Without a terminal there
//! is no width: lines are as long as they need to be, and names whole.

mod blame;
mod collections;
mod groups;
pub(crate) mod histograms;
pub(crate) mod layout;
mod ledger;
mod page;
mod peers;
mod style;
pub mod table;
mod tasks;

pub(crate) use blame::blame_lines;
pub use groups::groups_text;
pub(crate) use layout::label;
pub use layout::{clean, wrap};
pub use style::Style;
use wallscope_model::View;
use wallscope_model::domain_text::{domain_lines, loss_lines, scaling_lines};
use wallscope_model::units::{count, share_of};

use layout::{Ink, cells, pad, shorten};
use page::Page;
use wallscope_analysis::view::{
    Analysis, FunctionRow, StackRow, Value, ViewValue, audit_lines, cost_lines, total_row,
};

/// Text on top of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headline {
    /// Where the wall time went, in one sentence.
    pub sentence: String,
    /// Its evidence.
    pub because: Vec<String>,
}

/// The most lines of a table before the rest becomes one line.
const MAX_ROWS: usize = 10;
/// The most stacks shown.
const MAX_STACKS: usize = 5;
/// The most user frames of a stack shown, from the leaf.
const MAX_FRAMES: usize = 10;
/// A view below this share of wall time is not broken down.
const MIN_VIEW: f64 = 0.001;

/// The whole report.
///
/// ```
/// use wallscope_analysis::view::{Analysis, Idle};
/// use wallscope_render::text::{Headline, Style, render};
///
/// let recording = wallscope_synthetic::recording(4);
/// let style = Style { width: Some(100), colour: false, unicode: true };
/// let report = render(&Analysis::new(&recording, Idle::Hide), &Headline::default(), &style);
/// assert!(report.contains("Hottest stacks"), "{report}");
/// ```
pub fn render(analysis: &Analysis, headline: &Headline, style: &Style) -> String {
    let mut page = Page {
        style,
        unit: &analysis.recording.domain.unit,
        out: String::new(),
    };
    for line in wrap(&clean(&headline.sentence), style.width, 0) {
        page.line(&style.ink(Ink::Strong, &line));
    }
    for because in &headline.because {
        page.faint(&format!("  {because}"), 4);
    }
    let total = total_row(analysis.recording);
    page.ledger(analysis, &total);
    page.threads(analysis, &total);
    page.tasks(analysis);
    page.collections(analysis);
    let functions = analysis.functions();
    for view in [View::OnCpu, View::OffCpu, View::RunQueue, View::Wall] {
        page.functions(analysis, &functions, view, total.ledger.wall_ns);
    }
    page.blame(analysis);
    page.histograms(analysis.recording);
    page.peers(analysis);
    page.stacks(analysis);
    page.trust(analysis);
    page.out
}

impl Page<'_> {
    fn functions(&mut self, a: &Analysis, rows: &[FunctionRow], view: View, wall_ns: u64) {
        let total = a.total(view);
        let shown_ns = total.shown_ns();
        if (shown_ns as f64) < MIN_VIEW * wall_ns as f64 || shown_ns == 0 {
            return;
        }
        // A waiting stack has the scheduler at its leaf. There the program's own innermost function
        // is useful.
        let (title, value): (_, fn(&ViewValue) -> &Value) = match view {
            View::OnCpu => ("On-CPU: where it computes", |v| &v.own),
            View::OffCpu => ("Off-CPU: where it is blocked", |v| &v.place),
            View::RunQueue => ("Run queue: where it waits for a CPU", |v| &v.place),
            View::Wall if self.unit.is_time() => ("Wall: all of the time", |v| &v.place),
            View::Wall => ("Where they happened", |v| &v.place),
        };
        let mut about = format!(
            "shares of {} in {} samples",
            self.value(shown_ns),
            count(total.samples)
        );
        if total.hidden_idle_ns > 0 {
            about.push_str(&format!(
                "; {} idle hidden (--idle show)",
                self.value(total.hidden_idle_ns)
            ));
        }
        self.heading(title, &about);
        let mut order: Vec<&FunctionRow> =
            rows.iter().filter(|r| value(r.view(view)).ns > 0).collect();
        order.sort_by_key(|r| std::cmp::Reverse(value(r.view(view)).ns));
        let own = if view == View::OnCpu { "self" } else { "in it" };
        let head = format!(
            "  {} {} {}  function",
            pad(own, -7),
            pad("95 % interval", -15),
            pad("total", -7)
        );
        let head = self.style.ink(Ink::Faint, &head);
        self.line(&head);
        let shown = if order.len() > MAX_ROWS + 1 {
            MAX_ROWS
        } else {
            order.len()
        };
        for row in &order[..shown] {
            let v = row.view(view);
            let own = value(v);
            let line = format!(
                "  {} {} {}  ",
                pad(&share_of(own.ns, shown_ns), -7),
                pad(&interval(own, shown_ns), -15),
                pad(&share_of(v.total.ns, shown_ns), -7)
            );
            let room = self.style.width.map(|w| w.saturating_sub(cells(&line)));
            let line = line + &self.function(row, room);
            self.line(&line);
        }
        let rest: u64 = order[shown..].iter().map(|r| value(r.view(view)).ns).sum();
        if rest > 0 {
            let text = format!(
                "  {} in {} more functions (--json has all)",
                pad(&share_of(rest, shown_ns), -7),
                count((order.len() - shown) as u64)
            );
            self.faint(&text, 10);
        }
    }

    fn function(&self, row: &FunctionRow, room: Option<usize>) -> String {
        let f = &row.function;
        // An unresolved name has the module in it already.
        let module = if f.module.is_empty() || f.name.starts_with(&*f.module) {
            String::new()
        } else {
            format!("  {}", clean(&f.module))
        };
        let Some(room) = room else {
            return format!("{}{}", clean(&f.name), self.style.ink(Ink::Faint, &module));
        };
        if cells(&f.name) + cells(&module) <= room {
            return format!("{}{}", clean(&f.name), self.style.ink(Ink::Faint, &module));
        }
        // The name matters more than the file it lies in, which the stacks tell.
        shorten(&f.name, room.max(8))
    }

    fn stacks(&mut self, a: &Analysis) {
        let total = a.total(View::Wall);
        let stacks = a.stacks(View::Wall, MAX_STACKS);
        if stacks.is_empty() {
            return;
        }
        let of = match self.unit.is_time() {
            true => format!(
                "shares of {} of wall time; leaf first",
                self.value(total.shown_ns())
            ),
            false => "leaf first".to_owned(),
        };
        self.heading("Hottest stacks", &of);
        for (i, s) in stacks.iter().enumerate() {
            let threads = match s.threads {
                1 => clean(&s.thread),
                n => format!("{} and {} more threads", clean(&s.thread), n - 1),
            };
            let reason = s.reason.map(|r| format!(" ({r})")).unwrap_or_default();
            let state = match self.unit.is_time() {
                true => format!("  {}{reason}", label(s.state)),
                false => String::new(),
            };
            let head = format!(
                "{:>3}. {} {}{state}  {threads}",
                i + 1,
                pad(&share_of(s.ns, total.shown_ns()), -6),
                pad(&self.value(s.ns), -7),
            );
            for line in wrap(&head, self.style.width, 6) {
                let line = self.style.ink(Ink::State(s.state), &line);
                self.line(&line);
            }
            if let Some(histogram) = &s.histogram {
                self.faint(&format!("      {}", histograms::intervals(histogram)), 6);
            }
            self.stack(s);
        }
    }

    fn stack(&mut self, s: &StackRow) {
        use wallscope_model::FrameKind::Kernel;
        let kernel = s
            .frames
            .iter()
            .take_while(|f| f.function.kind == Kernel)
            .count();
        let (kernel, user) = s.frames.split_at(kernel);
        let kernel: Vec<String> = kernel
            .iter()
            .map(|f| clean(&f.function.name))
            .skip_while(|n| wallscope_model::name::is_scheduler(n))
            .collect();
        let room = self.style.width.map_or(usize::MAX, |w| w.saturating_sub(6));
        if !kernel.is_empty() {
            let most = if user.is_empty() { MAX_FRAMES } else { 4 };
            let mut text = kernel[..kernel.len().min(most)].join(" < ");
            if kernel.len() > most {
                text.push_str(&format!(" < … {} more", kernel.len() - most));
            }
            self.faint(&format!("      kernel: {text}"), 14);
        }
        for (i, f) in user.iter().take(MAX_FRAMES).enumerate() {
            let inlined = if f.inlined { " (inlined)" } else { "" };
            let module = clean(&f.function.module);
            let line = match f.line {
                0 => String::new(),
                n => format!(":{n}"),
            };
            let tail = format!("{line}{inlined}");
            let ink = if i == 0 { Ink::Strong } else { Ink::Plain };
            let name = shorten(&f.function.name, room.saturating_sub(cells(&tail)).max(8));
            let mut text = format!("      {}{tail}", self.style.ink(ink, &name));
            let space = room.saturating_sub(cells(&name) + cells(&tail));
            if !f.function.name.starts_with(&module) && space > cells(&module) + 2 {
                text.push_str(&self.style.ink(Ink::Faint, &format!("  {module}")));
            }
            self.line(&text);
        }
        let more = user.len().saturating_sub(MAX_FRAMES);
        if more > 0 {
            self.faint(&format!("      … {more} more frames towards the root"), 6);
        }
        if !s.end.is_whole() {
            let text = format!(
                "      the stack is cut here: {}",
                wallscope_model::name::truncated(s.end)
            );
            self.faint(&text, 6);
        }
    }

    fn trust(&mut self, a: &Analysis) {
        let rec = a.recording;
        self.heading("What this rests on", "");
        let lines = domain_lines(rec)
            .into_iter()
            .chain(scaling_lines(&a.scaled, &a.recording.domain.unit))
            .chain(loss_lines(rec))
            .chain(audit_lines(rec))
            .chain(cost_lines(rec));
        for line in lines {
            self.faint(&format!("  {line}"), 4);
        }
    }
}

/// `low – high`, in percent of `whole`.
pub(crate) fn interval(v: &Value, whole: u64) -> String {
    if v.low_ns == v.high_ns {
        return "exact".to_string();
    }
    let low = share_of(v.low_ns, whole);
    format!(
        "{}–{}",
        low.trim_end_matches(" %"),
        share_of(v.high_ns, whole)
    )
}
