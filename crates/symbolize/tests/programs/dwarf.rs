//! Compares functions, inlined functions and lines with binutils' results for the same files.

use std::path::Path;

use crate::support::{Lookup, address_of, compile, functions, have, names, run};

const C: &str = r#"
#include <stdlib.h>
static volatile int sink;
static inline __attribute__((always_inline)) int innermost(int x) {
    for (int i = 0; i < x; i++) {
        sink += i * x;
    }
    return sink;
}
static inline __attribute__((always_inline)) int middle(int x) {
    sink = x;
    return innermost(x + 1) + innermost(x + 2);
}
__attribute__((noinline)) int outer(int x) {
    return middle(x) * 3;
}
__attribute__((noinline)) static int with_cold_part(int x) {
    if (__builtin_expect(x == 12345, 0)) {
        sink += 7;
        abort();
    }
    return outer(x);
}
int main(int argc, char **argv) {
    (void)argv;
    return with_cold_part(argc) + outer(argc + 1);
}
"#;

const CPP: &str = r#"
#include <algorithm>
#include <map>
#include <string>
#include <vector>
namespace shop {
template <typename T, int N> struct Basket {
    std::vector<T> items;
    __attribute__((noinline)) int weigh(const std::string &unit) const {
        int sum = N;
        for (const auto &i : items) sum += (int)i;
        return sum + (int)unit.size();
    }
};
struct Shelf {
    virtual ~Shelf() = default;
    virtual int load(int n);
};
int Shelf::load(int n) {
    std::vector<int> v;
    for (int i = 0; i < n; i++) v.push_back(i ^ 5);
    std::sort(v.begin(), v.end(), [](int a, int b) { return a > b; });
    return v[n / 2];
}
}
int main(int argc, char **argv) {
    shop::Basket<double, 4> b;
    b.items.push_back(argc);
    std::map<std::string, int> m;
    m[argv[0]] = b.weigh("kg");
    shop::Shelf s;
    return m.begin()->second + s.load(argc + 8);
}
"#;

const RUST: &str = r#"
use std::collections::HashMap;
mod inner {
    pub struct Thing<T>(pub T);
    impl<T: Into<u64> + Copy> Thing<T> {
        #[inline(never)]
        pub fn weight(&self, of: &[T]) -> u64 {
            of.iter().map(|x| (*x).into()).map(super::square).sum::<u64>() + self.0.into()
        }
    }
}
#[inline(always)]
fn square(x: u64) -> u64 {
    x.wrapping_mul(x) ^ std::hint::black_box(3)
}
fn main() {
    let n = std::env::args().count() as u32;
    let mut m = HashMap::new();
    m.insert(n, inner::Thing(n).weight(&[n, 2, 3]));
    println!("{:?}", m);
}
"#;

/// Functions (by symbol name), base names of files, and lines at addresses, by binutils; innermost
/// first.
fn addr2line(file: &Path, addresses: &[u64]) -> Vec<Vec<(String, String, u32)>> {
    let mut args = vec![
        "-a".to_owned(),
        "-i".to_owned(),
        "-f".to_owned(),
        "-e".to_owned(),
        file.to_str().unwrap().to_owned(),
    ];
    args.extend(addresses.iter().map(|a| format!("{a:#x}")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let text = run("addr2line", &args);
    let mut all: Vec<Vec<(String, String, u32)>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap();
        let place = place.split(" (discriminator").next().unwrap();
        let (path, number) = place.rsplit_once(':').unwrap();
        let base = path.rsplit('/').next().unwrap();
        all.last_mut().unwrap().push((
            line.to_owned(),
            base.to_owned(),
            number.parse().unwrap_or(0),
        ));
    }
    all
}

/// Every third address of the functions that `pick` chooses, at most `limit`.
fn addresses(file: &Path, limit: usize, pick: impl Fn(&str) -> bool) -> Vec<u64> {
    let mut all: Vec<u64> = functions(file)
        .into_iter()
        .filter(|f| pick(&f.2))
        .flat_map(|f| (f.0..f.0 + f.1).step_by(3))
        .collect();
    all.sort_unstable();
    all.dedup();
    let step = all.len().div_ceil(limit).max(1);
    all.into_iter().step_by(step).collect()
}

/// Compares whole inline stacks. Where DWARF has no linkage name, binutils names the innermost
/// function by its symbol, and we name the outermost by its symbol. So names need to agree only
/// where both are mangled or neither is.
fn compare(file: &Path, addresses: &[u64], at_least: f64) {
    assert!(addresses.len() > 20, "only {} addresses", addresses.len());
    let theirs = addr2line(file, addresses);
    let (ours, _) = Lookup::file(file).addresses(file, addresses);
    let mut differ = Vec::new();
    for ((address, ours), theirs) in addresses.iter().zip(&ours).zip(&theirs) {
        let same = ours.len() == theirs.len()
            && ours
                .iter()
                .zip(theirs)
                .all(|(o, t)| same_name(&o.system_name, &t.0) && o.line == t.2);
        if !same {
            differ.push(format!("{address:#x}: {ours:?}\n    not {theirs:?}"));
        }
    }
    let share = 1.0 - differ.len() as f64 / addresses.len() as f64;
    println!("{} addresses, {share:.4} the same", addresses.len());
    assert!(
        share >= at_least,
        "only {share}: {}",
        differ[..differ.len().min(10)].join("\n")
    );
}

#[test]
fn c_inlined_functions_and_lines() {
    if !have(&["gcc", "addr2line", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for flags in [
        &["-O2", "-g"][..],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-g", "-gz=zlib"],
        &["-O0", "-g", "-static"],
    ] {
        let file = compile(dir.path(), "gcc", "c.c", C, flags, "c");
        let of_ours =
            |n: &str| n.starts_with("outer") || n.starts_with("main") || n.contains("cold");
        compare(&file, &addresses(&file, 2000, of_ours), 1.0);
    }
    let file = compile(dir.path(), "gcc", "c.c", C, &["-O2", "-g"], "c");
    let all = addresses(&file, 2000, |n| n == "outer");
    let (found, _) = Lookup::file(&file).addresses(&file, &all);
    let deepest = found.iter().max_by_key(|f| f.len()).unwrap();
    assert_eq!(names(deepest), ["innermost", "middle", "outer"]);
    let declared: Vec<u32> = deepest.iter().map(|f| f.start_line).collect();
    assert_eq!(declared, [4, 10, 14]);
    assert_eq!(deepest[2].line, 15);
    assert!(deepest.iter().all(|f| f.file.ends_with("/c.c")));
}

#[test]
fn cpp_names_with_all_their_arguments() {
    if !have(&["g++", "addr2line", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = compile(dir.path(), "g++", "p.cpp", CPP, &["-O2", "-g"], "p");
    compare(
        &file,
        &addresses(&file, 3000, |n| n.starts_with("_Z") || n == "main"),
        0.99,
    );
    let weigh = functions(&file)
        .into_iter()
        .find(|f| f.2.contains("weigh"))
        .unwrap();
    let (found, losses) = Lookup::file(&file).addresses(&file, &[weigh.0]);
    let outermost = found[0].last().unwrap();
    let theirs = run_filt(&weigh.2);
    assert_eq!(outermost.name, theirs);
    assert_eq!(outermost.system_name, weigh.2);
    assert!(
        theirs.starts_with("shop::Basket<double, 4>::weigh("),
        "{theirs}"
    );
    assert!(losses.is_empty(), "{losses:?}");
}

fn same_name(ours: &str, theirs: &str) -> bool {
    ours == theirs || ours.starts_with("_Z") != theirs.starts_with("_Z")
}

fn run_filt(name: &str) -> String {
    run("c++filt", &[name]).trim().to_owned()
}

#[test]
fn rust_names_without_hash() {
    if !have(&["rustc", "addr2line", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Mangling of the standard library's symbols depends on its build, of these on the flags.
    for flags in [
        &["-O", "-g"][..],
        &["-O", "-g", "-Csymbol-mangling-version=v0"],
    ] {
        let file = compile(dir.path(), "rustc", "r.rs", RUST, flags, "r");
        let ours = addresses(&file, 1500, |n| {
            n.contains("weight") || n.contains("1r4main")
        });
        compare(&file, &ours, 0.99);
        let weight = functions(&file)
            .into_iter()
            .find(|f| f.2.contains("weight"))
            .unwrap();
        let span: Vec<u64> = (weight.0..weight.0 + weight.1).collect();
        let (found, _) = Lookup::file(&file).addresses(&file, &span);
        let outermost = &found[0].last().unwrap().name;
        assert!(
            outermost.starts_with("r::inner::Thing<T>::weight")
                || outermost.starts_with("<r::inner::Thing<u32>>::weight")
                || outermost.starts_with("r::inner::Thing<u32>::weight"),
            "{outermost}"
        );
        assert!(
            found
                .iter()
                .any(|f| f.iter().any(|f| f.name == "r::square")),
            "square is inlined somewhere"
        );
    }
}

#[test]
fn the_whole_of_a_large_library() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    if !libc.exists() || !have(&["addr2line"]) {
        println!("skipped: no {}", libc.display());
        return;
    }
    let bytes = std::fs::read(libc).unwrap();
    let elf = wallscope_binfmt::elf::Elf::parse(&bytes).unwrap();
    let id = elf.build_id().unwrap();
    let debug = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    if !Path::new(&debug).exists() {
        println!("skipped: no debug file of the C library (package libc6-dbg)");
        return;
    }
    let text = elf.section_span(".text").unwrap();
    let step = ((text.end - text.start) / 2000).max(1) as usize;
    let all: Vec<u64> = (text.start..text.end).step_by(step).collect();
    let theirs = addr2line(Path::new(&debug), &all);
    let mut lookup = Lookup::file(libc);
    lookup.sources.debug_directories = vec!["/usr/lib/debug".into()];
    let (ours, _) = lookup.addresses(libc, &all);
    // Names of the outermost function differ where ours is the exported alias; depth and lines must
    // agree.
    let mut same = 0;
    let mut compared = 0;
    for (ours, theirs) in ours.iter().zip(&theirs) {
        if theirs[0].0 == "??" || theirs[0].2 == 0 {
            continue;
        }
        compared += 1;
        let lines =
            |f: &[crate::support::FoundFunction]| f.iter().map(|f| f.line).collect::<Vec<_>>();
        let expected: Vec<u32> = theirs.iter().map(|t| t.2).collect();
        same += usize::from(lines(ours) == expected);
    }
    println!("{same} of {compared} the same");
    assert!(compared > 1000 && same * 100 >= compared * 97);
}

#[test]
fn assembly_has_its_symbol_and_its_line() {
    if !have(&["gcc", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = "\t.text\n\t.globl main\n\t.type main, @function\nmain:\n\tcall bare\n\tret\n\
                bare:\n\tnop\n\tnop\n\tret\n\t.section .note.GNU-stack,\"\"\n";
    let file = compile(dir.path(), "gcc", "a.s", text, &["-g"], "a");
    let main = address_of_label(&file, "main");
    let bare = address_of_label(&file, "bare");
    let (found, losses) = Lookup::file(&file).addresses(&file, &[main, bare, bare + 1, bare + 2]);
    assert!(losses.is_empty(), "{losses:?}");
    assert_eq!(names(&found[0]), ["main"]);
    for (i, line) in [(1, 8), (2, 9), (3, 10)] {
        assert_eq!(names(&found[i]), ["bare"]);
        assert_eq!(found[i][0].line, line);
        assert!(found[i][0].file.ends_with("/a.s"));
    }
}

/// Labels have no size, so `nm -S` omits the column.
fn address_of_label(file: &Path, name: &str) -> u64 {
    run("nm", &[file.to_str().unwrap()])
        .lines()
        .find_map(|l| l.strip_suffix(&format!(" {name}")))
        .and_then(|l| u64::from_str_radix(l.split(' ').next()?, 16).ok())
        .unwrap()
}

#[test]
fn split_debug_information_gives_lines_and_is_counted() {
    if !have(&["gcc", "nm"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-O2", "-g", "-gsplit-dwarf"];
    let file = compile(dir.path(), "gcc", "c.c", C, &flags, "c");
    let outer = address_of(&file, "outer");
    let (found, losses) = Lookup::file(&file).addresses(&file, &[outer]);
    assert_eq!(names(&found[0]), ["outer"]);
    assert!(found[0][0].line > 0);
    assert_eq!(losses.len(), 1);
    assert_eq!(
        (losses[0].cause.as_str(), losses[0].count),
        ("split debug information is not read: module c", 1)
    );
}

#[test]
fn entries_that_dwz_moved_to_a_shared_file_are_followed() {
    if !have(&["gcc", "nm", "dwz", "objcopy", "strip"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let debug = dir.path().join("debug");
    std::fs::create_dir_all(debug.join(".dwz")).unwrap();
    let path = |p: &Path| p.to_str().unwrap().to_owned();
    // Two programs that share a header's inlined functions, so that `dwz` has something to move.
    let header: String = (0..40)
        .map(|i| {
            format!(
                "struct s{i} {{ int first_field_{i}; long second_field_{i}; }};\n\
                 static inline __attribute__((always_inline)) int shared_{i}(volatile struct s{i} *s) \
                 {{ s->first_field_{i} = {i}; return s->first_field_{i} * 3; }}\n"
            )
        })
        .collect();
    std::fs::write(dir.path().join("shared.h"), header).unwrap();
    let calls: String = (0..40)
        .map(|i| format!("sum += shared_{i}(&v{i});"))
        .collect();
    let globals: String = (0..40)
        .map(|i| format!("volatile struct s{i} v{i};"))
        .collect();
    let text = |n: u32| {
        format!(
            "#include \"shared.h\"\nint own_{n};\n{globals}\n\
             int main(void) {{ int sum = {n}; {calls} return sum + own_{n}; }}\n"
        )
    };
    let flags = ["-O2", "-gdwarf-4", "-Wl,--build-id=sha1"];
    let one = compile(dir.path(), "gcc", "one.c", &text(1), &flags, "one");
    let two = compile(dir.path(), "gcc", "two.c", &text(2), &flags, "two");
    let main = functions(&one).into_iter().find(|f| f.2 == "main").unwrap();
    let all: Vec<u64> = (main.0..main.0 + main.1).collect();
    let (before, _) = Lookup::file(&one).addresses(&one, &all);
    let shared = debug.join(".dwz/both.debug");
    run(
        "dwz",
        &[
            "-m",
            &path(&shared),
            "-M",
            &path(&shared),
            &path(&one),
            &path(&two),
        ],
    );
    let bytes = std::fs::read(&one).unwrap();
    let linked = wallscope_binfmt::elf::Elf::parse(&bytes).unwrap();
    assert!(linked.debug_alt_link().is_some(), "dwz moved something");
    let lookup = |directories: Vec<std::path::PathBuf>| {
        let mut lookup = Lookup::file(&one);
        lookup.sources.debug_directories = directories;
        lookup.addresses(&one, &all).0
    };
    assert_eq!(lookup(vec![debug]), before);
    let mut inlined: Vec<&str> = before.iter().flat_map(|f| names(f)).collect();
    inlined.dedup();
    assert!(inlined.contains(&"shared_7"), "{inlined:?}");
    std::fs::remove_file(&shared).unwrap();
    assert_ne!(lookup(vec![]), before);
}
