//! Files that are generated with known totals, in every layout and version that the documents of a
//! format describe, and compared with the recording value by value.

mod callgrind;
mod chrome;
mod firefox;
mod folded;
mod others;
mod otlp;
mod refused;
mod v8;

use std::collections::BTreeMap;
use std::io::Write as _;

use wallscope_formats::{Options, Read, ReadError, open};

use wallscope_synthetic::Random;

/// Seeds of a generated case.
const SEEDS: std::ops::Range<u64> = 0..25;

/// A tree of calls: each node's caller and name. Node 0 has no caller.
struct Tree {
    parents: Vec<Option<usize>>,
    names: Vec<String>,
}

/// Names that readers stumble over.
const NAMES: [&str; 12] = [
    "main",
    "parse<'a>",
    "<dyn for<'r> Fn(&'r u8) as core::Trait>::call",
    "operator\"\"'x",
    "worker 5",
    "(anonymous)",
    "café",
    "foldr'",
    "a+0b",
    "std::vec::Vec<T, A>::push",
    "_start",
    "k3",
];

impl Tree {
    fn random(random: &mut Random) -> Tree {
        let nodes = 2 + random.below(14) as usize;
        let mut tree = Tree {
            parents: Vec::new(),
            names: Vec::new(),
        };
        for i in 0..nodes {
            let parent = (i > 0).then(|| random.below(i as u64) as usize);
            tree.parents.push(parent);
            let name = NAMES[random.below(NAMES.len() as u64) as usize];
            // Siblings differ, so that equal names make equal stacks only where they should.
            tree.names.push(format!("{name}#{i}"));
        }
        tree
    }

    fn len(&self) -> usize {
        self.parents.len()
    }

    /// Names of a node's stack, root first.
    fn path(&self, node: usize) -> Vec<&str> {
        let mut path = Vec::new();
        let mut at = Some(node);
        while let Some(n) = at {
            path.push(self.names[n].as_str());
            at = self.parents[n];
        }
        path.reverse();
        path
    }

    fn folded(&self, node: usize, suffix: &str) -> String {
        let path = self.path(node);
        let frames: Vec<String> = path.iter().map(|n| format!("{n}{suffix}")).collect();
        frames.join(";")
    }
}

/// Sums by folded stack; zeros do not show.
#[derive(Default)]
struct Sums(BTreeMap<String, u64>);

impl Sums {
    fn add(&mut self, stack: impl Into<String>, value: u64) {
        if value > 0 {
            *self.0.entry(stack.into()).or_default() += value;
        }
    }
}

/// The folded sums of a file that was read.
fn sums(read: &Read) -> BTreeMap<String, u64> {
    let mut out = crate::support::fold(&read.recording);
    out.retain(|_, v| *v > 0);
    out
}

fn read_as(bytes: &[u8], value: Option<&str>) -> Result<Read, ReadError> {
    let options = Options {
        value: value.map(str::to_string),
        ..Options::default()
    };
    open(bytes, options)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

/// The error of a file that has to be refused.
fn refusal(bytes: &[u8]) -> ReadError {
    match read_as(bytes, None) {
        Ok(read) => panic!("read as {:?}", sums(&read)),
        Err(e) => e,
    }
}
