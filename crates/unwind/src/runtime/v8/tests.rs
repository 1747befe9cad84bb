//! Tests over a hand-made heap.

use std::collections::BTreeMap;

use super::*;

/// The exported constants of Node.js 20 that are read.
const VALUES: &[(&str, i32)] = &[
    ("v8dbg_SmiShiftSize", 31),
    ("v8dbg_off_fp_function", -16),
    ("v8dbg_off_fp_context", -8),
    ("v8dbg_off_fp_bytecode_array", -32),
    ("v8dbg_off_fp_bytecode_offset", -40),
    ("v8dbg_FirstNonstringType", 128),
    ("v8dbg_StringRepresentationMask", 7),
    ("v8dbg_SeqStringTag", 0),
    ("v8dbg_ConsStringTag", 1),
    ("v8dbg_ExternalStringTag", 2),
    ("v8dbg_SlicedStringTag", 3),
    ("v8dbg_ThinStringTag", 5),
    ("v8dbg_StringEncodingMask", 8),
    ("v8dbg_OneByteStringTag", 8),
    ("v8dbg_scopeinfo_idx_first_vars", 3),
    ("v8dbg_scopeinfo_idx_ncontextlocals", 2),
    ("v8dbg_class_Map__instance_type__uint16_t", 12),
    ("v8dbg_class_JSFunction__shared__SharedFunctionInfo", 24),
    ("v8dbg_class_JSFunction__code__Code", 48),
    ("v8dbg_class_String__length__int32_t", 12),
    ("v8dbg_class_Script__name__Object", 16),
    ("v8dbg_class_Script__source__Object", 8),
    (
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
        16,
    ),
    ("v8dbg_class_SharedFunctionInfo__function_data__Object", 8),
    (
        "v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
        32,
    ),
    (
        "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
        300,
    ),
    ("v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE", 301),
    ("v8dbg_type_Script__SCRIPT_TYPE", 302),
    ("v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE", 303),
    ("v8dbg_type_FixedArray__FIXED_ARRAY_TYPE", 304),
    (
        "v8dbg_type_InterpreterData__INTERPRETER_DATA_TYPE",
        INTERPRETER_DATA as i32,
    ),
];

const SHARED: u16 = 300;
const SCOPE: u16 = 301;
const SCRIPT: u16 = 302;
const BYTECODE: u16 = 303;
const BYTES: u16 = 305;
const INTERPRETER_DATA: u16 = 306;
const TEXT: u16 = 8;
const CONS: u16 = 9;

/// Objects at ascending addresses, with a map for each type.
struct Made {
    bytes: Vec<u8>,
    maps: BTreeMap<u16, u64>,
}

const BASE: u64 = 0x10_0000;

impl Made {
    fn new() -> Made {
        Made {
            bytes: Vec::new(),
            maps: BTreeMap::new(),
        }
    }

    fn put(&mut self, words: &[u64]) -> u64 {
        let at = BASE + self.bytes.len() as u64;
        for word in words {
            self.bytes.extend(word.to_le_bytes());
        }
        at + 1
    }

    /// The tagged pointer of a new object of `kind`.
    fn object(&mut self, kind: u16, words: &[u64]) -> u64 {
        let map = match self.maps.get(&kind) {
            Some(map) => *map,
            None => {
                let map = self.put(&[0, u64::from(kind) << 32]);
                self.maps.insert(kind, map);
                map
            }
        };
        let all: Vec<u64> = [map].iter().chain(words).copied().collect();
        self.put(&all)
    }

    fn text(&mut self, text: &str) -> u64 {
        let mut words = vec![(text.len() as u64) << 32];
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        words.extend(
            bytes
                .chunks(8)
                .map(|b| u64::from_le_bytes(b.try_into().unwrap())),
        );
        self.object(TEXT, &words)
    }

    fn read(&self, at: u64, to: &mut [u8]) -> bool {
        let from = at.wrapping_sub(BASE) as usize;
        let source = from
            .checked_add(to.len())
            .and_then(|end| self.bytes.get(from..end));
        source.is_some_and(|source| {
            to.copy_from_slice(source);
            true
        })
    }
}

fn smi(n: u32) -> u64 {
    u64::from(n) << 32
}

fn facts() -> Facts {
    let values = VALUES.iter().copied().collect();
    Facts {
        version: "11.3.244".into(),
        layout: Layout::of(&values, [11, 3, 244]).expect("all that is needed"),
        table: None,
        entries: Default::default(),
    }
}

/// A function `addAll` with two variables, on the second line of a source.
fn function(made: &mut Made) -> u64 {
    let source = made.text("let a;\nfunction addAll() {\n  return 1;\n}\n");
    let (first, second) = (made.text("/srv/"), made.text("sum.js"));
    // Eleven characters, concatenated from two texts.
    let path = made.object(CONS, &[11 << 32]);
    let at = (path - 1 - BASE) as usize;
    made.bytes.truncate(at + 12);
    made.bytes[at + 8..at + 12].copy_from_slice(&0u32.to_le_bytes());
    made.bytes.extend(11u32.to_le_bytes());
    made.bytes.extend(first.to_le_bytes());
    made.bytes.extend(second.to_le_bytes());
    let script = made.object(SCRIPT, &[source, path]);
    let (name, one, two) = (made.text("addAll"), made.text("x"), made.text("y"));
    // Flags, parameters, variables: their names and their information; the name, its position, the
    // inferred name (none), start and end.
    let scope = made.object(
        SCOPE,
        &[
            smi(0),
            smi(0),
            smi(2),
            one,
            two,
            smi(0),
            smi(0),
            name,
            smi(9),
            script,
            smi(7),
            smi(41),
            script,
        ],
    );
    // The entry, one before the first instruction, at the parameters; from offset 4 on, at
    // `return`.
    let table = made.object(
        BYTES,
        &[smi(4), u64::from_le_bytes([0, 92, 10, 28, 0, 0, 0, 0])],
    );
    let mut words = vec![smi(20); 3];
    words.push(table);
    let bytecode = made.object(BYTECODE, &words);
    made.object(SHARED, &[bytecode, scope, 0, script])
}

fn frame(function: u64, place: ScriptPosition, address: Option<u64>) -> ScriptFrame {
    ScriptFrame {
        function,
        place,
        address,
    }
}

#[test]
fn an_interpreted_function_has_its_name_and_line() {
    let mut made = Made::new();
    let shared = function(&mut made);
    let facts = facts();
    let mut isolate = Isolate::default();
    let mut read = |at: u64, to: &mut [u8]| made.read(at, to);
    let begin = facts.layout.bytecode_data as u32 - 1;
    let mut at = |offset: u32| {
        let place = ScriptPosition::Bytecode(begin + offset);
        let scopes = isolate.scopes(&facts, frame(shared, place, None), &mut read);
        let scopes = scopes.expect("readable");
        assert_eq!(scopes.len(), 1);
        let f = &scopes[0].function;
        assert_eq!(
            (f.name.as_str(), f.file.as_str()),
            ("addAll", "/srv/sum.js")
        );
        (f.line, scopes[0].line)
    };
    assert_eq!(at(0), (2, 2));
    assert_eq!(at(6), (2, 3));
}

#[test]
fn a_number_where_bytecode_would_be_is_believed_only_of_the_interpreter() {
    let mut made = Made::new();
    let shared = function(&mut made);
    // The function with a copy of the interpreter's entry: an object before its bytecode.
    let at = (shared - 1 - BASE) as usize;
    let word = |n: usize| u64::from_le_bytes(made.bytes[at + 8 * n..][..8].try_into().unwrap());
    let (bytecode, rest) = (word(1), [word(2), word(3), word(4)]);
    let data = made.object(INTERPRETER_DATA, &[bytecode, 0]);
    let copied = made.object(SHARED, &[data, rest[0], rest[1], rest[2]]);
    let facts = facts();
    let mut isolate = Isolate::default();
    let mut read = |at: u64, to: &mut [u8]| made.read(at, to);
    let begin = facts.layout.bytecode_data as u32 - 1;
    let unsure = ScriptPosition::Unsure(begin + 6, 0);
    let mut line = |function, place, address| {
        let scopes = isolate.scopes(&facts, frame(function, place, address), &mut read);
        scopes.expect("readable")[0].line
    };
    // Code in the file, which contains only the interpreter.
    assert_eq!(line(shared, unsure, None), 3);
    // Code in no file and without such a copy is machine code, of which nothing else is known.
    assert_eq!(line(shared, unsure, Some(0x7000)), 2);
    assert_eq!(line(copied, unsure, Some(0x7000)), 3);
    assert_eq!(line(copied, ScriptPosition::Code(0), Some(0x7000)), 2);
}

#[test]
fn newer_versions_keep_things_elsewhere() {
    let of = |more: &[(&'static str, i32)], without: &[&str], version| {
        let mut all: BTreeMap<&str, i32> = VALUES.iter().copied().collect();
        all.extend(more.iter().copied());
        all.retain(|name, _| !without.contains(name));
        Layout::of(&all, version).expect("all that is needed")
    };
    let old = facts().layout;
    assert_eq!((old.by_table, old.scope.place), (false, None));
    // From the builds of Node.js 22 and 24.
    let wrapped = [
        ("v8dbg_class_Code__wrapper__Tagged_CodeWrapper_", 24),
        ("v8dbg_class_Code__instruction_start__Address", 40),
        ("v8dbg_class_Code__flags__uint32_t", 48),
        ("v8dbg_class_Code__instruction_size__int", 52),
        (
            "v8dbg_class_BytecodeArray__wrapper__Tagged_BytecodeWrapper_",
            16,
        ),
        ("v8dbg_class_BytecodeArray__data__uintptr_t", 64),
    ];
    let layout = of(&wrapped, &[], [12, 4, 254]);
    let code = layout.code.expect("known");
    assert_eq!((code.deoptimization, code.positions), (8, 16));
    assert_eq!((code.start, code.size, code.within), (40, 52, false));
    assert_eq!((layout.bytecode_positions, layout.bytecode_data), (24, 64));
    assert_eq!((layout.by_table, layout.scope.place), (false, None));
    let numbered = [
        ("v8dbg_class_Code__flags__uint32_t", 52),
        ("v8dbg_class_Code__instruction_size__int", 56),
        ("v8dbg_class_JSFunction__shared__SharedFunctionInfo", 32),
        ("v8dbg_scopeinfo_idx_first_vars", 5),
    ];
    let all: Vec<_> = wrapped.iter().chain(&numbered).copied().collect();
    // The version does not matter: the file may be stripped.
    for version in [[13, 6, 233], [0, 0, 0]] {
        let layout = of(&all, &["v8dbg_class_JSFunction__code__Code"], version);
        let code = layout.code.expect("known");
        assert_eq!((code.start, code.size, code.within), (40, 56, false));
        assert_eq!((layout.by_table, layout.scope.place), (true, Some(3)));
        let facts = Facts {
            version: String::new(),
            layout,
            table: None,
            entries: Default::default(),
        };
        assert!(facts.hides_code());
    }
}

#[test]
fn what_is_no_function_is_a_miss() {
    let mut made = Made::new();
    let shared = function(&mut made);
    let facts = facts();
    let mut isolate = Isolate::default();
    let mut read = |at: u64, to: &mut [u8]| made.read(at, to);
    for wrong in [0, 1, shared - 1, shared + 8, u64::MAX, BASE + (1 << 20) + 1] {
        let wrong_frame = frame(wrong, ScriptPosition::Code(0), Some(0));
        let found = isolate.scopes(&facts, wrong_frame, &mut read);
        assert_eq!(found, Err(Miss::Unreadable), "{wrong:#x}");
    }
}

#[test]
fn a_build_that_says_too_little_is_refused() {
    let without = |name: &str| -> BTreeMap<&str, i32> {
        let all = VALUES.iter().filter(|(n, _)| *n != name);
        all.copied().collect()
    };
    for needed in [
        "v8dbg_SmiShiftSize",
        "v8dbg_off_fp_function",
        "v8dbg_FirstNonstringType",
        "v8dbg_class_Map__instance_type__uint16_t",
        "v8dbg_class_JSFunction__shared__SharedFunctionInfo",
        "v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
        "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE",
    ] {
        assert!(
            Layout::of(&without(needed), [11, 3, 244]).is_err(),
            "{needed}"
        );
    }
    // Equal in every version that does not export it.
    let code = Layout::of(&without("v8dbg_class_JSFunction__code__Code"), [11, 3, 244]);
    assert_eq!(code.map(|l| l.function_code), Ok(48));
}
