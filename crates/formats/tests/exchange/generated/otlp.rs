//! OpenTelemetry's profiles in the layouts of opentelemetry-proto's releases.

use wallscope_model::{LabelValue, State};

use super::{SEEDS, Sums, Tree, read_as, refusal, sums};
use wallscope_synthetic::Random;

/// A message in the making.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn number(mut self, field: u64, n: u64) -> Message {
        self.varint(field << 3);
        self.varint(n);
        self
    }

    fn fixed(mut self, field: u64, n: u64) -> Message {
        self.varint(field << 3 | 1);
        self.0.extend(n.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(self, field: u64, m: Message) -> Message {
        self.bytes(field, &m.0)
    }

    fn packed(self, field: u64, list: &[u64]) -> Message {
        let mut m = Message::default();
        list.iter().for_each(|n| m.varint(*n));
        self.bytes(field, &m.0)
    }
}

fn m() -> Message {
    Message::default()
}

/// A release's layout of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Release {
    V1_8,
    V1_10,
}

/// The form of a sample's values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Values,
    Times,
    Both,
}

/// A thread's samples, as nodes with values.
struct Profile {
    tree: Tree,
    samples: Vec<(usize, Vec<u64>)>,
}

/// Keys and values of the attributes, from place 1 of the table on.
const STRINGS: [&str; 10] = [
    "",
    "cpu",
    "nanoseconds",
    "/opt/app",
    "thread.name",
    "worker-7",
    "thread.id",
    "process.executable.name",
    "app",
    "color",
];

impl Profile {
    fn random(random: &mut Random) -> Profile {
        let tree = Tree::random(random);
        let samples = (0..1 + random.below(20))
            .map(|_| {
                let node = random.below(tree.len() as u64) as usize;
                // Not as many as there are attributes: no other release would write it so.
                let n = [1, 2, 3, 5][random.below(4) as usize];
                let value = |_| 1 + random.below(1 << 40);
                (node, (0..n).map(value).collect())
            })
            .collect();
        Profile { tree, samples }
    }

    fn expected(&self, form: Form) -> Sums {
        let mut sums = Sums::default();
        for (node, values) in &self.samples {
            let value = match form {
                Form::Times => values.len() as u64,
                _ => values.iter().sum(),
            };
            sums.add(self.tree.folded(*node, ""), value);
        }
        sums
    }

    fn text(text: usize, by_index: bool) -> Message {
        match by_index {
            true => m().number(8, text as u64),
            false => m().bytes(1, STRINGS[text].as_bytes()),
        }
    }

    fn dictionary(&self, by_index: bool) -> Message {
        let attribute = |key: u64, value: Message| m().number(1, key).message(2, value);
        let mut d = m().bytes(1, &[]).bytes(2, &[]).bytes(3, &[]).bytes(4, &[]);
        d = d.message(1, m().number(1, 0x1000).number(2, 0x9000).number(4, 3));
        for (i, name) in self.tree.names.iter().enumerate() {
            let line = m().number(1, i as u64 + 1).number(2, 7);
            d = d.message(2, m().number(1, 1).number(2, 0x1100).message(3, line));
            d = d.message(3, m().number(1, (STRINGS.len() + i) as u64));
            let _ = name;
        }
        for s in STRINGS
            .iter()
            .copied()
            .chain(self.tree.names.iter().map(String::as_str))
        {
            d = d.bytes(5, s.as_bytes());
        }
        d = d.bytes(6, &[]);
        d = d.message(6, attribute(4, Profile::text(5, by_index)));
        d = d.message(6, attribute(6, m().number(3, 907)));
        d = d.message(6, attribute(7, Profile::text(8, by_index)));
        d = d.message(6, attribute(9, Profile::text(8, by_index)));
        d = d.bytes(7, &[]);
        for node in 0..self.tree.len() {
            let mut path = Vec::new();
            let mut at = Some(node);
            while let Some(n) = at {
                path.push(n as u64 + 1);
                at = self.tree.parents[n];
            }
            d = d.message(7, m().packed(1, &path));
        }
        d
    }

    fn sample(&self, i: usize, release: Release, form: Form) -> Message {
        let (node, values) = &self.samples[i];
        let (attributes, field) = match release {
            Release::V1_8 => (3, 2),
            Release::V1_10 => (2, 4),
        };
        let mut s = m()
            .number(1, *node as u64 + 1)
            .packed(attributes, &[1, 2, 3, 4]);
        if form != Form::Times {
            s = s.packed(field, values);
        }
        if form != Form::Values {
            let times = (0..values.len() as u64)
                .flat_map(|t| (1_700_000_000_000_000_000 + t).to_le_bytes());
            s = s.bytes(5, &times.collect::<Vec<u8>>());
        }
        s
    }

    fn file(&self, release: Release, form: Form, by_index: bool) -> Vec<u8> {
        let mut p = m().message(1, m().number(1, 1).number(2, 2));
        for i in 0..self.samples.len() {
            p = p.message(2, self.sample(i, release, form));
        }
        p = p
            .fixed(3, 1_700_000_000_000_000_000)
            .number(4, 10_000_000_000);
        let resource = match by_index {
            true => m().number(3, 9).message(2, Profile::text(5, true)),
            false => m().bytes(1, b"color").message(2, Profile::text(5, false)),
        };
        let resource = m()
            .message(1, m().message(1, resource))
            .message(2, m().message(2, p));
        m().message(1, resource)
            .message(2, self.dictionary(by_index))
            .0
    }
}

#[test]
fn both_layouts_with_strings_inline_and_by_index_are_read() {
    for seed in SEEDS {
        let p = Profile::random(&mut Random(seed));
        for form in [Form::Values, Form::Times, Form::Both] {
            for (release, by_index) in [
                (Release::V1_8, false),
                (Release::V1_10, false),
                (Release::V1_10, true),
            ] {
                let read = read_as(&p.file(release, form, by_index), None).unwrap();
                let case = format!("{release:?} {form:?} by index {by_index}, seed {seed}");
                // A profile without values has one for each time, whatever its unit is called.
                assert_eq!(sums(&read), p.expected(form).0, "{case}");
                let rec = &read.recording;
                assert_eq!(rec.contexts.len(), 1, "{case}");
                assert_eq!(&*rec.contexts[0].name, "worker-7", "{case}");
                assert_eq!(rec.contexts[0].tid, 907, "{case}");
                assert_eq!(&*rec.processes[0].name, "app", "{case}");
                assert!(rec.samples.iter().all(|s| s.state == State::OnCpu));
                // The sample's own attribute stands before the resource's.
                let label = &rec.label_sets[0][0];
                assert_eq!(&*label.key, "color", "{case}");
                assert_eq!(label.value, LabelValue::Text("app".into()), "{case}");
            }
        }
    }
}

/// A file with a profile of nanoseconds for each name, of one sample each.
fn profiles(names: &[(&str, u64)]) -> Vec<u8> {
    let tree = Profile::random(&mut Random(1));
    let mut scope = m();
    let mut dictionary = tree.dictionary(false);
    let first = STRINGS.len() + tree.tree.names.len();
    for (i, (name, value)) in names.iter().enumerate() {
        let kind = m().number(1, (first + i) as u64).number(2, 2);
        let sample = m().number(1, 1).packed(4, &[*value]);
        scope = scope.message(2, m().message(1, kind).message(2, sample));
        dictionary = dictionary.bytes(5, name.as_bytes());
    }
    m().message(1, m().message(2, scope))
        .message(2, dictionary)
        .0
}

/// The OpenTelemetry specification lists `cpu` and `wall`, both in nanoseconds.
#[test]
fn profiles_of_one_time_are_not_added_up() {
    let total = |bytes: &[u8], value| {
        let read = read_as(bytes, value).unwrap();
        sums(&read).values().sum::<u64>()
    };
    let both = profiles(&[("cpu", 3), ("wall", 10)]);
    assert_eq!(total(&both, None), 3);
    assert_eq!(total(&both, Some("wall")), 10);
    let read = read_as(&both, None).unwrap();
    let notes = read.recording.domain.notes.join("; ");
    assert!(notes.contains("also holds wall"), "{notes}");
    // States are parts of one time: on and off the CPU.
    assert_eq!(total(&profiles(&[("cpu", 3), ("off_cpu", 10)]), None), 13);
    assert_eq!(total(&profiles(&[("cpu", 3), ("on_cpu", 10)]), None), 3);
    assert_eq!(total(&profiles(&[("cpu", 3), ("cpu", 10)]), None), 13);
}

#[test]
fn earlier_layouts_are_refused_by_name_and_none_is_guessed() {
    let sample_type = m().number(1, 1).number(2, 2);
    let strings = |mut d: Message, field: u64| {
        for s in STRINGS {
            d = d.bytes(field, s.as_bytes());
        }
        d
    };
    let file = |profile: Message| m().message(1, m().message(2, m().message(2, profile)));
    let ranged = m().number(2, 2).packed(3, &[5]).packed(4, &[1]);
    // 1.7: a dictionary without stacks; locations are listed in the profile.
    let p = m()
        .message(1, sample_type.clone())
        .message(2, ranged.clone())
        .packed(3, &[1, 2]);
    let v7 = file(p.clone()).message(2, strings(m().bytes(1, &[]), 5));
    // 1.6: its tables beside the resources.
    let mapping = m().number(1, 0x1000).number(2, 0x9000).number(4, 3);
    let v6 = strings(file(p).message(2, mapping).bytes(3, &[]), 6);
    // 1.5: its tables in the profile.
    let p = m()
        .message(1, sample_type.clone())
        .message(2, ranged)
        .packed(5, &[1, 2]);
    let v5 = file(strings(p, 10));
    // 1.3: a container around the profile.
    let inner = strings(
        m().message(1, sample_type.clone())
            .message(2, m().packed(2, &[5])),
        6,
    );
    let v3 = file(
        m().bytes(1, &[7; 16])
            .fixed(2, 5)
            .fixed(3, 9)
            .message(8, inner),
    );
    for (bytes, release) in [(v7, "1.7"), (v6, "1.6"), (v5, "1.4 or 1.5"), (v3, "1.3")] {
        let e = refusal(&bytes.0).to_string();
        assert!(e.contains(release) && e.contains("1.8"), "{release}: {e}");
    }
    // A field that no release has: later ones may mean anything.
    let p = Profile::random(&mut Random(1));
    let later = m()
        .number(1, 1)
        .packed(2, &[1])
        .packed(4, &[5])
        .number(6, 4);
    let profile = m().message(1, sample_type).message(2, later);
    let bytes = file(profile).message(2, p.dictionary(false));
    let e = refusal(&bytes.0).to_string();
    assert!(e.contains("no release"), "{e}");
}

#[test]
fn the_fixtures_with_strings_inline_and_by_index_are_one_profile() {
    let fixtures: [&[u8]; 2] = [
        include_bytes!("../../fixtures/otlp-inline.otlp"),
        include_bytes!("../../fixtures/otlp-by-index.otlp"),
    ];
    for bytes in fixtures {
        let read = crate::support::read(bytes);
        assert_eq!(sums(&read)["main;work"], 5_000_000_000);
        let context = &read.recording.contexts[0];
        assert_eq!(
            (&*context.name, context.tid, context.pid),
            ("worker-7", 907, 900)
        );
    }
}
