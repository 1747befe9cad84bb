//! Events that devices list under `/sys/bus/event_source/devices`: reads their files and translates them to
//! bits of the event's configuration.

use std::path::{Path, PathBuf};
use wallscope_procfs::kernel_file;

use super::event_spec::{EventSpec, Source};

/// Devices with events of their own.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// `cpu/event=0x3c/`, `device/name/`, or the bare name of one that the CPU's own device lists.
pub(super) fn event(name: &str) -> Option<EventSpec> {
    if let Some((device, event)) = name.strip_suffix('/').and_then(|n| n.split_once('/')) {
        return of_device(name, &Path::new(DEVICES).join(device), event, &read);
    }
    for device in ["cpu", "cpu_core"] {
        let folder = Path::new(DEVICES).join(device);
        let file = folder.join("events").join(name);
        if !name.contains(['/', '.']) && file.is_file() {
            return of_device(name, &folder, name, &read);
        }
    }
    None
}

/// The text of a device's file, if it can be read.
fn read(path: PathBuf) -> Option<String> {
    kernel_file::read_to_string(path).ok()
}

/// `event=0x3c,umask=0x1`, or the name of a file that says so, of the device in `folder`, with files that
/// `read` gives.
fn of_device(
    name: &str,
    folder: &Path,
    event: &str,
    read: &dyn Fn(PathBuf) -> Option<String>,
) -> Option<EventSpec> {
    let kind = read(folder.join("type"))?.trim().parse().ok()?;
    let listed = (!event.contains(['/', '.']))
        .then(|| read(folder.join("events").join(event)))
        .flatten();
    let terms = listed.as_deref().unwrap_or(event).trim();
    let mut spec = EventSpec::new(name, Source::Hardware, kind, 0);
    for term in terms.split(',') {
        let (key, value) = term.split_once('=').unwrap_or((term, "1"));
        let value = value.trim();
        let number = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => value.parse(),
        };
        let format = match key.trim() {
            own @ ("config" | "config1" | "config2") => format!("{own}:0-63"),
            key => read(folder.join("format").join(key))?,
        };
        place(&mut spec, &format, number.ok()?)?;
    }
    Some(spec)
}

/// Puts the bits of `value` where `format` (`config:0-7,32-35`) has them.
fn place(spec: &mut EventSpec, format: &str, value: u64) -> Option<()> {
    let (word, ranges) = format.trim().split_once(':')?;
    let word = match word {
        "config" => &mut spec.config,
        "config1" => &mut spec.more[0],
        "config2" => &mut spec.more[1],
        _ => return None,
    };
    let mut rest = value;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        let width = high.checked_sub(low)? + 1;
        if high > 63 {
            return None;
        }
        let mask = if width == 64 {
            u64::MAX
        } else {
            (1 << width) - 1
        };
        *word |= (rest & mask) << low;
        rest = rest.checked_shr(width).unwrap_or(0);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_where_its_bits_are() {
        let folder = tempfile::tempdir().unwrap();
        let read = |path: PathBuf| std::fs::read_to_string(path).ok();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("type", "4\n");
        put("format/event", "config:0-7,32-35\n");
        put("format/umask", "config:8-15\n");
        put("format/ldlat", "config1:0-15\n");
        put("events/slow-loads", "event=0x1cd,umask=0x1,ldlat=3\n");
        let spec = of_device("cpu/slow-loads/", folder.path(), "slow-loads", &read).unwrap();
        assert_eq!(
            (spec.kind, spec.config, spec.more),
            (4, 0x1_0000_01cd, [3, 0])
        );
        let spec = of_device("cpu/x/", folder.path(), "event=0x3c", &read).unwrap();
        assert_eq!(spec.config, 0x3c);
        assert!(of_device("cpu/x/", folder.path(), "nothing=1", &read).is_none());
    }
}
