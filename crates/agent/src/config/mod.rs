//! The agent's configuration: one TOML file, read strictly.
//!
//! An unknown key, a value without its unit or a value out of range is an error that names line, key and
//! the allowed values. Every key has a default; `agent.toml` of this crate documents all of them.

mod error;
mod trigger;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use wallscope_capture::session::Method;

pub use error::ConfigError;
pub use trigger::{Condition, Resource, Trigger, TriggerLimits};
pub use values::{Length, Name, Pattern, Share, Size, Url};

/// Place of the configuration if none is named.
pub const DEFAULT_FILE: &str = "/etc/wallscope/agent.toml";

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The agent as a process.
    pub agent: AgentConfig,
    /// Length and rates of windows.
    pub windows: Windows,
    /// Limits of the agent's own cost.
    pub budget: Budget,
    /// The windows on disk.
    pub store: StoreConfig,
    /// Services and labels.
    pub services: Services,
    /// Names of pods.
    pub kubernetes: Kubernetes,
    /// Command lines in windows.
    pub commands: Commands,
    /// Metrics.
    pub metrics: Metrics,
    /// Receivers of windows.
    #[serde(rename = "target")]
    pub targets: Vec<Target>,
    /// Snaps of triggers.
    pub snaps: Snaps,
    /// Reasons to write a snap.
    #[serde(rename = "trigger")]
    pub triggers: Vec<Trigger>,
}

/// `[agent]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// Directory of the lock and of the status socket.
    pub run_dir: PathBuf,
}

impl Default for AgentConfig {
    fn default() -> AgentConfig {
        AgentConfig {
            run_dir: PathBuf::from("/run/wallscope"),
        }
    }
}

/// `[windows]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Windows {
    /// Length of a window; a minute is a multiple of it.
    pub length: Spanned<Length>,
    /// On-CPU samples a second.
    pub on_cpu_hz: Spanned<u32>,
    /// Blocked and runnable time between two stacks.
    pub off_cpu_period: Length,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows {
            length: Spanned::new(0..0, Length::seconds(10)),
            on_cpu_hz: Spanned::new(0..0, 19),
            off_cpu_period: Length(Method::OFF_CPU_PERIOD),
        }
    }
}

/// `[budget]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Most of one CPU that sampling may cost.
    pub max_overhead: Share,
    /// Most of one CPU that all of measuring may cost. Above it parts of the windows are given up. Absent: no
    /// limit.
    pub max_total_overhead: Option<Share>,
    /// Most memory of the agent, its kernel maps included. Above it caches and the flight recorder are given up.
    pub max_memory: Size,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            max_overhead: Share(0.001),
            max_total_overhead: None,
            max_memory: Size(128 << 20),
        }
    }
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// The directory.
    pub dir: PathBuf,
    /// Most bytes of all windows.
    pub max_bytes: Size,
    /// Age at which a window is dropped.
    pub max_age: Length,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            dir: PathBuf::from("/var/lib/wallscope"),
            max_bytes: Size(2 << 30),
            max_age: Length::seconds(86_400),
        }
    }
}

/// `[services]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Services {
    /// Most services with labels of their own; the others are `other`.
    pub max: Spanned<u32>,
    /// Keys of `OTEL_RESOURCE_ATTRIBUTES` that become labels.
    pub attributes: BTreeSet<String>,
    /// Rules, in their order.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
}

impl Default for Services {
    fn default() -> Services {
        let usual = ["service.version", "deployment.environment.name"];
        Services {
            max: Spanned::new(0..0, 200),
            attributes: usual.map(String::from).into(),
            rules: Vec::new(),
        }
    }
}

/// `[[services.rule]]`: labels of processes that match all patterns.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Patterns by fact (`cgroup`, `comm`, `exe`) or label (`service`, `unit`, `container`…).
    #[serde(rename = "match")]
    pub matches: BTreeMap<String, Pattern>,
    /// Labels to set.
    pub set: BTreeMap<String, String>,
    /// Labels to drop.
    pub drop: Vec<String>,
    /// Labels to rename, old name to new name.
    pub rename: BTreeMap<String, String>,
    /// Whether the process is left out of windows altogether.
    pub exclude: bool,
}

/// `[kubernetes]`: without a kubelet, pods are known by their uid.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kubernetes {
    /// Address of the kubelet.
    pub kubelet: Option<Url>,
    /// File with the bearer token.
    pub token_file: Option<PathBuf>,
    /// File with certificates of authorities, PEM.
    pub ca_file: Option<PathBuf>,
    /// Time between two questions.
    pub refresh: Length,
}

impl Default for Kubernetes {
    fn default() -> Kubernetes {
        Kubernetes {
            kubelet: None,
            token_file: None,
            ca_file: None,
            refresh: Length::seconds(30),
        }
    }
}

/// `[commands]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Commands {
    /// The part of a command line that windows hold.
    pub keep: Keep,
}

/// The part of a command line that windows hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// The program alone.
    Program,
    /// Program and names of options, without values and without other words.
    #[default]
    Redacted,
    /// Everything.
    All,
}

/// `[metrics]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address of `/metrics`, `/healthz`, `/readyz` and `/v1/webhook`.
    pub listen: SocketAddr,
    /// Whether there is such an address at all.
    pub enabled: bool,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            listen: SocketAddr::from(([127, 0, 0, 1], 9466)),
            enabled: true,
        }
    }
}

/// `[[target]]`: a receiver of windows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Its name, in metrics and in the store.
    pub name: Spanned<Name>,
    /// Its protocol.
    pub kind: TargetKind,
    /// Its address.
    pub url: Url,
    /// File with the bearer token, read for each request.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// File with certificates of authorities, PEM; without it, those of the system.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// HTTP proxy.
    #[serde(default)]
    pub proxy: Option<Url>,
    /// Further headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Time after which a request fails.
    #[serde(default = "usual_timeout")]
    pub timeout: Length,
}

fn usual_timeout() -> Length {
    Length::seconds(30)
}

/// The protocol of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// `PUT /v1/windows/HOST/BOOT/EPOCH/SEQUENCE`: each window counts once.
    Wallscope,
    /// OTLP over HTTP: at least once.
    Otlp,
    /// Pyroscope's `/ingest`: at least once.
    Pyroscope,
}

/// `[snaps]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Snaps {
    /// Time before a trigger that its snap holds, in whole windows; time of which single intervals are kept.
    pub length: Length,
    /// Memory for single intervals; 0: none are kept.
    pub memory: Size,
}

impl Default for Snaps {
    fn default() -> Snaps {
        Snaps {
            length: Length::seconds(120),
            memory: Size(64 << 20),
        }
    }
}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        #[expect(clippy::disallowed_methods, reason = "the user names the file")]
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Config::parse(path, &text)
    }

    /// Parses the content of the file at `path`.
    ///
    /// # Errors
    /// [`ConfigError::Wrong`].
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text)
            .map_err(|e| ConfigError::at(path, text, e.span(), e.message().to_string()))?;
        match config.wrong() {
            None => Ok(config),
            Some((span, cause)) => Err(ConfigError::at(path, text, Some(span), cause)),
        }
    }

    /// The first value that its type allows and its meaning does not.
    fn wrong(&self) -> Option<(std::ops::Range<usize>, String)> {
        let length = self.windows.length.get_ref().0.as_nanos();
        let divides_a_minute = 60_000_000_000_u128.is_multiple_of(length);
        if !length.is_multiple_of(1_000_000_000) || !divides_a_minute {
            let cause = "a minute must be a multiple of it: 1s, 2s, 5s, 10s, 15s, 20s, 30s or 60s";
            return Some((self.windows.length.span(), cause.to_string()));
        }
        if !(1..=999).contains(self.windows.on_cpu_hz.get_ref()) {
            let cause = "it must be from 1 to 999".to_string();
            return Some((self.windows.on_cpu_hz.span(), cause));
        }
        if !(1..=100_000).contains(self.services.max.get_ref()) {
            let cause = "it must be from 1 to 100000".to_string();
            return Some((self.services.max.span(), cause));
        }
        for t in &self.triggers {
            if let Condition::TimeShare { of, .. } = &t.when
                && !trigger::time_names().any(|name| name == of)
            {
                let names: Vec<&str> = trigger::time_names().collect();
                let cause = format!(
                    "`of` is no state or reason: {of:?} (one of {})",
                    names.join(", ")
                );
                return Some((t.name.span(), cause));
            }
        }
        let targets = self.targets.iter().map(|t| &t.name);
        let triggers = self.triggers.iter().map(|t| &t.name);
        twice(targets).or_else(|| twice(triggers))
    }
}

/// The first name that stands twice.
fn twice<'a>(
    names: impl Iterator<Item = &'a Spanned<Name>>,
) -> Option<(std::ops::Range<usize>, String)> {
    let mut known = BTreeSet::new();
    for name in names {
        if !known.insert(name.get_ref()) {
            let cause = format!(
                "the name {:?} is used twice: choose another",
                name.get_ref().0
            );
            return Some((name.span(), cause));
        }
    }
    None
}

#[cfg(test)]
mod tests;
