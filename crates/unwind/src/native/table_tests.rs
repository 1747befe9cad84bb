use super::*;
use crate::native::abi::{Mapping, Proc};
use crate::native::{MemoryTables, Registers, StackStart, TableSink, Unwinder};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::process::Command;

/// The end that the C side finds at `offset`, for rows that are all ends.
fn ask(unwinder: &mut Unwinder, tables: &MemoryTables, offset: u64) -> End {
    let registers = Registers {
        ip: 0x1_0000_0000 + offset,
        ..Registers::default()
    };
    let start = StackStart::new(1, &registers).at_most(4);
    unwinder.unwind(tables, start, |_, _| 0).end
}

fn serve(table: Table, generation: u32) -> MemoryTables {
    let mut tables = MemoryTables::new();
    tables.put_tables(&[(1, table)]).unwrap();
    tables.put_mappings(
        0,
        &[Mapping {
            start: 0x1_0000_0000,
            end: 0x3_0000_0000,
            delta: 0u64.wrapping_sub(0x1_0000_0000),
            file: 1,
            generation,
        }],
    );
    tables
        .put_proc(
            1,
            Proc {
                first: 0,
                count: 1,
                generation,
                voided: 0,
            },
        )
        .unwrap();
    tables
}

proptest! {
    /// The search in C agrees with a sorted map, for any offsets.
    #[test]
    fn search_agrees_with_a_sorted_map(
        rows in prop::collection::btree_map(
            prop_oneof![0u32..20_000, 0u32..0x400_0000],
            prop_oneof![Just(1u32), Just(5), Just(6)],
            1..300,
        ),
        // A table of all of the 4 GiB is large, so most have none.
        at_the_end in prop::bool::weighted(0.1),
        asked in prop::collection::vec(0u64..0x400_1000, 50),
    ) {
        let mut rows = rows;
        if at_the_end {
            rows.insert(u32::MAX, 5);
        }
        let list: Vec<(u32, u32)> = rows.iter().map(|(o, r)| (*o, *r)).collect();
        let table = Table::encode(&list, None);
        prop_assert_eq!(table.iter().collect::<Vec<_>>(), list.clone());
        for (at, row) in list.iter().enumerate() {
            prop_assert_eq!(table.offset(at).zip(table.rule(at)), Some(*row));
        }
        prop_assert_eq!((table.offset(list.len()), table.rule(list.len())), (None, None));
        for offset in &asked {
            let covering = list.partition_point(|(start, _)| u64::from(*start) <= *offset);
            prop_assert_eq!(table.row_at(*offset), covering.checked_sub(1), "at {:#x}", offset);
        }
        let tables = serve(table, 1);
        let mut unwinder = Unwinder::new();
        let edges = rows.keys().flat_map(|o| [*o as u64, (*o as u64).saturating_sub(1), *o as u64 + 1]);
        for offset in asked.into_iter().chain(edges) {
            // The last row always ends the code; these rows have none, so stay below.
            let last = *rows.keys().last().unwrap() as u64;
            if offset >> 12 > last >> 12 {
                continue;
            }
            let want = rows.range(..=offset.min(u32::MAX as u64) as u32).next_back().map_or(5, |r| *r.1);
            prop_assert_eq!(ask(&mut unwinder, &tables, offset) as u32, want, "at {:#x}", offset);
        }
    }

    /// A damaged file gives a table, no table, or an error. It never gives a panic, or rows that
    /// are unsorted or that the search cannot handle.
    #[test]
    fn damage_is_survived(
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        keep in 0.3f64..1.0,
        at_frames in any::<bool>(),
    ) {
        let mut bytes = sample().clone();
        let (from, to) = if at_frames { frames() } else { (0, bytes.len()) };
        for (index, value) in hits {
            let at = from + index.index(to - from);
            bytes[at] = value;
        }
        if keep < 0.5 {
            let len = (bytes.len() as f64 * keep) as usize;
            bytes.truncate(len);
        }
        let mut rules = RuleSet::new(1 << 16);
        if let Ok(UnwindMethod::Table(table)) = from_bytes(&bytes, &mut rules) {
            let rows: Vec<_> = table.iter().collect();
            prop_assert!(rows.windows(2).all(|w| w[0].0 < w[1].0));
            prop_assert!(rows.iter().all(|r| r.1 != 0 && (r.1 as usize) < rules.rules().len()));
            prop_assert_eq!(rows.last().unwrap().1, End::NoInfo as u32);
        }
    }
}

/// A small program, as bytes.
fn sample() -> &'static Vec<u8> {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    BYTES.get_or_init(|| {
        build(
            "#include <alloca.h>\n#include <string.h>\n\
             void use(char *);\n\
             int one(int n) { char wide[64] __attribute__((aligned(64))); char *more = alloca(n); \
             memset(wide, n, 64); use(wide); use(more); return wide[n & 63]; }\n\
             int two(int n) { return n < 3 ? n : one(n) + one(n + 1); }\n",
            &["-O2", "-shared", "-fPIC"],
        )
    })
}

/// The range of its unwind information.
fn frames() -> (usize, usize) {
    use object::{Object, ObjectSection};
    let file = object::File::parse(sample().as_slice()).unwrap();
    let (at, size) = file
        .section_by_name(".eh_frame")
        .unwrap()
        .file_range()
        .unwrap();
    (at as usize, (at + size) as usize)
}

fn build(source: &str, args: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (c, out) = (dir.path().join("a.c"), dir.path().join("a.out"));
    std::fs::write(&c, source).unwrap();
    let output = Command::new("gcc")
        .args(args)
        .arg(&c)
        .arg("-o")
        .arg(&out)
        .output()
        .expect("gcc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read(out).unwrap()
}

/// Rule ids at the first byte of each function, by name.
fn rules_at(bytes: &[u8], names: &[&str]) -> (BTreeMap<String, (u32, u64)>, Table) {
    use object::{Object, ObjectSymbol};
    let mut rules = RuleSet::new(1 << 16);
    let Ok(UnwindMethod::Table(table)) = from_bytes(bytes, &mut rules) else {
        panic!("no table");
    };
    let (image, _) = Image::parse(bytes).unwrap();
    let file = object::File::parse(bytes).unwrap();
    let found = file
        .symbols()
        .filter_map(|s| Some((s.name().ok()?.to_string(), s.address())))
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, address)| {
            let offset = image.offset_of(address).unwrap().0;
            (name, (rule_at(&table, offset), offset))
        })
        .collect();
    (found, table)
}

fn rule_at(table: &Table, offset: u64) -> u32 {
    table
        .iter()
        .take_while(|(o, _)| *o as u64 <= offset)
        .last()
        .map_or(End::NoInfo as u32, |r| r.1)
}

#[test]
fn an_entry_point_without_description_is_the_root_up_to_its_call() {
    let bytes = build(
        "asm(\".globl _start\\n_start: xor %ebp,%ebp\\n mov %rsp,%rdi\\n and $-16,%rsp\\n\
         call begin\\n.globl past\\npast: hlt\\n nop; nop\\n.globl bare\\nbare: ret\\n\");\n\
         int begin(long *sp) { volatile long n = *sp; while (n) n--; return 0; }\n",
        &[
            "-O2",
            "-nostdlib",
            "-static",
            "-fasynchronous-unwind-tables",
        ],
    );
    let (found, table) = rules_at(&bytes, &["_start", "past", "bare", "begin"]);
    assert_eq!(found["_start"].0, End::Root as u32);
    assert_eq!(rule_at(&table, found["past"].1 - 1), End::Root as u32);
    assert_eq!(found["past"].0, End::NoInfo as u32);
    assert_eq!(found["bare"].0, End::NoInfo as u32);
    assert!(found["begin"].0 >= crate::native::abi::RULE_USER);
}

#[test]
fn gaps_say_so_and_bare_signal_returns_are_known() {
    let bytes = build(
        "asm(\".globl give_back\\n.skip 40, 0x90\\ngive_back: mov $15,%rax\\n syscall\\n\
         .skip 40, 0x90\\n\");\n\
         int begin(int n) { return n * 3; }\n\
         asm(\".globl between\\nbetween: .skip 16, 0x90\\n\");\n\
         int after(int n) { return n * 5; }\n",
        &["-O2", "-shared", "-fPIC", "-fno-toplevel-reorder"],
    );
    let (found, table) = rules_at(&bytes, &["give_back", "begin", "between", "after"]);
    assert_eq!(found["give_back"].0, crate::native::abi::RULE_SIGNAL);
    // A return address there is looked up one byte earlier.
    let before = rule_at(&table, found["give_back"].1 - 1);
    assert_eq!(before, crate::native::abi::RULE_SIGNAL);
    assert_eq!(
        rule_at(&table, found["give_back"].1 + 9),
        End::NoInfo as u32
    );
    assert_eq!(found["between"].0, End::NoInfo as u32);
    assert!(found["after"].0 >= crate::native::abi::RULE_USER);
    assert_eq!(found["begin"].0, found["after"].0);
}

#[test]
fn files_without_section_headers_still_have_a_table() {
    let mut bytes = sample().clone();
    let mut rules = RuleSet::new(1 << 16);
    let whole = from_bytes(&bytes, &mut rules).unwrap();
    // e_shoff, e_shnum and e_shstrndx
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = from_bytes(&bytes, &mut rules).unwrap();
    let (UnwindMethod::Table(whole), UnwindMethod::Table(bare)) = (whole, bare) else {
        panic!("no table");
    };
    assert_eq!(whole.words(), bare.words());
}

#[test]
fn debug_frame_serves_where_eh_frame_is_missing() {
    let source = "int f(int n) { volatile int a[40]; a[n] = n; return a[n / 2]; }\n";
    let plain = ["-O2", "-g", "-shared", "-fPIC", "-nostdlib"];
    let with = build(source, &plain);
    let mut args = plain.to_vec();
    args.push("-fno-asynchronous-unwind-tables");
    args.push("-fno-unwind-tables");
    let without = build(source, &args);
    let (a, _) = rules_at(&with, &["f"]);
    let (b, _) = rules_at(&without, &["f"]);
    assert!(b["f"].0 >= crate::native::abi::RULE_USER);
    assert_eq!(a["f"].0, b["f"].0);
}

#[test]
fn what_cannot_be_unwound_says_why() {
    let mut rules = RuleSet::new(64);
    assert!(matches!(
        from_bytes(b"#!/bin/sh\n0123456789", &mut rules),
        Err(ImageError::NotElf)
    ));
    let mut other = sample().clone();
    other[0x12] = 0xb7;
    assert!(matches!(
        from_bytes(&other, &mut rules),
        Err(ImageError::OtherMachine)
    ));
    assert!(matches!(
        from_bytes(&sample()[..70], &mut rules),
        Err(ImageError::Damaged(_))
    ));
}
