//! Names in programs of languages, where the machine has their compilers.

use crate::support::{Lookup, compile, functions, have, names, run};

/// A C program with the names that Nim's compiler makes.
const LIKE_NIM: &str = r#"
__attribute__((noinline)) int fooBar__pureZalpha_u25(int x) { return x * 3; }
int MAIN(void) { return fooBar__pureZalpha_u25(1); }
int main(void) { return MAIN(); }
"#;

const D: &str = r#"
module app;
class Shape { int side; this(int s) { side = s; } int area(int scale) { return side * side * scale; } }
T twice(T)(T x) { return x + x; }
void main() {
    auto s = new Shape(3);
    auto f = (int x) => x + s.side;
    import std.stdio;
    writeln(s.area(2), twice(4), twice("a".length), f(1));
}
"#;

const NIM: &str = r#"
proc fooBar(x: int): int {.noinline.} =
  for i in 0 .. x: result += i
proc `+=+`(a: var int, b: int) {.noinline.} = a += b
var k = 3
k +=+ 4
echo fooBar(k)
"#;

/// The names that reports show for functions with a symbol that contains `part`.
fn shown(file: &std::path::Path, part: &str) -> Vec<String> {
    let wanted: Vec<u64> = functions(file)
        .into_iter()
        .filter(|f| f.2.contains(part))
        .map(|f| f.0)
        .collect();
    assert!(!wanted.is_empty(), "no {part} in {}", file.display());
    let (found, _) = Lookup::file(file).addresses(file, &wanted);
    found
        .iter()
        .flat_map(|lines| names(lines))
        .map(str::to_owned)
        .collect()
}

#[test]
fn names_are_nims_only_in_programs_of_nim() {
    if !have(&["gcc", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for flags in [&["-O1"][..], &["-O1", "-g"]] {
        for (main, name) in [
            ("NimMain", "alpha.fooBar"),
            ("other", "fooBar__pureZalpha_u25"),
        ] {
            let text = LIKE_NIM.replace("MAIN", main);
            let file = compile(dir.path(), "gcc", "a.c", &text, flags, "a");
            assert_eq!(shown(&file, "fooBar"), [name], "{flags:?}");
        }
    }
}

#[test]
fn d_programs_have_names_as_in_source() {
    if !have(&["ldc2", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("app.d");
    std::fs::write(&source, D).unwrap();
    let file = dir.path().join("app");
    for debug in ["-g", "-O0"] {
        let output = format!("-of={}", file.display());
        run("ldc2", &[debug, source.to_str().unwrap(), &output]);
        assert_eq!(shown(&file, "3app5Shape4area"), ["app.Shape.area(int)"]);
        assert_eq!(shown(&file, "3app5Shape6__ctor"), ["app.Shape.this(int)"]);
        assert_eq!(shown(&file, "5twiceTi"), ["app.twice!(int).twice(int)"]);
        assert_eq!(shown(&file, "_Dmain"), ["D main"]);
    }
}

#[test]
fn nim_programs_have_names_as_in_source() {
    if !have(&["nim", "nm", "gcc"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("alpha.nim");
    std::fs::write(&source, NIM).unwrap();
    let cache = format!("--nimcache:{}", dir.path().join("cache").display());
    let file = dir.path().join("alpha");
    for debug in ["--debugger:native", "--hints:off"] {
        let output = format!("--out:{}", file.display());
        run(
            "nim",
            &["c", debug, &cache, &output, source.to_str().unwrap()],
        );
        assert_eq!(shown(&file, "fooBar"), ["alpha.fooBar"]);
        assert_eq!(shown(&file, "pluseqplus"), ["alpha.+=+"]);
    }
}
