//! Joins the page's modules into one script.
//!
//! A page that may load nothing cannot import. Each module becomes a function scope that returns
//! what it exports, and an import becomes a destructuring of an earlier module's result; comments
//! (half of the text is types in them), indentation and spaces that mean nothing stay behind. All
//! else is exactly what lies in `web/js`, name by name and line by line. The modules keep to what
//! this understands: named imports without `as`, `export` before `function`, `async function`,
//! `class` or `const`, comments as `/** … */` or on lines of their own, no text over several lines.

/// The page's modules in an order in which each stands after those it imports.
pub(super) const MODULES: &[(&str, &str)] = &[
    ("text", include_str!("../../../../web/js/text.js")),
    ("decode", include_str!("../../../../web/js/decode.js")),
    ("stats", include_str!("../../../../web/js/stats.js")),
    ("profile", include_str!("../../../../web/js/profile.js")),
    ("derive", include_str!("../../../../web/js/derive.js")),
    ("filter", include_str!("../../../../web/js/filter.js")),
    ("palette", include_str!("../../../../web/js/palette.js")),
    ("dom", include_str!("../../../../web/js/dom.js")),
    ("flame", include_str!("../../../../web/js/flame.js")),
    ("picture", include_str!("../../../../web/js/picture.js")),
    ("ledger", include_str!("../../../../web/js/ledger.js")),
    ("menus", include_str!("../../../../web/js/menus.js")),
    ("timeline", include_str!("../../../../web/js/timeline.js")),
    ("table", include_str!("../../../../web/js/table.js")),
    ("detail", include_str!("../../../../web/js/detail.js")),
    ("domain", include_str!("../../../../web/js/domain.js")),
    ("main", include_str!("../../../../web/js/main.js")),
];

/// The modules of a comparison's page: those of the flame graph, and its own.
pub(super) fn delta_modules() -> Vec<(&'static str, &'static str)> {
    const SHARED: [&str; 6] = ["text", "decode", "stats", "profile", "dom", "flame"];
    let shared = MODULES.iter().filter(|(name, _)| SHARED.contains(name));
    let own = ("delta", include_str!("../../../../web/js/delta.js"));
    shared.copied().chain([own]).collect()
}

/// One script of `modules`.
pub(super) fn join(modules: &[(&str, &str)]) -> String {
    let mut out = String::from("'use strict';\n");
    for (name, text) in modules {
        out.push_str(&format!("const module_{name} = (() => {{\n"));
        let mut exports = Vec::new();
        let text = bare(text);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("import {") {
                let mut import = line.to_owned();
                while !import.contains(" from '") {
                    let Some(more) = lines.next() else { break };
                    import.push_str(more.trim_start());
                }
                out.push_str(&import_as_const(&import));
            } else if let Some(rest) = line.strip_prefix("export ") {
                exports.extend(declared_name(rest));
                dense(rest, &mut out);
            } else {
                dense(line, &mut out);
            }
            out.push('\n');
        }
        out.push_str(&format!("return {{ {} }};\n}})();\n", exports.join(", ")));
    }
    out
}

/// `text` without comments, indentation and empty lines.
fn bare(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/**") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    code.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .fold(String::with_capacity(code.len()), |mut out, line| {
            out.push_str(line);
            out.push('\n');
            out
        })
}

/// Appends `line` without the spaces beside punctuation that no reader of code needs: those inside
/// of `'…'` stay, and all of a line that may hold another kind of text or a regular expression.
/// Those beside `+`, `-` and `!` stay too, because `a - -b` needs them.
fn dense(line: &str, out: &mut String) {
    if line.contains(['/', '`', '"']) {
        out.push_str(line);
        return;
    }
    const PUNCTUATION: &[char] = &[
        '=', '<', '>', '{', '}', '(', ')', '[', ']', ',', ';', ':', '?', '&', '|', '*',
    ];
    let mut quoted = false;
    let mut escaped = false;
    let mut space = false;
    for c in line.chars() {
        if quoted {
            quoted = escaped || c != '\'';
            escaped = c == '\\' && !escaped;
            out.push(c);
            continue;
        }
        if c == ' ' {
            space = true;
            continue;
        }
        if space && !PUNCTUATION.contains(&c) && !out.ends_with(PUNCTUATION) {
            out.push(' ');
        }
        space = false;
        quoted = c == '\'';
        out.push(c);
    }
}

fn import_as_const(import: &str) -> String {
    let names = import
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or("", |(names, _)| names);
    let from = import
        .split_once(" from './")
        .and_then(|(_, rest)| rest.split_once(".js'"))
        .map_or("", |(from, _)| from);
    format!("const {{{names}}} = module_{from};")
}

fn declared_name(declaration: &str) -> Option<String> {
    let rest = [
        "async function* ",
        "async function ",
        "function* ",
        "function ",
        "class ",
        "const ",
    ]
    .iter()
    .find_map(|keyword| declaration.strip_prefix(keyword))?;
    let end = rest
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
        .unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_become_scopes() {
        let joined = join(&[
            (
                "a",
                "export const x = 1;\nexport function f() { return x; }",
            ),
            ("b", "import {\n  x,\n  f,\n} from './a.js';\nf(x);"),
        ]);
        assert_eq!(
            joined,
            "'use strict';\nconst module_a = (() => {\nconst x=1;\nfunction f(){return x;}\n\
             return { x, f };\n})();\nconst module_b = (() => {\nconst {x,f,} = module_a;\nf(x);\n\
             return {  };\n})();\n"
        );
    }

    #[test]
    fn comments_and_indentation_stay_behind() {
        let text =
            "/** a\n * b */\n// c\nf(/** @type {x} */ (y), '//');\n  if (z) {\n    // d\n  }\n";
        assert_eq!(bare(text), "f( (y), '//');\nif (z) {\n}\n");
    }

    #[test]
    fn only_spaces_that_mean_nothing_stay_behind() {
        let dense = |line| {
            let mut out = String::new();
            super::dense(line, &mut out);
            out
        };
        for (line, wanted) in [
            ("const a = { b: [1, 2] };", "const a={b:[1,2]};"),
            (
                "if (a && !b) return c ? -1 : d - -e;",
                "if(a&&!b)return c?-1:d - -e;",
            ),
            ("f('it\\'s ( so )', x );", "f('it\\'s ( so )',x);"),
            ("x = 'a , b' + y in z;", "x='a , b' + y in z;"),
            ("a = / ( b )/.test(c);", "a = / ( b )/.test(c);"),
            ("a = `( ${b} )`;", "a = `( ${b} )`;"),
        ] {
            assert_eq!(dense(line), wanted);
        }
    }

    #[test]
    fn every_import_is_an_earlier_export() {
        check(MODULES);
        check(&delta_modules());
    }

    fn check(modules: &[(&str, &str)]) {
        let mut exported: Vec<(String, String)> = Vec::new();
        for (name, text) in modules {
            let joined = join(&[(name, text)]);
            for line in joined.lines().filter(|l| l.contains("} = module_")) {
                let from = line.rsplit("module_").next().unwrap().trim_end_matches(';');
                let names = line.split_once('{').unwrap().1.split_once('}').unwrap().0;
                for import in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
                    assert!(
                        exported.contains(&(from.to_owned(), import.to_owned())),
                        "{name}.js imports {import} from {from}.js, which does not export it, or \
                         stands later"
                    );
                }
            }
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("export ") {
                    let declared = declared_name(rest)
                        .unwrap_or_else(|| panic!("{name}.js: cannot join `{line}`"));
                    exported.push(((*name).to_owned(), declared));
                }
                assert!(
                    !line.starts_with("import ") || line.starts_with("import {"),
                    "{name}.js: cannot join `{line}`"
                );
                assert!(!line.contains("</script"), "{name}.js would end the script");
                let over_lines = line.matches('`').count() % 2 == 1;
                assert!(!over_lines, "{name}.js: text over several lines: `{line}`");
            }
        }
    }
}
