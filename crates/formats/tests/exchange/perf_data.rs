//! `perf.data` of every make: plain, compressed, from a machine of the other byte order, cut off.

use wallscope_formats::{Bounds, Options, ReadError, open};

use crate::big_endian;
use crate::support::{ends, fold, plain, read, read_value, try_read};

/// Without perf's sections about the machine.
const BARE: &[u8] = include_bytes!("../fixtures/clock.perf.data.gz");
/// With them.
const WHOLE: &[u8] = include_bytes!("../fixtures/whole.perf.data.gz");
/// With `-z`.
const PACKED: &[u8] = include_bytes!("../fixtures/packed.perf.data");

/// What `perf report --stdio -F sample,sym` counts in them.
const WHOLE_SAMPLES: u64 = 178;
const PACKED_SAMPLES: u64 = 177;

fn samples(bytes: &[u8]) -> u64 {
    let rec = read(bytes).recording;
    rec.samples.iter().map(|s| s.count).sum()
}

/// `perf report -F sample,sym` of the same file counts as many.
#[test]
fn perf_data_gives_files_and_offsets() {
    let read = read(BARE);
    let rec = read.recording;
    assert!(read.unnamed.is_some());
    assert!(rec.domain.unit.is_time());
    let n: u64 = rec.samples.iter().map(|s| s.count).sum();
    let sum: u64 = rec.contexts.iter().map(|c| c.ledger.on_cpu.total()).sum();
    assert_eq!(sum, n * 1_001_001);
    assert_eq!(rec.contexts.len(), 2);
    assert!(rec.contexts.iter().all(|c| &*c.name == "w"));
    // `leaf` lies at 0x1149 in the program, and nearly all samples within it.
    let (own, _) = ends(&rec);
    let leaf: u64 = (own.iter())
        .filter(|(name, _)| name.starts_with("w+0x11"))
        .map(|(_, v)| *v)
        .sum();
    assert!(leaf * 10 > sum * 9, "{own:?}");
}

#[test]
fn compressed_records_are_unpacked() {
    assert_eq!(samples(WHOLE), WHOLE_SAMPLES);
    assert_eq!(samples(PACKED), PACKED_SAMPLES);
    let packed = read(PACKED);
    assert_eq!(packed.warnings, [""; 0]);
    let rec = packed.recording;
    assert!(
        rec.domain.tool.starts_with("perf 6."),
        "{}",
        rec.domain.tool
    );
    assert!(
        rec.modules.iter().any(|m| m.build_id.len() == 40),
        "{:?}",
        rec.modules
    );
    let (own, _) = ends(&rec);
    let all: u64 = own.values().sum();
    let leaf: u64 = (own.iter())
        .filter(|(name, _)| name.starts_with("w+0x11"))
        .map(|(_, v)| *v)
        .sum();
    assert!(leaf * 10 > all * 9, "{own:?}");
}

#[test]
fn compressed_records_are_bounded_and_read_up_to_where_they_end() {
    let options = |decompressed| Options {
        bounds: Bounds {
            decompressed,
            ..Bounds::default()
        },
        ..Options::default()
    };
    let error = open(PACKED, options(PACKED.len() as u64)).unwrap_err();
    assert!(matches!(error, ReadError::TooLarge { .. }), "{error}");
    for end in (0..PACKED.len()).step_by(97) {
        let Ok(cut) = try_read(&PACKED[..end]) else {
            continue;
        };
        let n: u64 = cut.recording.samples.iter().map(|s| s.count).sum();
        assert!(n > 0 && n <= PACKED_SAMPLES, "{n} of {end} bytes");
        assert!(
            cut.warnings[0].contains("ends in the middle"),
            "{end}: {:?}",
            cut.warnings
        );
    }
}

#[test]
fn the_order_of_bytes_makes_no_difference() {
    for file in [BARE, WHOLE] {
        let little = plain(file);
        let big = big_endian::turned(&little);
        assert!(big.starts_with(b"2ELIFREP"));
        let (little, big) = (read(&little), read(&big));
        assert_eq!(fold(&big.recording), fold(&little.recording));
        assert_eq!(big.recording.contexts, little.recording.contexts);
        assert_eq!(big.recording.modules, little.recording.modules);
        assert_eq!(big.recording.domain, little.recording.domain);
        assert_eq!(big.unnamed, little.unnamed);
    }
}

/// `perf script -G -F event,period` of the file: 107 samples of `cpu-clock`, 216,147,994 ns, and 7 of
/// `page-faults`, 4145 in all; `perf report` has 197,351,933 ns and 1038 faults in `leaf`.
#[test]
fn counters_of_a_group_are_those_of_perf_report() {
    let grouped: &[u8] = include_bytes!("../fixtures/grouped.perf.data.gz");
    let sums = |value: &str| {
        let rec = read_value(grouped, value).unwrap().recording;
        let samples: u64 = rec.samples.iter().map(|s| s.count).sum();
        let (own, _) = ends(&rec);
        // `leaf` lies at 0x1169 in the program, for 0x1d bytes.
        let leaf = own
            .iter()
            .filter(|(name, _)| name.starts_with("faults+0x11"));
        (
            samples,
            own.values().sum::<u64>(),
            leaf.map(|(_, v)| v).sum::<u64>(),
        )
    };
    assert_eq!(sums("cpu-clock"), (107, 216_147_994, 197_351_933));
    assert_eq!(sums("page-faults"), (7, 4145, 1038));
    let time = read(grouped);
    assert_eq!(fold(&time.recording).values().sum::<u64>(), 216_147_994);
    assert!(time.recording.domain.unit.is_time());
    assert!(
        time.warnings[0].contains("page-faults (7 samples)"),
        "{:?}",
        time.warnings
    );
}
