use std::{
    io::Write,
    time::{Duration, SystemTime},
};

use super::*;

/// A jitdump with these loads at one address: name and time.
fn dump(loads: &[(&str, u64)]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let head = [0x4a69_5444u32, 1, 40, 62, 0, 7, 0, 0, 0, 0];
    let mut bytes: Vec<u8> = head.iter().flat_map(|w| w.to_ne_bytes()).collect();
    for (name, time) in loads {
        let size = (16 + 40 + name.len() + 1) as u64;
        let words = [size << 32, *time, 7, 0x1000, 0x1000, 0x100, 1];
        bytes.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        bytes.extend(name.as_bytes());
        bytes.push(0);
    }
    file.write_all(&bytes).unwrap();
    file
}

fn name(jit: &Jit, pid: u32, time: u64) -> String {
    let place = jit.at(pid, 0x1010, jit.version(pid, time));
    place.map_or("-".into(), |p| p.name.to_string())
}

#[test]
fn children_have_their_parents_code_and_new_programs_their_own() {
    // Ids that no process has.
    let [parent, child] = [u32::MAX - 3, u32::MAX - 2];
    let mut jit = Jit::new();
    let ms = |n: u64| jit.began + n * 1_000_000;
    let at = [10, 20, 30, 40, 50].map(ms);
    // A time later than now cannot be believed.
    std::thread::sleep(Duration::from_millis(60));
    let first = dump(&[("old", 1), ("new", at[1])]);
    jit.dump(parent, first.reopen().unwrap());
    jit.born(child, parent, at[0]);
    assert_eq!(
        [at[0], at[2]].map(|t| name(&jit, parent, t)),
        ["old", "new"]
    );
    // Code that the parent makes later is not in the child.
    assert_eq!([at[0], at[2]].map(|t| name(&jit, child, t)), ["old"; 2]);
    jit.left(child, at[3]);
    let second = dump(&[("own", at[3] + 1)]);
    jit.dump(child, second.reopen().unwrap());
    assert_eq!([at[2], at[4]].map(|t| name(&jit, child, t)), ["old", "own"]);
    assert_eq!(name(&jit, parent, at[4]), "new");
}

#[test]
fn a_perf_map_of_before_is_another_process_s() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let own = std::process::id();
    assert!(is_of(own, &file.as_file().metadata().unwrap()));
    let before = SystemTime::now() - Duration::from_secs(100 * 24 * 3600);
    file.as_file().set_modified(before).unwrap();
    assert!(!is_of(own, &file.as_file().metadata().unwrap()));
}

#[test]
fn dumps_are_known_by_their_names() {
    assert!(is_dump("/tmp/.debug/jit/x/jit-12.dump"));
    assert!(is_dump("/tmp/jit-12.dump (deleted)"));
    assert!(!is_dump("/tmp/jit-.dump"));
    assert!(!is_dump("/tmp/jit-12.dump.so"));
}

#[test]
fn versions_are_the_changes_before() {
    assert_eq!(version(&[], 5), 0);
    assert_eq!(version(&[5, 9], 4), 0);
    assert_eq!(version(&[5, 9], 5), 5);
    assert_eq!(version(&[5, 9], 100), 9);
}
