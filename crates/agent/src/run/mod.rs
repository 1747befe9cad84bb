//! The agent: takes windows from a source, labels, keeps, sums up and delivers them, until a signal ends it.
//!
//! One thread does all of that, in this order for each window: labels, metrics, store, triggers. Couriers,
//! the HTTP server and the status socket have threads of their own and share [`Published`] only, so none
//! of them can hold a window up.
//!
//! `SIGHUP` reads the configuration again: rules, command lines, targets, caps, triggers and rates change
//! from the next window on; a wrong file changes nothing. `SIGTERM` closes the open window, keeps it,
//! delivers for at most ten seconds, and ends.
//!
//! `live.rs` is the source that measures this machine. Nothing here prints; sentences go to a callback.

mod error;
mod host_lock;
mod live;
mod lock;
mod memory;
mod own_cgroup;
mod pods;
mod published;
mod snaps;
mod socket;
mod source;
mod status;
mod supervisor;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use wallscope_model::Recording;

use crate::config::{Condition, Config, Target, Trigger};
use crate::delivery::{Courier, CourierThread};
use crate::http::{Limits, Server};
use crate::services::{self, Labeller};
use crate::store::{Caps, Store, WindowKey, boot_id, host_name};
use crate::trigger::{Machine, Outcome, measure};

pub use error::AgentError;
pub use live::LiveSource;
pub use memory::MemoryStep;
pub use published::Published;
pub use snaps::SNAPS;
pub use socket::{ask_flight, ask_status, close_window};
pub use source::{Next, SourceError, WindowSource};
pub use status::{MemoryStatus, Status, TargetStatus};

use lock::Lock;
use memory::MemoryBudget;
use own_cgroup::OwnCgroup;
use pods::PodsThread;
use socket::StatusSocket;
use supervisor::Supervisor;

/// Longest wait for a window before signals are checked.
const TICK: Duration = Duration::from_millis(500);
/// Time for deliveries at the end.
const DRAIN: Duration = Duration::from_secs(10);

fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> AgentError {
    let doing = doing.into();
    move |source| AgentError::System { doing, source }
}

/// Requests of the outside.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// End, and keep everything.
    pub stop: Arc<AtomicBool>,
    /// Read the configuration again.
    pub reload: Arc<AtomicBool>,
}

impl Signals {
    /// The signals of this process: `SIGTERM` and `SIGINT` stop, `SIGHUP` reloads.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn of_process() -> Result<Signals, AgentError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let signals = Signals::default();
        let pairs = [
            (SIGTERM, &signals.stop),
            (SIGINT, &signals.stop),
            (SIGHUP, &signals.reload),
        ];
        for (signal, flag) in pairs {
            signal_hook::flag::register(signal, flag.clone()).map_err(system("handle signals"))?;
        }
        Ok(signals)
    }
}

/// Identity of this run in the keys of its windows.
#[derive(Clone, Debug)]
struct Identity {
    host: String,
    boot: String,
    epoch: u64,
    sequence: u64,
}

impl Identity {
    /// The host's names; the epoch is later than that of every window in `store`, even if the clock stepped back.
    fn new(store: &Store) -> Identity {
        let read = |file: &str| {
            let text = wallscope_procfs::kernel_file::read_to_string(file);
            text.unwrap_or_default()
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |d| d.as_nanos() as u64);
        let last = store.windows().map(|w| w.name.key.epoch).max();
        Identity {
            host: host_name(read("/proc/sys/kernel/hostname").trim()),
            boot: boot_id(&read("/proc/sys/kernel/random/boot_id")),
            epoch: now.max(last.map_or(0, |e| e + 1)),
            sequence: 0,
        }
    }

    fn next_key(&mut self) -> WindowKey {
        let key = WindowKey {
            host: self.host.clone(),
            boot: self.boot.clone(),
            epoch: self.epoch,
            sequence: self.sequence,
        };
        self.sequence += 1;
        key
    }
}

/// A running agent.
pub struct Agent<S> {
    config_file: PathBuf,
    config: Config,
    source: S,
    store: Store,
    identity: Identity,
    labeller: Labeller,
    couriers: BTreeMap<String, (Target, CourierThread)>,
    triggers: Vec<(Trigger, Machine)>,
    pods: Option<PodsThread>,
    memory: MemoryBudget,
    published: Arc<Published>,
    server: Option<Server>,
    // Dropped in this order: the socket goes before the lock.
    _socket: StatusSocket,
    _cgroup: OwnCgroup,
    _locks: Vec<Lock>,
}

impl<S: WindowSource> Agent<S> {
    /// Starts an agent with the configuration in `config_file`. `measure` starts its source, and is called only if
    /// no other agent runs: a second agent loads no kernel program before it is refused.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn start(
        config_file: &Path,
        measure: impl FnOnce(&Config) -> Result<S, AgentError>,
    ) -> Result<Agent<S>, AgentError> {
        let config = Config::read(config_file)?;
        // A run directory has one agent, and so has a store. The source admits one agent a host.
        let mut locks = vec![Lock::take(&config.agent.run_dir)?];
        if config.store.dir != config.agent.run_dir {
            locks.push(Lock::take(&config.store.dir)?);
        }
        let store = open_store(&config)?;
        let identity = Identity::new(&store);
        let published = Arc::new(Published::new(&config, identity.epoch));
        let cgroup = OwnCgroup::enter();
        published.set_cgroup(&cgroup.words);
        let socket = StatusSocket::bind(&config.agent.run_dir, published.clone())
            .map_err(system("make the status socket"))?;
        let source = measure(&config)?;
        let mut agent = Agent {
            config_file: config_file.to_owned(),
            labeller: Labeller::new(config.services.clone(), config.commands.keep),
            couriers: BTreeMap::new(),
            triggers: machines(&config),
            server: server(&config, &published)?,
            pods: PodsThread::start(&config.kubernetes).map_err(system("start a thread"))?,
            memory: MemoryBudget::new(config.budget.max_memory.0),
            config,
            source,
            store,
            identity,
            published,
            _socket: socket,
            _cgroup: cgroup,
            _locks: locks,
        };
        agent.published.set_flight(agent.source.flight());
        agent.start_couriers()?;
        agent.publish();
        Ok(agent)
    }

    /// The address of the metrics.
    pub fn metrics_address(&self) -> Option<std::net::SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Runs until `signals` say stop, or the source ends; sentences for people go to `log`.
    ///
    /// # Errors
    /// [`AgentError::Source`] if measuring ended by a fault; closed windows are kept.
    pub fn run(mut self, signals: &Signals, log: &mut dyn FnMut(&str)) -> Result<(), AgentError> {
        let mut supervisor = Supervisor::ready();
        let ended = loop {
            if signals.stop.load(Ordering::Acquire) {
                break Ok(());
            }
            if signals.reload.swap(false, Ordering::AcqRel) {
                supervisor.reloading();
                self.reload(log);
                supervisor.reloaded();
            }
            match self.source.next(TICK) {
                Ok(Next::Window(window)) => self.handle(*window, log),
                Ok(Next::NotYet) => {}
                Ok(Next::Ended) => break Ok(()),
                Err(e) => break Err(AgentError::Source(e)),
            }
            self.alerts(log);
            if self.published.take_close() {
                self.source.close_window();
            }
            self.publish();
            supervisor.alive(|| self.published.silence().is_none());
        };
        supervisor.stopping();
        match self.source.drain() {
            Ok(left) => left.into_iter().for_each(|w| self.handle(w, log)),
            Err(e) => log(&format!("the last window is lost: {e}")),
        }
        for (name, (_, courier)) in std::mem::take(&mut self.couriers) {
            let left = courier.drain(DRAIN).figures.pending;
            if left > 0 {
                log(&format!(
                    "{left} windows wait for {name}; the next start sends them"
                ));
            }
        }
        ended
    }

    /// Takes new names of pods over.
    fn take_pods(&mut self, log: &mut dyn FnMut(&str)) {
        match self.pods.as_ref().and_then(PodsThread::take) {
            Some(Ok(pods)) => self.labeller.set_pods(pods),
            Some(Err(e)) => {
                let text = format!("names of pods stay as they were: {e}");
                self.published.error(&text);
                log(&text);
            }
            None => {}
        }
    }

    /// Labels, sums up, keeps and judges a window.
    fn handle(&mut self, window: Recording, log: &mut dyn FnMut(&str)) {
        self.take_pods(log);
        let source = &mut self.source;
        let mut facts = |process: &wallscope_model::Process| source.facts(process);
        let mut recording = services::apply(&mut self.labeller, window, &mut facts);
        let beyond = self.labeller.cardinality.beyond();
        if beyond > 0 {
            recording.domain.notes.push(format!(
                "{beyond} services beyond the limit of services.max count as the service other"
            ));
        }
        self.keep_memory(&mut recording, log);
        self.published.add(&recording, beyond as u64);
        let end_ns = recording.window.end_ns;
        let length_ns = recording.window.length_ns();
        let end_unix_ns = recording.window.start_unix_ns.saturating_add(length_ns);
        let end_ms = (end_unix_ns / 1_000_000) as i64;
        let readings: Vec<_> = (self.triggers.iter())
            .map(|(t, _)| measure(&t.when, &recording))
            .collect();
        match self.store.add(recording, self.identity.next_key()) {
            Ok(_) => self.couriers.values().for_each(|(_, c)| c.wake()),
            Err(e) => {
                self.published.window_failed(&e.to_string());
                log(&format!("a window is lost: {e}"));
            }
        }
        let now_ms = end_ns / 1_000_000;
        for (i, reading) in readings.iter().enumerate() {
            let (trigger, machine) = &mut self.triggers[i];
            if matches!(trigger.when, Condition::Webhook { .. }) {
                continue;
            }
            let outcome = machine.step(now_ms, length_ns / 1_000_000, reading.as_ref());
            self.snap(i, end_ms, outcome, log);
        }
        self.publish();
        self.published.handled(end_unix_ns);
    }

    /// Keeps the limit of memory; the window says which features are given up for it.
    fn keep_memory(&mut self, window: &mut Recording, log: &mut dyn FnMut(&str)) {
        let used = window.cost.rss_bytes + window.cost.kernel_bytes;
        let (limit, given_up) = (self.memory.limit, self.memory.step.describe());
        if !given_up.is_empty() {
            window.domain.notes.push(format!(
                "memory within budget.max_memory, {} MiB: {given_up}",
                limit >> 20
            ));
        }
        if let Some(step) = self.memory.check(used) {
            self.source.save_memory(step);
            log(&format!(
                "{} MiB of memory, budget.max_memory is {}: {}",
                used >> 20,
                limit >> 20,
                match step.describe() {
                    nothing if nothing.is_empty() => "nothing is given up any more".into(),
                    given_up => given_up,
                }
            ));
        }
        self.published.set_memory(used, &self.memory);
    }

    /// Judges alerts that the webhook got.
    fn alerts(&mut self, log: &mut dyn FnMut(&str)) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let unix_ms = now.map_or(0, |d| d.as_millis() as u64);
        for alert in self.published.take_alerts() {
            for i in 0..self.triggers.len() {
                let (trigger, machine) = &mut self.triggers[i];
                let is_meant = matches!(&trigger.when, Condition::Webhook { alert: name } if *name == alert.name);
                if is_meant {
                    let text = format!("alert {}: {}", alert.name, alert.text);
                    let outcome = machine.alert(unix_ms, &text);
                    self.snap(i, unix_ms as i64, outcome, log);
                }
            }
        }
    }

    fn snap(&mut self, index: usize, end_ms: i64, outcome: Outcome, log: &mut dyn FnMut(&str)) {
        let Outcome::Fires(reason) = outcome else {
            return;
        };
        let trigger = &self.triggers[index].0;
        let name = &trigger.name.get_ref().0;
        let snap = snaps::Snap {
            trigger,
            end_ms,
            reason: &reason,
            flight: self.source.flight(),
        };
        match snaps::write(&self.config, &snap) {
            Ok(path) => log(&format!(
                "trigger {name}: {reason}; wrote '{}'",
                path.display()
            )),
            Err(e) => {
                let text = format!("trigger {name} ({reason}) wrote nothing: {e}");
                self.published.error(&text);
                log(&text);
            }
        }
    }

    /// Reads the configuration again. A wrong file changes nothing.
    fn reload(&mut self, log: &mut dyn FnMut(&str)) {
        match self.reloaded() {
            Ok(notes) => {
                log("the configuration was read again");
                notes.iter().for_each(|note| log(note));
            }
            Err(e) => {
                let text = format!("the configuration stays as it was: {e}");
                self.published.error(&text);
                log(&text);
            }
        }
    }

    fn reloaded(&mut self) -> Result<Vec<String>, AgentError> {
        let mut config = Config::read(&self.config_file)?;
        let mut notes = Vec::new();
        if config.store.dir != self.config.store.dir || config.agent != self.config.agent {
            notes.push("store.dir and agent.run_dir change with a restart".to_string());
            config.store.dir = self.config.store.dir.clone();
            config.agent = self.config.agent.clone();
        }
        if config.metrics != self.config.metrics {
            notes.push("metrics.listen changes with a restart".to_string());
            config.metrics = self.config.metrics.clone();
        }
        if config.kubernetes != self.config.kubernetes {
            self.pods = PodsThread::start(&config.kubernetes).map_err(system("start a thread"))?;
        }
        self.source.reload(&config)?;
        self.published.set_flight(self.source.flight());
        let untold = self.store.untold().clone();
        self.store = open_store(&config)?;
        for (cause, count) in untold {
            self.store.lost_if_unknown(&cause, count);
        }
        self.labeller
            .reload(config.services.clone(), config.commands.keep);
        if config.triggers != self.config.triggers {
            self.triggers = machines(&config);
        }
        self.memory.limit = config.budget.max_memory.0;
        self.config = config;
        self.start_couriers()?;
        Ok(notes)
    }

    /// Starts couriers of new and changed targets, and ends couriers without a target.
    fn start_couriers(&mut self) -> Result<(), AgentError> {
        let targets = &self.config.targets;
        self.couriers
            .retain(|_, (target, _)| targets.contains(target));
        for target in targets {
            let name = target.name.get_ref().0.clone();
            let outbox = self.store.outboxes().iter().find(|(own, _)| *own == name);
            let Some((_, outbox)) = outbox.filter(|_| !self.couriers.contains_key(&name)) else {
                continue;
            };
            let courier = Courier::new(target.clone(), outbox.clone(), self.identity.epoch)
                .map_err(|source| AgentError::Target {
                    name: name.clone(),
                    source,
                })?;
            let thread = CourierThread::start(courier).map_err(system("start a thread"))?;
            self.couriers.insert(name, (target.clone(), thread));
        }
        Ok(())
    }

    /// Shows the figures that change without a window.
    fn publish(&self) {
        let figures = self
            .couriers
            .iter()
            .map(|(name, (_, c))| (name.clone(), c.figures()));
        self.published.update(&self.store, figures.collect());
    }
}

fn open_store(config: &Config) -> Result<Store, AgentError> {
    let caps = Caps {
        bytes: config.store.max_bytes.0,
        age: config.store.max_age.0,
    };
    let targets: Vec<String> = (config.targets.iter())
        .map(|t| t.name.get_ref().0.clone())
        .collect();
    Ok(Store::open(&config.store.dir, caps, &targets)?)
}

fn machines(config: &Config) -> Vec<(Trigger, Machine)> {
    let machine = |t: &Trigger| (t.clone(), Machine::new(t.hold.0, t.limits));
    config.triggers.iter().map(machine).collect()
}

fn server(config: &Config, published: &Arc<Published>) -> Result<Option<Server>, AgentError> {
    if !config.metrics.enabled {
        return Ok(None);
    }
    let address = config.metrics.listen;
    let published = published.clone();
    let server = Server::bind(address, Limits::default(), move |r| published.answer(r));
    let server = server.map_err(system(format!("listen on {address}, metrics.listen")))?;
    Ok(Some(server))
}
