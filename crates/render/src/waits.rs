//! `wallscope locks` and `wallscope why` for the terminal and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use wallscope_analysis::blame::NotFollowed;
use wallscope_analysis::view::{
    Analysis, BlameRow, Holder, LockRow, Share, Subject, WhyNode, WhyTree,
};
use wallscope_model::BlockReason;
use wallscope_model::printable::printable;
use wallscope_model::units;

/// Lines of one kind that the terminal shows.
const MAX_LINES: usize = 4;
/// Locks that the terminal shows.
const MAX_LOCKS: usize = 12;

/// The table of locks, for the terminal.
pub fn locks_text(analysis: &Analysis<'_>) -> String {
    let rows = analysis.locks();
    let mut out = String::new();
    if rows.is_empty() {
        out.push_str("No waits for locks were seen in this recording.\n");
        return out;
    }
    let all: u64 = rows.iter().map(|r| r.in_earnest_ns()).sum();
    let _ = writeln!(
        out,
        "{}{} waited for {} {}. Times are of all waiting threads together.\n",
        units::ns(all),
        and_idle(&rows),
        rows.len(),
        match (rows.len(), rows.iter().all(|r| r.is_lock())) {
            (1, true) => "lock",
            (_, true) => "locks",
            _ => "locks, conditions and ends of threads",
        }
    );
    for row in rows.iter().take(MAX_LOCKS) {
        lock(&mut out, row, all);
    }
    if rows.len() > MAX_LOCKS {
        let rest = &rows[MAX_LOCKS..];
        let _ = writeln!(
            out,
            "and {} more, {}{} together; --json has all",
            rest.len(),
            units::ns(rest.iter().map(|r| r.in_earnest_ns()).sum()),
            and_idle(rest),
        );
    }
    out
}

/// Note on idle time, beside the time of other waits.
fn and_idle(rows: &[LockRow]) -> String {
    match rows.iter().map(|r| r.idle_ns).sum() {
        0 => String::new(),
        idle => format!(" (and {} idle, without work)", units::ns(idle)),
    }
}

fn lock(out: &mut String, row: &LockRow, all: u64) {
    let _ = writeln!(
        out,
        "{}  {} ({})",
        printable(&row.name),
        units::ns(row.total_ns),
        match row.is_idle() {
            true => "idle".to_owned(),
            false => units::share_of(row.in_earnest_ns(), all),
        }
    );
    let threads = match row.waiters {
        1 => "1 thread".to_string(),
        n => format!("{n} threads"),
    };
    if row.exact {
        let _ = writeln!(
            out,
            "  {} {} of {threads}, the longest {}, {} on average",
            units::count(row.count),
            if row.count == 1 { "wait" } else { "waits" },
            units::ns(row.longest_ns),
            units::ns(row.total_ns / row.count.max(1))
        );
    } else {
        let _ = writeln!(out, "  {threads}; sampled, not counted");
    }
    let part = |out: &mut String, indent: &str, label: &str, shares: &[Share], whole: u64| {
        for (i, s) in shares.iter().take(MAX_LINES).enumerate() {
            let label = if i == 0 { label } else { "" };
            let _ = writeln!(
                out,
                "{indent}{label:<10} {:>7}  {}",
                units::share_of(s.ns, whole),
                printable(&s.what)
            );
        }
    };
    let sampled: u64 = row.waits.iter().map(|w| w.ns).sum();
    part(out, "  ", "waits in", &row.waits, sampled);
    let kind = &row.through[..row.through.len().min(1)];
    part(out, "  ", "through", kind, sampled);
    for h in row.holders.iter().take(MAX_LINES) {
        let label = how(h);
        let place = if h.place.is_empty() {
            String::new()
        } else {
            format!(" in {}", printable(&h.place))
        };
        let _ = writeln!(
            out,
            "  {label:<10} {:>7}  {}{}{place}",
            units::share_of(h.ns, sampled),
            printable(&h.thread),
            printable(h.how)
        );
        part(out, "               ", "meanwhile", &h.did, h.ns);
    }
    out.push('\n');
}

#[derive(Serialize)]
struct JsonShare {
    what: String,
    ns: u64,
}

/// Relation of a holder to the lock, in words.
pub(crate) fn how(holder: &Holder) -> &'static str {
    if holder.had_it { "held by" } else { "ended by" }
}

#[derive(Serialize)]
struct JsonHolder {
    thread: String,
    function: String,
    had_it: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    told_by: Option<String>,
    ns: u64,
    meanwhile: Vec<JsonShare>,
}

#[derive(Serialize)]
struct JsonLock {
    name: String,
    total_ns: u64,
    idle_ns: u64,
    longest_ns: u64,
    waits: u64,
    waiters: usize,
    exact: bool,
    waits_in: Vec<JsonShare>,
    through: Vec<JsonShare>,
    holders: Vec<JsonHolder>,
}

#[derive(Serialize)]
struct JsonLocks {
    schema: &'static str,
    locks: Vec<JsonLock>,
}

fn json_shares(shares: Vec<Share>) -> Vec<JsonShare> {
    shares
        .into_iter()
        .map(|s| JsonShare {
            what: s.what,
            ns: s.ns,
        })
        .collect()
}

/// The table of locks as JSON, schema `wallscope.locks/1`.
pub fn locks_json(analysis: &Analysis<'_>) -> String {
    let locks = analysis
        .locks()
        .into_iter()
        .map(|r| JsonLock {
            name: r.name.to_string(),
            total_ns: r.total_ns,
            idle_ns: r.idle_ns,
            longest_ns: r.longest_ns,
            waits: r.count,
            waiters: r.waiters,
            exact: r.exact,
            waits_in: json_shares(r.waits),
            through: json_shares(r.through),
            holders: r
                .holders
                .into_iter()
                .map(|h| JsonHolder {
                    thread: h.thread,
                    function: h.place,
                    had_it: h.had_it,
                    told_by: h.told_by,
                    ns: h.ns,
                    meanwhile: json_shares(h.did),
                })
                .collect(),
        })
        .collect();
    pretty(&JsonLocks {
        schema: "wallscope.locks/1",
        locks,
    })
}

fn pretty(value: &impl Serialize) -> String {
    // Strings and integers: serialising cannot fail.
    crate::json::text(value)
}

/// The tree of chains for the terminal: parts below `least` of the whole are left out and summed.
pub fn why_text(analysis: &Analysis<'_>, subject: &Subject, least: f64) -> String {
    let why = analysis.why(subject);
    let mut out = String::new();
    let whole = why.tree.ns;
    if whole == 0 {
        let _ = writeln!(
            out,
            "No time of {} is in this recording; `wallscope report FILE` lists threads and functions.",
            printable(&why.tree.what.to_string())
        );
        return out;
    }
    let cut = (whole as f64 * least) as u64;
    let why = why.gathered(cut);
    TreeText {
        out: &mut out,
        whole,
        cut,
    }
    .node(&why.tree, "", "");
    let rows = analysis.blame_of(subject);
    if !rows.is_empty() {
        let blocked = rows.iter().map(|row| row.ns).sum();
        let _ = writeln!(
            out,
            "\nIts waits, each charged to the root of its chain; shares of {} blocked:",
            units::ns(blocked)
        );
        for line in crate::text::blame_lines(&rows, None) {
            let _ = writeln!(out, "{line}");
        }
    }
    let _ = writeln!(
        out,
        "\nAll of its time, charged so; shares of {}:",
        units::ns(whole)
    );
    let mut rest = 0;
    for (what, ns) in &why.ends {
        if *ns < cut {
            rest += ns;
            continue;
        }
        let _ = writeln!(
            out,
            "  {:>7}  {}",
            units::share_of(*ns, whole),
            printable(&what.to_string())
        );
    }
    if rest > 0 {
        let _ = writeln!(
            out,
            "  {:>7}  less than {} each",
            units::share_of(rest, whole),
            units::share(least)
        );
    }
    let _ = writeln!(
        out,
        "\nFrom {} samples. Chains are followed through 8 wakers at most; {} of the time was not followed \
         (longer chains, circles, wakers older than the recorder remembers).",
        units::count(why.samples),
        units::share_of(why.cut_ns, whole)
    );
    out
}

/// A tree of waits while it is written.
struct TreeText<'a> {
    out: &'a mut String,
    /// The asked time, ns.
    whole: u64,
    /// Parts below this are joined, ns.
    cut: u64,
}

impl TreeText<'_> {
    /// A node and its parts: `first` stands before its own line, `indent` before those below.
    fn node(&mut self, node: &WhyNode, first: &str, indent: &str) {
        let _ = writeln!(
            self.out,
            "{first}{:>7}  {:>8}  {}",
            units::share_of(node.ns, self.whole),
            units::ns(node.ns),
            printable(&node.what.to_string())
        );
        let least = self.cut.max(1);
        let shown: Vec<&WhyNode> = node.parts.iter().filter(|p| p.ns >= least).collect();
        let small = node.parts.iter().filter(|p| p.ns < least);
        let hidden: u64 = small.map(|p| p.ns).sum();
        let more = hidden >= least;
        for (i, part) in shown.iter().enumerate() {
            let last = i + 1 == shown.len() && !more;
            let (branch, next) = if last {
                ("└ ", "  ")
            } else {
                ("├ ", "│ ")
            };
            self.node(
                part,
                &format!("{indent}{branch}"),
                &format!("{indent}{next}"),
            );
        }
        if more {
            let _ = writeln!(
                self.out,
                "{indent}└ {:>7}  {:>8}  smaller parts",
                units::share_of(hidden, self.whole),
                units::ns(hidden)
            );
        }
    }
}

#[derive(Serialize)]
struct JsonNode {
    what: String,
    ns: u64,
    own_ns: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<JsonNode>,
}

#[derive(Serialize)]
struct JsonWhy {
    schema: &'static str,
    total_ns: u64,
    cut_ns: u64,
    samples: u64,
    tree: JsonNode,
    ends: Vec<JsonShare>,
    blame: Vec<JsonBlame>,
}

/// A wait beside its root.
#[derive(Serialize)]
struct JsonBlame {
    waited_at: String,
    reason: Option<&'static str>,
    because_of: String,
    not_followed: Option<&'static str>,
    ns: u64,
    low_ns: u64,
    high_ns: u64,
}

fn json_blame(row: BlameRow) -> JsonBlame {
    JsonBlame {
        waited_at: row.waited_at,
        reason: row.reason.map(BlockReason::name),
        because_of: row.because_of,
        not_followed: row.open.map(NotFollowed::name),
        ns: row.ns,
        low_ns: row.low_ns,
        high_ns: row.high_ns,
    }
}

/// The tree of chains as JSON, schema `wallscope.why/1`.
pub fn why_json(analysis: &Analysis<'_>, subject: &Subject) -> String {
    fn node(n: WhyNode) -> JsonNode {
        JsonNode {
            what: n.what.to_string(),
            ns: n.ns,
            own_ns: n.own_ns,
            parts: n.parts.into_iter().map(node).collect(),
        }
    }
    let WhyTree {
        tree,
        ends,
        cut_ns,
        samples,
    } = analysis.why(subject);
    pretty(&JsonWhy {
        schema: "wallscope.why/1",
        total_ns: tree.ns,
        cut_ns,
        samples,
        tree: node(tree),
        ends: ends
            .into_iter()
            .map(|(what, ns)| JsonShare {
                what: what.to_string(),
                ns,
            })
            .collect(),
        blame: analysis
            .blame_of(subject)
            .into_iter()
            .map(json_blame)
            .collect(),
    })
}
