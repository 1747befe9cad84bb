//! Compares Go programs, complete and stripped, with the results of Go's own tools.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use wallscope_binfmt::elf::Elf;

use super::support::{Lookup, names, run};

const PROGRAM: &str = r#"package main

import "fmt"

type thing struct{ n int }

func half(n int) int { return n / 2 }

func (t *thing) twice(n int) int {
	return half(n) * 4
}

//go:noinline
func work(t *thing) int {
	sum := 0
	for i := 0; i < 10; i++ {
		sum += t.twice(i)
	}
	return sum
}

func main() {
	f := func() int { return work(&thing{3}) }
	fmt.Println(f())
}
"#;

fn build(folder: &Path, name: &str, flags: &[&str]) -> Option<std::path::PathBuf> {
    let source = folder.join("main.go");
    std::fs::write(&source, PROGRAM).unwrap();
    let output = folder.join(name);
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&output)
        .args(flags)
        .arg(&source)
        .env("GO111MODULE", "off")
        .env("GOTOOLCHAIN", "local")
        .env_remove("GOFLAGS")
        .current_dir(folder)
        .output();
    match built {
        Err(_) => None,
        Ok(built) => {
            let said = String::from_utf8_lossy(&built.stderr);
            assert!(built.status.success(), "go build: {said}");
            Some(output)
        }
    }
}

/// Function, file and line of addresses, by `go tool addr2line`.
fn by_go(program: &Path, addresses: &[u64]) -> Vec<(String, String)> {
    let mut child = Command::new("go")
        .args(["tool", "addr2line"])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let asked: String = addresses.iter().map(|a| format!("{a:#x}\n")).collect();
    let asking = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().unwrap();
    asking.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2);
    pairs.map(|p| (p[0].to_owned(), p[1].to_owned())).collect()
}

#[test]
fn names_lines_and_inlined_calls_are_those_of_go() {
    let folder = tempfile::tempdir().unwrap();
    let Some(plain) = build(folder.path(), "plain", &[]) else {
        println!("skipped: go is not installed");
        return;
    };
    let stripped = build(folder.path(), "stripped", &["-ldflags=-s -w"]).unwrap();
    // Every function, at its entry and a little later.
    let text = run("go", &["tool", "nm", "-size", plain.to_str().unwrap()]);
    let mut addresses: Vec<u64> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let size: u64 = words.next()?.parse().ok()?;
            let kind = words.next()?;
            let name = words.next()?;
            let code = kind.eq_ignore_ascii_case("t") && size > 40 && !name.starts_with('_');
            let step = if name == "main.work" { 1 } else { size / 2 };
            code.then(|| (0..size).step_by(step as usize).map(move |o| address + o))
        })
        .flatten()
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert!(addresses.len() > 3000, "{}", addresses.len());
    let expected = by_go(&plain, &addresses);
    let (found, losses) = Lookup::file(&plain).addresses(&plain, &addresses);
    assert!(losses.is_empty(), "{losses:?}");
    let mut wrong = Vec::new();
    for ((address, (name, place)), found) in addresses.iter().zip(&expected).zip(&found) {
        let (inner, outer) = (&found[0], found.last().unwrap());
        let shown = (&outer.name, format!("{}:{}", inner.file, inner.line));
        if shown != (name, place.clone()) {
            wrong.push(format!("{address:#x}: {shown:?}, Go says {name} {place}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}: {:#?}",
        wrong.len(),
        expected.len(),
        &wrong[..wrong.len().min(9)]
    );

    // Nothing is lost without symbols and debug information. (Addresses are the same.)
    let bytes = std::fs::read(&stripped).unwrap();
    assert!(!Elf::parse(&bytes).unwrap().has_static_symbols());
    let (again, _) = Lookup::file(&stripped).addresses(&plain, &addresses);
    assert_eq!(again, found);

    // An address in the loop of work(): half() in twice() in work().
    let calls = ["main.half", "main.(*thing).twice", "main.work"];
    let inlined = found.iter().find(|f| names(f) == calls);
    let chain = inlined.expect("calls that were inlined are there");
    let lines: Vec<u32> = chain.iter().map(|f| f.line).collect();
    assert_eq!(lines, [7, 10, 17]);
}

#[test]
fn a_damaged_table_is_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), "whole", &["-ldflags=-s -w"]) else {
        println!("skipped: go is not installed");
        return;
    };
    let bytes = std::fs::read(&program).unwrap();
    let table = bytes
        .windows(8)
        .position(|w| *w == [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8]);
    let newer = || {
        bytes
            .windows(8)
            .position(|w| *w == [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8])
    };
    let Some(table) = table.or_else(newer) else {
        println!("skipped: this Go writes a table of another kind");
        return;
    };
    let addresses: Vec<u64> = (0..200).map(|i| 0x40_1000 + 997 * i).collect();
    let mut chance = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..60 {
        let mut damaged = bytes.clone();
        for _ in 0..40 {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            // The header in every other round, else anywhere in the table.
            let within = if round % 2 == 0 { 72 } else { 400_000 };
            let at = table + 6 + chance as usize % within;
            damaged[at] = (chance >> 40) as u8;
        }
        let path = folder.path().join("damaged");
        std::fs::write(&path, &damaged).unwrap();
        let (found, _) = Lookup::file(&path).addresses(&program, &addresses);
        assert_eq!(found.len(), addresses.len());
    }
}
