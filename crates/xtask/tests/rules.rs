//! The rules of `tidy` find their faults, in small made-up sources, and nothing else.

use xtask::tidy::ratchet::{Excess, List, faults, parse, shrunk};
use xtask::tidy::sizes::{Sizes, measure};
use xtask::tidy::sources::Source;
use xtask::tidy::{cycles, documents, prose};

fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    let made = files
        .iter()
        .map(|(path, text)| Source::new(path, text.to_string()));
    made.collect::<Result<_, _>>().unwrap()
}

fn in_cycles(files: &[(&str, &str)]) -> Vec<String> {
    let found = cycles::find(&sources(files));
    found.into_iter().map(|excess| excess.thing).collect()
}

fn things(excesses: Vec<Excess>) -> Vec<(String, usize)> {
    let pairs = excesses.into_iter().map(|e| (e.thing, e.value));
    pairs.collect()
}

const LIB: &str = "crates/x/src/lib.rs";
const A: &str = "crates/x/src/a.rs";
const B: &str = "crates/x/src/b.rs";

#[test]
fn two_files_that_take_names_from_each_other_are_a_cycle() {
    let lib = (LIB, "mod a; mod b;");
    let a = (A, "use crate::b::Two; pub struct One; fn f(_: Two) {}");
    assert_eq!(
        in_cycles(&[lib, a, (B, "use super::a::One; pub struct Two;")]),
        [A, B]
    );
    // By a path in code, in a macro call, through an import of the module.
    for b in [
        "pub struct Two; fn f() { crate::a::One; }",
        "pub struct Two; fn f() { println!(\"{:?}\", crate::a::One); }",
        "use crate::a; pub struct Two; fn f(_: a::One) {}",
        "use super::*; pub struct Two; fn f(_: a::One) {}",
        "pub struct Two; mod inner { use super::super::a::One; }",
    ] {
        assert_eq!(in_cycles(&[lib, a, (B, b)]), [A, B], "{b}");
    }
}

#[test]
fn module_lines_reexports_and_tests_are_no_edges() {
    let a = (A, "pub struct One; fn f(_: super::Two) {}");
    let b = (B, "use super::One; pub struct Two;");
    // Through the root, which only hands on: a cycle of a and b, not of the root.
    assert_eq!(
        in_cycles(&[(LIB, "mod a; mod b; pub use a::One; pub use b::Two;"), a, b]),
        [A, B]
    );
    let b = (
        B,
        "pub struct Two; #[cfg(test)] mod tests { use crate::a::One; }",
    );
    let lib = "mod a; mod b; pub use a::One; pub use b::Two; fn g(_: i32) {}";
    assert!(in_cycles(&[(LIB, lib), a, b]).is_empty());
    // A root that uses a name of its module, and the other way round.
    let lib = "mod a; pub struct Two; fn g(_: a::One) {}";
    assert_eq!(in_cycles(&[(LIB, lib), a]), [A, LIB]);
}

#[test]
fn a_longer_cycle_and_a_shared_name_are_told_apart() {
    let lib = (LIB, "mod a; mod b; mod c;");
    let c = "crates/x/src/c/mod.rs";
    let files = [
        lib,
        (A, "use crate::b::B; pub struct A;"),
        (B, "use crate::c::C; pub struct B;"),
        (c, "use crate::a::A; pub struct C;"),
    ];
    assert_eq!(in_cycles(&files), [A, B, c]);
    let same_name = [
        lib,
        (A, "use crate::b::f; fn g() { f() }"),
        (B, "pub fn f() { let a = 1; }"),
    ];
    assert!(in_cycles(&same_name).is_empty());
}

#[test]
fn headers_are_tied_by_what_they_define() {
    let (a, b) = ("crates/x/bpf/a.h", "crates/x/bpf/b.h");
    let first = (
        a,
        "#define SIZE 4\nstatic int one(void) { return two(SIZE); }",
    );
    let second = (b, "static int two(int n) { char buf[SIZE]; return n; }");
    assert_eq!(in_cycles(&[first, second]), [a, b]);
    // A member, a variable and a tag of that name are other things.
    let second = (
        b,
        "static int two(int one) { return s.SIZE + p->one + one; }",
    );
    assert!(in_cycles(&[first, second]).is_empty());
    // A program is included by nobody.
    let program = (
        "crates/x/bpf/p.c",
        "static int two(int n) { return one(); }",
    );
    assert!(in_cycles(&[first, program]).is_empty());
}

#[test]
fn scripts_are_tied_by_imports() {
    let (a, b, face) = ("web/js/a.js", "web/js/b.js", "web/js/face.js");
    let first = (a, "import {two} from './b.js';\nexport const one = two;");
    assert_eq!(
        in_cycles(&[
            first,
            (
                b,
                "import {one} from './a.js';\nexport const two = () => one;"
            )
        ]),
        [a, b]
    );
    let through = (
        b,
        "import {one} from './face.js';\nexport const two = () => one;",
    );
    assert_eq!(
        in_cycles(&[first, through, (face, "export {one} from './a.js';")]),
        [a, b]
    );
    assert!(in_cycles(&[first, (b, "export const two = 1;")]).is_empty());
}

fn measured(path: &str, text: &str) -> Sizes {
    measure(&sources(&[(path, text)]))
}

#[test]
fn long_functions_are_found_in_each_language() {
    let body = |lines: usize| "\n".repeat(lines);
    let rust = format!("struct S; impl S {{ fn f() {{{}}} }}", body(100));
    let found = measured(A, &rust).long_functions();
    assert_eq!(things(found), [(format!("{A} S::f"), 101)]);
    let rust = format!(
        "fn f() {{{}}} #[cfg(test)] mod tests {{ fn g() {{{}}} }}",
        body(99),
        body(200)
    );
    assert!(measured(A, &rust).long_functions().is_empty());

    let c = format!(
        "SEC(\"x\") int BPF_PROG(f, bool a, int b, int c, int d, int e) {{{}}}",
        body(100)
    );
    let sizes = measured("crates/x/a.h", &c);
    assert_eq!(
        things(sizes.long_functions()),
        [("crates/x/a.h f".into(), 101)]
    );
    assert!(sizes.many_parameters().is_empty() && sizes.flags().is_empty());

    let script = format!(
        "const f = async (a, b) => {{{}}};\nclass C {{ g() {{ if (a) {{{}}} }} }}",
        body(100),
        body(120)
    );
    let found = things(measured("web/js/a.js", &script).long_functions());
    assert_eq!(
        found,
        [("web/js/a.js f".into(), 101), ("web/js/a.js g".into(), 121)]
    );
}

#[test]
fn eleven_functions_over_eighty_lines_are_too_many() {
    let functions = |count: usize| {
        let one = |n| format!("fn f{n}() {{{}}}\n", "\n".repeat(80));
        (0..count).map(one).collect::<String>()
    };
    assert!(measured(A, &functions(10)).long_functions().is_empty());
    let found = things(measured(A, &functions(11)).long_functions());
    assert_eq!(found, [("functions over 80 lines".into(), 11)]);
}

#[test]
fn wide_structs_are_found_but_for_mirrors() {
    let fields = |n: usize| (0..n).map(|n| format!("a{n}: u8,")).collect::<String>();
    let wide = format!("struct S {{ {} }}", fields(21));
    assert_eq!(
        things(measured(A, &wide).wide_structs()),
        [(format!("{A} S"), 21)]
    );
    assert!(
        measured(A, &format!("struct S {{ {} }}", fields(20)))
            .wide_structs()
            .is_empty()
    );
    for attribute in [
        "derive(Debug, Args)",
        "derive(prost::Message)",
        "derive(Serialize)",
        "repr(C, align(8))",
    ] {
        let mirror = format!("#[{attribute}] {wide}");
        assert!(
            measured(A, &mirror).wide_structs().is_empty(),
            "{attribute}"
        );
    }
    let c = format!(
        "struct s {{ int {}z; struct {{ int a, b; }} in; }};",
        "a, ".repeat(19)
    );
    assert_eq!(
        things(measured("crates/x/a.h", &c).wide_structs()),
        [("crates/x/a.h s".into(), 21)]
    );
    for mirror in [
        format!("{c}\n_Static_assert(sizeof(struct s) == 84, \"mirrored in x.rs\");"),
        format!(
            "#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)\n\
             {c}\n#pragma clang attribute pop\n"
        ),
    ] {
        let wide = measured("crates/x/a.h", &mirror).wide_structs();
        assert!(wide.is_empty(), "{mirror}");
    }
    let before = "#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)\n\
                  #pragma clang attribute pop\n";
    let after = measured("crates/x/a.h", &format!("{before}{c}")).wide_structs();
    assert_eq!(after.len(), 1);
}

#[test]
fn parameters_and_flags_are_counted_where_the_author_chose_them() {
    let rust = "pub fn f(a: u8, b: u8, c: u8, d: u8, e: bool) {}
        fn own(a: bool) {}
        struct S;
        impl S { pub(crate) fn g(&self, a: bool, b: bool) {} }
        impl Trait for S { fn h(&self, a: u8, b: u8, c: u8, d: u8, e: bool) {} }
        pub extern \"C\" fn i(a: bool) {}";
    let sizes = measured(A, rust);
    assert_eq!(things(sizes.many_parameters()), [(format!("{A} f"), 5)]);
    assert_eq!(
        things(sizes.flags()),
        [(format!("{A} f"), 1), (format!("{A} S::g"), 2)]
    );

    let c = "static bool f(int a, bool b, bool *c) { return b; }\nstatic int g(void) { return 1; }";
    assert_eq!(
        things(measured("crates/x/a.h", c).flags()),
        [("crates/x/a.h f".into(), 1)]
    );
    assert!(measured("crates/x/a.c", c).flags().is_empty());

    let script = "/** @param {number} a\n * @param {boolean} b */\nexport function f(a, b) {\n}\n\
                  function g(a, b, {c, d}, e = h(1, 2), k) {\n}";
    let sizes = measured("web/js/a.js", script);
    assert_eq!(things(sizes.flags()), [("web/js/a.js f".into(), 1)]);
    assert_eq!(
        things(sizes.many_parameters()),
        [("web/js/a.js g".into(), 5)]
    );
}

#[test]
fn long_files_count_beyond_their_share() {
    let long = "\n".repeat(501);
    let files = |count: usize, long_ones: usize| {
        let paths: Vec<String> = (0..count)
            .map(|n| format!("crates/x/src/f{n}.rs"))
            .collect();
        let made = paths.iter().enumerate().map(|(n, path)| {
            let text = if n < long_ones {
                long.clone()
            } else {
                String::new()
            };
            Source::new(path, text).unwrap()
        });
        measure(&made.collect::<Vec<_>>()).long_files()
    };
    assert!(files(100, 3).is_empty());
    assert_eq!(things(files(100, 4)), [("files over 500 lines".into(), 4)]);
}

#[test]
fn pronouns_count_in_prose_only() {
    let pronoun = ["wh", "o"].concat();
    let comment = format!("// {pronoun} waits\n");
    let code = format!("struct Who {{ {pronoun}: u8 }}\nfn f() {{ {pronoun}_waits() }}\n");
    let string = format!("const A: &str = \"\nSee {pronoun}.\n\";\n");
    let text = [comment.repeat(19), code, string].concat();
    assert!(prose::pronouns(&sources(&[(A, &text)])).is_empty());
    let found = prose::pronouns(&sources(&[(A, &text), ("README.md", &comment)]));
    assert_eq!(things(found), [(A.into(), 20), ("README.md".into(), 1)]);
}

#[test]
fn comments_begin_with_words_of_their_own() {
    let text = "/// The same as f.\nfn g() {}\n/// Adds.\n/// The same holds here.\nfn h() {}\n";
    assert_eq!(
        things(prose::beginnings(&sources(&[(A, text)]))),
        [(A.into(), 1)]
    );
    assert!(prose::beginnings(&sources(&[("README.md", "The same page.")])).is_empty());
}

fn list(text: &str) -> List {
    parse(text).unwrap()
}

fn excess(thing: &str, value: usize) -> Excess {
    Excess {
        thing: thing.into(),
        value,
        note: "note".into(),
    }
}

#[test]
fn a_document_that_grows_too_long_is_found() {
    let page = |lines: usize| "A line.\n".repeat(lines);
    let found = |path: &str, lines| things(documents::find(&sources(&[(path, &page(lines))])));
    for (path, limit) in documents::LINES {
        assert_eq!(found(path, *limit), []);
        assert_eq!(found(path, limit + 1), [(path.to_string(), limit + 1)]);
    }
    assert_eq!(found("crates/x/README.md", 1000), []);
}

#[test]
fn a_list_of_exceptions_is_exact() {
    let allowed = list("# Title\n3 a f\n2 b\n");
    assert!(faults("r", &allowed, &[excess("a f", 3), excess("b", 2)]).is_empty());
    let wrong = faults("r", &allowed, &[excess("a f", 4), excess("c", 1)]);
    let expected = [
        "r: a f: 4, was 3; note",
        "r: c: 1; note",
        "r: b: 0, and the list allows 2; run `cargo xtask tidy --shrink`",
    ];
    assert_eq!(wrong, expected);
    assert!(parse("a f\n").is_err());
}

#[test]
fn a_list_of_exceptions_only_shrinks() {
    let old = list("3 a\n2 b\n");
    assert_eq!(shrunk("r", &old, &[excess("a", 1)]), Ok(list("1 a\n")));
    // A thing that moved keeps its exception.
    assert_eq!(
        shrunk("r", &old, &[excess("c", 3), excess("b", 2)]),
        Ok(list("3 c\n2 b\n"))
    );
    assert!(shrunk("r", &old, &[excess("a", 3), excess("b", 3)]).is_err());
    assert!(shrunk("r", &old, &[excess("a", 1), excess("b", 1), excess("c", 1)]).is_err());
}
