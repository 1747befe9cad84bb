//! Probe safety: the kind and place of each probe, and why.
//!
//! * The entry probe: see [`code`](super::code).
//! * The end of a call is seen by the kernel's return probe or at the function's own ways out. A
//!   return probe replaces the return address by an address of its own. Code that unwinds the stack in order
//!   to leave frames meets that address: an exception that is thrown through the frame ends the process. So if
//!   an unwinder is in the target, only ways out are probed. This also holds with a shadow stack, and under a
//!   seccomp filter, as some kernels come back from a return probe by a system call that the filter does not
//!   know. Go moves stacks, and is not timed at all.
//!   A `ret` is single-stepped, which costs more, so elsewhere the return probe is taken.

use std::collections::BTreeSet;

use super::{
    abi::{self, Cookie, Site},
    code::{self, Body, ExitKind},
    find::{self, FoundFunction},
    function_code::{self, FunctionCode, Way, Ways, offset, ways_out},
    modules::Module,
    usdt,
};
use crate::Error;

/// Most ways out of one function, tail calls included.
const MAX_EXITS: usize = 192;
/// Most pairs of functions that tail-call each other; as large as the kernel programs' table.
const MAX_TAIL_CALLS: usize = 4096;
/// Most indirect jumps in all functions.
pub const MAX_JUMPS: usize = 1 << 12;

/// Kernel program at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Handler {
    /// Counts.
    Count,
    /// Begins and ends calls.
    Met,
    /// The kernel's return probe.
    Return,
}

/// A probe in a file.
#[derive(Clone, Copy, Debug)]
pub struct PlannedSite {
    /// Index of the module.
    pub module: usize,
    /// Offset in its file.
    pub offset: u64,
    /// Offset of a static probe's semaphore, 0: none.
    pub semaphore: u64,
    /// The program.
    pub handler: Handler,
    /// Description of the site for the program.
    pub cookie: Cookie,
}

/// A function or event as it will be probed.
#[derive(Clone, Debug)]
pub struct Planned {
    /// For people.
    pub name: String,
    /// File name of its module; empty for events of the kernel.
    pub module: String,
    /// How, in words.
    pub how: String,
    /// Kinds of the probes that each call meets.
    pub kinds: Vec<Site>,
}

/// Everything that is going to be probed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The functions, by index.
    pub functions: Vec<Planned>,
    /// Probes in files.
    pub sites: Vec<PlannedSite>,
    /// Indirect jumps, by index.
    pub jumps: Vec<abi::Jump>,
    /// Functions of the plan of which the first ends in a jump to the second.
    pub tail_calls: Vec<(u16, u16)>,
    /// System calls: number and function.
    pub syscalls: Vec<(u32, u16)>,
    /// Tracepoints: category, name, and the description for the program.
    pub tracepoints: Vec<(String, String, Cookie)>,
    /// Functions that were left out, in words.
    pub left_out: Vec<String>,
    /// Timed functions: index, module, start address, and the start addresses of functions that it tail-calls.
    begins: Vec<(u16, usize, u64, BTreeSet<u64>)>,
}

/// Why a return probe must not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeRefusal {
    /// An unwinder is in the target.
    Exceptions,
    /// The target runs under a seccomp filter.
    Seccomp,
    /// The processor keeps return addresses of its own.
    ShadowStack,
}

impl ProbeRefusal {
    fn words(self) -> &'static str {
        match self {
            ProbeRefusal::Exceptions => {
                "a return probe would end the process when an exception passes it"
            }
            ProbeRefusal::Seccomp => {
                "the target runs under a seccomp filter, which may end it for the system call that comes \
                 back from a return probe"
            }
            ProbeRefusal::ShadowStack => {
                "the target has a shadow stack, which may not agree with a return probe"
            }
        }
    }
}

/// Facts about target and kernel.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Harm that a return probe would do; `None`: no harm.
    pub harm: Option<ProbeRefusal>,
}

impl Plan {
    /// A new function's index.
    ///
    /// # Errors
    /// There are too many.
    pub fn function(&mut self, planned: Planned) -> Result<u16, Error> {
        let index = u16::try_from(self.functions.len())
            .ok()
            .filter(|i| *i < u16::MAX - 1);
        let index = index.ok_or_else(|| Error::Refused {
            what: planned.name.clone(),
            why: "more than 65,000 functions fit".into(),
            instead: "use a narrower pattern".into(),
        })?;
        self.functions.push(planned);
        Ok(index)
    }

    /// Adds a function that is only counted.
    ///
    /// # Errors
    /// It cannot be probed.
    pub fn count(&mut self, modules: &[Module], found: &FoundFunction) -> Result<(), Error> {
        let module = &modules[found.module];
        let FunctionCode { body, place } = function_code::read(module, found)?;
        let entry = place.unwrap_or(body.entry);
        self.add_count(modules, found, entry)
    }

    fn add_count(
        &mut self,
        modules: &[Module],
        found: &FoundFunction,
        entry: code::Entry,
    ) -> Result<(), Error> {
        let module = &modules[found.module];
        let site = entry_site(entry);
        let index = self.function(Planned {
            name: found.name.clone(),
            module: module.name().to_owned(),
            how: entry_words(entry).to_owned(),
            kinds: vec![site],
        })?;
        self.sites.push(PlannedSite {
            module: found.module,
            offset: offset(module, entry.at, found)?,
            semaphore: 0,
            handler: Handler::Count,
            cookie: Cookie::new(index, site),
        });
        Ok(())
    }

    /// Adds a function with timed calls.
    ///
    /// # Errors
    /// It cannot be probed, or probing its ends would do harm.
    pub fn time(
        &mut self,
        modules: &[Module],
        found: &FoundFunction,
        given: Circumstances,
    ) -> Result<(), Error> {
        let module = &modules[found.module];
        refuse_without_ends(module, found)?;
        let FunctionCode { body, .. } = function_code::read(module, found)?;
        let ways = ways_out(module, found, &body, self.jumps.len());
        let sites = SitesOf {
            module,
            found,
            function: u16::try_from(self.functions.len()).unwrap_or(u16::MAX),
        };
        let (entry, ends) = match end_probes(found, &body, &ways, given)? {
            EndProbes::Return => (body.first, sites.kernel_return(body.first)?),
            EndProbes::WaysOut => (body.entry, sites.ways_out(&ways)?),
        };
        if self.jumps.len() + ways.jumps.len() > MAX_JUMPS {
            return Err(refused(
                found,
                "too many indirect jumps",
                "use a narrower pattern",
            ));
        }
        let entry_site = sites.entry(entry)?;
        let index = self.function(Planned {
            name: found.name.clone(),
            module: module.name().to_owned(),
            how: format!("{}; {}", entry_words(entry), ends.how),
            kinds: vec![entry_site.cookie.site, ends.kind],
        })?;
        self.begins
            .push((index, found.module, found.address, ways.followed));
        self.jumps.extend(ways.jumps);
        self.sites.push(entry_site);
        self.sites.extend(ends.sites);
        Ok(())
    }

    /// Finds out which of the timed functions tail-call which others of them: a call that ends in such a jump is
    /// under way until the one that was jumped to returns.
    pub fn pair_tail_calls(&mut self) {
        for (from, module, _, jumps_to) in &self.begins {
            let called = self.begins.iter().filter(|(to, other, at, _)| {
                to != from && other == module && jumps_to.contains(at)
            });
            self.tail_calls.extend(called.map(|(to, ..)| (*from, *to)));
        }
        self.tail_calls.truncate(MAX_TAIL_CALLS);
    }

    /// Adds the place where C++ exceptions are caught. Calls that an exception has left end there.
    pub fn catches(&mut self, modules: &[Module]) {
        let caught = find::functions_named(modules, None, "__cxa_begin_catch");
        for found in caught.unwrap_or_default() {
            let module = &modules[found.module];
            let Ok(FunctionCode { body, .. }) = function_code::read(module, &found) else {
                continue;
            };
            let Ok(offset) = offset(module, body.entry.at, &found) else {
                continue;
            };
            let mut cookie = Cookie::new(0, Site::Catch);
            cookie.depth = body.entry.pushed;
            self.sites.push(PlannedSite {
                module: found.module,
                offset,
                semaphore: 0,
                handler: Handler::Met,
                cookie,
            });
        }
    }

    /// Adds a static probe's places for function `index`.
    pub fn static_probe(
        &mut self,
        module: usize,
        places: &[usdt::ProbePlace],
        cookie: Cookie,
        handler: Handler,
    ) {
        self.sites.extend(places.iter().map(|p| PlannedSite {
            module,
            offset: p.offset,
            semaphore: p.semaphore,
            handler,
            cookie,
        }));
    }
}

fn entry_site(entry: code::Entry) -> Site {
    if entry.stepped {
        Site::SteppedEntry
    } else {
        Site::Entry
    }
}

fn entry_words(entry: code::Entry) -> &'static str {
    if entry.stepped {
        "entry at an instruction that is single-stepped"
    } else {
        "entry at an instruction that the kernel emulates"
    }
}

fn refused(found: &FoundFunction, why: &str, instead: &str) -> Error {
    Error::Refused {
        what: found.name.clone(),
        why: why.into(),
        instead: instead.into(),
    }
}

/// Refuses calls that have no end which could be seen.
fn refuse_without_ends(module: &Module, found: &FoundFunction) -> Result<(), Error> {
    if found.place.is_some() {
        return Err(refused(
            found,
            "a place within a function is passed at one moment and has no length",
            "use `wallscope count` for it, or name a function",
        ));
    }
    if module.is_go() {
        return Err(refused(
            found,
            "Go moves its stacks and goroutines between threads, so that entry and return cannot \
             be matched from outside, and a return probe would end the process",
            "use `wallscope count` for its calls, and runtime/trace for their lengths",
        ));
    }
    Ok(())
}

/// Probes that see the end of a call.
enum EndProbes {
    /// The kernel's return probe.
    Return,
    /// A probe at each way out.
    WaysOut,
}

/// Chooses the probes that see the ends of a function's calls.
///
/// # Errors
/// A return probe would do harm, and there cannot be a probe at each way out.
fn end_probes(
    found: &FoundFunction,
    body: &Body,
    ways: &Ways,
    given: Circumstances,
) -> Result<EndProbes, Error> {
    let Some(harm) = given.harm else {
        return Ok(EndProbes::Return);
    };
    let why = match (body.whole, ways.exits.len()) {
        (true, 0) => {
            return Err(refused(
                found,
                "it never returns",
                "use `wallscope count` for it",
            ));
        }
        (true, 1..=MAX_EXITS) => return Ok(EndProbes::WaysOut),
        (true, many) => format!("it has {many} ways out, too many for a probe at each"),
        (false, _) => {
            "its code cannot be read whole, so that its ways out are not known".to_owned()
        }
    };
    Err(refused(
        found,
        &format!("{why}, and {}", harm.words()),
        "use `wallscope count` for it, or time the function that calls it",
    ))
}

/// Probes at the end of a function's calls.
struct Ends {
    sites: Vec<PlannedSite>,
    /// In words.
    how: String,
    /// The kind of probe that a usual call meets.
    kind: Site,
}

/// Makes the probes of one timed function.
struct SitesOf<'a> {
    module: &'a Module,
    found: &'a FoundFunction,
    function: u16,
}

impl SitesOf<'_> {
    fn at(&self, address: u64, handler: Handler, site: Site) -> Result<PlannedSite, Error> {
        Ok(PlannedSite {
            module: self.found.module,
            offset: offset(self.module, address, self.found)?,
            semaphore: 0,
            handler,
            cookie: Cookie::new(self.function, site),
        })
    }

    fn entry(&self, entry: code::Entry) -> Result<PlannedSite, Error> {
        let mut site = self.at(entry.at, Handler::Met, entry_site(entry))?;
        site.cookie.depth = entry.pushed;
        Ok(site)
    }

    fn kernel_return(&self, entry: code::Entry) -> Result<Ends, Error> {
        Ok(Ends {
            sites: vec![self.at(entry.at, Handler::Return, Site::Return)?],
            how: "return by the kernel's return probe".into(),
            kind: Site::Return,
        })
    }

    fn ways_out(&self, ways: &Ways) -> Result<Ends, Error> {
        let sites = ways.exits.iter().map(|way| self.way_out(way));
        let is_return = |way: &&Way| matches!(way.exit.leave, ExitKind::Return);
        let returns = ways.exits.iter().filter(is_return).count();
        let mut how = format!("ends at {returns} of its own returns");
        match ways.exits.len() - returns {
            0 => {}
            others => how += &format!(" and {others} jumps out"),
        }
        match ways.followed.len() {
            0 => {}
            followed => how += &format!(", those of {followed} tail-called functions included"),
        }
        Ok(Ends {
            sites: sites.collect::<Result<_, _>>()?,
            how,
            kind: if returns > 0 { Site::Ret } else { Site::Jump },
        })
    }

    fn way_out(&self, way: &Way) -> Result<PlannedSite, Error> {
        let kind = match way.exit.leave {
            ExitKind::Return => Site::Ret,
            ExitKind::Jump { .. } => Site::Jump,
            ExitKind::Branch { .. } => Site::Branch,
            ExitKind::Indirect(_) => Site::Indirect,
        };
        let mut site = self.at(way.exit.at, Handler::Met, kind)?;
        if let ExitKind::Branch { condition, .. } = way.exit.leave {
            site.cookie.condition = condition;
        }
        site.cookie.jump = way.jump;
        site.cookie.followed = way.followed;
        Ok(site)
    }
}
