//! Builds the unwind table of each file and prints its size, the rules it adds, and the time:
//! `cargo run --release -p wallscope-unwind --example table -- FILE…`; without a file, its own table.

use std::fs::File;
use std::time::Instant;
use wallscope_unwind::native::{End, RuleSet, UnwindMethod, table};

fn main() {
    let mut rules = RuleSet::new(1 << 20);
    let mut paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        paths.push("/proc/self/exe".into());
    }
    for path in paths {
        let before = rules.rules().len();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        let start = Instant::now();
        let code = table::from_file(&file, &mut rules);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        match code {
            Ok(UnwindMethod::Table(t)) => {
                let of = |end: End| t.iter().filter(|(_, rule)| *rule == end as u32).count();
                println!(
                    "{path}: {} rows, {:.2} MB, {} new rules, {ms:.1} ms; rows that end: {} root, {} without information, {} that cannot be followed",
                    t.rows(),
                    t.words().len() as f64 * 8e-6,
                    rules.rules().len() - before,
                    of(End::Root),
                    of(End::NoInfo),
                    of(End::BadRule),
                );
            }
            Ok(other) => println!("{path}: {other:?}, {ms:.1} ms"),
            Err(e) => println!("{path}: {e}"),
        }
    }
}
