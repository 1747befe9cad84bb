//! Evidence → verdict: what a recording says, in one sentence, and by which rule.
//!
//! Pure: a table of named rules ([`RULES`]) over a recording's ledger and host facts. Each rule
//! looks at the [`Evidence`] and either has nothing to say or gives a clause; the first one that
//! speaks ends the sentence, the others that speak are listed beneath it. Thresholds are the
//! rules' own and stand beside them.
//!
//! The sentence's promise is about CPU work: blocked time is what no faster code could save.
//! Where threads compute nearly all the time, others may be waiting for just them; then it says
//! so instead of promising.
//!
//! That sentence looks at sums only; stacks are looked into by [`idle`] (which waits are for work)
//! and [`ladder`] (which function of the program led to a wait). Nothing here guesses what a program
//! is for.

pub mod idle;
mod import;
pub mod ladder;
pub mod lock_names;
mod parking;
mod rules;
mod spin;
mod task_waits;
mod words;

use wallscope_model::{BlockReason, Ledger, Peer, Recording, State};

pub use rules::{RULES, Rule};
pub use task_waits::TaskWaits;

/// What a recording says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where the wall time went, and what no CPU work could save.
    pub sentence: String,
    /// The rule that ends the sentence.
    pub rule: &'static str,
    /// When that rule speaks, in words.
    pub when: &'static str,
    /// What it takes for granted ([`Rule::assumes`]): with it the verdict is a suspicion.
    pub assumes: Option<&'static str>,
    /// The figures that rules judge by, in words.
    pub evidence: Vec<(&'static str, String)>,
    /// What else speaks, each with the name of its rule.
    pub also: Vec<(&'static str, String)>,
}

/// The figures that rules judge by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// All threads' ledgers, added up.
    pub total: Ledger,
    /// How many threads.
    pub threads: usize,
    /// Length of the recording, ns.
    pub window_ns: u64,
    /// On-CPU time of threads that were never seen as such, ns.
    pub unattributed_ns: u64,
    /// CPUs of the machine, 0 where unknown.
    pub cpus: u32,
    /// CPU quota of the target's cgroup in CPUs, where it has one.
    pub quota_cpus: Option<f64>,
    /// Of the periods of that quota, the share in which it ran out, by the cgroup's own count.
    pub quota_ran_out: f64,
    /// Idle time by reason, ns, indexed by `BlockReason as usize`.
    pub idle: [u64; BlockReason::COUNT],
    /// The peer that requests wait for longest: its name, and the share of the request time of the
    /// process that asks it.
    pub peer: Option<(String, f64)>,
    /// What a runtime's own tasks wait for most.
    pub tasks: Option<TaskWaits>,
    /// On-CPU time in functions that spin or yield, ns, and the one with most of it.
    pub spinning: Option<(u64, String)>,
}

impl Evidence {
    /// The evidence that `recording` gives.
    pub fn new(recording: &Recording) -> Evidence {
        let mut total = Ledger::default();
        for c in &recording.contexts {
            total.add(&c.ledger);
        }
        let quota = |h: &wallscope_model::HostSample| {
            let c = h.facts.cgroup.as_ref()?;
            Some(c.quota_us? as f64 / c.period_us.filter(|p| *p > 0)? as f64)
        };
        Evidence {
            total,
            threads: recording.contexts.len(),
            window_ns: recording.window.length_ns(),
            unattributed_ns: recording
                .processes
                .iter()
                .map(|p| p.unattributed_on_cpu_ns)
                .sum(),
            cpus: recording.domain.cpus,
            quota_cpus: recording.host.iter().find_map(quota),
            quota_ran_out: ladder::throttled_periods(recording).unwrap_or(0.0),
            idle: idle::by_reason(recording),
            peer: main_peer(recording),
            tasks: task_waits::most(recording),
            spinning: spin::spinning(recording),
        }
    }

    /// Time that was not idle, ns: what shares are of.
    pub fn busy_ns(&self) -> u64 {
        self.total.wall_ns.saturating_sub(self.total.idle_ns)
    }

    /// `ns` as a share of the time that was not idle.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.busy_ns().max(1) as f64
    }

    /// Blocked time that was not idle, ns.
    pub fn blocked_ns(&self) -> u64 {
        self.total.blocked_ns().saturating_sub(self.total.idle_ns)
    }

    /// The figures in words, those that are nothing left out.
    pub fn figures(&self) -> Vec<(&'static str, String)> {
        let of_all = |ns: u64| format!("{}, {}", words::time(ns), words::share(self.share(ns)));
        let l = &self.total;
        let waiting = l.state_ns(State::Runnable) - l.runnable.throttled;
        let quota = l.runnable.throttled;
        let mut out = vec![("wall time that was not idle", words::time(self.busy_ns()))];
        let states = [
            ("computing", l.state_ns(State::OnCpu)),
            ("waiting for a CPU", waiting),
            ("held back by a CPU quota", quota),
            ("blocked", self.blocked_ns()),
            ("not seen", l.unknown_ns()),
            ("threads too short to be seen", self.unattributed_ns),
        ];
        let present = states.iter().filter(|(_, ns)| *ns > 0);
        out.extend(present.map(|(what, ns)| (*what, of_all(*ns))));
        if l.idle_ns > 0 {
            out.push(("idle, left out", words::time(l.idle_ns)));
        }
        if let Some((reason, ns)) = self.main_reason() {
            let most = format!("{} for {}", words::reason(reason), of_all(ns));
            out.push(("blocked most on", most));
        }
        if self.window_ns > 0 {
            let busy = l.state_ns(State::OnCpu) as f64 / self.window_ns as f64;
            let cpus = match self.cpus {
                0 => String::new(),
                n => format!(" of {n}"),
            };
            out.push(("CPUs kept busy", format!("{busy:.2}{cpus}")));
        }
        if let Some(quota) = self.quota_cpus {
            out.push(("CPU quota", words::cpus(quota)));
        }
        out
    }

    /// The largest block reason and its time.
    pub fn main_reason(&self) -> Option<(BlockReason, u64)> {
        BlockReason::ALL
            .iter()
            .map(|r| {
                let i = *r as usize;
                (*r, self.total.blocked[i].saturating_sub(self.idle[i]))
            })
            .filter(|(_, ns)| *ns > 0)
            .max_by_key(|(_, ns)| *ns)
    }
}

/// The peer that most request time waits for, where processes are asked something themselves. A request
/// may wait for several answers at once, and for no longer than it takes.
fn main_peer(rec: &Recording) -> Option<(String, f64)> {
    let owed = |pid: u32| -> u64 {
        let asked = rec.peers.iter().filter(|p| !p.asks && p.pid == pid);
        asked.map(|p| p.in_flight_ns).sum()
    };
    // A socket that nobody knows by a name or an address tells nobody anything.
    let known = |p: &Peer| !p.peer_name.is_empty() || p.address.contains(':');
    let asked = (rec.peers.iter()).filter(|p| p.asks && owed(p.pid) > 0 && known(p));
    let most = asked.max_by_key(|p| p.in_flight_ns)?;
    let name = match &*most.peer_name {
        "" => most.address.to_string(),
        name => format!("{name} at {}", most.address),
    };
    let share = most.in_flight_ns as f64 / owed(most.pid) as f64;
    Some((name, share.min(1.0)))
}

/// What `recording` says.
pub fn finding(recording: &Recording) -> Finding {
    if recording.domain.is_import() || !recording.domain.unit.is_time() {
        return import::finding(recording);
    }
    let e = Evidence::new(recording);
    let mut spoken = RULES.iter().filter_map(|r| Some((r, (r.speaks)(&e)?)));
    let Some((rule, verdict)) = spoken.next() else {
        return Finding {
            sentence: format!("{}.", base(&e)),
            rule: "none",
            when: "no rule applies",
            assumes: None,
            evidence: e.figures(),
            also: Vec::new(),
        };
    };
    let also = spoken.map(|(r, says)| (r.name, says)).collect();
    let sentence = if e.total.wall_ns == 0 {
        format!("{verdict}.")
    } else {
        format!("{}: {verdict}.", base(&e))
    };
    Finding {
        sentence,
        rule: rule.name,
        when: rule.when,
        assumes: rule.assumes,
        evidence: e.figures(),
        also,
    }
}

/// Where the wall time went.
fn base(e: &Evidence) -> String {
    let l = &e.total;
    let mut parts = [
        (l.state_ns(State::OnCpu), "was computing".to_string()),
        (l.state_ns(State::Runnable), "waited for a CPU".to_string()),
        (e.blocked_ns(), blocked_words(e)),
        (l.unknown_ns(), "was not seen".to_string()),
    ];
    parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let parts: Vec<String> = parts
        .iter()
        .filter(|(ns, _)| e.share(*ns) >= 0.005)
        .map(|(ns, what)| format!("{} {what}", words::share(e.share(*ns))))
        .collect();
    let threads = match e.threads {
        1 => "one thread".to_string(),
        n => format!("{n} threads"),
    };
    let idle = if l.idle_ns > 0 {
        format!(" that was not idle ({} was)", words::time(l.idle_ns))
    } else {
        String::new()
    };
    format!(
        "Of {} of wall time of {threads}{idle}, {}",
        words::time(e.busy_ns()),
        if parts.is_empty() {
            "nothing was seen".to_string()
        } else {
            words::list(&parts)
        }
    )
}

/// Blocked, with what it is mostly blocked on.
fn blocked_words(e: &Evidence) -> String {
    let blocked = e.blocked_ns();
    match e.main_reason() {
        Some((reason, ns)) if ns * 10 >= blocked * 9 => {
            format!("was blocked on {}", words::reason(reason))
        }
        Some((reason, ns)) => format!(
            "was blocked (most on {}: {})",
            words::reason(reason),
            words::share(e.share(ns))
        ),
        None => "was blocked".to_string(),
    }
}
