//! Waits for the page: locks and peers as words, chains of waits as columns that hang below rows, and the
//! tree of blocked stacks with their wakers' stacks on top.
//!
//! Chains are stored as a tree of ready lines of text. The page can therefore merge them for any choice of
//! threads, functions and times, and needs no names of threads for it.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use wallscope_model::{Above, Recording, Role, SliceValue, State};

use super::columns::Columns;
use super::entries::Entries;
use super::rows::{PageRow, TreeColumns, put_tree};
use super::trie::Builder;
use crate::waits::how;
use wallscope_analysis::view::{Analysis, Holder, Idle, LockRow, PeerRow, Share, Waits, queues};

/// Locks and peers that the page lists.
const MAX_LISTED: usize = 100;
/// Shares of each of them.
const MAX_SHARES: usize = 6;

/// Kind of a line of a chain. `web/js/why.js` has the same values.
fn kind_of(role: Role) -> u64 {
    match role {
        Role::OnCpu => 0,
        Role::Runnable => 1,
        Role::Blocked => 2,
        Role::Woke | Role::Held => 3,
        Role::Circle | Role::Cut => 4,
    }
}

/// Lines of chains, each once.
#[derive(Default)]
struct Lines {
    all: Vec<(String, u64)>,
    known: FxHashMap<(String, u64), u64>,
}

impl Lines {
    fn id(&mut self, line: String, kind: u64) -> u64 {
        let all = &mut self.all;
        let entry = self.known.entry((line, kind));
        *entry.or_insert_with_key(|line| {
            all.push(line.clone());
            all.len() as u64 - 1
        })
    }
}

/// Puts the columns; gives locks and peers as JSON.
pub(super) fn put(
    columns: &mut Columns,
    recording: &Recording,
    rows: &[PageRow],
    entries: &mut Entries,
) -> Value {
    let analysis = Analysis::new(recording, Idle::Show);
    if !recording.hops.is_empty() {
        let scaled = ScaledWaits {
            analysis: &analysis,
            waits: analysis.waits(),
        };
        put_chains(columns, &scaled, rows);
        put_wakers(columns, &scaled, rows, entries);
    }
    let locks = analysis.locks();
    let peers = analysis.peers();
    json!({
        "locks": locks.iter().take(MAX_LISTED).map(lock).collect::<Vec<_>>(),
        "more_locks": locks.len().saturating_sub(MAX_LISTED),
        "peers": peers.iter().take(MAX_LISTED).map(peer).collect::<Vec<_>>(),
    })
}

/// The waits of a recording, scaled as its samples are.
struct ScaledWaits<'a> {
    analysis: &'a Analysis<'a>,
    waits: Waits,
}

fn put_chains(columns: &mut Columns, scaled: &ScaledWaits<'_>, rows: &[PageRow]) {
    let ScaledWaits { analysis, waits } = scaled;
    let recording = analysis.recording;
    let mut lines = Lines::default();
    let mut places: FxHashMap<u32, String> = FxHashMap::default();
    let mut row_of: FxHashMap<u32, u64> = FxHashMap::default();
    let mut of_rows = Vec::with_capacity(rows.len());
    for (i, row) in (0u64..).zip(rows) {
        let sample = row
            .stack
            .and(row.sample)
            .map(|s| (s, &recording.samples[s as usize]));
        let Some((index, s)) = sample else {
            let state = State::ALL[usize::from(row.tag & 3)];
            let what = match row.stack {
                None => format!("{} without a sample", state.name()),
                Some(_) => format!("{}, as in threads like it", state.name()),
            };
            of_rows.push(lines.id(what, u64::from(row.tag & 3)));
            continue;
        };
        row_of.entry(index).or_insert(i);
        let place = places.entry(s.stack.0).or_insert_with(|| {
            let place = analysis.place(s.stack);
            place.unwrap_or_else(|| "[no stack]".into())
        });
        let line = match s.state {
            State::OnCpu => format!("computes in {place}"),
            State::Runnable => queues(s.part).to_owned(),
            State::Unknown => "not seen".to_owned(),
            State::Blocked => {
                let reason = s.reason_name().unwrap_or("blocked");
                match analysis.resource(s.labels) {
                    Some(what) => format!("blocked ({reason}: {what}) in {place}"),
                    None => format!("blocked ({reason}) in {place}"),
                }
            }
        };
        of_rows.push(lines.id(line, s.state as u64));
    }
    columns.put("row.line_of", of_rows.into_iter());
    // Parents stand before children in the recording, and so here. (Place here + 1, or 0: left out; row.)
    let mut place = vec![(0u64, 0u64); recording.hops.len()];
    let (mut above, mut line_of, mut ns) = (Vec::new(), Vec::new(), Vec::new());
    for (i, hop) in recording.hops.iter().enumerate() {
        let parent = match hop.above {
            Above::Sample(s) => row_of.get(&s).map(|row| (2 * row, *row)),
            Above::Hop(h) => match place[h as usize] {
                (0, _) => None,
                (at, row) => Some((2 * (at - 1) + 1, row)),
            },
        };
        let Some((parent, row)) = parent else {
            continue;
        };
        let time = own(waits, &rows[row as usize], waits.ns[i]);
        if time == 0 {
            continue;
        }
        above.push(parent);
        line_of.push(lines.id(analysis.hop_line(hop), kind_of(hop.role)));
        ns.push(time);
        place[i] = (above.len() as u64, row);
    }
    columns.put("hop.above", above.into_iter());
    columns.put("hop.line_of", line_of.into_iter());
    columns.put("hop.ns", ns.into_iter());
    columns.put_strings("line", lines.all.iter().map(|(text, _)| text.as_str()));
    columns.put("line.kind", lines.all.iter().map(|(_, kind)| *kind));
}

/// The tree of the view off-wake: blocked stacks, the waker, and the waker's stack from its
/// leaf down to its root. It sums to blocked time, as the view off-cpu does.
fn put_wakers(
    columns: &mut Columns,
    scaled: &ScaledWaits<'_>,
    rows: &[PageRow],
    entries: &mut Entries,
) {
    let ScaledWaits { analysis, waits } = scaled;
    let recording = analysis.recording;
    let not_sampled = entries.mark(wallscope_model::scale::NOT_SAMPLED.to_owned());
    let not_seen = entries.mark("[waker not seen]".to_owned());
    let mut builder = Builder::new();
    let (mut path, mut step) = (Vec::new(), Vec::new());
    let mut out = Vec::new();
    for row in rows.iter().filter(|r| r.tag & 3 == State::Blocked as u8) {
        path.clear();
        match row.stack {
            Some(stack) => {
                entries.path(recording, stack, &mut step);
                path.extend(step.iter().map(|(entry, _)| *entry));
            }
            None => path.push(not_sampled),
        }
        let mut left = row.ns;
        let depth = path.len();
        let mut put = |path: &[u32], ns: u64, before: u64| {
            // Its share of everything, each nanosecond and sample in one part only.
            let share = |n: u64| part(n, before + ns, row.ns) - part(n, before, row.ns);
            let slices = (row.slices.iter())
                .map(|v| SliceValue {
                    count: share(v.count),
                    ns: share(v.ns),
                    ..*v
                })
                .filter(|v| v.ns > 0 || v.count > 0)
                .collect();
            out.push(PageRow {
                node: builder.add(path, ns),
                leaf_line: 0,
                sample: None,
                stack: row.stack,
                context: row.context,
                labels: row.labels,
                tag: row.tag,
                count: share(row.count),
                ns,
                slices,
            });
        };
        for hop in row
            .sample
            .map_or(&[][..], |s| &waits.below_sample[s as usize])
        {
            let h = &recording.hops[*hop as usize];
            let ns = own(waits, row, waits.ns[*hop as usize]).min(left);
            if ns == 0 {
                continue;
            }
            path.truncate(depth);
            path.push(entries.mark(analysis.ender(h)));
            if let Some(stack) = h.stack {
                entries.path(recording, stack.0, &mut step);
                path.extend(step.iter().rev().map(|(entry, _)| *entry));
            }
            put(&path, ns, row.ns - left);
            left -= ns;
        }
        path.truncate(depth);
        if row.stack.is_some() {
            path.push(not_seen);
        }
        if left > 0 || row.ns == 0 {
            put(&path, left, row.ns - left);
        }
    }
    let format = TreeColumns::new("wake.", recording);
    put_tree(columns, format, builder, &mut out);
}

/// The part of `ns` of a row's sample that is the row's: samples may be shown in like threads too.
fn own(waits: &Waits, row: &PageRow, ns: u64) -> u64 {
    let whole = row.sample.map_or(0, |s| waits.sample_ns[s as usize]);
    part(ns, row.ns, whole)
}

/// `upto` of `whole` parts of `n`.
fn part(n: u64, upto: u64, whole: u64) -> u64 {
    (u128::from(n) * u128::from(upto) / u128::from(whole.max(1))) as u64
}

/// All of it, and the largest parts.
fn shares(all: &[Share]) -> Value {
    let shown = all.iter().take(MAX_SHARES);
    let shown: Vec<Value> = shown.map(|s| json!([s.what, s.ns])).collect();
    json!([all.iter().map(|s| s.ns).sum::<u64>(), shown])
}

fn lock(l: &LockRow) -> Value {
    let holder = |h: &Holder| {
        let thread = format!("{}{}", h.thread, h.how);
        json!([thread, h.place, h.ns, shares(&h.did), how(h)])
    };
    json!({
        "name": &*l.name, "total": l.total_ns, "idle": l.idle_ns, "longest": l.longest_ns, "count": l.count,
        "waiters": l.waiters, "exact": l.exact, "waits": shares(&l.waits),
        "holders": l.holders.iter().take(MAX_SHARES).map(holder).collect::<Vec<_>>(),
    })
}

fn peer(p: &PeerRow) -> Value {
    // What people would call the place, without the code that only sends.
    let stacks = p.stacks.iter().take(MAX_SHARES);
    let sent = stacks.map(|(frames, _, ns)| {
        let frames: Vec<&str> = frames.iter().map(|f| &*f.function.name).collect();
        json!([frames, ns])
    });
    json!({
        "pid": p.peer.pid, "process": &*p.process, "asks": p.peer.asks,
        "address": &*p.peer.address, "peer_pid": p.peer.peer_pid, "peer_name": &*p.peer.peer_name,
        "connections": p.peer.connections, "requests": p.peer.requests,
        "at_least": p.peer.requests_at_least,
        "in_flight": p.peer.in_flight_ns, "share": p.share, "sent": sent.collect::<Vec<_>>(),
    })
}
