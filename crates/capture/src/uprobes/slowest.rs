//! Calls that are reported one by one: the longest.

use wallscope_model::calls::{Call, Lengths, SlowCall};
use zerocopy::FromBytes;

use super::{
    abi,
    options::Options,
    programs::{self, Programs},
};

/// Most calls that are kept, where each is wanted: some 100 MB.
const MAX_KEPT: usize = 500_000;

/// The longest calls, and where they are wanted, all.
pub(super) struct Slowest {
    most: usize,
    calls: Vec<SlowCall>,
    /// Each call, where they are wanted.
    pub all: Option<Vec<Call>>,
}

impl Slowest {
    /// As `options` ask for them.
    pub(super) fn new(options: &Options) -> Slowest {
        Slowest {
            most: options.slowest,
            calls: Vec::new(),
            all: options.each.then(Vec::new),
        }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        let Ok(slow) = abi::Slow::read_from_bytes(bytes) else {
            return;
        };
        let books = programs::books(&slow.books);
        if let Some(all) = self.all.as_mut().filter(|all| all.len() < MAX_KEPT) {
            all.push(Call {
                function: slow.function as usize,
                pid: slow.pid,
                tid: slow.tid,
                start_ns: slow.begin,
                end_ns: slow.end,
                length: slow.wall,
                books,
            });
        }
        let end = slow.comm.iter().position(|b| *b == 0).unwrap_or(16);
        self.calls.push(SlowCall {
            function: slow.function as usize,
            start_ns: slow.begin,
            length: slow.wall,
            pid: slow.pid,
            tid: slow.tid,
            thread: String::from_utf8_lossy(&slow.comm[..end]).into_owned(),
            books,
        });
        if self.calls.len() > 64 * self.most.max(64) {
            self.keep();
        }
    }

    fn keep(&mut self) {
        self.calls.sort_by_key(|c| std::cmp::Reverse(c.length));
        self.calls.truncate(self.most);
    }

    /// Length from which on calls are reported, ns: longer than the shortest kept call, and not so short that
    /// every call is reported.
    pub(super) fn threshold(&mut self, programs: &Programs, functions: usize) -> u64 {
        if self.all.as_ref().is_some_and(|all| all.len() < MAX_KEPT) {
            return 0;
        }
        if self.most == 0 {
            return u64::MAX;
        }
        self.keep();
        if self.calls.len() == self.most {
            return self.calls[self.most - 1].length + 1;
        }
        let mut all = Lengths::default();
        for f in 0..functions {
            all.merge(&programs.lengths(f));
        }
        if all.count() < 1000 {
            0
        } else {
            all.quantile(0.99).unwrap_or(0)
        }
    }

    pub(super) fn sorted(&self) -> Vec<SlowCall> {
        let mut calls = self.calls.clone();
        calls.sort_by_key(|c| std::cmp::Reverse(c.length));
        calls.truncate(self.most);
        calls
    }
}
