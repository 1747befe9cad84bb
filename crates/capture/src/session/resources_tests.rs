use zerocopy::FromZeros;

use super::*;

struct Gil(u64);
impl Locks for Gil {
    fn is_gil(&self, _: u32, address: u64) -> bool {
        address == self.0
    }
    fn monitor_class(&self, _: u32, _: u64) -> Option<String> {
        Some("java.lang.Object".into())
    }
}

static LOCK: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

#[test]
fn a_lock_of_a_program_has_the_name_of_its_variable() {
    let mut all = Resources::default();
    let address = &raw const LOCK as u64;
    let own = std::process::id();
    let call = libc::SYS_futex as u64;
    let name = all.lock(own, address, call, &Gil(0));
    assert!(
        name.starts_with("futex ") && name.contains("LOCK"),
        "{name}"
    );
    let boxed = Box::new(0u32);
    let on_heap = &raw const *boxed as u64;
    let heap = all.lock(own, on_heap, call, &Gil(0));
    assert!(heap.contains("of process"), "{heap}");
    let other = all.lock(own, on_heap + 4, call, &Gil(on_heap + 4));
    assert!(other.starts_with("the GIL of "), "{other}");
    let monitor = all.monitor(own, on_heap + 8, &Gil(0));
    assert!(monitor.contains("of java.lang.Object"), "{monitor}");
    // Its sums have this name, too.
    assert_eq!(all.lock(own, on_heap + 8, call, &Gil(0)), monitor);
}

#[test]
fn a_lock_on_a_file_has_one_name_in_its_waits_and_in_their_sums() {
    let mut all = Resources::default();
    let mut name = [[0u8; 64]; crate::event::NAMES];
    name[0][..4].copy_from_slice(b"data");
    let call = libc::SYS_flock as u32;
    all.take(ResourceEvent {
        hash: 5,
        address: 77,
        kind: resource_kind::FILE,
        pid: 1,
        call,
        names: 1,
        name,
        ..ResourceEvent::new_zeroed()
    });
    assert!(all.settle_one(&Gil(0)));
    let of_waits = all.take_news().into_iter().find_map(|news| match news {
        News::Name(ResourceName { hash: 5, name }) => Some(name),
        _ => None,
    });
    let of_waits = of_waits.unwrap();
    assert!(of_waits.ends_with("/data"), "{of_waits}");
    assert_eq!(all.lock(1, 77, u64::from(call), &Gil(0)), of_waits);
    // Only the inode is known of a file with no wait charged to a stack.
    let other = all.lock(1, 78, u64::from(call), &Gil(0));
    assert_eq!(&*other, "flock of inode 78");
    let semaphores = all.lock(1, 3, libc::SYS_semtimedop as u64, &Gil(0));
    assert_eq!(&*semaphores, "System V semaphores 3");
}

#[test]
fn the_root_file_system_is_mounted_somewhere() {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata("/proc/self/").unwrap().dev();
    let kernel = (rustix::fs::major(device) << 20) | rustix::fs::minor(device);
    assert_eq!(mount_point(kernel), "/proc");
}
