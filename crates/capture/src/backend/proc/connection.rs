//! One connection: the side that has to send next, and the requests so far.

use wallscope_procfs::sockets::{Socket, Talk};

use crate::event::SocketRecord;

/// Number of messages without any answer from which on a connection is no dialogue.
const ONE_WAY: u32 = 8;
/// Longest time, ms, for which an unanswered request counts as in flight, unless the thread waits
/// for nothing else.
const BELIEVED_MS: u32 = 60_000;

/// One connection.
pub(super) struct Connection {
    /// Its addresses.
    pub socket: Socket,
    /// Its record so far.
    pub record: SocketRecord,
    /// Whether a request is in flight; `None`: that is not known.
    pub pending: Option<bool>,
    /// A request is in flight for longer than [`BELIEVED_MS`]: the process may have forgotten it.
    pub overdue: bool,
    /// Whether a request was overdue when the connection was first asked for.
    at_first: bool,
    /// Segments sent and received when it was first asked for, and last.
    segments: [(u32, u32); 2],
    asked_ns: u64,
    /// Number of polls, and of polls that found a request in flight.
    polls: [u32; 2],
}

/// Whether a request is in flight: the asked side has to send next.
fn in_flight(inbound: bool, talk: &Talk, before: Option<(bool, (u32, u32))>) -> Option<bool> {
    let (ago_ms, segments, unacknowledged, unread) = match *talk {
        Talk::Unix {
            unread,
            unread_there,
        } => return (unread > 0 || unread_there > 0).then_some(true),
        Talk::Tcp {
            ago_ms,
            segments,
            unacknowledged,
            unread,
            ..
        } => (ago_ms, segments, unacknowledged, unread),
    };
    let (sent, heard, acknowledged) = ago_ms;
    // As the asking side sees it: messages there, and answers back.
    let (messages, answers, asked, answered) = if inbound {
        (segments.1, segments.0, heard, sent)
    } else {
        (segments.0, segments.1, sent, heard)
    };
    if messages == 0 || (answers == 0 && messages >= ONE_WAY) {
        return Some(false);
    }
    if answers == 0 || (inbound && unread > 0) || (!inbound && unacknowledged) {
        return Some(true);
    }
    if asked != answered {
        return Some(asked < answered);
    }
    // Both within a tick. Data that was acknowledged after the last receive was sent later than that receive.
    if acknowledged < heard {
        return Some(!inbound);
    }
    // A caller's request acknowledges all earlier answers: an answer that is not acknowledged was sent later.
    if inbound && unacknowledged {
        return Some(false);
    }
    let (pending, (sent, heard)) = before?;
    let more = (
        segments.0.wrapping_sub(sent),
        segments.1.wrapping_sub(heard),
    );
    let more = if inbound { (more.1, more.0) } else { more };
    // Messages and answers may differ in their numbers of segments. The ratio comes from all segments so far.
    let answered = f64::from(more.1) * f64::from(messages) / f64::from(answers);
    match f64::from(more.0) - answered {
        more if more >= HALF_A_MESSAGE => Some(true),
        less if less <= -HALF_A_MESSAGE => Some(false),
        _ => Some(pending),
    }
}

/// Time since the last request on a connection, ms; 0 if the kernel does not show it.
fn asked_ms(inbound: bool, talk: &Talk) -> u32 {
    match talk {
        Talk::Tcp { ago_ms, .. } if inbound => ago_ms.1,
        Talk::Tcp { ago_ms, .. } => ago_ms.0,
        Talk::Unix { .. } => 0,
    }
}

/// From this number on, messages lack an answer. A smaller difference is by chance, from their numbers of segments.
const HALF_A_MESSAGE: f64 = 0.5;

impl Connection {
    /// A connection that is polled from `now` on.
    pub fn new(socket: &Socket, record: SocketRecord, now: u64) -> Connection {
        Connection {
            socket: socket.clone(),
            record,
            pending: None,
            overdue: false,
            at_first: false,
            segments: [(0, 0); 2],
            asked_ns: now,
            polls: [0; 2],
        }
    }

    /// Takes its present state, which stands for the time since `asked_ns`.
    pub fn take(&mut self, talk: &Talk, now: u64) {
        let is_first = self.polls[0] == 0;
        let inbound = self.record.inbound != 0;
        let segments = match talk {
            Talk::Tcp { segments, .. } => *segments,
            Talk::Unix { .. } => (0, 0),
        };
        let before = self
            .pending
            .map(|pending| (pending || self.overdue, self.segments[1]));
        let started = self.pending != Some(true);
        self.pending = in_flight(inbound, talk, before);
        self.overdue = self.pending == Some(true) && asked_ms(inbound, talk) > BELIEVED_MS;
        if self.overdue {
            self.pending = Some(false);
        }
        let pending = self.pending == Some(true);
        if is_first {
            self.at_first = pending;
            self.segments = [segments; 2];
        } else if pending {
            self.record.in_flight += now.saturating_sub(self.asked_ns);
        }
        self.segments[1] = segments;
        self.asked_ns = now;
        self.polls[0] += 1;
        self.polls[1] += u32::from(pending);
        self.record.requests = match talk {
            Talk::Tcp { .. } => self.requests(inbound, pending),
            // The number of requests that were seen to begin.
            Talk::Unix { .. } => self.record.requests + u32::from(pending && started),
        };
        self.record.at_least = match talk {
            Talk::Tcp { .. } => 0,
            Talk::Unix { .. } => self.are_too_short().into(),
        };
    }

    /// Whether requests are hardly longer than the time between polls. Then as many begin as if each poll found one by
    /// chance (the runs of two kinds in a random order: Wald and Wolfowitz, 1940), and others were over in between.
    fn are_too_short(&self) -> bool {
        let [all, pending] = self.polls.map(u64::from);
        let by_chance = pending * (all - pending) / all.max(1);
        pending > 0 && u64::from(self.record.requests) * 2 > by_chance
    }

    /// The record of a connection that is gone. If an answer was not seen, the length of its request is
    /// not known.
    pub fn ended(mut self) -> SocketRecord {
        if self.pending == Some(true) {
            self.record.requests = self.record.requests.saturating_sub(1);
        }
        self.record
    }

    /// Adds the time for which a request was in flight before the connection was seen first, of `at_most` ns.
    pub fn was_asked(&mut self, talk: &Talk, at_most: u64) {
        if self.at_first {
            let asked_ms = asked_ms(self.record.inbound != 0, talk);
            self.record.in_flight += (u64::from(asked_ms) * 1_000_000).min(at_most);
        }
    }

    /// Number of requests. There were as many messages each way, except for those that were open at the beginning or at
    /// the end. A message may have several segments, so the smaller count is taken.
    fn requests(&self, inbound: bool, pending: bool) -> u32 {
        let [first, last] = self.segments;
        let sent = last.0.wrapping_sub(first.0);
        let heard = last.1.wrapping_sub(first.1);
        let (messages, answers) = if inbound {
            (heard, sent)
        } else {
            (sent, heard)
        };
        (messages + u32::from(self.at_first)).min(answers + u32::from(pending))
    }
}

#[cfg(test)]
mod tests {
    use wallscope_procfs::sockets::Ends;

    use super::*;

    fn talk(ago_ms: (u32, u32, u32), segments: (u32, u32)) -> Talk {
        Talk::Tcp {
            ago_ms,
            bytes: (0, 0),
            segments,
            unacknowledged: false,
            unread: 0,
        }
    }

    #[test]
    fn the_side_that_received_last_has_to_send_next() {
        // We asked 8 ms ago, and heard before that.
        assert_eq!(
            in_flight(false, &talk((8, 90, 90), (5, 4)), None),
            Some(true)
        );
        assert_eq!(
            in_flight(false, &talk((90, 8, 90), (5, 5)), None),
            Some(false)
        );
        assert_eq!(
            in_flight(true, &talk((90, 8, 90), (4, 5)), None),
            Some(true)
        );
        assert_eq!(
            in_flight(true, &talk((8, 90, 8), (5, 5)), None),
            Some(false)
        );
        // Nothing was said, or never an answer to anything.
        assert_eq!(
            in_flight(false, &talk((0, 0, 0), (0, 0)), None),
            Some(false)
        );
        assert_eq!(
            in_flight(false, &talk((1, 90, 1), (40, 0)), None),
            Some(false)
        );
        assert_eq!(in_flight(false, &talk((1, 1, 1), (1, 0)), None), Some(true));
    }

    #[test]
    fn a_request_from_long_ago_is_overdue() {
        let mut c = connection();
        let old = BELIEVED_MS + 1;
        c.take(&talk((old, old + 9, 0), (5, 4)), 1);
        assert_eq!((c.pending, c.overdue), (Some(false), true));
        // In one tick with the answer before it, it goes on.
        c.take(&talk((old, old, old), (5, 4)), 2);
        assert_eq!((c.pending, c.overdue), (Some(false), true));
        c.take(&talk((old, 3, 3), (5, 5)), 3);
        assert_eq!((c.pending, c.overdue), (Some(false), false));
    }

    #[test]
    fn within_a_tick_acknowledgements_and_counts_decide() {
        // An answer, and the next request at once, which was acknowledged a tick later.
        assert_eq!(
            in_flight(false, &talk((30, 30, 22), (6, 5)), None),
            Some(true)
        );
        let tie = talk((30, 30, 30), (6, 6));
        assert_eq!(in_flight(false, &tie, None), None);
        assert_eq!(in_flight(false, &tie, Some((true, (5, 5)))), Some(true));
        assert_eq!(in_flight(false, &tie, Some((false, (5, 5)))), Some(false));
        assert_eq!(in_flight(false, &tie, Some((false, (5, 6)))), Some(true));
        assert_eq!(in_flight(true, &tie, Some((true, (5, 6)))), Some(false));
        // Answered within the tick: the caller has acknowledged that since, or has yet to.
        let answered = talk((30, 30, 22), (6, 6));
        assert_eq!(
            in_flight(true, &answered, Some((true, (6, 5)))),
            Some(false)
        );
        let Talk::Tcp {
            ago_ms,
            bytes,
            segments,
            unread,
            ..
        } = tie
        else {
            unreachable!()
        };
        let sent = Talk::Tcp {
            ago_ms,
            bytes,
            segments,
            unacknowledged: true,
            unread,
        };
        assert_eq!(in_flight(true, &sent, Some((true, (6, 5)))), Some(false));
        // An answer of two segments of which one was held back, then its caller's next request.
        let next = talk((24, 24, 24), (58, 30));
        assert_eq!(in_flight(true, &next, Some((false, (56, 28)))), Some(true));
        // Answers of a head and a body: one came, and the next request went out at once.
        let two = talk((30, 30, 30), (10, 18));
        assert_eq!(in_flight(false, &two, Some((true, (9, 16)))), Some(true));
        assert_eq!(in_flight(false, &two, Some((false, (9, 16)))), Some(false));
        assert_eq!(in_flight(false, &two, Some((false, (9, 18)))), Some(true));
        assert_eq!(in_flight(false, &two, Some((true, (10, 16)))), Some(false));
    }

    fn connection() -> Connection {
        Connection {
            socket: Socket {
                cookie: 1,
                inode: 2,
                listens: false,
                state: "established",
                queues: None,
                retransmits: 0,
                held_back: false,
                ends: Ends::Unix {
                    path: None,
                    peer_inode: 3,
                },
                last_ms: None,
                bytes: None,
            },
            record: SocketRecord::default(),
            pending: None,
            overdue: false,
            at_first: false,
            segments: [(0, 0); 2],
            asked_ns: 0,
            polls: [0; 2],
        }
    }

    #[test]
    fn requests_shorter_than_the_time_between_polls_are_not_counted() {
        let unix = |pending| Talk::Unix {
            unread: u32::from(pending),
            unread_there: 0,
        };
        let asked = |pending: &dyn Fn(u64) -> bool| {
            let mut c = connection();
            c.record.inbound = 1;
            (0..200).for_each(|poll| c.take(&unix(pending(poll)), poll));
            (c.record.requests, c.record.at_least)
        };
        assert_eq!(asked(&|poll| poll % 50 < 20), (4, 0));
        let by_chance = |poll: u64| (poll * 2_654_435_761) >> 7 & 1 == 1;
        assert!(matches!(asked(&by_chance), (40.., 1)));
        assert_eq!(asked(&|_| false), (0, 0));
    }

    #[test]
    fn requests_are_counted_with_those_at_the_edges() {
        let mut c = connection();
        // One is open at the start, three more are asked, of which the last one is open at the end;
        // answers have two segments each.
        c.take(&talk((8, 90, 90), (7, 12)), 10);
        c.take(&talk((8, 90, 90), (10, 18)), 30);
        assert_eq!((c.record.requests, c.record.in_flight), (4, 20));
    }

    #[test]
    fn what_was_asked_before_a_connection_was_seen_counts_since_then() {
        let mut c = connection();
        c.take(&talk((8, 90, 90), (1, 0)), 10);
        c.was_asked(&talk((8, 90, 90), (1, 0)), 5_000_000_000);
        assert_eq!(c.record.in_flight, 8_000_000);
        // Not before the recording, and no request that is answered.
        let mut c = connection();
        c.take(&talk((8, 90, 90), (1, 0)), 10);
        c.was_asked(&talk((8, 90, 90), (1, 0)), 3_000_000);
        assert_eq!(c.record.in_flight, 3_000_000);
        let mut c = connection();
        c.take(&talk((90, 8, 90), (1, 1)), 10);
        c.was_asked(&talk((90, 8, 90), (1, 1)), 5_000_000_000);
        assert_eq!(c.record.in_flight, 0);
    }

    #[test]
    fn a_request_that_went_with_its_connection_has_no_length() {
        let mut c = connection();
        c.take(&talk((8, 90, 90), (1, 0)), 10);
        c.take(&talk((28, 90, 90), (1, 0)), 30);
        assert_eq!(c.record.requests, 1);
        let gone = c.ended();
        assert_eq!((gone.requests, gone.in_flight), (0, 20));
        let mut c = connection();
        c.take(&talk((8, 90, 90), (1, 0)), 10);
        c.take(&talk((90, 8, 90), (1, 1)), 30);
        assert_eq!(c.ended().requests, 1);
    }
}
