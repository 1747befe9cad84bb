//! Lists the runtimes of managed code in files, or without arguments in all programs that run now:
//! `cargo run -p wallscope-unwind --example runtimes -- FILE…`

use std::collections::BTreeSet;

use wallscope_procfs::{maps, process};
use wallscope_unwind::runtime::{is_tried, recognise};

/// Files with code that running programs have mapped, as far as this user may see them.
fn mapped_files() -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for pid in process::processes().unwrap_or_default() {
        // A process may have ended since, or be another user's.
        for mapping in maps::read(pid).unwrap_or_default() {
            if mapping.execute && mapping.is_file() && !mapping.deleted {
                files.insert(mapping.path);
            }
        }
    }
    files
}

fn main() {
    let mut files: BTreeSet<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        files = mapped_files();
    }
    let mut found = 0;
    for path in &files {
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        match recognise(&bytes, path) {
            None => continue,
            Some(Err(refusal)) => println!("{path}: {refusal}"),
            Some(Ok(facts)) => {
                let described = facts.describe();
                let tried = match is_tried(&described) {
                    Some(true) => ", tested",
                    Some(false) => ", not tested",
                    None => "",
                };
                println!("{path}: {described}{tried}");
            }
        }
        found += 1;
    }
    println!("{found} runtimes in {} files", files.len());
}
