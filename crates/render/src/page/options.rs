//! Options of the page.

use wallscope_analysis::view::Idle;

use super::verdict::Verdict;

/// Content of a page besides its recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageOptions<'a> {
    /// Title; empty: the recording's target.
    pub title: &'a str,
    /// The verdict on top; `None`: the page has only its own sentence about the selection.
    pub verdict: Option<&'a Verdict>,
    /// Treatment of idle time until the page's reader chooses otherwise.
    pub idle: Idle,
}
