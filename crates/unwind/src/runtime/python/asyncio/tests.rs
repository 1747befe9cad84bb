//! A process may contain anything: a heap of objects of the right types with random pointers must
//! neither hang a snapshot nor crash it.

use proptest::prelude::*;

use super::*;
use crate::runtime::python::layout;

const HEAP: u64 = 0x10_0000;
const SIZE: u64 = 512;
const OBJECTS: u64 = 64;
const TYPES: u64 = HEAP + SIZE * OBJECTS;
const NAMES: &[&str] = &[
    "set",
    "dict",
    "str",
    "NoneType",
    "coroutine",
    "generator",
    "async_generator_asend",
    "_asyncio.Task",
    "_asyncio.Future",
    "_asyncio.FutureIter",
    "Task",
    "Future",
    "_GatheringFuture",
    "Context",
    "function",
];

/// Objects of random types with random words, most of which point at objects.
struct Heap(Vec<u8>);

impl Heap {
    fn new(mut seed: u64, types: u64) -> Heap {
        let mut next = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let texts = TYPES + SIZE * NAMES.len() as u64;
        let mut bytes = vec![0u8; (texts - HEAP) as usize + 64 * NAMES.len()];
        let mut put = |at: u64, word: u64| {
            let at = (at - HEAP) as usize;
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        let object = |n: u64| HEAP + SIZE * (n % OBJECTS) + 64;
        let class = |n: u64| TYPES + SIZE * (n % types.min(NAMES.len() as u64));
        for i in 0..OBJECTS {
            for at in (0..SIZE).step_by(8) {
                let (kind, n) = (next(), next());
                let word = match kind % 8 {
                    0 => n,
                    1 => n % 16,
                    2 => 0,
                    _ => object(n),
                };
                put(HEAP + SIZE * i + at, word);
            }
            put(HEAP + SIZE * i + 64 + 8, class(next()));
        }
        for (i, _) in NAMES.iter().enumerate() {
            let class_at = class(i as u64);
            put(class_at + 24, texts + 64 * i as u64);
            put(class_at + 32, 16);
            put(class_at + 168, next());
            put(
                class_at + 256,
                if next() % 2 == 0 { 0 } else { class(next()) },
            );
            put(class_at + 288, next() % 64 * 8);
        }
        for (i, name) in NAMES.iter().enumerate() {
            let at = (texts - HEAP) as usize + 64 * i;
            bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
        Heap(bytes)
    }
}

impl Memory for Heap {
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
        // Pages are read whole, and the heap ends inside one.
        let Some(from) = at.checked_sub(HEAP).map(|from| from as usize) else {
            return false;
        };
        if from >= self.0.len() {
            return false;
        }
        for (i, byte) in to.iter_mut().enumerate() {
            *byte = self.0.get(from + i).copied().unwrap_or(0);
        }
        true
    }
}

fn facts(minor: u32) -> Facts {
    let layout = match layout::of_version(minor) {
        Some(layout) => layout,
        None => layout::of_offsets(&layout::tests::V3_14, 14).expect("a real one"),
    };
    Facts {
        version: format!("3.{minor}"),
        minor,
        runtime: HEAP,
        code_type: TYPES,
        eval: [(0, 0); 2],
        glue: Vec::new(),
        layout: layout::Layout {
            modules: layout.modules.or(Some(64)),
            ..layout
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_heap_is_too_strange(seed in 1u64.., types in 1u64..20, minor in 8u32..=14) {
        let facts = facts(minor);
        let places = Places::of(minor, facts.layout.modules).expect("a version that is known");
        let mut tasks = Tasks::new(0);
        let mut memory = Heap::new(seed, types);
        let all = AnyFacts::Python(Box::new(facts.clone()));
        tasks.look(&all, &mut memory);
        let mut run = Run {
            objects: Objects {
                memory: &mut memory,
                pages: &mut tasks.pages,
                places: &places,
                texts: &facts.layout.objects,
            },
            facts: &facts,
            bias: 0,
            known: &mut tasks.known,
        };
        for i in 0..OBJECTS {
            let at = HEAP + SIZE * i + 64;
            run.task(at);
            run.holders((at, at));
            run.objects.attribute(at, "data");
            run.objects.text(at);
            let holders = [Holder::Set { at, weak: i % 2 == 0 }, Holder::Lists { interpreter: at }];
            run.tasks(&holders, FxHashMap::default());
        }
    }
}
