//! Every rule, most urgent first.

use super::blind_spots::{BlindSpot, OF_COMPUTING, OF_CPUS, OF_REQUESTS, OF_REST, OF_WAITS};
use super::verdict::{Finding, Verdict};
use super::{
    answers, collections, conclusions, cpu, event_loops, kernel_work, limits, locks, requests,
    rest, tasks, waits,
};
use crate::evidence::Evidence;

/// Weight of a rule beside others that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// No further rule is tried where it applies.
    Final,
    /// It is named beside a rule that spoke before it.
    Ordinary,
    /// It speaks only where no other rule does.
    Fallback,
}

/// A named rule.
pub(crate) struct Rule {
    /// Its name, as scripts and reports have it.
    pub name: &'static str,
    /// When it speaks, and the source of its thresholds.
    pub when: &'static str,
    /// Its weight.
    pub(super) rank: Rank,
    /// Blind spots that could change its verdict, most likely first.
    pub(super) blind: &'static [BlindSpot],
    /// Judges.
    pub(super) judge: fn(&Evidence<'_>) -> Finding,
    /// Puts its verdict into one clause.
    pub(super) conclude: Conclude,
}

/// Puts a verdict into one clause.
pub(super) type Conclude = fn(&Evidence<'_>, &Verdict) -> String;

use Rank::{Fallback, Final, Ordinary};

/// Every rule; the first that applies speaks.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "empty",
        when: "no thread existed in the window",
        rank: Final,
        blind: &[],
        judge: limits::empty,
        conclude: conclusions::empty,
    },
    Rule {
        name: "unseen",
        when: "10 % of active time or more was not seen: nothing firm can be said of the rest",
        rank: Final,
        blind: &[],
        judge: limits::unseen,
        conclude: conclusions::cause,
    },
    Rule {
        name: "hung",
        when: "in a window of a second or more no thread did anything (as for idle), the requests of callers were \
               open all of it, and threads waited all the time where no thread waits for work",
        rank: Final,
        blind: OF_REQUESTS,
        judge: limits::hung,
        conclude: conclusions::cause,
    },
    Rule {
        name: "idle",
        when: "threads did less than 1 % of one CPU's work, and waited for others, or with requests \
               in flight, less than 2 % of the window (below that idle and hung look alike), threads that lived too \
               briefly to be seen did no more, and no call in a step of an event loop kept callers waiting 2 % of the \
               window or more",
        rank: Final,
        blind: OF_REST,
        judge: rest::idle,
        conclude: conclusions::at_rest,
    },
    Rule {
        name: "quota",
        when: "a CPU quota held threads back for 5 % of active time or more (the share at which \
               throttling shows in latency quantiles), and no wait takes four times as long, or a \
               quarter of the quota's periods ran out",
        rank: Ordinary,
        blind: OF_CPUS,
        judge: cpu::quota,
        conclude: conclusions::quota,
    },
    Rule {
        name: "reclaim",
        when: "threads looked for memory to free, or waited for it, 15 % of active time or more \
               (the kernel's own pressure figures call 10 % serious)",
        rank: Ordinary,
        blind: OF_COMPUTING,
        judge: kernel_work::reclaim,
        conclude: conclusions::cause,
    },
    Rule {
        name: "spinning",
        when: "functions that are known to spin or yield took 20 % of active time or more, and a third of \
               the computing (on too few CPUs the spinning is what fills them)",
        rank: Ordinary,
        blind: OF_COMPUTING,
        judge: kernel_work::spinning,
        conclude: conclusions::cause,
    },
    Rule {
        name: "collection",
        when: "a collector of garbage stopped or stalled threads 20 % of active time or more, or one thread half \
               of the window",
        rank: Ordinary,
        blind: OF_WAITS,
        judge: collections::stopped,
        conclude: conclusions::cause,
    },
    Rule {
        name: "cpu-shortage",
        when: "threads waited for a CPU 25 % of active time or more, at least half as long as they \
               computed (a queue of one for two that run), at least half as long as for anything \
               else, no shorter than for locks, a disk, answers of others or blocked threads, and 5 % of the window or more (a thread with nothing to do is \
               held up by nobody), each of them where all compute less than 1 % of one CPU; where its own threads \
               take the CPUs, neither starting and ending threads nor collecting garbage took half of the computing",
        rank: Ordinary,
        blind: OF_CPUS,
        judge: cpu::shortage,
        conclude: conclusions::shortage,
    },
    Rule {
        name: event_loops::NAME,
        when: "one function waited 20 % of active time or more inside a step of an event loop, which serves nobody \
               meanwhile, and the loop had other work: 20 % of its tasks' time or more was ready to run (one of them \
               or more at any time), or callers asked three times or more",
        rank: Ordinary,
        blind: OF_WAITS,
        judge: event_loops::held_up,
        conclude: conclusions::cause,
    },
    Rule {
        name: tasks::TASKS_LOCK,
        when: "goroutines and their like that began with one function waited for locks, for a receiver to take \
               what they send, for a pool's connections, or while they handle a request for what others are to \
               send them, 20 % or more of the time that they spent in the program's own functions, one of them \
               or more at any time",
        rank: Ordinary,
        blind: &[],
        judge: tasks::held_back,
        conclude: conclusions::cause,
    },
    Rule {
        name: "stuck",
        when: "a thread stood at a lock to the end of a window of a second or more and never got it, \
               which is no way to rest; 10 % of active time or more in all",
        rank: Ordinary,
        blind: OF_WAITS,
        judge: locks::stuck,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "healthy",
        when: "no thread computed half of the window or more, the process less than half a CPU; \
               waits for others took less than 5 % of the window, or less than 25 % with requests \
               answered within 100 ms on average (what a person takes for at once, by Nielsen); \
               requests did not take longer, less than half of the time was slept, and it is known what most threads \
               did",
        rank: Fallback,
        blind: OF_REST,
        judge: rest::healthy,
        conclude: conclusions::at_rest,
    },
    Rule {
        name: "churn",
        when: "20 threads or processes a second or more were started, starting and ending them took 15 % of \
               the time computed and 10 % of active time, or more, and threads computed or were ready to half of \
               the window or more",
        rank: Ordinary,
        blind: &[],
        judge: kernel_work::churn,
        conclude: conclusions::cause,
    },
    Rule {
        name: "page-faults",
        when: "the kernel's handling of page faults took 25 % of active time or more (a quarter is \
               what makes a cause in this table), and no less than waiting for pages from a disk",
        rank: Ordinary,
        blind: OF_COMPUTING,
        judge: kernel_work::faults,
        conclude: conclusions::cause,
    },
    Rule {
        name: "serial",
        when: "threads waited a third of active time or more for locks that they hold in turn \
               themselves (with Amdahl: half as fast again without it)",
        rank: Ordinary,
        blind: OF_WAITS,
        judge: locks::serial,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "computing",
        when: "threads computed more than half of active time, waits for own children left out, or \
               one CPU or more throughout, or one thread half of the window, while nothing else explains \
               20 %",
        rank: Ordinary,
        blind: OF_COMPUTING,
        judge: cpu::computing,
        conclude: conclusions::computing,
    },
    Rule {
        name: "delayed",
        when: "threads polled for children that they had started, or for a disk, or slept between tries to \
               get a lock, 20 % of active time or more (with waits for children in other calls), and as long as for \
               anything else that others have to end",
        rank: Ordinary,
        blind: OF_WAITS,
        judge: waits::delayed,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "colleagues",
        when: "threads with requests in flight waited in poll and its kin 20 % of active time or more, \
               longer than they slept or waited otherwise, and at least half of that was ended by other \
               threads of the recording by a signal, an event or a pipe",
        rank: Ordinary,
        blind: OF_WAITS,
        judge: requests::colleagues,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "sleep-in-request",
        when: "threads slept by their own timer 20 % of active time or more while requests were in \
               flight, and longer than they waited for others; where requests were not followed, 50 % or more, and \
               the process owed answers about as long",
        rank: Ordinary,
        blind: OF_REQUESTS,
        judge: requests::sleep_in_request,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "held",
        when: "threads with requests of others in flight, and none of their own, waited in poll and its kin 20 % of \
               active time or more, and longer than for anything else",
        rank: Ordinary,
        blind: OF_REQUESTS,
        judge: requests::held,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "fed",
        when: "50 % of active time or more is waited in functions that ask another process for work (blocking \
               pops of Redis, consumers of Kafka), while nobody asks this one for anything",
        rank: Ordinary,
        blind: OF_REST,
        judge: answers::fed,
        conclude: conclusions::at_rest,
    },
    Rule {
        name: "upstream",
        when: "answers of others were awaited 20 % of active time or more, in the thread itself or through a \
               future, and longer than anything else that others have to end",
        rank: Ordinary,
        blind: OF_REQUESTS,
        judge: answers::upstream,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "input",
        when: "50 % of active time or more is waited for standard input, or for what an unmeasured process \
               brings through a pipe, a queue of messages or a condition, with no request in flight",
        rank: Fallback,
        blind: OF_REST,
        judge: rest::input,
        conclude: conclusions::at_rest,
    },
    Rule {
        name: "waiting",
        when: "one reason that others have to end takes 20 % of active time or more, or half of one \
               thread's",
        rank: Ordinary,
        blind: OF_WAITS,
        judge: waits::waiting,
        conclude: conclusions::waiting,
    },
    Rule {
        name: "brief",
        when: "threads or processes that lived too briefly to be seen computed more than all others, and 1 % of \
               one CPU or more, and nothing of the above is seen of the others",
        rank: Ordinary,
        blind: &[],
        judge: limits::brief,
        conclude: conclusions::at_rest,
    },
    Rule {
        name: "sleeping",
        when: "threads slept by their own timer 50 % of active time or more",
        rank: Ordinary,
        blind: OF_REST,
        judge: rest::sleeping,
        conclude: conclusions::at_rest,
    },
    Rule {
        name: "events",
        when: "threads waited for events (poll and its kin) 50 % of active time or more",
        rank: Ordinary,
        blind: OF_REST,
        judge: rest::events,
        conclude: conclusions::at_rest,
    },
    Rule {
        name: "spread",
        when: "always: no rule above found one cause",
        rank: Fallback,
        blind: OF_WAITS,
        judge: limits::spread,
        conclude: conclusions::waiting,
    },
];

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn rules_have_distinct_names() {
        let mut names: Vec<_> = RULES.iter().map(|r| r.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }
}
