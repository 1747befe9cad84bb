//! Cuts arguments off demangled names.

/// Cuts the arguments off a demangled name: `ns::f(int) const` → `ns::f`.
///
/// Parentheses that belong to the name stay: of `A::operator()(int)`, of D templates
/// (`map!(f).front()`), of functions around a D function, and of generic Zig types
/// (`List(u32).get`). A Swift name that describes something (`closure #1 (Int) -> () in …`) is
/// returned whole.
pub fn without_arguments(name: &str) -> &str {
    let mut depth = 0;
    let mut skip_to = 0;
    let mut before = '\0';
    for (at, c) in name.char_indices() {
        let last = std::mem::replace(&mut before, c);
        if at < skip_to {
            continue;
        }
        match c {
            '<' => depth += 1,
            // The arrow of a function type closes nothing.
            '>' if depth > 0 && last != '-' => depth -= 1,
            '(' if depth == 0 => {
                let (head, rest) = name.split_at(at);
                if rest.starts_with("(anonymous namespace)") || head.ends_with("operator") {
                    continue;
                }
                let end = group_end(rest).map(|length| at + length);
                let part_of_name = match end {
                    Some(end) => {
                        rest.starts_with("(extension in ")
                            || matches!(last, '!' | '.')
                            || name[end..].starts_with('.')
                    }
                    None => false,
                };
                match end {
                    Some(end) if part_of_name => skip_to = end,
                    _ if last == ' ' && describes(head) => return name,
                    _ => return head,
                }
            }
            // The type of a Swift variable.
            ' ' if depth == 0 && name[at..].starts_with(" : ") => return &name[..at],
            _ => {}
        }
    }
    name
}

/// Length of the parentheses that `text` begins with.
fn group_end(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => open += 1,
            b')' => {
                open -= 1;
                if open == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether a Swift name that begins so is a description.
fn describes(head: &str) -> bool {
    head.contains('#') || head.contains(" for ") || head.contains(" from ") || head.contains(" of ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_of_the_name_stay() {
        for (name, bare) in [
            ("f(int)", "f"),
            (
                "(anonymous namespace)::f(int) const",
                "(anonymous namespace)::f",
            ),
            ("A<void (int)>::f(int)", "A<void (int)>::f"),
            ("A::operator()(int)", "A::operator()"),
            ("foo() [clone .part.0]", "foo"),
            (
                "<F as FnOnce() -> T>::call(x)",
                "<F as FnOnce() -> T>::call",
            ),
            ("f(int)::{lambda()#1}::operator()() const", "f"),
            ("plain", "plain"),
            ("a.b!(int, 3).c(char)", "a.b!(int, 3).c"),
            (
                "curl.onSeek(long delegate(int)).__lambda2(ulong)",
                "curl.onSeek(long delegate(int)).__lambda2",
            ),
            ("a.f(int) const", "a.f"),
            ("main.List(u32,4).get", "main.List(u32,4).get"),
            (
                "debug.FullPanic((function 'p')).call",
                "debug.FullPanic((function 'p')).call",
            ),
            (
                "main.Tree.insert(key: Swift.Int) -> Swift.Bool",
                "main.Tree.insert",
            ),
            ("main.id<A>(A) -> A", "main.id<A>"),
            (
                "(extension in m):Swift.Array.f(x: A) -> ()",
                "(extension in m):Swift.Array.f",
            ),
            ("main.(f in _1A)(Swift.Int) -> ()", "main.(f in _1A)"),
            ("m.T.x.getter : (Swift.Int) -> ()", "m.T.x.getter"),
            (
                "closure #1 (Swift.Int) -> () in m.f() -> ()",
                "closure #1 (Swift.Int) -> () in m.f() -> ()",
            ),
            ("((", ""),
            ("a(b.c", "a"),
        ] {
            assert_eq!(without_arguments(name), bare, "{name}");
        }
    }
}
