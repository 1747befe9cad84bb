//! Names of code: questions of the estimator, and answers of the collector.
//!
//! The collector knows files, runtimes and code made at run time, and answers from its own readings. A log keeps each
//! answer beside its question, so that a replay gets equal answers and opens no file.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_observe::NamedFrame;
use wallscope_unwind::{
    native::abi::FrameWord,
    runtime::{Role, hotspot::Item},
};

use super::{address_scope::AddressScope, managed::Word, unwound::Unwinding};
use crate::event::SocketRecord;

/// A frame of an interpreter.
#[derive(Clone, Debug)]
pub struct ManagedFrame {
    /// Its name.
    pub frame: NamedFrame,
    /// The function's name, where that is a coroutine.
    pub coroutine: Option<Arc<str>>,
}

/// Names of user code.
pub trait CodeNames {
    /// The name of a user frame.
    fn frame(&self, item: Item, unwinding: Unwinding, scope: AddressScope) -> NamedFrame;

    /// The name of an interpreter's frame.
    fn managed(&self, pid: u32, word: Word) -> ManagedFrame;

    /// Roles of native frames for the runtime of process `pid`.
    fn roles(&self, pid: u32, frames: &[FrameWord]) -> Vec<Role>;

    /// The program that a process ran after having left `former` others; `None`: it has only ever run
    /// one.
    fn program(&self, pid: u32, former: u32) -> Option<Arc<str>>;

    /// The runtime that makes code in process `pid`, and the flag by which it tells names.
    fn maker(&self, pid: u32) -> Option<(String, String)>;
}

/// Names that the machine knows.
pub trait HostNames {
    /// The functions of the kernel in which these stacks wait, by hash.
    fn kernel_functions(&self, stacks: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>>;

    /// The process at the other end of a connection, and its name.
    fn other_end(&self, socket: &SocketRecord) -> Option<(u32, String)>;
}

/// All that has names.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// User code.
    pub code: &'a dyn CodeNames,
    /// The machine.
    pub host: &'a dyn HostNames,
}
