//! Files are closed beyond the limit, and opened again when they are needed and still there.

use std::{fs, path::Path};

use wallscope_unwind::native::MemoryTables;

use super::*;
use crate::session::files::FileLimits;

fn files(open: usize) -> Files<MemoryTables> {
    let limits = FileLimits {
        open,
        ..FileLimits::RECORDING
    };
    Files::within(MemoryTables::new(), limits).unwrap()
}

/// A program at `path`, as a process that has ended mapped it.
fn program(path: &Path) -> Mapping {
    if !path.exists() {
        fs::copy("/proc/self/exe", path).unwrap();
    }
    let meta = fs::metadata(path).unwrap();
    Mapping {
        // No process has it.
        pid: u32::MAX >> 1,
        start: 0x1000,
        end: 0x2000,
        offset: 0,
        device: meta.dev(),
        inode: meta.ino(),
        path: path.to_str().unwrap().to_owned(),
    }
}

fn open(files: &Files<MemoryTables>) -> usize {
    files
        .entries
        .iter()
        .filter(|e| e.handle.file.is_some())
        .count()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    // A file without a living process is opened with the rights of all users.
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), everybody).unwrap();
    folder
}

#[test]
fn the_least_recently_used_file_is_closed_and_opened_again() {
    let folder = folder();
    let mut files = files(2);
    let at = |n: u32| folder.path().join(format!("program-{n}"));
    let build_id = |files: &Files<_>| files.modules_from(0)[0].build_id.clone();
    let first = files.open(&program(&at(0)), None).unwrap();
    let known = build_id(&files);
    for n in 1..6 {
        files.open(&program(&at(n)), None).unwrap();
        assert!(open(&files) <= 2);
    }
    assert!(!files.is_open(first));
    // Its module is unchanged.
    assert_eq!(build_id(&files), known);

    // A symboliser needs it; then another process maps the second.
    let sources = files.sources_of(&[ModuleId(first.into())]);
    assert!(sources.modules[&ModuleId(first.into())].file.is_some());
    assert!(!files.is_open(1));
    assert_eq!(files.open(&program(&at(1)), None), Some(1));
    assert!(files.is_open(1) && files.is_open(first));
    assert_eq!((open(&files), files.handles.losses().1), (2, 0));
}

#[test]
fn a_file_that_is_gone_or_was_replaced_is_a_loss_and_never_another_one() {
    let folder = folder();
    let mut files = files(1);
    let at = |n: u32| folder.path().join(format!("program-{n}"));
    for n in 0..3 {
        files.open(&program(&at(n)), None).unwrap();
    }
    fs::remove_file(at(0)).unwrap();
    fs::remove_file(at(1)).unwrap();
    fs::copy("/proc/self/exe", at(1)).unwrap();
    let sources = files.sources_of(&[ModuleId(0), ModuleId(1), ModuleId(2)]);
    let is_there = |n| sources.modules[&ModuleId(n)].file.is_some();
    assert_eq!(
        [is_there(0), is_there(1), is_there(2)],
        [false, false, true]
    );
    assert_eq!(files.handles.losses().1, 2);
    assert!(files.losses().contains(&files.handles.losses()));
}

#[test]
fn deleted_files_that_no_process_maps_are_closed_after_the_window() {
    let folder = folder();
    let mut files = files(8);
    let at = |n: u32| folder.path().join(format!("program-{n}"));
    for n in 0..3 {
        files.open(&program(&at(n)), None).unwrap();
    }
    fs::remove_file(at(0)).unwrap();
    fs::remove_file(at(1)).unwrap();
    let mapped: FxHashSet<u16> = [1].into_iter().collect();
    // The window that used them ends first.
    files.end_window(&mapped);
    assert_eq!(open(&files), 3);
    files.end_window(&mapped);
    assert!(!files.is_open(0), "deleted, and no process maps it");
    assert!(files.is_open(1), "a process maps it");
    assert!(files.is_open(2), "not deleted");
}
