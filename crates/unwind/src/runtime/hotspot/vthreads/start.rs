//! The start of a virtual thread, which names its kind: the class of its task, or the method that
//! its lambda calls.

use super::heap::Encoding;
use super::list::HeapReader;

/// Maximum tasks wrapped in one another.
const MAX_WRAPPED: usize = 6;
/// Prefixes of classes that only wrap a task of the program, and the fields that hold it.
const WRAPPERS: [&str; 3] = [
    "java.util.concurrent.",
    "java.lang.VirtualThread",
    "jdk.internal.",
];
const TASK_FIELDS: [&str; 6] = ["val$task", "callable", "task", "fn", "runnable", "command"];
/// Part of the class names of lambdas.
const LAMBDA: &str = "$$Lambda";

impl HeapReader<'_> {
    /// The class of the task that a continuation's `target` runs: its address and name.
    pub(super) fn start(&mut self, target: u64) -> Option<(u64, String)> {
        let mut object = self.object(target)?;
        for _ in 0..MAX_WRAPPED {
            let wraps = WRAPPERS.iter().any(|w| object.class.name().starts_with(w));
            let next = TASK_FIELDS.iter().find_map(|f| self.pointer(&object, f));
            match next.filter(|_| wraps).and_then(|next| self.object(next)) {
                Some(next) => object = next,
                None => break,
            }
        }
        let class = self.heap.class(&object.bytes)?;
        Some((class, object.class.name().to_owned()))
    }

    /// The name of a thread as a label, with its numbers replaced.
    pub(super) fn label(&mut self, name: u64) -> Option<String> {
        let name = self.object(name)?;
        let text = self.pointer(&name, "value")?;
        let encoding = match *name.bytes.get(name.class.field("coder")?)? {
            0 => Encoding::Latin1,
            _ => Encoding::Utf16,
        };
        let heap = self.heap;
        let text = super::list::with_words(self.memory, |m| heap.text(text, encoding, m))?;
        Some(without_numbers(&text))
    }
}

/// Replaces each number: `worker-17` → `worker-*`.
fn without_numbers(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter.is_ascii_digit() {
            true if short.ends_with('*') => {}
            true => short.push('*'),
            false => short.push(letter),
        }
    }
    short
}

/// The method that a lambda of class `name` calls, from a stack, innermost first.
pub(super) fn called_by_lambda(name: &str, methods: &[&str]) -> Option<String> {
    if !name.contains(LAMBDA) {
        return None;
    }
    let own = |m: &&str| {
        let rest = m.strip_prefix(name);
        rest.is_some_and(|r| r.starts_with('.'))
    };
    let at = methods.iter().rposition(own)?;
    let called = methods[..at].last()?;
    Some((*called).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_kind_are_one() {
        assert_eq!(without_numbers("worker-17"), "worker-*");
        assert_eq!(without_numbers("a1b22"), "a*b*");
        assert_eq!(without_numbers(""), "");
    }

    #[test]
    fn a_lambda_is_named_by_what_it_calls() {
        let stack = [
            "A.nap",
            "A.lambda$main$0",
            "A$$Lambda.run",
            "java.lang.VirtualThread.run",
        ];
        let called = |name| called_by_lambda(name, &stack);
        assert_eq!(called("A$$Lambda").as_deref(), Some("A.lambda$main$0"));
        assert_eq!(called("A"), None);
        assert_eq!(called("B$$Lambda"), None);
    }
}
