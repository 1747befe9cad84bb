//! What the start of a recording asks of the kernel.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use libbpf_rs::query::ProgInfoIter;
use wallscope_testkit::{Error, with_tool_alone};

/// Maximum instructions that the kernel's verifier goes through: 413,000 on Linux 6.18, and room for other
/// kernels. Each took it 2 to 3 µs (2 virtual CPUs), and most of the start is its time. A function that it enters
/// again for each path multiplies them unseen.
const MAX_VERIFIED: u64 = 500_000;

#[test]
fn the_verifier_goes_through_the_programs_once_or_nearly_so() {
    with_tool_alone("verifier's work", |tool| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.pb.gz");
        let mut recorder = Command::new(tool.path())
            .args(["record", "-d", "1", "-o"])
            .arg(&file)
            .args(["--", "sleep", "3"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(recorder.stderr.take().expect("piped")).lines();
        let begun = said.any(|line| line.is_ok_and(|line| line.contains("recording ")));
        let verified: u64 = (ProgInfoIter::default())
            .filter(|program| program.name.to_string_lossy().starts_with("ws_"))
            .map(|program| u64::from(program.verified_insns))
            .sum();
        said.for_each(drop);
        recorder.wait().unwrap();
        if !begun || verified == 0 || verified > MAX_VERIFIED {
            return Err(Error::Output(format!(
                "{verified} instructions verified, limit {MAX_VERIFIED}; recording began: {begun}"
            )));
        }
        println!("{verified} instructions verified");
        Ok(())
    });
}
