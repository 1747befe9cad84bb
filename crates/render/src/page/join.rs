//! Joins the page's modules into one script.
//!
//! A page that may load nothing cannot import. All modules become one scope, each after those that it
//! imports: imports and the word `export` fall away, which needs names of their own on the outermost
//! level (a test sees to that). Comments (half of the text is types in them), indentation, spaces and
//! line ends that mean nothing stay behind. All else is exactly what lies in `web/js`, name by name.
//!
//! This is no reader of JavaScript but of the pieces it is made of: comments, text, regular
//! expressions, and the rest. It relies on how the modules are written: each statement ends with its
//! semicolon, and no loop is empty.

/// The page's modules in an order in which each stands after those it imports.
pub(super) const MODULES: &[(&str, &str)] = &[
    ("text", include_str!("../../web/js/text.js")),
    ("decode", include_str!("../../web/js/decode.js")),
    ("stats", include_str!("../../web/js/stats.js")),
    ("profile", include_str!("../../web/js/profile.js")),
    ("selection", include_str!("../../web/js/selection.js")),
    ("shape", include_str!("../../web/js/shape.js")),
    ("derive", include_str!("../../web/js/derive.js")),
    ("filter", include_str!("../../web/js/filter.js")),
    ("palette", include_str!("../../web/js/palette.js")),
    ("dom", include_str!("../../web/js/dom.js")),
    ("scene", include_str!("../../web/js/scene.js")),
    ("flame", include_str!("../../web/js/flame.js")),
    ("picture", include_str!("../../web/js/picture.js")),
    ("ledger", include_str!("../../web/js/ledger.js")),
    ("menus", include_str!("../../web/js/menus.js")),
    ("timeline", include_str!("../../web/js/timeline.js")),
    ("table", include_str!("../../web/js/table.js")),
    ("lengths", include_str!("../../web/js/lengths.js")),
    ("detail", include_str!("../../web/js/detail.js")),
    ("domain", include_str!("../../web/js/domain.js")),
    ("waits", include_str!("../../web/js/waits.js")),
    ("why", include_str!("../../web/js/why.js")),
    ("lanes", include_str!("../../web/js/lanes.js")),
    ("hover", include_str!("../../web/js/hover.js")),
    ("keys", include_str!("../../web/js/keys.js")),
    ("main", include_str!("../../web/js/main.js")),
];

/// The modules of a comparison's page: those of the flame graph, and its own.
pub(super) fn delta_modules() -> Vec<(&'static str, &'static str)> {
    const SHARED: &[&str] = &[
        "text", "decode", "stats", "profile", "shape", "dom", "scene", "flame",
    ];
    let shared = MODULES.iter().filter(|(name, _)| SHARED.contains(name));
    let own = ("delta", include_str!("../../web/js/delta.js"));
    shared.copied().chain([own]).collect()
}

/// One script of `modules`.
pub(super) fn join(modules: &[(&str, &str)]) -> String {
    let bare: String = (modules.iter())
        .map(|(_, text)| without_imports(text))
        .collect();
    let mut reader = Reader {
        rest: &bare,
        out: String::with_capacity(bare.len() / 2),
        gap: Gap::None,
        depth: 0,
        constants: Vec::new(),
        constant_end: 0,
    };
    reader.code(false);
    reader.out.push('\n');
    reader.out
}

/// `text` without its imports and the word `export`.
fn without_imports(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut importing = false;
    for line in text.lines() {
        importing |= line.starts_with("import {");
        if importing {
            importing = !line.contains(" from '");
            continue;
        }
        out.push_str(line.strip_prefix("export ").unwrap_or(line));
        out.push('\n');
    }
    out
}

/// What stood between two pieces of code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    gap: Gap,
    /// Brackets that are open.
    depth: u32,
    /// At which depths those `const` began that have not ended yet.
    constants: Vec<u32>,
    /// Where in `out` the last one ended: another that follows at once goes on with a comma.
    constant_end: usize,
}

/// Whether a letter belongs to a word.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

impl Reader<'_> {
    /// Takes code, to the `}` that closes it if `inside`, which it leaves, or to the end.
    fn code(&mut self, inside: bool) {
        let outer = self.depth;
        while let Some(c) = self.rest.chars().next() {
            if c.is_whitespace() {
                self.gap = self.gap.max(if c == '\n' { Gap::Line } else { Gap::Space });
                self.rest = &self.rest[c.len_utf8()..];
            } else if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else if self.rest.starts_with("/*") {
                self.rest = self.rest.split_once("*/").map_or("", |(_, rest)| rest);
            } else if matches!(c, '\'' | '"') {
                self.separate(c);
                self.quoted(c);
            } else if c == '`' {
                self.separate(c);
                self.template();
            } else if c == '/' && self.begins_pattern() {
                self.separate(c);
                self.pattern();
            } else if in_word(c) {
                self.word(c);
            } else {
                if c == '}' && inside && self.depth == outer {
                    return;
                }
                self.separate(c);
                self.punctuation(c);
            }
        }
    }

    fn word(&mut self, first: char) {
        let end = self.rest.find(|c| !in_word(c)).unwrap_or(self.rest.len());
        if &self.rest[..end] == "const" && self.begins_statement() {
            self.constants.push(self.depth);
            if self.out.len() == self.constant_end && self.out.ends_with(';') {
                self.out.pop();
                self.out.push(',');
                self.rest = &self.rest[end..];
                return;
            }
        }
        self.separate(first);
        self.take(end);
    }

    fn punctuation(&mut self, c: char) {
        match c {
            '{' | '(' | '[' => self.depth += 1,
            '}' | ')' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                // What ends here needs no end of its own.
                if self.out.ends_with(',') || c == '}' && self.out.ends_with(';') {
                    self.out.pop();
                }
            }
            _ => {}
        }
        self.take(c.len_utf8());
        if c == ';'
            && self
                .constants
                .pop_if(|depth| *depth >= self.depth)
                .is_some()
        {
            self.constant_end = self.out.len();
        }
    }

    fn begins_statement(&self) -> bool {
        self.out.is_empty() || self.out.ends_with([';', '{', '}', '\n'])
    }

    fn take(&mut self, bytes: usize) {
        self.out.push_str(&self.rest[..bytes]);
        self.rest = &self.rest[bytes..];
    }

    /// Puts what must stand between the last piece and one that begins with `next`.
    fn separate(&mut self, next: char) {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        let Some(last) = self.out.chars().next_back() else {
            return;
        };
        // `a - -b` and `a / /b/` are not what they would be without the space.
        let apart =
            in_word(last) && in_word(next) || last == next && matches!(last, '+' | '-' | '/');
        let joined = "{(,;[:?&|=*<>".contains(last) || "})],;.?:&|".contains(next);
        match gap {
            Gap::Line if apart || !joined => self.out.push('\n'),
            Gap::Space if apart => self.out.push(' '),
            _ => {}
        }
    }

    /// Text in quotes.
    fn quoted(&mut self, quote: char) {
        self.take(1);
        while let Some(c) = self.rest.chars().next() {
            self.take(c.len_utf8());
            if c == '\\' {
                let escaped = self.rest.chars().next().map_or(0, char::len_utf8);
                self.take(escaped);
            } else if c == quote {
                return;
            }
        }
    }

    /// Text with code in it.
    fn template(&mut self) {
        self.take(1);
        while let Some(c) = self.rest.chars().next() {
            if self.rest.starts_with("${") {
                self.take(2);
                self.code(true);
                self.gap = Gap::None;
                self.take(self.rest.len().min(1));
                continue;
            }
            self.take(c.len_utf8());
            if c == '\\' {
                let escaped = self.rest.chars().next().map_or(0, char::len_utf8);
                self.take(escaped);
            } else if c == '`' {
                return;
            }
        }
    }

    /// Whether a `/` here begins a regular expression and does not divide.
    fn begins_pattern(&self) -> bool {
        let before = self.out.trim_end();
        before.is_empty()
            || before.ends_with(|c: char| "(,=:[!&|?{};+-*%<>".contains(c))
            || before.ends_with("return")
    }

    fn pattern(&mut self) {
        self.take(1);
        let mut class = false;
        while let Some(c) = self.rest.chars().next() {
            self.take(c.len_utf8());
            match c {
                '\\' => {
                    let escaped = self.rest.chars().next().map_or(0, char::len_utf8);
                    self.take(escaped);
                }
                '[' => class = true,
                ']' => class = false,
                '/' if !class => return,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> String {
        join(&[("one", text)]).trim_end().to_owned()
    }

    /// The name that a line of the outermost level declares.
    fn declared(line: &str) -> Option<&str> {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let rest = [
            "async function* ",
            "async function ",
            "function* ",
            "function ",
            "class ",
            "const ",
            "let ",
        ]
        .iter()
        .find_map(|keyword| line.strip_prefix(keyword))?;
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
            .unwrap_or(rest.len());
        Some(&rest[..end])
    }

    /// Whether nothing but a semicolon follows the head of a loop.
    fn is_empty_loop(line: &str) -> bool {
        let head = ["for (", "while ("].iter();
        let Some(rest) = head
            .filter_map(|word| line.trim_start().strip_prefix(word))
            .next()
        else {
            return false;
        };
        let mut depth = 1;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        end.is_some_and(|end| &rest[end..] == ");")
    }

    #[test]
    fn modules_become_one_scope() {
        let joined = join(&[
            (
                "a",
                "export const x = 1;\nexport function f() {\n  return x;\n}",
            ),
            ("b", "import {\n  x,\n  f,\n} from './a.js';\nf(x);"),
        ]);
        assert_eq!(joined, "const x=1;function f(){return x}\nf(x);\n");
        let joined = join(&[("a", "export const x = 1;"), ("b", "const y = 2;")]);
        assert_eq!(joined, "const x=1,y=2;\n");
    }

    #[test]
    fn only_what_means_nothing_stays_behind() {
        for (text, wanted) in [
            ("const a = { b: [1, 2], };", "const a={b:[1,2]};"),
            (
                "if (a && !b) return c ? -1 : d - -e;",
                "if(a&&!b)return c?-1:d- -e;",
            ),
            ("f('it\\'s ( so )', x );", "f('it\\'s ( so )',x);"),
            ("x = 'a , b' + y in z;", "x='a , b'+y in z;"),
            (
                "a = / ( [/] b )/g.test(c) / d;",
                "a=/ ( [/] b )/g.test(c)/d;",
            ),
            ("a = `( ${ b + `{ ${c} }` } )`;", "a=`( ${b+`{ ${c} }`} )`;"),
            ("f(/** @type {x} */ (y), '//'); // z", "f((y),'//');"),
            ("if (z) {\n  // d\n}\ny();", "if(z){}\ny();"),
            ("f(\n  a,\n  b,\n);\ng();", "f(a,b);g();"),
            (
                "const a = () => {\n  const b = 1;\n  const c = 2;\n  f();\n};\nconst d = 3;\nlet e;",
                "const a=()=>{const b=1,c=2;f()},d=3;let e;",
            ),
            (
                "for (const a of b) c();\nconst d = 1;",
                "for(const a of b)c();const d=1;",
            ),
            ("a\n  .b()\n  .c();", "a.b().c();"),
        ] {
            assert_eq!(one(text), wanted);
        }
    }

    #[test]
    fn every_import_is_an_earlier_export_and_every_name_there_once() {
        check(MODULES);
        check(&delta_modules());
    }

    fn check(modules: &[(&str, &str)]) {
        let mut exported: Vec<(&str, &str)> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for (module, text) in modules {
            for import in text.split("\nimport {").skip(1) {
                let (list, rest) = import.split_once('}').expect("a list of imports ends");
                let from = (rest.split_once(" from './"))
                    .and_then(|(_, rest)| rest.split_once(".js'"))
                    .map_or("", |(from, _)| from);
                for wanted in list.split(',').map(str::trim).filter(|i| !i.is_empty()) {
                    assert!(
                        exported.contains(&(from, wanted)),
                        "{module}.js imports {wanted} from {from}.js, which does not export it, \
                         or stands later"
                    );
                }
            }
            for line in text.lines() {
                if let Some(name) = declared(line) {
                    assert!(!names.contains(&name), "{module}.js: {name} is there twice");
                    names.push(name);
                    if line.starts_with("export ") {
                        exported.push((module, name));
                    }
                } else {
                    assert!(!line.starts_with("export "), "{module}.js: `{line}`");
                }
                let one = !line.starts_with("import ") || line.starts_with("import {");
                assert!(one, "{module}.js: cannot join `{line}`");
                assert!(
                    !line.contains("</script"),
                    "{module}.js would end the script"
                );
                assert!(!is_empty_loop(line), "{module}.js: an empty loop: `{line}`");
            }
        }
    }
}
