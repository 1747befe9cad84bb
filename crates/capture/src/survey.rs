//! Survey of a running process: the parts that a recording would see. The survey opens the same files, builds the
//! same tables, and recognises and reads the same runtimes as a recording. Nothing is measured.

use std::collections::BTreeMap;

use wallscope_model::ModuleId;
use wallscope_symbolize::names::{self, Names};
use wallscope_unwind::{
    native::MemoryTables,
    runtime::{self, Facts},
};

use crate::{
    Error,
    session::{self, files::Files, processes::Processes},
    target::{Target, read_memory},
};

/// Longest wait for a VM that is just starting.
const READY: std::time::Duration = std::time::Duration::from_millis(500);

/// The parts of a process that a recording would see.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Whether its memory may be read: stacks of waiting threads and managed code need that.
    pub readable: bool,
    /// Runtimes of managed code in it.
    pub runtimes: Vec<Managed>,
    /// Files that it runs code of, by path.
    pub files: Vec<Code>,
    /// Code that was made at run time.
    pub made: Made,
}

/// A runtime of managed code.
#[derive(Clone, Debug)]
pub struct Managed {
    /// Its name, with the version if that is known.
    pub name: String,
    /// The file that it is in.
    pub file: String,
    /// Why its frames cannot be read; `None`: they can.
    pub refused: Option<String>,
    /// Whether our tests read this version; `None` if nothing depends on the version.
    pub tried: Option<bool>,
}

/// A file with code.
#[derive(Clone, Debug)]
pub struct Code {
    /// Its path, as the process sees it.
    pub path: String,
    /// Bytes of it that are mapped to be run.
    pub bytes: u64,
    /// GNU build id, or empty.
    pub build_id: String,
    /// Why its frames cannot be left by unwinding tables; `None`: they can.
    pub unwinding: Option<String>,
    /// The best names that its functions have; `None`: it cannot be read.
    pub names: Option<Names>,
}

/// Code that was made at run time.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// Bytes that are mapped for it.
    pub bytes: u64,
    /// Perf maps and jitdumps that name it, in words.
    pub named_by: Vec<String>,
    /// The runtime that makes it, if known, and how to have it named.
    pub maker: Option<(&'static str, &'static str)>,
}

/// Surveys process `pid`.
///
/// # Errors
/// It does not exist, is of another architecture, or its mappings may not be read.
pub fn of(pid: u32) -> Result<Survey, Error> {
    session::resolve_target(&Target::Pids(vec![pid]), None)?;
    if let Err(e) = wallscope_procfs::maps::read(pid) {
        return Err(Error::NotPermitted {
            what: format!("the mappings of pid {pid}"),
            why: e.to_string(),
            remedy: "look as the process's user or as root, or see `wallscope doctor`".into(),
        });
    }
    let mut processes = Processes::over(Files::over(MemoryTables::new())?);
    processes.found(pid);
    let deadline = std::time::Instant::now() + READY;
    while processes.managed().java.is_starting() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(5));
        processes.settle(&mut || ());
    }
    let mut sizes: BTreeMap<u16, u64> = BTreeMap::new();
    let mut made = Made::default();
    let mut readable = false;
    let space = processes.space(pid).cloned().unwrap_or_default();
    for (start, m) in &space.mappings {
        let bytes = m.end - start;
        match m.file {
            Some(index) => *sizes.entry(index).or_default() += bytes,
            None => made.bytes += bytes,
        }
        readable = readable || read_memory(pid, *start, &mut [0u8]) == 1;
    }
    if made.bytes > 0 {
        made.named_by = processes.jit().named_by(pid);
        made.maker = processes.jit().maker(pid).map(|m| m.told());
    }
    let modules = processes.modules();
    let ids: Vec<ModuleId> = sizes.keys().map(|i| ModuleId(u32::from(*i))).collect();
    let sources = processes.files().sources_of(&ids);
    let mut runtimes = Vec::new();
    let mut files = Vec::new();
    for ((index, bytes), id) in sizes.iter().zip(&ids) {
        let module = &modules[*index as usize];
        runtimes.extend(managed(&mut processes, *index));
        let unwinding = if processes.files().is_open(*index) {
            processes.files().problem(*index).map(str::to_owned)
        } else {
            Some("the file cannot be opened".into())
        };
        files.push(Code {
            path: module.path.to_string(),
            bytes: *bytes,
            build_id: module.build_id.to_string(),
            unwinding,
            names: names::best(module, sources.modules.get(id), &sources),
        });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Survey {
        pid,
        name: space.facts.name.to_string(),
        readable,
        runtimes,
        files,
        made,
    })
}

/// The runtime in file `index`, and whether it can be read.
fn managed(processes: &mut Processes<MemoryTables>, index: u16) -> Option<Managed> {
    let found = processes.files().runtime(index)?;
    let file = processes.files().path(index).to_owned();
    let java = &processes.managed().java;
    let (name, refused) = match &*found {
        Err(refusal) => (refusal.what.clone(), Some(refusal.why.clone())),
        // Its version, and whether it can be read, is in the process.
        Ok(Facts::HotSpot(_)) => match java.describe().pop() {
            Some(name) => (name, None),
            None => {
                let why = java.refusals().next();
                let starting = || "it has not finished starting".to_owned();
                let why = why.map_or_else(starting, str::to_owned);
                ("HotSpot".to_owned(), Some(why))
            }
        },
        Ok(facts) => (facts.describe(), None),
    };
    Some(Managed {
        tried: refused
            .is_none()
            .then(|| runtime::is_tried(&name))
            .flatten(),
        name,
        file,
        refused,
    })
}
