//! The machine of a figure: date, kernel, processors, whether virtual, and load.

use std::fs;

fn line_of(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_string()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// The machine in one line: processors, memory, kernel, whether it is virtual, the distribution.
pub fn describe() -> String {
    let cpuinfo = line_of("/proc/cpuinfo");
    let count = cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let model = field(&cpuinfo, "model name").unwrap_or("unknown processor");
    let flags = field(&cpuinfo, "flags").unwrap_or_default();
    let kind = if flags.split(' ').any(|flag| flag == "hypervisor") {
        "virtual machine"
    } else {
        "bare metal"
    };
    let memory = line_of("/proc/meminfo");
    let kilobytes: f64 = field(&memory, "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0.0);
    let release = line_of("/etc/os-release");
    let system = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or("an unknown distribution")
        .trim_matches('"');
    format!(
        "{kind}, {count} × {model}, {:.0} GiB, Linux {}, {system}",
        kilobytes / 1048576.0,
        line_of("/proc/sys/kernel/osrelease")
    )
}

/// Today, UTC.
pub fn date() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%d %H:%M UTC")
        .to_string()
}

/// Processes that wanted a CPU over the last minute, on average.
pub fn load() -> f64 {
    let text = line_of("/proc/loadavg");
    let first = text.split(' ').next();
    first.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}
