//! The user's specifications of probes: names, patterns, places and events, and pairs of events.

use std::fmt;

/// One thing to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Functions by name or pattern, of all modules or one.
    Function {
        /// The module's file name or path; `None`: all.
        module: Option<String>,
        /// The name, with `*` and `?` as a shell has them.
        name: String,
        /// Bytes from the function's first instruction.
        offset: Option<u64>,
    },
    /// A place in a module's file, as `module+0x1f3a` in a report names it.
    Place {
        /// The module's file name or path.
        module: String,
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// A system call by name.
    Syscall(String),
    /// Something that happens at one moment.
    Event(EventSpec),
    /// From one event to the next of another kind in the same thread.
    Pair(EventSpec, EventSpec),
}

/// Something that happens at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSpec {
    /// A tracepoint of the kernel.
    Tracepoint {
        /// As `sched`.
        category: String,
        /// As `sched_switch`.
        name: String,
    },
    /// A static probe that a program's author put there.
    Usdt {
        /// The module's file name or path; `None`: all.
        module: Option<String>,
        /// As `postgresql`.
        provider: String,
        /// As `query__start`.
        name: String,
    },
}

impl fmt::Display for EventSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventSpec::Tracepoint { category, name } => write!(f, "tracepoint:{category}:{name}"),
            EventSpec::Usdt {
                module,
                provider,
                name,
            } => match module {
                Some(module) => write!(f, "usdt:{module}:{provider}:{name}"),
                None => write!(f, "usdt:{provider}:{name}"),
            },
        }
    }
}

/// Reads one argument.
///
/// # Errors
/// The fault in the argument, for the user.
pub fn parse(text: &str) -> Result<Spec, String> {
    if let Some((begin, end)) = text.split_once("..") {
        let event = |part: &str| match event(part)? {
            Some(event) => Ok(event),
            None => Err(format!(
                "'{text}': a pair is made of events, as in \
                 usdt:postgresql:query__start..usdt:postgresql:query__done"
            )),
        };
        return Ok(Spec::Pair(event(begin)?, event(end)?));
    }
    if let Some(event) = event(text)? {
        return Ok(Spec::Event(event));
    }
    if let Some(name) = text.strip_prefix("syscall:") {
        return match name {
            "" => Err("'syscall:' needs a name, as in syscall:read".into()),
            name => Ok(Spec::Syscall(name.to_owned())),
        };
    }
    let (module, rest) = match module_end(text) {
        Some(at) => (Some(text[..at].to_owned()), &text[at + 1..]),
        None => (None, text),
    };
    let (name, offset) = match rest.rsplit_once("+0x") {
        Some((name, digits)) => match u64::from_str_radix(digits, 16) {
            Ok(offset) => (name, Some(offset)),
            Err(_) => return Err(format!("'{text}': '{digits}' is no hexadecimal offset")),
        },
        None => (rest, None),
    };
    match (module, offset) {
        _ if name.is_empty() => Err(format!("'{text}' names no function")),
        // As reports print code without a symbol.
        (None, Some(offset)) if name.contains(['.', '/']) && !name.contains('*') => {
            Ok(Spec::Place {
                module: name.to_owned(),
                offset,
            })
        }
        (module, offset) => Ok(Spec::Function {
            module,
            name: name.to_owned(),
            offset,
        }),
    }
}

fn event(text: &str) -> Result<Option<EventSpec>, String> {
    if let Some(rest) = text.strip_prefix("tracepoint:") {
        return match rest.split_once(':') {
            Some((category, name)) if !category.is_empty() && !name.is_empty() => {
                Ok(Some(EventSpec::Tracepoint {
                    category: category.to_owned(),
                    name: name.to_owned(),
                }))
            }
            _ => Err(format!(
                "'{text}': a tracepoint has a category and a name, as in \
                 tracepoint:sched:sched_switch"
            )),
        };
    }
    if let Some(rest) = text.strip_prefix("usdt:") {
        let parts: Vec<&str> = rest.split(':').collect();
        let (module, provider, name) = match parts[..] {
            [provider, name] => (None, provider, name),
            [module, provider, name] => (Some(module.to_owned()), provider, name),
            _ => {
                return Err(format!(
                    "'{text}': a static probe has a provider and a name, as in \
                     usdt:postgresql:query__start"
                ));
            }
        };
        return Ok(Some(EventSpec::Usdt {
            module,
            provider: provider.to_owned(),
            name: name.to_owned(),
        }));
    }
    Ok(None)
}

/// End of a module's name: the first colon that is not one of two.
fn module_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (1..bytes.len()).find(|at| {
        bytes[*at] == b':' && bytes[at - 1] != b':' && bytes.get(at + 1).is_none_or(|b| *b != b':')
    })
}

/// Whether `name` fits `pattern`, in which `*` is any text and `?` any character.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (p, n) = (pattern.as_bytes(), name.as_bytes());
    let (mut i, mut j) = (0, 0);
    // The position to go on from when the text behind the last star does not match.
    let mut back: Option<(usize, usize)> = None;
    while j < n.len() {
        if i < p.len() && (p[i] == b'?' || p[i] == n[j]) && p[i] != b'*' {
            (i, j) = (i + 1, j + 1);
        } else if i < p.len() && p[i] == b'*' {
            back = Some((i + 1, j));
            i += 1;
        } else if let Some((star, at)) = back {
            back = Some((star, at + 1));
            (i, j) = (star, at + 1);
        } else {
            return false;
        }
    }
    p[i..].iter().all(|b| *b == b'*')
}

/// Whether a name is a pattern. The `*` of a C++ `operator*` or of a pointer argument does not make one.
pub fn is_pattern(name: &str) -> bool {
    (name.contains('*') || name.contains('?'))
        && !name.contains('(')
        && !name.ends_with("operator*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(module: Option<&str>, name: &str, offset: Option<u64>) -> Spec {
        Spec::Function {
            module: module.map(str::to_owned),
            name: name.to_owned(),
            offset,
        }
    }

    #[test]
    fn everything_that_can_be_asked() {
        for (text, spec) in [
            ("malloc", function(None, "malloc", None)),
            (
                "libc.so.6:malloc",
                function(Some("libc.so.6"), "malloc", None),
            ),
            ("ns::A::f", function(None, "ns::A::f", None)),
            (
                "app:ns::A::f+0x1c",
                function(Some("app"), "ns::A::f", Some(0x1c)),
            ),
            ("pg_*", function(None, "pg_*", None)),
            (
                "/usr/bin/x:main",
                function(Some("/usr/bin/x"), "main", None),
            ),
            (
                "libc.so.6+0x1f3a",
                Spec::Place {
                    module: "libc.so.6".into(),
                    offset: 0x1f3a,
                },
            ),
            ("syscall:read", Spec::Syscall("read".into())),
            (
                "usdt:postgresql:query__start",
                Spec::Event(EventSpec::Usdt {
                    module: None,
                    provider: "postgresql".into(),
                    name: "query__start".into(),
                }),
            ),
        ] {
            assert_eq!(parse(text), Ok(spec), "{text}");
        }
        assert!(matches!(
            parse("tracepoint:block:block_rq_issue..tracepoint:block:block_rq_complete"),
            Ok(Spec::Pair(..))
        ));
        for bad in ["", "tracepoint:x", "usdt:x", "syscall:", "a..b", "f+0xzz"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns() {
        assert!(fits("pg_*", "pg_x") && fits("*", "") && fits("a?c*e", "abcdde"));
        assert!(fits("*alloc*", "je_malloc_x") && !fits("a*b", "ac") && !fits("a", "ab"));
        assert!(is_pattern("pg_*") && !is_pattern("f(char*)") && !is_pattern("A::operator*"));
    }
}
