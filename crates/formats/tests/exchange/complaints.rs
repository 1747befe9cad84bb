//! Inputs after complaints that users of other tools published: each once gave a wrong profile in
//! silence.


use crate::support::{fold, read};

/// `perf script -F comm,tid,period,event,ip,sym`: names of threads end in numbers.
#[test]
fn numbers_in_names_of_threads_are_neither_ids_nor_periods() {
    let text = "\
worker 3  1234     250000 cycles:
\t          401136 leaf (/tmp/w)
\t          401200 main (/tmp/w)

worker 4  1235     250000 cycles:
\t          401136 leaf (/tmp/w)
\t          401200 main (/tmp/w)

";
    let rec = read(text.as_bytes()).recording;
    assert_eq!(fold(&rec)["main;leaf"], 500_000);
    let threads: Vec<(&str, u32)> = rec.contexts.iter().map(|c| (&*c.name, c.tid)).collect();
    assert_eq!(threads, [("worker 3", 1234), ("worker 4", 1235)]);
}

/// `perf script` with `-F +addr`, `-F +weight` and `-F +uregs`.
#[test]
fn fields_beside_a_frame_are_no_part_of_it() {
    let text = "\
            spin 24570 29549.252125:       1000 cpu-clock:                0     55d844454145 leaf (/tmp/spin)
            spin 24570 29549.279220:       2000 cpu-clock:     7ffd12345678               13     55d84445414f leaf (/tmp/spin)
            spin 24570 29549.292265:       4000 cpu-clock:     55d844454145 leaf (/tmp/spin)  ABI:2    AX:0x1
";
    let sums = fold(&read(text.as_bytes()).recording);
    assert_eq!(sums, [("leaf".to_string(), 7000)].into());
    let text = "\
spin 24611 29552.303243:       1000 cpu-clock:
\t            1145 leaf (/tmp/spin)
\t           2724a main (/tmp/spin)
 ABI:2    AX:0x289    BX:0x6b09bc98

spin 24611 29552.312259:       2000 cpu-clock:
\t            1145 leaf (/tmp/spin)
\t           2724a main (/tmp/spin)
 0x401136/0x401140/P/-/-/0  0x401150/0x401160/P/-/-/0

";
    let read = read(text.as_bytes());
    assert_eq!(
        fold(&read.recording),
        [("main;leaf".to_string(), 3000)].into()
    );
    assert_eq!(read.warnings, [""; 0]);
    // Without an event, an address of decimal digits is no period.
    let text = "            spin 24570 29549.252125:           401136 leaf (/tmp/spin)\n";
    let header =
        "            spin 24570 29549.252125:       1000 cpu-clock:           401136 leaf\n";
    let sums = fold(&crate::support::read([header, text].concat().as_bytes()).recording);
    assert_eq!(sums["leaf"], 1000);
}
