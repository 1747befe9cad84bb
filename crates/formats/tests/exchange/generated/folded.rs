//! Folded stacks: decimals, two columns, tabs, encodings, lines of another form.

use wallscope_formats::ReadError;
use wallscope_model::Unit;

use super::{SEEDS, Sums, Tree, read_as, refusal, sums};
use wallscope_synthetic::Random;

/// Lines of stacks with values in thousandths.
struct Lines {
    tree: Tree,
    values: Vec<(usize, u64)>,
}

impl Lines {
    fn random(random: &mut Random) -> Lines {
        let tree = Tree::random(random);
        let lines = 1 + random.below(30);
        let values = (0..lines)
            .map(|_| {
                let node = random.below(tree.len() as u64) as usize;
                (node, 1000 * (1 + random.below(500)))
            })
            .collect();
        Lines { tree, values }
    }

    fn expected(&self, per_thousand: u64) -> Sums {
        let mut sums = Sums::default();
        for (node, value) in &self.values {
            sums.add(self.tree.folded(*node, ""), value * per_thousand / 1000);
        }
        sums
    }

    fn text(&self, line: impl Fn(&str, u64) -> String) -> String {
        let lines = self
            .values
            .iter()
            .map(|(n, v)| line(&self.tree.folded(*n, ""), *v));
        lines.collect()
    }
}

/// A decimal text of thousandths, in one of the forms that tools write.
fn decimal(value: u64, form: u64) -> String {
    match form % 3 {
        0 => format!("{}.{:03}", value / 1000, value % 1000),
        1 => format!("{}", value as f64 / 1000.0),
        _ => format!("{value}e-3"),
    }
}

#[test]
fn decimals_are_scaled_and_said_and_separators_are_spaces_or_tabs() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let mut l = Lines::random(&mut random);
        let separator = ["\t", " ", "   ", " \t"][random.below(4) as usize];
        let whole = l.text(|s, v| format!("{s}{separator}{}\r\n", v / 1000));
        assert_eq!(
            sums(&read_as(whole.as_bytes(), None).unwrap()),
            l.expected(1).0
        );
        for (_, v) in &mut l.values {
            *v += random.below(1000);
        }
        // One value has three decimals at least.
        l.values.push((0, 1001));
        let form = random.below(3);
        let text = l.text(|s, v| format!("{s}{separator}{}\n", decimal(v, form)));
        let read = read_as(text.as_bytes(), None).unwrap();
        assert_eq!(sums(&read), l.expected(1000).0, "seed {seed}");
        assert!(
            read.warnings
                .iter()
                .any(|w| w.contains("multiplied by 1000")),
            "{:?}",
            read.warnings
        );
        let time = read_as(text.as_bytes(), Some("milliseconds")).unwrap();
        assert_eq!(sums(&time), l.expected(1_000_000).0);
        assert!(time.recording.domain.unit.is_time() && time.warnings.is_empty());
    }
}

#[test]
fn every_encoding_of_a_text_is_one_profile() {
    for seed in SEEDS {
        let l = Lines::random(&mut Random(seed));
        let text = l.text(|s, v| format!("{s} {v}\n"));
        let units: Vec<u16> = "\u{feff}"
            .encode_utf16()
            .chain(text.encode_utf16())
            .collect();
        let little: Vec<u8> = units.iter().flat_map(|u| u.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|u| u.to_be_bytes()).collect();
        let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
        for bytes in [marked, super::gzip(&little), little, big] {
            assert_eq!(
                sums(&read_as(&bytes, None).unwrap()),
                l.expected(1000).0,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn two_columns_are_two_profiles_of_which_one_is_chosen() {
    for seed in SEEDS {
        let l = Lines::random(&mut Random(seed));
        let text = l.text(|s, v| format!("{s} {} {}\n", v / 1000, v));
        let e = refusal(text.as_bytes());
        assert!(
            matches!(&e, ReadError::Ambiguous { choose, .. } if choose.contains("--value base")),
            "{e}"
        );
        for (value, factor) in [("base", 1), ("new", 1000)] {
            let read = read_as(text.as_bytes(), Some(value)).unwrap();
            assert_eq!(sums(&read), l.expected(factor).0, "{value}, seed {seed}");
        }
        // Some lines with two: the first is a part of the name, and that is said.
        let mixed = format!("{text}main;a 7\n");
        let read = read_as(mixed.as_bytes(), None).unwrap();
        let warning = format!("{} lines end in two numbers", l.values.len());
        assert!(
            read.warnings.iter().any(|w| w.starts_with(&warning)),
            "{:?}",
            read.warnings
        );
        let one = read_as(b"main;a 3\n", Some("base")).unwrap_err();
        assert!(matches!(one, ReadError::NoSuchValue { .. }));
    }
}

#[test]
fn lines_of_another_form_are_counted_wherever_they_stand() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let l = Lines::random(&mut random);
        let good: Vec<String> = (l.values.iter())
            .map(|(n, v)| format!("top;{} {v}", l.tree.folded(*n, "")))
            .collect();
        let bad = random.below(good.len() as u64 + 1) as usize;
        let mut lines = good;
        for _ in 0..bad {
            let at = random.below(lines.len() as u64 + 1) as usize;
            let line =
                ["not a stack line", "warning: lost 3 events", "x;y -5"][random.below(3) as usize];
            lines.insert(at, line.to_string());
        }
        lines.insert(0, "# a remark".to_string());
        let read = read_as(lines.join("\n").as_bytes(), None).unwrap();
        let total: u64 = l.values.iter().map(|(_, v)| v).sum();
        assert_eq!(sums(&read).values().sum::<u64>(), total);
        let said = read
            .warnings
            .iter()
            .any(|w| w.starts_with(&format!("{bad} lines are no stacks")));
        assert_eq!(said, bad > 0, "{:?}", read.warnings);
        assert_eq!(read.recording.domain.unit, Unit::Count("counts".into()));
    }
    assert!(
        refusal(b"Some prose that\nends in the year 2026\nbut has no stacks.\n")
            .to_string()
            .contains("no format")
    );
}

#[test]
fn the_fixtures_are_read_or_refused_clearly() {
    let two: &[u8] = include_bytes!("../../fixtures/two-columns.folded");
    assert!(matches!(refusal(two), ReadError::Ambiguous { .. }));
    let base = read_as(two, Some("base")).unwrap();
    assert_eq!((sums(&base)["main;a"], sums(&base)["main;b"]), (10, 30));
    let bad = read_as(include_bytes!("../../fixtures/bad-line.folded"), None).unwrap();
    assert_eq!(sums(&bad).values().sum::<u64>(), 12);
    assert!(bad.warnings[0].starts_with("1 lines"), "{:?}", bad.warnings);
    let tab = read_as(include_bytes!("../../fixtures/tab.folded"), None).unwrap();
    assert_eq!((sums(&tab)["main;a"], sums(&tab)["main;b"]), (3, 4));
    let utf16 = read_as(include_bytes!("../../fixtures/utf16.folded"), None).unwrap();
    assert_eq!(sums(&utf16)["main;a"], 3);
}
