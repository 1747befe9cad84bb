//! Programs of Debian's packages: their ledgers, their share of whole stacks, and the slowdown of a fixed amount
//! of work.
//!
//! Each works bare and recorded in turn, as `compare` has it, on data in a folder that goes again. A
//! server is started once and recorded by its main process; a command waits at a gate until the
//! recording is live. The load is a client on this machine, by a unix socket or loopback. A program that is
//! not installed is left out, and named.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wallscope_testkit::report::Report;
use wallscope_testkit::score::{Row, stacks};
use wallscope_testkit::tool::{Options, Recorded};
use wallscope_testkit::{Error, Tool};

use super::servers::{self, Server, run};
use crate::{Outcome, installed, median};

/// User stacks that reach the root, percent of sampled time.
const WHOLE: f64 = 99.0;

/// A program under load.
struct Case {
    name: &'static str,
    /// The work in words.
    about: &'static str,
    needs: &'static [&'static str],
    prepare: fn(&Path, f64) -> Outcome<Subject>,
}

/// The recorded program, and the one that makes it work.
enum Subject {
    /// A server, and a client's command that ends when the work is done.
    Server(Server, Box<dyn Fn() -> Command>),
    /// A command by itself.
    Command(Box<dyn Fn() -> Command>),
}

fn postgres(folder: &Path, seconds: f64) -> Outcome<Subject> {
    let (server, client) = servers::postgres(folder)?;
    let transactions = ((seconds * 600.0) as u64).to_string();
    Ok(Subject::Server(
        server,
        Box::new(move || {
            let mut command = client();
            command.args(["-n", "-c", "4", "-t", &transactions, "postgres"]);
            command
        }),
    ))
}

fn redis(folder: &Path, seconds: f64) -> Outcome<Subject> {
    let (server, socket) = servers::redis(folder)?;
    let requests = ((seconds * 50_000.0) as u64).to_string();
    Ok(Subject::Server(
        server,
        Box::new(move || {
            let mut command = Command::new("redis-benchmark");
            command.arg("-s").arg(&socket);
            command.args(["-q", "-c", "20", "-t", "set,get", "-n", &requests]);
            command
        }),
    ))
}

fn nginx(folder: &Path, seconds: f64) -> Outcome<Subject> {
    let (server, url) = servers::nginx(folder)?;
    let requests = ((seconds * 60_000.0) as u64).to_string();
    Ok(Subject::Server(
        server,
        Box::new(move || {
            // A fixed number of requests, so that all are compared by time.
            let mut command = Command::new("ab");
            command.args(["-q", "-k", "-c", "16", "-n", &requests, &url]);
            command
        }),
    ))
}

fn gcc(folder: &Path, seconds: f64) -> Outcome<Subject> {
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for i in 0..(seconds * 80.0) as usize {
        let _ = write!(
            text,
            "struct s{i} {{ long key; double weight[{}]; struct s{i} *next; }};\n\
             double f{i}(struct s{i} *at, const char *text, int n) {{\n\
             double sum = {i}; long seen[16] = {{0}};\n\
             for (; at; at = at->next) for (int k = 0; k < n; k++) {{\n\
             seen[(at->key ^ text[k]) & 15] += k * {};\n\
             if (text[k] == '%') sum += strtod(text + k, 0); else sum *= at->weight[k & 3]; }}\n\
             for (int k = 0; k < 16; k++) switch (seen[k] % 7) {{ case 0: sum += k; break; case 1: sum -= seen[k];\n\
             break; case 2: printf(\"%ld\\n\", seen[k]); break; case 3: sum /= 1 + k; default: sum += 1; }}\n\
             return sum; }}\n",
            i % 13 + 4,
            i % 31 + 1,
        );
    }
    let (source, object) = (folder.join("source.c"), folder.join("object.o"));
    fs::write(&source, text)?;
    Ok(Subject::Command(Box::new(move || {
        let mut command = Command::new("gcc");
        command.args(["-O2", "-c", "-o"]).arg(&object).arg(&source);
        command
    })))
}

fn sqlite(folder: &Path, seconds: f64) -> Outcome<Subject> {
    let rows = (seconds * 600_000.0) as u64;
    let mut script = format!(
        "create table item (id integer primary key, name text, price real, shelf integer);\n\
         with recursive n(i) as (select 1 union all select i + 1 from n where i < {rows})\n\
         insert into item select i, 'item ' || (i * 7919 % {rows}), i * 0.37, i % 997 from n;\n\
         create index by_name on item (name);\n\
         select shelf, count(*), avg(price), max(name) from item group by shelf order by 3 limit 5;\n"
    );
    // Each by itself is on the disk when it is done.
    for i in 0..(seconds * 100.0) as u64 {
        let _ = writeln!(
            script,
            "update item set price = price + 1 where id = {};",
            i * 37 + 1
        );
    }
    script.push_str(
        "select count(*) from item a join item b on a.name = b.name where a.id % 3 = 0;\n",
    );
    let (text, base) = (folder.join("script.sql"), folder.join("base.db"));
    fs::write(&text, script)?;
    Ok(Subject::Command(Box::new(move || {
        // From nothing each time.
        let _ = fs::remove_file(&base);
        let mut command = Command::new("sqlite3");
        command.arg(&base).arg(format!(".read {}", text.display()));
        command
    })))
}

const CASES: &[Case] = &[
    Case {
        name: "postgres",
        about: "pgbench, 4 clients, synchronous commits",
        needs: &["pgbench"],
        prepare: postgres,
    },
    Case {
        name: "redis",
        about: "redis-benchmark, SET and GET, 20 clients",
        needs: &["redis-server", "redis-benchmark"],
        prepare: redis,
    },
    Case {
        name: "nginx",
        about: "a file of 4 KiB to 16 connections of ab",
        needs: &["nginx", "ab"],
        prepare: nginx,
    },
    Case {
        name: "gcc",
        about: "one source compiled with -O2",
        needs: &["gcc"],
        prepare: gcc,
    },
    Case {
        name: "sqlite",
        about: "a table filled, indexed, asked, and written row by row",
        needs: &["sqlite3"],
        prepare: sqlite,
    },
];

/// A process that waits for a line before it becomes `command`.
fn gated(command: &Command) -> Outcome<Child> {
    let mut gate = Command::new("sh");
    gate.args(["-c", "read go && exec \"$0\" \"$@\" </dev/null"]);
    gate.arg(command.get_program()).args(command.get_args());
    Ok(gate
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?)
}

fn succeeded(child: &mut Child, what: &str) -> Outcome<()> {
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(format!("{what}: {status}").into()),
    }
}

/// The work once: how long it took, and the recording of it.
fn once(subject: &Subject, tool: Option<&Tool>) -> Outcome<(Duration, Option<Recorded>)> {
    let options = Options {
        hz: 99,
        more: Vec::new(),
    };
    match subject {
        Subject::Server(server, client) => {
            let recorder = tool
                .map(|tool| tool.attach(&[server.pid()], &options))
                .transpose()?;
            let began = Instant::now();
            run(&mut client())?;
            let took = began.elapsed();
            Ok((took, recorder.map(|recorder| recorder.stop()).transpose()?))
        }
        Subject::Command(command) => {
            let command = command();
            let mut child = gated(&command)?;
            let recorder = tool
                .map(|tool| tool.attach(&[child.id()], &options))
                .transpose()?;
            let began = Instant::now();
            child
                .stdin
                .take()
                .expect("stdin is piped")
                .write_all(b"go\n")?;
            succeeded(&mut child, &command.get_program().to_string_lossy())?;
            let took = began.elapsed();
            Ok((
                took,
                recorder.map(|recorder| recorder.ends_with(0)).transpose()?,
            ))
        }
    }
}

/// What came of one program.
pub struct Tried {
    name: &'static str,
    about: &'static str,
    /// Time recorded over time bare: median, lowest, highest.
    ratio: (f64, f64, f64),
    /// Seconds, bare.
    bare: f64,
    /// Kernel programs and own CPU, percent of a CPU.
    cost_percent: f64,
    /// Wall time that is unknown, percent.
    unknown_percent: f64,
    /// Wall time not accounted for, worst thread, parts per million.
    residue_ppm: f64,
    /// Whole stacks by state.
    whole: Vec<Row>,
    /// The parts of wall time: name and percent, largest first.
    parts: Vec<(String, f64)>,
    /// How much of it is idle, percent.
    idle_percent: f64,
}

impl Tried {
    /// Whether its stacks are whole and its ledger closes.
    fn holds(&self) -> bool {
        self.whole.iter().all(|row| row.pass)
            && self.unknown_percent <= 0.1
            && self.residue_ppm <= 100.0
    }
}

/// The ledger of all threads, without parts below a percent.
fn parts(report: &Report) -> Vec<(String, f64)> {
    let mut sums = std::collections::BTreeMap::<String, u64>::new();
    for thread in &report.threads {
        *sums.entry("on-CPU".into()).or_default() += thread.on_cpu_ns;
        *sums.entry("run queue".into()).or_default() += thread.runnable_ns;
        for (reason, ns) in &thread.blocked {
            *sums.entry(reason.clone()).or_default() += ns;
        }
    }
    let all: u64 = report.threads.iter().map(|t| t.wall_ns).sum();
    let mut parts: Vec<(String, f64)> = sums
        .into_iter()
        .map(|(name, ns)| (name, 100.0 * ns as f64 / all as f64))
        .collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    parts.retain(|part| part.1 >= 1.0);
    parts
}

fn attempt(case: &Case, tool: &Tool, seconds: f64, rounds: usize) -> Outcome<Tried> {
    let folder = tempfile::tempdir()?;
    let subject = (case.prepare)(folder.path(), seconds)?;
    // Caches warm and files grown, by a round that does not count.
    once(&subject, None)?;
    let (mut bare, mut ratios, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for round in 0..rounds {
        // The one or the other first, in turn.
        let (without, with) = if round % 2 == 0 {
            let without = once(&subject, None)?;
            (without, once(&subject, Some(tool))?)
        } else {
            let with = once(&subject, Some(tool))?;
            (once(&subject, None)?, with)
        };
        let (without, (with, recorded)) = (without.0.as_secs_f64(), with);
        let recorded = recorded.ok_or("nothing was recorded")?;
        let report = recorded.report()?;
        let window = (report.window.end_ns - report.window.start_ns) as f64;
        costs.push(100.0 * (report.cost.bpf_ns + report.cost.own_cpu_ns) as f64 / window);
        bare.push(without);
        ratios.push(with.as_secs_f64() / without);
        last = Some((recorded, report));
    }
    let (recorded, report) = last.ok_or("no round was made")?;
    let wall: u64 = report.threads.iter().map(|t| t.wall_ns).sum();
    let idle: u64 = report.threads.iter().map(|t| t.idle_ns).sum();
    let unknown: u64 = report.threads.iter().map(|t| t.unknown_ns).sum();
    let residue = report
        .threads
        .iter()
        .map(|t| t.residue_ns.unsigned_abs() as f64 / t.wall_ns.max(1) as f64);
    let mut whole = stacks::whole(&recorded.folded("wall")?, |_| true, WHOLE).rows;
    whole.retain(|row| row.what.starts_with("stacks"));
    Ok(Tried {
        name: case.name,
        about: case.about,
        ratio: (
            median(ratios.clone()),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        ),
        bare: median(bare),
        cost_percent: median(costs),
        unknown_percent: 100.0 * unknown as f64 / wall.max(1) as f64,
        residue_ppm: 1e6 * residue.fold(0.0, f64::max),
        whole,
        parts: parts(&report),
        idle_percent: 100.0 * idle as f64 / wall.max(1) as f64,
    })
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        let (ratio, low, high) = self.ratio;
        writeln!(
            f,
            "  {:.2} s bare, recorded {ratio:.3} × ({low:.3} – {high:.3}), own cost {:.2} % of a CPU",
            self.bare, self.cost_percent
        )?;
        let parts: Vec<String> = self
            .parts
            .iter()
            .map(|(name, p)| format!("{name} {p:.1} %"))
            .collect();
        writeln!(
            f,
            "  wall time: {}; idle of it {:.1} %",
            parts.join(", "),
            self.idle_percent
        )?;
        writeln!(
            f,
            "  unknown {:.4} %, residue of the worst thread {:.0} ppm",
            self.unknown_percent, self.residue_ppm
        )?;
        for row in &self.whole {
            let failed = if row.pass { "" } else { "  (below the limit)" };
            writeln!(f, "  {}: {}{failed}", row.what, row.measured)?;
        }
        Ok(())
    }
}

/// All of them, some `seconds` of work each; whether ledgers close and stacks are whole.
///
/// # Errors
/// When wallscope cannot record here. A program that cannot run is left out, and said.
pub(super) fn all(tool: &Tool, seconds: f64, rounds: usize) -> Outcome<bool> {
    let mut holds = true;
    for case in CASES {
        if let Some(program) = case
            .needs
            .iter()
            .find(|program| installed(program).is_none())
        {
            println!("left out: {}: {program} is not in PATH", case.name);
            continue;
        }
        eprintln!("{} …", case.name);
        match attempt(case, tool, seconds, rounds) {
            Ok(tried) => {
                println!("{tried}");
                holds &= tried.holds();
            }
            Err(error) => match error.downcast_ref::<Error>() {
                Some(Error::CannotRunHere(_)) => return Err(error),
                _ => {
                    println!("left out: {}: {error}", case.name);
                    holds = false;
                }
            },
        }
    }
    Ok(holds)
}
