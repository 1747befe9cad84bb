//! Probe safety: which probe stands where, and why.
//!
//! * The entry probe: see [`code`](super::code).
//! * The end of a call is seen by the kernel's return probe or at the function's own ways out. A
//!   return probe puts an address of its own in the place of the return address. A walk of the
//!   stack for another purpose than to look at it meets that address: an exception that is thrown
//!   through the frame ends the process. So where an unwinder is in the target, only ways out are
//!   probed; also under a seccomp filter, as some kernels come back from a return probe by a system
//!   call that the filter does not know, and with a shadow stack. Go, which moves stacks, is not
//!   timed at all.
//!   A `ret` is single-stepped, which is dearer, so elsewhere the return probe is taken.
//! * A tail call to a function of the same file is followed: the call ends where that one returns.

use std::collections::BTreeSet;

use super::{
    abi::{self, Cookie, Site},
    code::{self, Body, Exit, Leave, Stretch},
    find::{self, Found},
    modules::Module,
    usdt,
};
use crate::Error;

/// Most ways out of one function, tail calls included.
const MOST_EXITS: usize = 192;
/// Most pairs of functions that tail-call each other; as large as the kernel programs' table.
const MOST_TAIL_CALLS: usize = 4096;
/// How many functions that are called by tail calls are followed.
const MOST_FOLLOWED: usize = 12;
/// Most bytes of a function that are looked at.
const MOST_BYTES: u64 = 4 << 20;
/// Most indirect jumps in all functions.
pub const MOST_JUMPS: usize = 1 << 12;

/// Which kernel program stands at a site.
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
    /// What it is told.
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
    /// Tracepoints: category, name, and what the program is told.
    pub tracepoints: Vec<(String, String, Cookie)>,
    /// Timed functions: where each begins, by module and address, and where those that it tail-calls do.
    begins: Vec<(u16, usize, u64, BTreeSet<u64>)>,
}

/// Why a return probe must not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// An unwinder is in the target.
    Exceptions,
    /// The target runs under a seccomp filter.
    Seccomp,
    /// The processor keeps return addresses of its own.
    ShadowStack,
}

impl Harm {
    fn words(self) -> &'static str {
        match self {
            Harm::Exceptions => "a return probe would end the process when an exception passes it",
            Harm::Seccomp => {
                "the target runs under a seccomp filter, which may end it for the system call that comes \
                 back from a return probe"
            }
            Harm::ShadowStack => {
                "the target has a shadow stack, which may not agree with a return probe"
            }
        }
    }
}

/// What is known of target and kernel.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// What a return probe would do, where it would do harm.
    pub harm: Option<Harm>,
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
    pub fn count(&mut self, modules: &[Module], found: &Found) -> Result<(), Error> {
        let module = &modules[found.module];
        let Read { body, place } = read(module, found)?;
        let entry = place.unwrap_or(body.entry);
        self.add_count(modules, found, entry)
    }

    fn add_count(
        &mut self,
        modules: &[Module],
        found: &Found,
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
        found: &Found,
        given: Circumstances,
    ) -> Result<(), Error> {
        let module = &modules[found.module];
        let refused = |why: &str, instead: &str| Error::Refused {
            what: found.name.clone(),
            why: why.into(),
            instead: instead.into(),
        };
        if found.place.is_some() {
            return Err(refused(
                "a place within a function is passed at one moment and has no length",
                "use `wallscope count` for it, or name a function",
            ));
        }
        if module.is_go() {
            return Err(refused(
                "Go moves its stacks and goroutines between threads, so that entry and return cannot \
                 be matched from outside, and a return probe would end the process",
                "use `wallscope count` for its calls, and runtime/trace for their lengths",
            ));
        }
        let Read { body, .. } = read(module, found)?;
        let mut jumps = Vec::new();
        let ways = follow(module, found, &body, self.jumps.len(), &mut jumps);
        let by_sites = body.whole && !ways.exits.is_empty() && ways.exits.len() <= MOST_EXITS;
        let by_return = match given.harm {
            None => true,
            Some(_) if by_sites => false,
            Some(_) if body.whole && ways.exits.is_empty() => {
                return Err(refused("it never returns", "use `wallscope count` for it"));
            }
            Some(harm) => {
                let why = if body.whole {
                    format!(
                        "it has {} ways out, too many for a probe at each",
                        ways.exits.len()
                    )
                } else {
                    "its code cannot be read whole, so that its ways out are not known".to_owned()
                };
                return Err(refused(
                    &format!("{why}, and {}", harm.words()),
                    "use `wallscope count` for it, or time the function that calls it",
                ));
            }
        };
        let entry = if by_return { body.first } else { body.entry };
        let mut how = entry_words(entry).to_owned();
        let mut kinds = vec![entry_site(entry)];
        let index = u16::try_from(self.functions.len()).unwrap_or(u16::MAX);
        let at = |site, handler, address, depth| -> Result<PlannedSite, Error> {
            let mut cookie = Cookie::new(index, site);
            cookie.depth = depth;
            Ok(PlannedSite {
                module: found.module,
                offset: offset(module, address, found)?,
                semaphore: 0,
                handler,
                cookie,
            })
        };
        let mut sites = vec![at(kinds[0], Handler::Met, entry.at, entry.pushed)?];
        if by_return {
            how += "; return by the kernel's return probe";
            kinds.push(Site::Return);
            sites.push(at(Site::Return, Handler::Return, entry.at, 0)?);
        } else {
            let mut returns = 0;
            for way in &ways.exits {
                let mut site = match way.exit.leave {
                    Leave::Return => at(Site::Ret, Handler::Met, way.exit.at, 0)?,
                    Leave::Jump { .. } => at(Site::Jump, Handler::Met, way.exit.at, 0)?,
                    Leave::Branch { condition, .. } => {
                        let mut site = at(Site::Branch, Handler::Met, way.exit.at, 0)?;
                        site.cookie.condition = condition;
                        site
                    }
                    Leave::Indirect(_) => {
                        let mut site = at(Site::Indirect, Handler::Met, way.exit.at, 0)?;
                        site.cookie.jump = way.jump;
                        site
                    }
                };
                returns += usize::from(matches!(way.exit.leave, Leave::Return));
                site.cookie.followed = way.followed;
                sites.push(site);
            }
            let others = ways.exits.len() - returns;
            how += &format!("; ends at {returns} of its own returns");
            if others > 0 {
                how += &format!(" and {others} jumps out");
            }
            if !ways.followed.is_empty() {
                how += &format!(
                    ", those of {} tail-called functions included",
                    ways.followed.len()
                );
            }
            kinds.push(if returns > 0 { Site::Ret } else { Site::Jump });
        }
        if self.jumps.len() + jumps.len() > MOST_JUMPS {
            return Err(refused("too many indirect jumps", "use a narrower pattern"));
        }
        self.function(Planned {
            name: found.name.clone(),
            module: module.name().to_owned(),
            how,
            kinds,
        })?;
        self.begins
            .push((index, found.module, found.address, ways.followed));
        self.jumps.extend(jumps);
        self.sites.extend(sites);
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
        self.tail_calls.truncate(MOST_TAIL_CALLS);
    }

    /// Adds the place where C++ exceptions are caught, so that calls that one has left end there.
    pub fn catches(&mut self, modules: &[Module]) {
        let caught = find::functions_named(modules, None, "__cxa_begin_catch");
        for found in caught.unwrap_or_default() {
            let module = &modules[found.module];
            let Ok(Read { body, .. }) = read(module, &found) else {
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
        places: &[usdt::Place],
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

fn offset(module: &Module, address: u64, found: &Found) -> Result<u64, Error> {
    module
        .elf()
        .and_then(|e| e.offset_of_vaddr(address))
        .ok_or_else(|| unreadable(module, found))
}

fn unreadable(module: &Module, found: &Found) -> Error {
    Error::NoFunction {
        asked: found.name.clone(),
        why: format!("its code cannot be read in {}", module.path),
        instead: "the file may be damaged, or for another kind of processor".into(),
    }
}

struct Read {
    body: Body,
    place: Option<code::Entry>,
}

fn bytes(module: &Module, address: u64, size: u64) -> Option<Stretch<'_>> {
    let from = module.elf()?.offset_of_vaddr(address)?;
    let from = usize::try_from(from).ok()?;
    let to = from.checked_add(usize::try_from(size.min(MOST_BYTES)).ok()?)?;
    Some(Stretch {
        start: address,
        bytes: module.bytes.get(from..to.min(module.bytes.len()))?,
    })
}

/// Reads a found function's code.
fn read(module: &Module, found: &Found) -> Result<Read, Error> {
    let fail = || unreadable(module, found);
    // Without a size a few instructions are enough to find the entry, but not the ways out.
    let sized = found.size > 0;
    let main =
        bytes(module, found.address, if sized { found.size } else { 64 }).ok_or_else(fail)?;
    let mut stretches = vec![main];
    stretches.extend(
        found
            .parts
            .iter()
            .filter_map(|(a, s)| bytes(module, *a, *s)),
    );
    let mut body = code::read(&stretches, module.is_go()).ok_or_else(fail)?;
    body.whole &= sized;
    let Some(at) = found.place else {
        return Ok(Read { body, place: None });
    };
    if sized && !code::begins_at(main, at) {
        return Err(Error::NoFunction {
            asked: found.name.clone(),
            why: "no instruction begins there; a probe in the middle of one would damage it".into(),
            instead: "take an address that objdump -d shows, or one that a report prints".into(),
        });
    }
    let instruction = bytes(module, at, 15).ok_or_else(fail)?;
    Ok(Read {
        body,
        place: Some(code::Entry {
            at,
            pushed: 0,
            stepped: !code::is_emulated(&instruction.bytes[..code::length(instruction)]),
        }),
    })
}

/// A way out, after tail calls were followed.
struct Way {
    exit: Exit,
    followed: bool,
    jump: u16,
}

struct Ways {
    exits: Vec<Way>,
    followed: BTreeSet<u64>,
}

/// The ways out of a function, where a tail call to a function of the same file is replaced by that
/// function's own.
fn follow(
    module: &Module,
    found: &Found,
    body: &Body,
    first_jump: usize,
    jumps: &mut Vec<abi::Jump>,
) -> Ways {
    let mut ways = Ways {
        exits: Vec::new(),
        followed: BTreeSet::new(),
    };
    let mut todo: Vec<(u64, u64, Body, bool)> =
        vec![(found.address, found.size, body.clone(), false)];
    while let Some((start, size, body, followed)) = todo.pop() {
        for exit in &body.exits {
            let to = match exit.leave {
                Leave::Jump { to } | Leave::Branch { to, .. } => Some(to),
                _ => None,
            };
            let mut jump = 0;
            if let Some(to) = to {
                if to == found.address || ways.followed.contains(&to) {
                    continue;
                }
                if let Some(next) =
                    tail_called(module, to).filter(|_| ways.followed.len() < MOST_FOLLOWED)
                {
                    ways.followed.insert(to);
                    todo.push(next);
                    continue;
                }
            } else if let Leave::Indirect(i) = exit.leave {
                jump = u16::try_from(first_jump + jumps.len()).unwrap_or(u16::MAX);
                jumps.push(abi::Jump {
                    low: start.wrapping_sub(exit.at) as i64,
                    high: (start + size).wrapping_sub(exit.at) as i64,
                    displacement: i.displacement,
                    base: i.base,
                    index: i.index,
                    scale: i.scale,
                    memory: u8::from(i.memory),
                    pad0: 0,
                });
            }
            ways.exits.push(Way {
                exit: *exit,
                followed,
                jump,
            });
        }
    }
    ways
}

/// The function at `to`, where one starts there and can be read whole.
fn tail_called(module: &Module, to: u64) -> Option<(u64, u64, Body, bool)> {
    let (start, size) = find::starting_at(module, to)?;
    let body = code::read(&[bytes(module, start, size)?], false)?;
    body.whole.then_some((start, size, body, true))
}
