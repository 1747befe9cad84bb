//! A full disk: the newest windows stay, each loss is told, and a store opens again.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::time::Duration;

use wallscope_agent::store::{Caps, DROPPED, Store, TimeRange, WindowKey, merged};
use wallscope_synthetic::windows::window;

const CAPS: Caps = Caps {
    bytes: 1 << 30,
    age: Duration::from_secs(1 << 30),
};

fn key(sequence: u64) -> WindowKey {
    WindowKey {
        host: "web-3".to_string(),
        boot: "b".to_string(),
        epoch: 1,
        sequence,
    }
}

/// Mounts a tmpfs of `size` at `dir`, for this thread alone.
fn mount_small(dir: &Path, size: &str) -> io::Result<()> {
    let dir = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes())?;
    let options = std::ffi::CString::new(format!("size={size}"))?;
    let done = |n: i32| match n {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the strings outlive the calls, and a mount namespace of this thread's own changes no memory.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let (none, root) = (std::ptr::null(), c"/".as_ptr());
        done(libc::mount(none, root, none, private, none.cast()))?;
        let kind = c"tmpfs".as_ptr();
        done(libc::mount(
            kind,
            dir.as_ptr(),
            kind,
            0,
            options.as_ptr().cast(),
        ))
    }
}

/// Runs `test` with a store's folder on a disk of its own of `size`.
fn on_small_disk(size: &str, test: impl FnOnce(&Path) + Send) {
    let dir = tempfile::tempdir().unwrap();
    let run = || match mount_small(dir.path(), size) {
        Ok(()) => test(dir.path()),
        Err(e) => eprintln!("not tried: a disk of its own needs root ({e})"),
    };
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap();
}

/// The count of a cause among the losses that a window tells.
fn told(window: &Path, cause: &str) -> u64 {
    let bytes = fs::read(window).unwrap();
    let read = wallscope_formats::read(&bytes, Default::default()).unwrap();
    let losses = read.recording.losses.iter();
    losses.filter(|l| l.cause == cause).map(|l| l.count).sum()
}

/// Takes all the room that is left.
fn fill(dir: &Path) {
    let mut file = File::create(dir.join("filler")).unwrap();
    let end = loop {
        if let Err(e) = file.write_all(&[1; 1024]) {
            break e.kind();
        }
    };
    assert_eq!(end, ErrorKind::StorageFull);
}

#[test]
fn a_full_disk_keeps_the_newest_windows_and_tells_of_the_others() {
    const WINDOWS: u64 = 200;
    on_small_disk("256k", |dir| {
        let mut store = Store::open(&dir.join("store"), CAPS, &[]).unwrap();
        let mut dropped = 0;
        for i in 0..WINDOWS {
            let stored = store.add(window(i), key(i)).unwrap();
            dropped += told(&stored.path, DROPPED);
        }
        let kept: Vec<u64> = store.windows().map(|w| w.name.key.sequence).collect();
        assert!((2..WINDOWS as usize).contains(&kept.len()), "{kept:?}");
        assert_eq!(kept, Vec::from_iter(WINDOWS - kept.len() as u64..WINDOWS));
        let untold = store.untold().get(DROPPED).copied().unwrap_or(0);
        assert_eq!(dropped + untold + kept.len() as u64, WINDOWS);
        let everything = TimeRange {
            from_ms: 0,
            until_ms: i64::MAX,
        };
        let all = merged(&dir.join("store"), everything).unwrap();
        assert_eq!(all.windows, kept.len());
    });
}

#[test]
fn a_disk_that_others_filled_loses_windows_until_there_is_room() {
    const UNWRITTEN: &str = "windows that could not be written";
    on_small_disk("256k", |dir| {
        let folder = dir.join("store");
        let mut store = Store::open(&folder, CAPS, &[]).unwrap();
        fill(dir);
        for i in 0..2 {
            let refused = store.add(window(i), key(i));
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("No space left"), "{text}");
        }
        assert_eq!(store.untold()[UNWRITTEN], 2);
        fs::remove_file(dir.join("filler")).unwrap();
        let third = store.add(window(2), key(2)).unwrap();
        assert_eq!(told(&third.path, UNWRITTEN), 2);
        assert!(store.untold().is_empty());
        for i in 3..6 {
            store.add(window(i), key(i)).unwrap();
        }
        drop(store);
        // An agent that starts while the disk is full finds its windows, and makes room for new ones.
        fill(dir);
        let mut store = Store::open(&folder, CAPS, &[]).unwrap();
        assert_eq!(store.windows().len(), 4);
        let newest = store.add(window(6), key(6)).unwrap();
        let kept = store.windows().len() as u64;
        assert_eq!(told(&newest.path, DROPPED) + kept, 5);
    });
}
