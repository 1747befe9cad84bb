use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, makedev, mknodat};
use tempfile::TempDir;

use super::*;

/// The user of the target in these tests, and a group that it belongs to.
const USER: u32 = 54_321;
const GROUP: u32 = 54_322;
const SECRET: &str = "1000 10 secret";

/// A directory that the target may enter, with a file `secret` that only root may read.
fn directory() -> Option<TempDir> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can test that root's rights are given up");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o777);
    file(&dir, "secret", 0, 0o600);
    Some(dir)
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn file(dir: &TempDir, name: &str, user: u32, mode: u32) {
    let path = dir.path().join(name);
    std::fs::write(&path, SECRET).unwrap();
    chown(&path, Some(user), Some(user)).unwrap();
    set_mode(&path, mode);
}

fn root_at(dir: &TempDir, groups: &[u32]) -> TargetRoot {
    let rights = Rights {
        groups: groups.to_vec(),
        ..Rights::of_user(USER, USER)
    };
    TargetRoot::at(dir.path(), rights).unwrap()
}

fn refusal(dir: &TempDir, name: &str, purpose: Purpose) -> String {
    let opened = root_at(dir, &[]).open(&TargetPath::new(name), purpose);
    opened.map_or_else(|e| e.to_string(), |_| "opened".into())
}

#[test]
fn links_lead_to_nothing_that_the_target_may_not_read() {
    let Some(dir) = directory() else { return };
    symlink("secret", dir.path().join("link")).unwrap();
    std::fs::hard_link(dir.path().join("secret"), dir.path().join("hard")).unwrap();
    file(&dir, "own", USER, 0o600);
    symlink("own", dir.path().join("own-link")).unwrap();
    let told = |name, purpose| refusal(&dir, name, purpose);
    assert_eq!(told("link", Purpose::RuntimeNames), "a symbolic link");
    let not_permitted = "not readable with the target's rights";
    for purpose in [Purpose::Object, Purpose::Source] {
        assert_eq!(told("link", purpose), not_permitted);
        assert_eq!(told("own-link", purpose), "opened");
    }
    for purpose in [Purpose::RuntimeNames, Purpose::Object, Purpose::Source] {
        assert_eq!(told("hard", purpose), not_permitted);
        assert_eq!(told("own", purpose), "opened");
        assert_eq!(told("absent", purpose), "no such file");
    }
}

#[test]
fn only_regular_files_are_opened() {
    let Some(dir) = directory() else { return };
    let mode = Mode::from_raw_mode(0o666);
    let null = makedev(1, 3);
    mknodat(
        CWD,
        dir.path().join("device"),
        FileType::CharacterDevice,
        mode,
        null,
    )
    .unwrap();
    mknodat(CWD, dir.path().join("fifo"), FileType::Fifo, mode, 0).unwrap();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    for name in ["device", "fifo", "directory"] {
        for purpose in [Purpose::RuntimeNames, Purpose::Object, Purpose::Source] {
            assert_eq!(refusal(&dir, name, purpose), "not a regular file");
        }
        let path = dir.path().join(name);
        let kind = open_named_by_user(&path).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput);
    }
}

#[test]
fn an_absolute_link_stays_in_the_target_s_root() {
    let Some(dir) = directory() else { return };
    // The host has this file, and every user may read it.
    symlink("/proc/version", dir.path().join("out")).unwrap();
    symlink("../../../../proc/version", dir.path().join("up")).unwrap();
    symlink("/own", dir.path().join("in")).unwrap();
    file(&dir, "own", USER, 0o644);
    for name in ["out", "up", "/../../proc/version"] {
        assert_eq!(refusal(&dir, name, Purpose::Object), "no such file");
    }
    assert_eq!(refusal(&dir, "in", Purpose::Object), "opened");
}

#[test]
fn names_of_a_runtime_belong_to_its_user_or_to_root_and_are_bounded() {
    let Some(dir) = directory() else { return };
    file(&dir, "theirs", USER + 7, 0o644);
    file(&dir, "of-root", 0, 0o644);
    file(&dir, "sparse", USER, 0o644);
    let sparse = File::options()
        .write(true)
        .open(dir.path().join("sparse"))
        .unwrap();
    sparse.set_len(10 << 30).unwrap();
    let told = |name, purpose| refusal(&dir, name, purpose);
    assert_eq!(
        told("theirs", Purpose::RuntimeNames),
        "owned by another user"
    );
    assert_eq!(told("theirs", Purpose::Object), "opened");
    assert_eq!(told("of-root", Purpose::RuntimeNames), "opened");
    assert_eq!(told("sparse", Purpose::RuntimeNames), "too large");
    assert_eq!(told("sparse", Purpose::Source), "too large");
}

#[test]
fn supplementary_groups_count() {
    let Some(dir) = directory() else { return };
    file(&dir, "shared", 0, 0o640);
    chown(dir.path().join("shared"), None, Some(GROUP)).unwrap();
    let path = TargetPath::new("shared");
    assert!(root_at(&dir, &[GROUP]).open(&path, Purpose::Object).is_ok());
    assert!(
        root_at(&dir, &[GROUP + 1])
            .open(&path, Purpose::Object)
            .is_err()
    );
}

#[test]
fn a_file_exchanged_between_check_and_use_gives_nothing_away() {
    let Some(dir) = directory() else { return };
    let stop = AtomicBool::new(false);
    let path = |name: &str| dir.path().join(name);
    file(&dir, "own", USER, 0o644);
    std::fs::write(path("own"), "harmless").unwrap();
    let root = root_at(&dir, &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for target in ["own", "secret"] {
                    let _ = std::fs::remove_file(path("next"));
                    std::fs::hard_link(path(target), path("next")).unwrap();
                    std::fs::rename(path("next"), path("map")).unwrap();
                    // A rename onto a link to the same file leaves both names.
                    let _ = std::fs::remove_file(path("next"));
                    symlink(target, path("next")).unwrap();
                    std::fs::rename(path("next"), path("map")).unwrap();
                }
            }
        });
        let mut opened = 0;
        for purpose in [Purpose::RuntimeNames, Purpose::Object].repeat(400) {
            if let Ok(mut found) = root.open(&TargetPath::new("map"), purpose) {
                let mut text = String::new();
                found.read_to_string(&mut text).unwrap();
                assert_eq!(text, "harmless");
                opened += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(opened > 0, "the file was never there");
    });
}

#[test]
fn the_rights_of_other_threads_stay() {
    let Some(dir) = directory() else { return };
    assert_eq!(
        refusal(&dir, "secret", Purpose::Object),
        "not readable with the target's rights"
    );
    assert_eq!(
        std::fs::read(dir.path().join("secret")).unwrap(),
        SECRET.as_bytes()
    );
    let _alone = OPENING.lock().unwrap();
    // SAFETY: takes plain numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) }, 1);
}

#[test]
fn a_mapped_file_is_opened_by_its_mapping() {
    let own = crate::maps::read(std::process::id()).unwrap();
    let code = own.iter().find(|m| m.execute && m.is_file()).unwrap();
    let root = TargetRoot::of_process(std::process::id()).unwrap();
    let at = MappedAt::of_mapping(std::process::id(), code);
    let file = open_mapped(&at, Some(&root)).unwrap();
    assert_eq!(file.metadata().unwrap().ino(), code.inode);
    root.accepts(&file, Purpose::Object).unwrap();
    // A process that ended leaves a name, behind which another file may be by now.
    let ended = MappedAt {
        pid: u32::MAX,
        path: "/proc/version",
        ..at
    };
    assert!(open_mapped(&ended, None).is_err());
}
