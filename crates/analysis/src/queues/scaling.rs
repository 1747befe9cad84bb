//! Throughput over load, from several recordings: points for the universal scalability law.

use wallscope_model::Recording;

use crate::queueing::usl::Point;

use super::seconds::{seconds, window};

/// The load and throughput of a recording: requests in flight on average, and finished requests a
/// second, over the connections on which the processes were asked.
///
/// # Errors
/// The reason, in words, if the recording has no such requests.
pub fn point(rec: &Recording) -> Result<Point, String> {
    let asked = || rec.peers.iter().filter(|p| !p.asks && p.requests > 0);
    let requests: u64 = asked().map(|p| p.requests).sum();
    let span = window(rec);
    if requests == 0 || span <= 0.0 {
        return Err(
            "no request that its processes were asked is in the recording: give its load and throughput by --at N=X"
                .into(),
        );
    }
    let in_flight = seconds(asked().map(|p| p.in_flight_ns).sum());
    if in_flight <= 0.0 {
        return Err(
            "its requests have no time in flight: give its load and throughput by --at N=X".into(),
        );
    }
    Ok(Point {
        load: in_flight / span,
        throughput: requests as f64 / span,
    })
}
