//! Words in a function's name that tell its action: `queue_push`, `Channel::send`, `pool_acquire`.

use super::known::knows;
use super::{GIVING_WORDS, LOCKING_WORDS, MAIN_WORDS, POOL_WORDS};

/// The author of a function, as far as the words in its name depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameOrigin {
    /// The program's own innermost function: a word for taking one of few things counts too.
    Program,
    /// A function of a library.
    Library,
}

/// Whether a function's name says that it gives something to another thread. For the program's own
/// function, a name that says that it takes one of few things counts, too.
pub(crate) fn name_says_gives(name: &str, origin: NameOrigin) -> bool {
    let words = words_of(name);
    let has = |table| words.iter().any(|word| knows(table, word));
    let takes = origin == NameOrigin::Program && (has(POOL_WORDS) || gets_connection(&words));
    (has(GIVING_WORDS) || takes) && !has(MAIN_WORDS)
}

/// Whether the name of the program's own function says that it takes one of few things.
pub(crate) fn name_says_borrows(name: &str) -> bool {
    let words = words_of(name);
    let has = |table| words.iter().any(|word| knows(table, word));
    (has(POOL_WORDS) || gets_connection(&words)) && !has(GIVING_WORDS)
}

/// Whether a name is `getConnection`, as pools of Java call it, or the like.
fn gets_connection(words: &[String]) -> bool {
    let has = |word: &str| words.iter().any(|w| w == word);
    has("get") && has("connection")
}

/// Whether a function's name says that it takes a lock.
pub(crate) fn name_says_locks(name: &str) -> bool {
    words_of(name).iter().any(|word| knows(LOCKING_WORDS, word))
}

/// The words of a function's own name, without its class, parameters and types: `try`, `send` of
/// `<flavors::array::Channel<T>>::trySend::{{closure}}`.
fn words_of(name: &str) -> Vec<String> {
    let (mut depth, mut plain) = (0u32, String::new());
    for c in name.chars() {
        match c {
            '<' | '{' => depth += 1,
            '>' | '}' => depth = depth.saturating_sub(1),
            // Parameters begin here, unless it is a Go method's receiver: `main.(*hub).publish`.
            '(' if depth == 0 && !plain.is_empty() && !plain.ends_with('.') => break,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let own = plain.split(['.', ':', ' ']).rfind(|part| !part.is_empty());
    let mut words = vec![String::new()];
    for c in own.unwrap_or_default().chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::words_of;

    #[test]
    fn words_are_taken_from_the_function_s_own_name() {
        let is = |name, words: &str| {
            let all: Vec<String> = words_of(name);
            let all: Vec<&str> = (all.iter().map(|w| &**w))
                .filter(|w| !w.is_empty())
                .collect();
            assert_eq!(all.join(" "), words, "{name}");
        };
        is(
            "<std::sync::mpmc::array::Channel<T>>::send::{{closure}}",
            "send",
        );
        is("app::Queue::tryPush(int, send::Kind)", "try push");
        is("java.util.concurrent.ArrayBlockingQueue.put", "put");
        is("main.(*hub).publish", "publish");
        is("pool_acquire", "pool acquire");
        is("void Bounded<Row, 8>::enqueue<Row&>(Row&)", "enqueue");
        is("<(dyn Fn() + Send)>", "");
    }
}
