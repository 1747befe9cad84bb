//! Peers of the processes and the requests to them, for a terminal.

use super::MAX_ROWS;
use super::layout::{Ink, cells, clean, pad, shorten};
use super::page::Page;
use wallscope_analysis::view::Analysis;
use wallscope_model::units::{ns, requests, share};

impl Page<'_> {
    /// Prints the peers with their requests.
    pub(super) fn peers(&mut self, a: &Analysis) {
        let rows = a.peers();
        if rows.is_empty() {
            return;
        }
        self.heading("Requests", "replies owed, each connection followed");
        let head = format!(
            "  {} {} {} {}  with",
            pad("in flight", -9),
            pad("requests", -10),
            pad("each", -9),
            pad("share", -7),
        );
        let head = self.style.ink(Ink::Faint, &head);
        self.line(&head);
        for row in rows.iter().take(MAX_ROWS) {
            let p = &row.peer;
            let each = ns(p.in_flight_ns / p.requests.max(1));
            let each = if p.requests_at_least {
                format!("≤ {each}")
            } else {
                each
            };
            let line = format!(
                "  {} {} {} {}  ",
                pad(&ns(p.in_flight_ns), -9),
                pad(&requests(p), -10),
                pad(&each, -9),
                pad(&row.share.map_or(String::new(), share), -7),
            );
            let process = clean(&row.process);
            let what = if p.asks {
                format!("{process} ({}) awaits {}", p.pid, clean(&row.called()))
            } else {
                format!("{process} ({}) is asked at {}", p.pid, clean(&p.address))
            };
            let room = self
                .style
                .width
                .map_or(usize::MAX, |w| w.saturating_sub(cells(&line)));
            self.line(&format!("{line}{}", shorten(&what, room.max(12))));
            if let Some((frames, _, _)) = row.stacks.first() {
                let user = frames
                    .iter()
                    .filter(|f| f.function.kind != wallscope_model::FrameKind::Kernel);
                let names: Vec<String> = user.take(4).map(|f| clean(&f.function.name)).collect();
                self.faint(&format!("            sent by {}", names.join(" < ")), 14);
            }
        }
        if rows.len() > MAX_ROWS {
            self.faint(
                &format!("  {} more are in --json", rows.len() - MAX_ROWS),
                2,
            );
        }
        if rows.iter().any(|r| r.peer.requests_at_least) {
            self.faint(
                "  ≥, ≤: seen by polls of the connection, which are further apart than its requests are long",
                2,
            );
        }
        if rows.iter().any(|r| r.share.is_some()) {
            self.faint(
                "  share: of the time of the requests that the process is asked itself",
                2,
            );
        }
    }
}
