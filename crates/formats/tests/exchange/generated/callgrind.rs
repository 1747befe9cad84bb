//! callgrind's files in the forms that Valgrind's manual allows.

use std::collections::BTreeMap;

use wallscope_formats::{Format, WriteOptions};
use wallscope_model::{Recording, View};

use super::{SEEDS, read_as, refusal};
use crate::support::ends;
use wallscope_synthetic::{self as synthetic, Random};

/// Names as they stand in the file and as they are read: levels of recursion fold into one.
const NAMES: [(&str, &str); 9] = [
    ("main", "main"),
    ("parse<'a>", "parse<'a>"),
    ("parse<'b>", "parse<'b>"),
    (
        "<dyn for<'r> Fn(&'r u8) as core::Trait>::call",
        "<dyn for<'r> Fn(&'r u8) as core::Trait>::call",
    ),
    ("operator\"\"'x", "operator\"\"'x"),
    ("fib", "fib"),
    ("fib'2", "fib"),
    ("vfs_write_[k]", "vfs_write_[k]"),
    ("render_[j]", "render_[j]"),
];

/// Functions with their own costs by event, and a chain of calls that pays for all.
struct Profile {
    own: Vec<[u64; 2]>,
    lines: Vec<u32>,
}

impl Profile {
    fn random(random: &mut Random) -> Profile {
        let cost = |_| [1 + random.below(1000), random.below(1 << 30)];
        let own: Vec<[u64; 2]> = NAMES.iter().map(cost).collect();
        let lines = NAMES.iter().map(|_| 1 + random.below(200) as u32).collect();
        Profile { own, lines }
    }

    fn expected(&self, event: usize) -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        for ((_, name), own) in NAMES.iter().zip(&self.own) {
            *out.entry(name.to_string()).or_default() += own[event];
        }
        out.retain(|_, v| *v > 0);
        out
    }

    /// The file; `random` chooses among the forms of headers, names, numbers and positions.
    fn text(&self, random: &mut Random) -> String {
        let mut out = String::new();
        match random.below(3) {
            0 => {
                out += "# callgrind format\nversion: 1\ncreator: callgrind-3.22.0\npid: 1\ncmd: ./x --a=b\n"
            }
            1 => out += "creator: other\n",
            _ => {}
        }
        let instr = random.below(2) == 0;
        out += if instr { "positions: instr line\n" } else { "" };
        out += "desc: Trigger: end\nevents: Ir Time_(µs)\n\n";
        let compressed = random.below(2) == 0;
        let mut seen = vec![false; NAMES.len()];
        let mut name = |i: usize, out: &mut String, key: &str| {
            let first = !std::mem::replace(&mut seen[i], true);
            *out += &match (compressed, first) {
                (true, true) => format!("{key}=({}) {}\n", i + 1, NAMES[i].0),
                (true, false) => format!("{key}=({})\n", i + 1),
                (false, _) => format!("{key}={}\n", NAMES[i].0),
            };
        };
        let mut last = 0u32;
        for (i, own) in self.own.iter().enumerate() {
            if random.below(6) == 0 {
                // Another part of the dump, with the events in another order.
                out += "\npart: 2\n";
            }
            out += "fl=a.c\n";
            name(i, &mut out, "fn");
            let line = self.lines[i];
            let number = |n: u64, form: u64| {
                if form == 0 {
                    format!("{n:#x}")
                } else {
                    n.to_string()
                }
            };
            let position = match random.below(3) {
                0 if line >= last => format!("+{}", line - last),
                0 => format!("-{}", last - line),
                _ => line.to_string(),
            };
            last = line;
            let address = if instr { "0x1f40 " } else { "" };
            let costs = [
                number(own[0], random.below(3)),
                number(own[1], random.below(3)),
            ];
            out += &format!("{address}{position} {} {}\n", costs[0], costs[1]);
            if i + 1 < NAMES.len() {
                let below = |event: usize| self.own[i + 1..].iter().map(|o| o[event]).sum::<u64>();
                name(i + 1, &mut out, "cfn");
                out += &format!(
                    "calls=1 {address}{line}\n{address}* {} {}\n",
                    below(0),
                    below(1)
                );
                if random.below(3) == 0 {
                    out += &format!("jump=3 {address}+2\n{address}*\n");
                }
            }
        }
        out + "\ntotals: 1 2\n"
    }
}

fn own(rec: &Recording) -> BTreeMap<String, u64> {
    let mut own = ends(rec).0;
    own.retain(|_, v| *v > 0);
    own
}

#[test]
fn own_costs_are_the_files_in_every_form() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let p = Profile::random(&mut random);
        let text = p.text(&mut random);
        let read = read_as(text.as_bytes(), None).unwrap();
        assert_eq!(own(&read.recording), p.expected(0), "seed {seed}\n{text}");
        assert!(read.warnings.is_empty(), "{:?}", read.warnings);
        // The event's name tells its unit.
        let time = read_as(text.as_bytes(), Some("Time_(µs)"))
            .unwrap()
            .recording;
        assert!(time.domain.unit.is_time());
        let expected = p.expected(1).into_iter().map(|(k, v)| (k, v * 1000));
        assert_eq!(own(&time), expected.collect(), "seed {seed}");
    }
}

#[test]
fn parts_without_the_event_are_counted_and_another_version_is_refused() {
    let text = "events: A B\nfn=f\n1 5 7\nevents: B A\nfn=f\n1 100 2\nevents: C\nfn=f\n1 9\n";
    let read = read_as(text.as_bytes(), None).unwrap();
    assert_eq!(own(&read.recording)["f"], 7);
    assert!(
        read.warnings[0].contains("parts without the event"),
        "{:?}",
        read.warnings
    );
    let e = refusal(b"version: 2\nevents: Ir\nfn=f\n1 5\n").to_string();
    assert!(e.contains("version 2"), "{e}");
}

fn export(rec: &Recording) -> Vec<u8> {
    let options = WriteOptions {
        view: View::Wall,
        ..WriteOptions::default()
    };
    let mut out = Vec::new();
    let format = Format::named("callgrind").unwrap();
    format.write(rec, &options, &mut out).unwrap();
    out
}

#[test]
fn own_exports_are_unchanged_after_they_are_read() {
    let folded = "main;run'2;operator\"\"'3;vfs_write_[k] 11\nmain;fold'1;render_[j] 6\nmain;inner_[i] 4\n\
        main;parse<'a> 9\n[no stack] 3\nmain;(anonymous) 2\nmain;(7) x 5\n";
    let folded = crate::support::read_value(folded.as_bytes(), "samples")
        .unwrap()
        .recording;
    for rec in [synthetic::recording(2), folded] {
        let first = read_as(&export(&rec), None).unwrap().recording;
        let second = read_as(&export(&first), None).unwrap().recording;
        assert_eq!(own(&first), own(&second));
        assert_eq!(
            ends(&first).1.keys().collect::<Vec<_>>(),
            ends(&second).1.keys().collect::<Vec<_>>()
        );
        let kernel = |r: &Recording| {
            let is_kernel =
                |f: &&wallscope_model::Frame| f.kind == wallscope_model::FrameKind::Kernel;
            r.frames.iter().filter(is_kernel).count()
        };
        assert!(kernel(&first) > 0 && kernel(&first) == kernel(&second));
    }
}

#[test]
fn the_fixtures_have_the_costs_of_callgrind_annotate() {
    let read = read_as(include_bytes!("../../fixtures/no-header.callgrind"), None).unwrap();
    assert_eq!(
        own(&read.recording),
        BTreeMap::from([("main".to_string(), 110)])
    );
    let read = read_as(include_bytes!("../../fixtures/quotes.callgrind"), None).unwrap();
    let expected = [
        ("parse<'a'>", 700),
        ("parse<'b'>", 200),
        ("<dyn for<'r> Fn(&'r u8) as core::Trait>::call", 100),
        ("operator\"\"'x", 50),
    ];
    assert_eq!(
        own(&read.recording),
        expected.map(|(k, v)| (k.to_string(), v)).into()
    );
}
