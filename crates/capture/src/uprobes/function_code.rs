//! The code of a function that was found: read from its file, with its ways out.
//!
//! A tail call to a function of the same file is followed: the call ends where that one returns.

use std::collections::BTreeSet;

use super::{
    abi,
    code::{self, Body, Exit, ExitKind, Prologue, Stretch},
    find::{self, FoundFunction},
    modules::Module,
};
use crate::Error;

/// Most tail-called functions that are followed.
const MAX_FOLLOWED: usize = 12;
/// Most bytes of a function that are read.
const MAX_BYTES: u64 = 4 << 20;

/// Offset of an address in the module's file.
///
/// # Errors
/// It is in no part of the file.
pub(super) fn offset(module: &Module, address: u64, found: &FoundFunction) -> Result<u64, Error> {
    module
        .elf()
        .and_then(|e| e.offset_of_vaddr(address))
        .ok_or_else(|| unreadable(module, found))
}

fn unreadable(module: &Module, found: &FoundFunction) -> Error {
    Error::NoFunction {
        asked: found.name.clone(),
        why: format!("its code cannot be read in {}", module.path),
        instead: "the file may be damaged, or for another kind of processor".into(),
    }
}

/// A function's code, and the place in it that was asked for.
pub(super) struct FunctionCode {
    pub body: Body,
    pub place: Option<code::Entry>,
}

fn bytes(module: &Module, address: u64, size: u64) -> Option<Stretch<'_>> {
    let from = module.elf()?.offset_of_vaddr(address)?;
    let from = usize::try_from(from).ok()?;
    let to = from.checked_add(usize::try_from(size.min(MAX_BYTES)).ok()?)?;
    Some(Stretch {
        start: address,
        bytes: module.bytes.get(from..to.min(module.bytes.len()))?,
    })
}

/// Reads a found function's code.
///
/// # Errors
/// It cannot be read, or no instruction begins at the place in it.
pub(super) fn read(module: &Module, found: &FoundFunction) -> Result<FunctionCode, Error> {
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
    let prologue = match module.is_go() {
        true => Prologue::ChecksStack,
        false => Prologue::Plain,
    };
    let mut body = code::read(&stretches, prologue).ok_or_else(fail)?;
    body.whole &= sized;
    let Some(at) = found.place else {
        return Ok(FunctionCode { body, place: None });
    };
    if sized && !code::begins_at(main, at) {
        return Err(Error::NoFunction {
            asked: found.name.clone(),
            why: "no instruction begins there; a probe in the middle of one would damage it".into(),
            instead: "take an address that objdump -d shows, or one that a report prints".into(),
        });
    }
    let instruction = bytes(module, at, 15).ok_or_else(fail)?;
    Ok(FunctionCode {
        body,
        place: Some(code::Entry {
            at,
            pushed: 0,
            stepped: !code::is_emulated(&instruction.bytes[..code::length(instruction)]),
        }),
    })
}

/// A way out, after tail calls were followed.
pub(super) struct Way {
    pub exit: Exit,
    /// It belongs to a function that was tail-called.
    pub followed: bool,
    /// Index of an indirect jump in the plan.
    pub jump: u16,
}

/// The ways out of a function.
#[derive(Default)]
pub(super) struct Ways {
    pub exits: Vec<Way>,
    /// Addresses of the tail-called functions.
    pub followed: BTreeSet<u64>,
    /// The indirect jumps among them.
    pub jumps: Vec<abi::Jump>,
}

/// The ways out of a function, where a tail call to a function of the same file is replaced by that
/// function's own. Its indirect jumps are numbered from `first_jump` on.
pub(super) fn ways_out(
    module: &Module,
    found: &FoundFunction,
    body: &Body,
    first_jump: usize,
) -> Ways {
    let mut ways = Ways::default();
    let mut todo: Vec<(u64, u64, Body, bool)> =
        vec![(found.address, found.size, body.clone(), false)];
    while let Some((start, size, body, followed)) = todo.pop() {
        for exit in &body.exits {
            let to = match exit.leave {
                ExitKind::Jump { to } | ExitKind::Branch { to, .. } => Some(to),
                _ => None,
            };
            let mut jump = 0;
            if let Some(to) = to {
                if to == found.address || ways.followed.contains(&to) {
                    continue;
                }
                if let Some(next) =
                    tail_called(module, to).filter(|_| ways.followed.len() < MAX_FOLLOWED)
                {
                    ways.followed.insert(to);
                    todo.push(next);
                    continue;
                }
            } else if let ExitKind::Indirect(i) = exit.leave {
                jump = u16::try_from(first_jump + ways.jumps.len()).unwrap_or(u16::MAX);
                ways.jumps.push(abi::Jump {
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
    let body = code::read(&[bytes(module, start, size)?], Prologue::Plain)?;
    body.whole.then_some((start, size, body, true))
}
