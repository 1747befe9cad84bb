//! `same-code` passes changes of comments, and finds every other one.

use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::same_code::{differences, text_difference};
use xtask::tokens::{Language, tokens};

#[track_caller]
fn same(language: Language, old: &str, new: &str) {
    assert_eq!(text_difference(language, old, new), None);
}

#[track_caller]
fn differ(language: Language, old: &str, new: &str, expected: &str) {
    let found = text_difference(language, old, new);
    assert_eq!(found.as_deref(), Some(expected));
}

#[test]
fn comments_of_rust_do_not_count() {
    let old = "//! Top.\n/// Doc.\n#[inline]\nfn f() -> u8 { /* why */ 1 } // end\n";
    same(Language::Rust, old, "#[inline]\nfn f() -> u8 {\n    1\n}\n");
    same(
        Language::Rust,
        old,
        "/** x */\n#[inline] /// y\nfn f() -> u8 { 1 }",
    );
    let of_macro = "m! { /// a\n x }";
    same(Language::Rust, of_macro, "m! { x }");
    same(Language::Rust, of_macro, "m! { /*! b */ x }");
}

#[test]
fn code_of_rust_counts() {
    let old = "#[inline]\nfn f() -> u8 { 1 }\n";
    differ(
        Language::Rust,
        old,
        "// more\nfn f() -> u8 { 1 }\n",
        "was `#` (line 1), is `fn` (line 2)",
    );
    differ(
        Language::Rust,
        old,
        "#[inline]\nfn f() -> u8 {\n 2 }\n",
        "was `1` (line 2), is `2` (line 3)",
    );
    differ(
        Language::Rust,
        "#[doc = \"a\"] struct A;",
        "struct A;",
        "was `#` (line 1), is `struct` (line 1)",
    );
    differ(
        Language::Rust,
        "fn f() { g(\"// a\") }",
        "fn f() { g(\"// b\") }",
        "was `\"// a\"` (line 1), is `\"// b\"` (line 1)",
    );
    differ(
        Language::Rust,
        "fn f() { a && b }",
        "fn f() { a & &b }",
        "was `&&` (line 1), is `&` (line 1)",
    );
    differ(
        Language::Rust,
        "fn f() {}",
        "fn f() {} fn g() {}",
        "was the end of the file, is `fn` (line 1)",
    );
    differ(
        Language::Rust,
        "fn f() {",
        "fn f() {}",
        "before, line 1, column 8: not Rust",
    );
}

#[test]
fn comments_of_c_do_not_count() {
    let old = "/* a */\n#define F(x) (x) // b\nint f(void) { return '\"' + F(1); }\n";
    let new = "#define F(x) (x)\n\nint f(void)\n{\n\t// \"c\n\treturn '\"' + F(1);\n}\n";
    same(Language::C, old, new);
    same(Language::C, "// a \\\n b\nint c;", "int c;");
    same(
        Language::C,
        "#define A \\\n 1\nint c;",
        "#define A 1 /* x\n y */\nint c;",
    );
}

#[test]
fn code_of_c_counts() {
    let old = "#define F (x)\nint a;\n";
    differ(
        Language::C,
        old,
        "#define F(x)\nint a;\n",
        "was `F` (line 1), is `F(` (line 1)",
    );
    differ(
        Language::C,
        old,
        "#define F (x) \\\nint a;\n",
        "was a line's end (line 1), is `int` (line 2)",
    );
    differ(
        Language::C,
        "char *s = \"/* a */\";",
        "char *s = \"/* b */\";",
        "was `\"/* a */\"` (line 1), is `\"/* b */\"` (line 1)",
    );
    differ(
        Language::C,
        "int a; /*",
        "int a;",
        "before, line 1: unclosed comment",
    );
    differ(
        Language::C,
        "a + +b",
        "a ++b",
        "was `+` (line 1), is `++` (line 1)",
    );
}

#[test]
fn javascript_keeps_templates_regexes_and_lines() {
    let old = "/** @type {x} */\nconst a = `// ${b /* c */ + `d${'}'}`} e`; // f\n";
    same(
        Language::JavaScript,
        old,
        "const a = `// ${b + `d${'}'}`} e`;\n",
    );
    same(
        Language::JavaScript,
        "const r = /[/\"]+/g; const h = a / b; // c",
        "const r = /[/\"]+/g; const h = a / b;",
    );
    differ(
        Language::JavaScript,
        "f(`${a}// b`)",
        "f(`${a}`)",
        "was `}// b`` (line 1), is `}`` (line 1)",
    );
    differ(
        Language::JavaScript,
        "return a",
        "return\na",
        "was `a` (line 1), is `a` (line 2)",
    );
    differ(
        Language::JavaScript,
        "`\\${a}` // b",
        "`\\${c}`",
        "was ``\\${a}`` (line 1), is ``\\${c}`` (line 1)",
    );
}

#[test]
fn other_languages_keep_their_strings() {
    same(Language::Go, "a := `// b` // c\n", "a := `// b`\n");
    same(
        Language::Java,
        "a = \"\"\"\n \"// b\" \"\"\"; // c",
        "a = \"\"\"\n \"// b\" \"\"\";",
    );
    same(
        Language::Css,
        "a { b: url(http://c) } /* d */",
        "a { b: url(http://c) }",
    );
    same(Language::C, "s = R\"x(\"//)x\"; // c", "s = R\"x(\"//)x\";");
    same(Language::Hashed, "# a\nb = 1\n\n", "b = 1\n  # c\n");
    differ(
        Language::Hashed,
        "#!/bin/sh\n",
        "#!/bin/bash\n",
        "was `#!/bin/sh` (line 1), is `#!/bin/bash` (line 1)",
    );
}

/// Every source of this repository can be split, or `same-code` would fail where it changes.
#[test]
fn every_source_of_the_repository_lexes() {
    let listed = git(xtask::root(), &["ls-files"]);
    let mut split = 0;
    for path in listed.lines() {
        let Some(language) = Language::of_path(path) else {
            continue;
        };
        let Ok(text) = fs::read_to_string(xtask::root().join(path)) else {
            continue;
        };
        if let Err(error) = tokens(language, &text) {
            panic!("{path}: {error}");
        }
        split += 1;
    }
    assert!(split > 100, "{split}");
}

#[test]
fn a_repository_is_compared_with_its_last_commit() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    git(folder.path(), &["init", "-q"]);
    write("a.rs", "fn a() {} // one\n");
    write("b.c", "int b;\n");
    write("c.bin", "1");
    write("d.md", "One.\n");
    git(folder.path(), &["add", "."]);
    let commit = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "commit",
        "-qm",
        "t",
    ];
    git(folder.path(), &commit);

    write("a.rs", "// two\nfn a() {}\n");
    write("d.md", "Two.\n");
    let found = differences(folder.path(), "HEAD", &[]).unwrap();
    assert_eq!((found.compared, found.different), (1, vec![]));

    write("b.c", "int c;\n");
    write("c.bin", "2");
    write("e.rs", "");
    let found = differences(folder.path(), "HEAD", &[]).unwrap();
    assert_eq!(found.compared, 4);
    let expected = [
        "b.c: was `b` (line 1), is `c` (line 1)",
        "c.bin: changed, and comments of such files are unknown here",
        "e.rs: new file, unknown to git",
    ];
    assert_eq!(found.different, expected);
    let found = differences(folder.path(), "HEAD", &["a.rs"]).unwrap();
    assert!(found.different.is_empty());
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
