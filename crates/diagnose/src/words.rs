//! Numbers and reasons as prose has them.

use wallscope_model::BlockReason;

/// A number of CPUs.
pub fn cpus(n: f64) -> String {
    match n {
        n if n < 0.1 => format!("{n:.2} CPUs"),
        n => format!("{n:.1} CPUs"),
    }
}

/// A share of 1 as a percentage, rounded for reading.
pub(crate) fn share(v: f64) -> String {
    let p = v * 100.0;
    // Near 0 and 100 % one more digit tells shares apart.
    if (p > 0.0 && p < 0.95) || (p > 99.0 && p < 99.95) {
        format!("{p:.1} %")
    } else {
        format!("{p:.0} %")
    }
}

/// A length of time, given in ns.
pub(crate) fn time(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    if s < 0.000_095 {
        format!("{:.1} µs", s * 1e6)
    } else if s < 0.000_95 {
        format!("{:.0} µs", s * 1e6)
    } else if s < 0.0095 {
        format!("{:.2} ms", s * 1e3)
    } else if s < 0.95 {
        format!("{:.0} ms", s * 1e3)
    } else if s < 99.5 {
        format!("{s:.1} s")
    } else {
        format!("{s:.0} s")
    }
}

/// A sentence as a clause: its first letter in lower case, unless a name such as `GC Thread#0` or `G1 Main
/// Marker` begins it.
pub(crate) fn clause(sentence: &str) -> String {
    let second = sentence.chars().nth(1);
    if second.is_some_and(|c| !c.is_lowercase() && c != ' ') {
        return sentence.to_owned();
    }
    let mut letters = sentence.chars();
    let first = letters.next().map(|c| c.to_lowercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

/// A clause as a sentence: its first letter in upper case, unless it begins with a name.
pub(crate) fn sentence(clause: &str) -> String {
    let articles = [("the ", "The "), ("a ", "A "), ("an ", "An ")];
    let begins = |(article, upper): &(&str, &str)| {
        clause
            .strip_prefix(article)
            .map(|rest| format!("{upper}{rest}"))
    };
    let begun = articles.iter().find_map(begins);
    begun.unwrap_or_else(|| clause.to_owned())
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// A function's name without the parameters that C++ adds.
pub(crate) fn function(name: &str) -> &str {
    let (head, tail) = name.rsplit_once(')').unwrap_or((name, "-"));
    if !["", " const"].contains(&tail) {
        return name;
    }
    let mut depth = 1;
    let open = head.char_indices().rev().find(|(_, c)| {
        depth += match c {
            ')' => 1,
            '(' => -1,
            _ => 0,
        };
        depth == 0
    });
    let bare = open.map_or("", |(at, _)| &head[..at]);
    let is_name = bare.ends_with(|c: char| c.is_alphanumeric() || "_>)".contains(c));
    match is_name && !bare.ends_with("operator") {
        true => bare,
        false => name,
    }
}

/// Whether a function has no name but its place in a file: `dash+0xbc40`.
pub(crate) fn is_address(function: &str) -> bool {
    function.contains("+0x") || function.starts_with("[0x")
}

/// The name of a resource without addresses, descriptors and process ids; `None`: nothing of the
/// name means anything to a reader.
pub(crate) fn resource(name: &str) -> Option<String> {
    let name = name.split(" (fd ").next().unwrap_or(name);
    if let Some(word) = name.strip_prefix("futex ") {
        return lock(word);
    }
    if let Some((call, path)) = name.split_once(' ')
        && path.starts_with('/')
        && call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    {
        return Some(path.to_owned());
    }
    // A Java object: the class alone tells a reader something, and those of the language's own locks do not.
    if let Some((class, _)) = name.split_once(" (process ") {
        let own = class.starts_with("a java.util.concurrent.locks.");
        return match class
            .strip_prefix("monitor ")
            .and_then(|of| of.split_once(" of "))
        {
            Some((_, class)) => Some(format!("monitor of {class}")),
            None => (!own).then(|| class.to_owned()),
        };
    }
    let opaque = ["pipe:[", "eventpoll", "socket:["];
    // Versions to 0.3 said `anonymous memory` of pages of files, too.
    let nameless = [
        "unix socket",
        "anonymous memory",
        "page of a file or of memory",
    ];
    if opaque.iter().any(|kind| name.starts_with(kind)) || nameless.contains(&name) {
        return None;
    }
    if let Some(gil) = name.strip_prefix("the GIL of ") {
        return Some(
            match gil.strip_suffix(')').and_then(|gil| gil.rsplit_once(" (")) {
                Some((program, pid)) => format!("{program}, pid {pid}"),
                None => gil.to_owned(),
            },
        );
    }
    let kinds = ["peer ", "page of "];
    let plain = kinds.iter().find_map(|kind| name.strip_prefix(kind));
    let plain = plain.unwrap_or(name);
    (!plain.contains("0x")).then(|| plain.to_owned())
}

/// A lock by its symbol, or by the C++ class of the object that holds it.
fn lock(word: &str) -> Option<String> {
    let (place, inside) = word.split_once(" (").unwrap_or((word, ""));
    if !place.starts_with("0x") {
        return Some(place.to_owned());
    }
    let (class, _) = inside.rsplit_once("+0x")?;
    let class = class.trim_start_matches("(anonymous namespace)::");
    (!class.is_empty()).then(|| class.to_owned())
}

/// Target of a single wait.
pub(crate) fn target(r: BlockReason) -> &'static str {
    match r {
        BlockReason::Lock => "a lock",
        BlockReason::Pipe => "data from a pipe or local socket",
        BlockReason::Timer => "a timer",
        BlockReason::Child => "a child process",
        BlockReason::PageFault => "a page to be brought in",
        BlockReason::Memory => "memory to be freed",
        BlockReason::KernelLock => "a lock inside the kernel",
        BlockReason::Other => "an unknown event",
        r => reason(r),
    }
}

/// Target of a blocked thread's wait.
pub(crate) fn reason(r: BlockReason) -> &'static str {
    match r {
        BlockReason::Lock => "locks",
        BlockReason::Gil => "the interpreter's lock",
        BlockReason::Disk => "the disk",
        BlockReason::Network => "the network",
        BlockReason::Pipe => "pipes",
        BlockReason::Timer => "timers (sleeping)",
        BlockReason::Poll => "events (poll, select or epoll)",
        BlockReason::Child => "child processes",
        BlockReason::PageFault => "page faults",
        BlockReason::Memory => "memory reclaim",
        BlockReason::KernelLock => "locks inside the kernel",
        BlockReason::Gc => "garbage collection",
        BlockReason::Stopped => "being stopped",
        BlockReason::Other => "something else",
    }
}

/// Target of a task's wait, by the runtime's reason.
pub(crate) fn of_task(reason: &str) -> &str {
    match reason {
        "lock" | "mutex" => "a lock",
        "timer" => "a timer (they sleep)",
        "channel" => "a channel",
        "queue" => "a queue",
        "select" => "one of several channels",
        "event" => "an event",
        "network" => "the network",
        "pool" => "an entry of a pool",
        "task" => "another task",
        "thread" => "a thread",
        "child" => "a child process",
        "gc" => "garbage collection",
        "syscall" => "a system call",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{clause, function, resource, sentence};

    #[test]
    fn functions_are_named_without_parameters() {
        assert_eq!(function("execute_one_pass(opt_pass*)"), "execute_one_pass");
        assert_eq!(function("a::b<c>::d(void (*)(int)) const"), "a::b<c>::d");
        assert_eq!(function("f::operator()(int)"), "f::operator()");
        let same = [
            "main.(*Store).Append",
            "f::operator()",
            "get (queue.py)",
            "(anonymous)",
            "read",
        ];
        for name in same {
            assert_eq!(function(name), name);
        }
    }

    #[test]
    fn a_clause_with_an_article_begins_a_sentence() {
        assert_eq!(sentence("a timer interrupt"), "A timer interrupt");
        assert_eq!(sentence("the disk"), "The disk");
        assert_eq!(sentence("xz computes"), "xz computes");
    }

    #[test]
    fn names_keep_their_first_letter_in_a_clause() {
        assert_eq!(clause("It waits for a lock"), "it waits for a lock");
        assert_eq!(clause("A timer is late"), "a timer is late");
        assert_eq!(clause("GC Thread#0 computes"), "GC Thread#0 computes");
        assert_eq!(clause("G1 Main Marker waits"), "G1 Main Marker waits");
    }

    #[test]
    fn resources_are_named_without_addresses() {
        let told = |name| resource(name).unwrap_or_default();
        let class = "futex 0x556e ((anonymous namespace)::Queue+0x28, heap of process 4046)";
        assert_eq!(told(class), "Queue");
        assert_eq!(told("futex chain_mutex (truth)"), "chain_mutex");
        assert_eq!(
            told("futex 0x24c9 (+0x48 of a block of 280 bytes, heap of process 1)"),
            ""
        );
        assert_eq!(told("futex 0xc000 (anonymous memory of process 15530)"), "");
        assert_eq!(told("peer 127.0.0.1:36603 (fd 6)"), "127.0.0.1:36603");
        assert_eq!(told("pwrite64 /tmp/file"), "/tmp/file");
        assert_eq!(told("pipe:[67506] (fd 1)"), "");
        assert_eq!(told("page of /srv/data.db"), "/srv/data.db");
        assert_eq!(told("anonymous memory"), "");
        assert_eq!(
            told("a java.util.concurrent.locks.ReentrantLock$NonfairSync (process 8571)"),
            ""
        );
        assert_eq!(told("a shop.Cart (process 8571)"), "a shop.Cart");
        assert_eq!(
            told("monitor 0x7f20 of shop.Cart (process 8571)"),
            "monitor of shop.Cart"
        );
        assert_eq!(told("eventpoll (fd 8): peer 127.0.0.1:42239"), "");
        assert_eq!(told("the GIL of python3 (16297)"), "python3, pid 16297");
    }
}
