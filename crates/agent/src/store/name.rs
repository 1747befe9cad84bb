//! Names of windows: their key, and their time, so that a range is selected without a read.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Ending of a window's file.
const ENDING: &str = ".pb.gz";
const TIME: &str = "%Y%m%dT%H%M%S";
/// Longest host name in a key: that of Linux.
const MAX_HOST: usize = 64;

/// Identity of a window: a receiver counts each key once, however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowKey {
    /// Host name: letters, digits, `.` and `-`.
    pub host: String,
    /// The kernel's boot id, hexadecimal digits.
    pub boot: String,
    /// Start of the agent, ns since the epoch; later starts have greater numbers.
    pub epoch: u64,
    /// Number of the window within the epoch, from 0.
    pub sequence: u64,
}

impl WindowKey {
    /// The path of the key in the delivery protocol: `HOST/BOOT/EPOCH/SEQUENCE`.
    pub fn path(&self) -> String {
        let WindowKey {
            host,
            boot,
            epoch,
            sequence,
        } = self;
        format!("{host}/{boot}/{epoch}/{sequence}")
    }

    /// The key of a path as [`WindowKey::path`] writes it.
    pub fn from_path(path: &str) -> Option<WindowKey> {
        WindowKey::from_fields(path.split('/'))
    }

    fn from_fields<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<WindowKey> {
        let key = WindowKey {
            host: fields.next()?.to_string(),
            boot: fields.next()?.to_string(),
            epoch: number(fields.next()?)?,
            sequence: number(fields.next()?)?,
        };
        let is_plain = key.host == host_name(&key.host) && key.boot == boot_id(&key.boot);
        (fields.next().is_none() && is_plain).then_some(key)
    }
}

/// A number as it is written: without sign and leading zeros.
fn number(text: &str) -> Option<u64> {
    let value: u64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

/// A host name as keys have it: other characters become `-`.
pub fn host_name(name: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c,
        '.' => '.',
        _ => '-',
    };
    let host: String = name.chars().map(plain).take(MAX_HOST).collect();
    match host.trim_matches('.') {
        "" => "localhost".to_string(),
        host => host.to_string(),
    }
}

/// A boot id as keys have it: the hexadecimal digits alone.
pub fn boot_id(text: &str) -> String {
    let digits = text.chars().filter(char::is_ascii_hexdigit).take(32);
    match digits.collect::<String>() {
        id if id.is_empty() => "0".to_string(),
        id => id,
    }
}

/// Name of a window's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowName {
    /// Its start, ms since the epoch.
    pub start_ms: i64,
    /// Its length, ms.
    pub length_ms: i64,
    /// Its key.
    pub key: WindowKey,
}

impl WindowName {
    /// The name of a window with this key.
    pub fn new(window: &wallscope_model::Window, key: WindowKey) -> WindowName {
        let ms = |ns: u64| (ns / 1_000_000) as i64;
        WindowName {
            start_ms: ms(window.start_unix_ns),
            length_ms: ms(window.length_ns()),
            key,
        }
    }

    /// Its end, ms since the epoch.
    pub fn end_ms(&self) -> i64 {
        self.start_ms.saturating_add(self.length_ms)
    }

    /// The file's name.
    pub fn file_name(&self) -> String {
        let start = Timestamp::from_millisecond(self.start_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        let WindowKey {
            host,
            boot,
            epoch,
            sequence,
        } = &self.key;
        format!(
            "{}.{:03}Z+{}.{:03}s_{host}_{boot}_{epoch}_{sequence}{ENDING}",
            start.strftime(TIME),
            self.start_ms.rem_euclid(1000),
            self.length_ms / 1000,
            self.length_ms % 1000,
        )
    }

    /// The name in a file name; `None`: the file is no window.
    pub fn parse(file_name: &str) -> Option<WindowName> {
        let mut fields = file_name.strip_suffix(ENDING)?.split('_');
        let (start, length) = fields.next()?.split_once("Z+")?;
        let (second, ms) = start.split_once('.')?;
        let civil = jiff::civil::DateTime::strptime(TIME, second).ok()?;
        let second = civil.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let name = WindowName {
            start_ms: second.as_millisecond() + ms.parse::<u16>().ok().map(i64::from)?,
            length_ms: length.strip_suffix('s')?.replace('.', "").parse().ok()?,
            key: WindowKey::from_fields(fields)?,
        };
        (name.file_name() == file_name).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> WindowName {
        WindowName {
            start_ms: 1_795_788_010_020,
            length_ms: 10_003,
            key: WindowKey {
                host: "web-3.example".to_string(),
                boot: "1f0c".to_string(),
                epoch: 17,
                sequence: 4,
            },
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let text = "20261127T140010.020Z+10.003s_web-3.example_1f0c_17_4.pb.gz";
        assert_eq!(name().file_name(), text);
        assert_eq!(WindowName::parse(text), Some(name()));
        assert_eq!(WindowKey::from_path(&name().key.path()), Some(name().key));
        for other in [
            "FORMAT",
            ".new-20261127T140010.020Z+10.003s_web_1f0c_17_4.pb.gz",
            "20261127T140010.020Z+10.003s_web_1f0c_17_4_9.pb.gz",
            "20261127T140010.020Z+10.003s_web_1f0c_17_04.pb.gz",
            "20261127T140010.020Z+10.003s_we b_1f0c_17_4.pb.gz",
            "20261327T140010.020Z+10.003s_web_1f0c_17_4.pb.gz",
        ] {
            assert_eq!(WindowName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn keys_hold_no_separators() {
        assert_eq!(host_name("a_b/c d"), "a-b-c-d");
        assert_eq!(host_name(".."), "localhost");
        assert_eq!(WindowKey::from_path("../1f/1/2"), None);
        assert_eq!(WindowKey::from_path("a/b/1"), None);
        assert_eq!(boot_id("1F0c-22\n"), "1F0c22");
    }
}
