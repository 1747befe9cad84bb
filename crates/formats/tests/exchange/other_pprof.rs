//! pprof of other tools: features that Go's own files lack.

use crate::support::{fold, read};

fn varint(mut v: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
    out
}

pub fn number(field: u64, v: u64) -> Vec<u8> {
    [varint(field << 3), varint(v)].concat()
}

pub fn bytes(field: u64, of: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(of.len() as u64), of.to_vec()].concat()
}

/// A profile of on-CPU time with these further parts; strings follow the three that it has.
fn profile(parts: &[Vec<u8>], strings: &[&str]) -> Vec<u8> {
    let kind = [number(1, 1), number(2, 2)].concat();
    let mut out = bytes(1, &kind);
    out.extend(parts.concat());
    for s in ["", "cpu", "nanoseconds"].iter().chain(strings) {
        out.extend(bytes(6, s.as_bytes()));
    }
    out
}

fn sample(leaf_first: &[u64], ns: u64) -> Vec<u8> {
    let ids = leaf_first
        .iter()
        .flat_map(|id| varint(*id))
        .collect::<Vec<_>>();
    bytes(2, &[bytes(1, &ids), bytes(2, &varint(ns))].concat())
}

#[test]
fn addresses_are_offsets_in_their_files() {
    let mapping = |id: u64, start: u64, limit: u64, offset: u64, file: u64| {
        let of = [
            number(1, id),
            number(2, start),
            number(3, limit),
            number(4, offset),
            number(5, file),
        ];
        bytes(3, &of.concat())
    };
    let location = |id: u64, mapping: u64, address: u64| {
        bytes(
            4,
            &[number(1, id), number(2, mapping), number(3, address)].concat(),
        )
    };
    // One file's code at two places, as in two runs.
    let file = profile(
        &[
            mapping(1, 0x7f00_0000_0000, 0x7f00_0001_0000, 0x2000, 3),
            mapping(2, 0x7fff_0000_0000, 0x7fff_0001_0000, 0x2000, 3),
            location(1, 1, 0x7f00_0000_0234),
            location(2, 2, 0x7fff_0000_0234),
            location(3, 1, 0x10),
            sample(&[1], 5),
            sample(&[2], 6),
            sample(&[3], 7),
        ],
        &["/nowhere/libfoo.so"],
    );
    let read = read(&file);
    let sums = fold(&read.recording);
    assert_eq!(sums["libfoo.so+0x2234"], 11);
    assert_eq!(sums["libfoo.so+0x10"], 7, "outside its mapping it stays");
    assert!(read.unnamed.is_some(), "names may be on this machine");
}

#[test]
fn what_the_file_wants_left_out_is() {
    let names = [
        "main",
        "work",
        "malloc",
        "sbrk",
        "mallocx",
        "malloc|sbrk|malloc.",
        "mallocx",
    ];
    let mut parts: Vec<Vec<u8>> = (0..5u64)
        .flat_map(|i| {
            let function = bytes(5, &[number(1, i + 1), number(2, i + 3)].concat());
            let line = bytes(4, &number(1, i + 1));
            let location = bytes(4, &[number(1, i + 1), line].concat());
            [function, location]
        })
        .collect();
    // work inlined malloc.
    let lines = [bytes(4, &number(1, 3)), bytes(4, &number(1, 2))].concat();
    parts.push(bytes(4, &[number(1, 6), lines].concat()));
    parts.extend([
        sample(&[4, 3, 2, 1], 1),
        sample(&[4, 5, 1], 2),
        sample(&[3], 4),
        sample(&[4, 6, 1], 8),
        number(7, 8),
        number(8, 9),
    ]);
    let sums = fold(&read(&profile(&parts, &names)).recording);
    assert_eq!(sums["main;work"], 9, "{sums:?}");
    assert_eq!(
        sums["main;mallocx"], 2,
        "kept, but not what it calls: {sums:?}"
    );
    assert_eq!(sums["malloc"], 4, "there is nobody else: {sums:?}");
}
