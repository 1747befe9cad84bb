//! Events with a length → the events that are open at each time.

use rustc_hash::FxHashSet;
use wallscope_model::FrameId;

/// An event with its length, ns.
struct Span {
    start: u64,
    end: u64,
    frame: FrameId,
}

/// Begin or end of an event that is written in two parts.
#[derive(Clone, Copy)]
enum Edge {
    Begin(FrameId),
    /// The name may be missing.
    End(Option<FrameId>),
}

/// The events of a thread.
#[derive(Default)]
pub(super) struct ThreadEvents {
    spans: Vec<Span>,
    edges: Vec<(u64, Edge)>,
}

/// An open event and the one around it.
#[derive(Clone, Copy)]
pub(super) struct OpenSpan {
    pub frame: FrameId,
    pub outer: Option<u32>,
}

/// A piece of time with the innermost event that is open in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub from: u64,
    pub to: u64,
    pub span: u32,
}

/// The events of a thread, nested.
#[derive(Default)]
pub(super) struct Nested {
    pub spans: Vec<OpenSpan>,
    /// Pieces in the order of time, without overlap.
    pub pieces: Vec<Piece>,
    /// Ends without a beginning.
    pub unpaired: u64,
    /// Beginnings without an end.
    pub unended: u64,
    /// Events that end after the one around them.
    pub clipped: u64,
}

/// Maximum by which an event may outlast the one around it because times were rounded to µs, ns.
const ROUNDING_NS: u64 = 1000;

impl ThreadEvents {
    /// An event that is written in one part.
    pub(super) fn complete(&mut self, (start, end): (u64, u64), frame: FrameId) {
        self.spans.push(Span { start, end, frame });
    }

    /// An event begins.
    pub(super) fn begin(&mut self, at: u64, frame: FrameId) {
        self.edges.push((at, Edge::Begin(frame)));
    }

    /// The innermost event of that name ends; without a name, the innermost of all.
    pub(super) fn end(&mut self, at: u64, frame: Option<FrameId>) {
        self.edges.push((at, Edge::End(frame)));
    }

    /// Whether ends have the names of beginnings. Some writers give all ends another name.
    fn names_ends(&self) -> bool {
        let begun = self.edges.iter().filter_map(|(_, e)| match e {
            Edge::Begin(frame) => Some(*frame),
            Edge::End(_) => None,
        });
        let begun: FxHashSet<FrameId> = begun.collect();
        let known = |e: &Edge| matches!(e, Edge::End(Some(frame)) if begun.contains(frame));
        self.edges.iter().any(|(_, e)| known(e))
    }

    /// Makes spans of beginnings and ends; a beginning without an end ends at `last`. Returns the number of ends
    /// without a beginning, and of beginnings without an end.
    fn pair(&mut self, last: u64) -> (u64, u64) {
        // Sorted by time; events of one time stay in the order of the file.
        self.edges.sort_by_key(|(at, _)| *at);
        let by_name = self.names_ends();
        let mut open: Vec<usize> = Vec::new();
        let mut unpaired = 0;
        for (at, edge) in std::mem::take(&mut self.edges) {
            let ended = match edge {
                Edge::Begin(frame) => {
                    open.push(self.spans.len());
                    self.spans.push(Span {
                        start: at,
                        end: last.max(at),
                        frame,
                    });
                    continue;
                }
                Edge::End(Some(frame)) if by_name => {
                    open.iter().rposition(|i| self.spans[*i].frame == frame)
                }
                Edge::End(_) => open.len().checked_sub(1),
            };
            match ended {
                Some(place) => self.spans[open.remove(place)].end = at,
                None => unpaired += 1,
            }
        }
        (unpaired, open.len() as u64)
    }

    /// Gives each piece of time to the innermost open event; `last` is the end of the trace, ns.
    pub(super) fn nest(mut self, last: u64) -> Nested {
        let (unpaired, unended) = self.pair(last);
        let mut nested = Nested {
            unpaired,
            unended,
            ..Nested::default()
        };
        self.spans
            .sort_by_key(|s| (s.start, std::cmp::Reverse(s.end)));
        let mut open: Vec<(u64, u32)> = Vec::new();
        let mut at = 0;
        for s in &self.spans {
            nested.close(&mut open, &mut at, s.start);
            nested.piece(&open, at, s.start);
            at = at.max(s.start);
            // An event that outlasts the one around it is ended with it.
            let end = open.last().map_or(s.end, |(outer, _)| s.end.min(*outer));
            nested.clipped += u64::from(s.end - end > ROUNDING_NS);
            open.push((end, nested.spans.len() as u32));
            nested.spans.push(OpenSpan {
                frame: s.frame,
                outer: open.len().checked_sub(2).map(|i| open[i].1),
            });
        }
        nested.close(&mut open, &mut at, u64::MAX);
        nested
    }
}

impl Nested {
    /// Closes the open events that end by `until`.
    fn close(&mut self, open: &mut Vec<(u64, u32)>, at: &mut u64, until: u64) {
        while let Some((end, _)) = open.last().copied().filter(|(end, _)| *end <= until) {
            self.piece(open, *at, end);
            *at = (*at).max(end);
            open.pop();
        }
    }

    fn piece(&mut self, open: &[(u64, u32)], from: u64, to: u64) {
        if let Some((_, span)) = open.last().filter(|_| from < to) {
            self.pieces.push(Piece {
                from,
                to,
                span: *span,
            });
        }
    }

    /// Frames of an event and those around it, innermost first.
    pub(super) fn frames(&self, span: u32, out: &mut Vec<FrameId>) {
        let mut at = Some(span);
        while let Some(s) = at.map(|i| self.spans[i as usize]) {
            out.push(s.frame);
            at = s.outer;
        }
    }
}
