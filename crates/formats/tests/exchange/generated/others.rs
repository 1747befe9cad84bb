//! speedscope, Python's profiles and gprof: unknown units and types, missing weights, encodings.

use serde_json::{Value, json};
use wallscope_formats::ReadError;
use wallscope_model::Unit;

use super::{SEEDS, Sums, Tree, read_as, refusal, sums};
use wallscope_synthetic::Random;

/// A file of speedscope with one sampled profile of whole and of decimal weights.
fn speedscope(tree: &Tree, samples: &[(usize, f64)], unit: &str) -> Value {
    let frames: Vec<Value> = tree.names.iter().map(|n| json!({"name": n})).collect();
    let index = |n: &str| tree.names.iter().position(|o| o == n).unwrap();
    let stacks: Vec<Vec<usize>> = (samples.iter())
        .map(|(node, _)| tree.path(*node).into_iter().map(index).collect())
        .collect();
    let weights: Vec<f64> = samples.iter().map(|(_, w)| *w).collect();
    json!({"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": frames},
        "profiles": [{"type": "sampled", "name": "t", "unit": unit, "startValue": 0, "endValue": 9,
            "samples": stacks, "weights": weights}]})
}

#[test]
fn weights_of_speedscope_keep_their_unit_and_decimals() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let tree = Tree::random(&mut random);
        let samples: Vec<(usize, f64)> = (0..20)
            .map(|_| {
                (
                    random.below(tree.len() as u64) as usize,
                    random.below(4000) as f64 / 8.0,
                )
            })
            .chain([(0, 0.125)])
            .collect();
        let expected = |factor: f64| {
            let mut sums = Sums::default();
            for (node, w) in &samples {
                sums.add(tree.folded(*node, ""), (w * factor) as u64);
            }
            sums.0
        };
        for (unit, factor) in [
            ("microseconds", 1e3),
            ("milliseconds", 1e6),
            ("seconds", 1e9),
        ] {
            let text = speedscope(&tree, &samples, unit).to_string();
            let read = read_as(text.as_bytes(), None).unwrap();
            assert_eq!(sums(&read), expected(factor), "{unit}, seed {seed}");
            assert!(read.recording.domain.unit.is_time());
        }
        // A unit that is no time is counted, whatever it is called.
        for unit in ["none", "fortnights"] {
            let text = speedscope(&tree, &samples, unit).to_string();
            let read = read_as(text.as_bytes(), None).unwrap();
            assert_eq!(sums(&read), expected(1000.0), "{unit}, seed {seed}");
            assert!(matches!(read.recording.domain.unit, Unit::Count(_)));
            assert!(
                read.warnings[0].contains("multiplied by 1000"),
                "{:?}",
                read.warnings
            );
        }
    }
}

#[test]
fn missing_weights_of_speedscope_are_counts_or_left_out_and_unknown_types_are_refused() {
    let tree = Tree::random(&mut Random(1));
    let mut file = speedscope(&tree, &[(0, 5.0), (1, 7.0), (0, 2.0)], "milliseconds");
    file["profiles"][0]["weights"] = json!([5.0, 7.0]);
    let read = read_as(file.to_string().as_bytes(), None).unwrap();
    assert_eq!(sums(&read).values().sum::<u64>(), 12_000_000);
    assert!(
        read.warnings[0].starts_with("1 samples have no weight"),
        "{:?}",
        read.warnings
    );
    file["profiles"][0]["weights"] = json!([]);
    let read = read_as(file.to_string().as_bytes(), None).unwrap();
    assert_eq!(sums(&read).values().sum::<u64>(), 3);
    assert_eq!(read.recording.domain.unit, Unit::Count("samples".into()));
    file["profiles"][0]["weights"] = json!([5.0, -7.0, 1.0]);
    assert!(
        refusal(file.to_string().as_bytes())
            .to_string()
            .contains("negative")
    );
    file["profiles"][0]["type"] = json!("graph");
    let e = refusal(file.to_string().as_bytes());
    assert!(matches!(e, ReadError::UnknownLayout { .. }), "{e}");
}

/// Python's marshalling of texts, numbers, tuples and dictionaries, as version 2 or 3 writes it.
struct Marshal {
    out: Vec<u8>,
    /// Texts in their order, for references.
    texts: Vec<String>,
    python2: bool,
}

impl Marshal {
    fn long(&mut self, n: usize) {
        self.out.extend((n as u32).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        let known = self.texts.iter().position(|t| t == text);
        match (known, self.python2) {
            (Some(at), true) => {
                self.out.push(b'R');
                self.long(at);
            }
            (Some(at), false) => {
                self.out.push(b'r');
                // The outermost dictionary is reference 0.
                self.long(at + 1);
            }
            (None, python2) => {
                self.texts.push(text.to_string());
                self.out.push(if python2 { b't' } else { b'u' | 0x80 });
                self.long(text.len());
                self.out.extend(text.as_bytes());
            }
        }
    }

    fn tuple(&mut self, n: u8) {
        match self.python2 {
            true => {
                self.out.push(b'(');
                self.long(usize::from(n));
            }
            false => self.out.extend([b')', n]),
        }
    }

    fn int(&mut self, n: u32) {
        self.out.push(b'i');
        self.out.extend(n.to_le_bytes());
    }

    fn float(&mut self, v: f64) {
        self.out.push(b'g');
        self.out.extend(v.to_le_bytes());
    }

    fn function(&mut self, name: &str) {
        self.tuple(3);
        self.text("/app/a.py");
        self.int(3);
        self.text(name);
    }
}

/// A chain of functions, each with an own time in ms.
fn pstats(own: &[u32], python2: bool, sampled: bool) -> Vec<u8> {
    let mut m = Marshal {
        out: vec![if python2 { b'{' } else { b'{' | 0x80 }],
        texts: Vec::new(),
        python2,
    };
    for (i, ms) in own.iter().enumerate() {
        m.function(&format!("f{i}"));
        let total: u32 = own[i..].iter().sum();
        m.tuple(5);
        // Of a sampled profile calls are samples of 1 ms.
        for _ in 0..2 {
            m.int(if sampled { total } else { 1 });
        }
        m.float(f64::from(*ms) / 1e3);
        m.float(f64::from(total) / 1e3);
        m.out.push(b'{');
        if i > 0 {
            m.function(&format!("f{}", i - 1));
            if sampled {
                m.int(total);
            } else {
                m.tuple(4);
                m.int(1);
                m.int(1);
                m.float(f64::from(*ms) / 1e3);
                m.float(f64::from(total) / 1e3);
            }
        }
        m.out.push(b'0');
    }
    if sampled {
        m.tuple(1);
        m.text("__sampled__");
        m.out.push(b'T');
    }
    m.out.push(b'0');
    m.out
}

#[test]
fn profiles_of_each_python_have_their_own_times() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let own: Vec<u32> = (0..1 + random.below(8))
            .map(|_| 1 + random.below(5000) as u32)
            .collect();
        let mut expected = Sums::default();
        let mut stack = String::new();
        for (i, ms) in own.iter().enumerate() {
            stack += &format!("{}f{i}", if i > 0 { ";" } else { "" });
            expected.add(&stack, u64::from(*ms) * 1_000_000);
        }
        for (python2, sampled) in [(true, false), (false, false), (false, true)] {
            let bytes = pstats(&own, python2, sampled);
            let read = read_as(&bytes, None).unwrap();
            assert_eq!(
                sums(&read),
                expected.0,
                "python2 {python2}, sampled {sampled}, seed {seed}"
            );
            let instrumented =
                (read.recording.domain.limits.iter()).any(|l| l.what.contains("instrumented"));
            assert_eq!(instrumented, !sampled);
        }
    }
    // A kind of value that no such file holds is no end of the file.
    let mut bytes = pstats(&[5], false, false);
    let at = bytes.iter().rposition(|b| *b == b'g').unwrap();
    bytes[at] = b':';
    let e = refusal(&bytes);
    assert!(matches!(e, ReadError::UnknownLayout { .. }), "{e}");
}

#[test]
fn gprof_in_utf16_is_gprof() {
    let text = include_str!("../../fixtures/gprof.txt");
    let plain = sums(&read_as(text.as_bytes(), None).unwrap());
    let units: Vec<u16> = "\u{feff}"
        .encode_utf16()
        .chain(text.encode_utf16())
        .collect();
    for bytes in [
        units
            .iter()
            .flat_map(|u| u.to_le_bytes())
            .collect::<Vec<u8>>(),
        units.iter().flat_map(|u| u.to_be_bytes()).collect(),
    ] {
        assert_eq!(sums(&read_as(&bytes, None).unwrap()), plain);
    }
    let ticks = text.replace("counts as 0.01 seconds", "counts as 0.01 ticks");
    let ticks = read_as(ticks.as_bytes(), None).unwrap().recording;
    assert!(!ticks.domain.unit.is_time(), "{:?}", ticks.domain.unit);
}

#[test]
fn values_of_bpftrace_that_are_no_number_are_counted() {
    let text = "@[\n    f+0\n    main+4\n]: 12\n@avg[\n    g+0\n]: count 3, average 5, total 15\n";
    let read = read_as(text.as_bytes(), None).unwrap();
    assert_eq!(sums(&read).values().sum::<u64>(), 12);
    assert!(
        read.warnings[0].starts_with("1 stacks have a value"),
        "{:?}",
        read.warnings
    );
}

#[test]
fn references_of_pprof_beyond_its_tables_are_damage() {
    // sample_type, sample, location, function with a name that is not there, strings.
    let message = |fields: &[(u8, &[u8])]| {
        let field = |(n, b): &(u8, &[u8])| [&[n << 3 | 2, b.len() as u8], *b].concat();
        fields.iter().flat_map(field).collect::<Vec<u8>>()
    };
    let file = |function: u8, name: u8| {
        message(&[
            (1, &[8, 1, 16, 2]),
            (2, &[10, 1, 1, 18, 1, 5]),
            (4, &[8, 1, 34, 2, 8, function]),
            (5, &[8, 1, 16, name]),
            (6, b""),
            (6, b"cpu"),
            (6, b"nanoseconds"),
            (6, b"work"),
        ])
    };
    assert_eq!(sums(&read_as(&file(1, 3), None).unwrap())["work"], 5);
    assert!(refusal(&file(1, 9)).to_string().contains("string 9 of 4"));
    assert!(refusal(&file(2, 3)).to_string().contains("function"));
}
