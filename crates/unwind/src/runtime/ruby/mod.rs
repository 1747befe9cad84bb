//! CRuby 2.7 to 3.4: as a program with its interpreter inside, or in `libruby`; also embedded.
//!
//! ```text
//! layout.rs   where things are, by version
//! code.rs     pieces of code and entries of methods → names, files
//! lines.rs    the interpreter's table of lines
//! objects.rs  texts, arrays, names of identifiers and of classes
//! inner.rs    the interpreter's loop, where its symbol was removed
//! ```
//!
//! The walk is the one of CPython's frames (`bpf/ruby_core.h`), as another kind of chain: from the interpreter's
//! one global pointer to the ractors, to their threads, to the execution context that a thread runs (its own, or
//! a fiber's), along that one's frames. Methods written in C have frames in it too.
//!
//! Machine code of its compilers (YJIT, RJIT, MJIT) is unwound as any other code; frames are there all the same. Not
//! read: files from which the symbols were removed and that export nothing of this (refused in words).

mod code;
mod inner;
mod layout;
mod lines;
mod objects;

use std::sync::OnceLock;

use super::memory::Memory;
use super::python::{Code, Miss, abi};
use super::{Facts as AnyFacts, Image, Place, Refusal, Runtime};
use layout::Layout;
pub(in crate::runtime) use lines::line_at;

/// The row of the table.
pub const RUNTIME: Runtime = Runtime {
    name: "Ruby",
    tried: &["2.7", "3.1", "3.3", "3.4"],
    recognise,
};

/// What is known of a file with Ruby's interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `3.1.2`.
    pub version: String,
    /// Virtual address of the pointer to the VM.
    vm: u64,
    /// The function that makes a call of the interpreter, and its loop: offset in the file and length.
    exec: (u64, u64),
    inner: (u64, u64),
    /// Functions that only pass calls on, likewise, ascending.
    pub(super) glue: Vec<(u64, u64)>,
    layout: Layout,
    /// Virtual addresses and length in which the names of identifiers begin.
    data: (u64, u64),
    /// Where in there, once that is known.
    names: OnceLock<u64>,
}

impl Facts {
    /// What the walk is told of a process that has this file mapped with its addresses moved by `bias`;
    /// `file` is the unwinder's id of the file.
    pub fn process(&self, bias: u64, file: u16) -> abi::Proc {
        let span = |(offset, bytes): (u64, u64)| abi::Span {
            first: u64::from(file) << 48 | offset,
            bytes,
        };
        let l = &self.layout;
        abi::Proc {
            runtime: self.vm.wrapping_add(bias),
            eval: [span(self.inner), span(self.exec)],
            interp_head: l.lists,
            interp_next: l.ractor,
            interp_threads: l.threads,
            ts_next: 0,
            ts_thread: l.thread,
            ts_frame: l.context,
            cframe: l.native.is_some().into(),
            cframe_frame: l.native.unwrap_or_default(),
            frame_instr: 0,
            frame_code: 16,
            frame_mark: 32,
            frame_back: l.frame,
            ts_wait: l.wait,
            ts_unblock: l.unblock,
            gil_bytes: l.lock,
            code_name: code::BODY,
            code_line: code::CALLED,
            kind: abi::KIND_RUBY,
            ..abi::Proc::default()
        }
    }

    /// 8 bytes in front of where the lock's holder is in the process that `proc` describes; of several ractors, which
    /// have one each, in the first one.
    pub fn find_gil(
        &self,
        proc: &abi::Proc,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<u64> {
        let mut memory = Memory(&mut read);
        let vm = memory.word(proc.runtime).filter(|vm| *vm != 0)?;
        let lists = vm.wrapping_add(proc.interp_head.into());
        let from = match proc.interp_next {
            0 => vm,
            node => {
                let first = memory.word(lists).filter(|first| *first != lists)?;
                first.wrapping_add_signed(i64::from(proc.interp_threads) - i64::from(node))
            }
        };
        Some(from.wrapping_add(self.layout.holder.into()).wrapping_sub(8))
    }

    /// Reads the function at `address` of a process with this file's addresses moved by `bias`; `check` is what
    /// the walk saw of it.
    ///
    /// # Errors
    /// The miss.
    pub fn read_code(
        &self,
        bias: u64,
        address: u64,
        check: u32,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Code, Miss> {
        code::Reader {
            memory: Memory(&mut read),
            facts: self,
            bias,
        }
        .read(address, check)
    }
}

/// Most threads and ractors that are looked at to find one.
const MOST_HOPS: usize = 2048;
/// Where glibc on x86-64 keeps a thread's id, from its pointer on; the same in all its versions.
const GLIBC_TID: u64 = 720;

/// The pointer of the thread that knows itself as `tid`, in the process that `proc` describes.
pub fn thread_pointer(
    proc: &abi::Proc,
    tid: u32,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<u64> {
    let mut memory = Memory(read);
    let vm = memory.word(proc.runtime)?;
    let lists = vm.wrapping_add(proc.interp_head.into());
    let from_node = i64::from(proc.interp_threads) - i64::from(proc.interp_next);
    let mut hops = 0..MOST_HOPS;
    let mut ractor = lists;
    loop {
        hops.next()?;
        let head = if proc.interp_next == 0 {
            lists
        } else {
            ractor = memory.word(ractor)?;
            if ractor == lists {
                return None;
            }
            ractor.wrapping_add_signed(from_node)
        };
        let mut thread = memory.word(head)?;
        while thread != head {
            hops.next()?;
            let own = memory.word(thread.wrapping_add(proc.ts_thread.into()))?;
            let pointer = match proc.cframe {
                0 => Some(own),
                _ => memory.word(own.wrapping_add(proc.cframe_frame.into())),
            };
            if let Some(pointer) = pointer
                && memory.half(pointer.wrapping_add(GLIBC_TID)) == Some(tid)
            {
                return Some(pointer);
            }
            thread = memory.word(thread)?;
        }
        if proc.interp_next == 0 {
            return None;
        }
    }
}

/// Functions between two calls of the interpreter's loop that only pass the call on.
const GLUE: &[&str] = &[
    "call_cfunc_0",
    "call_cfunc_1",
    "call_cfunc_2",
    "call_cfunc_3",
    "call_cfunc_m1",
    "call_cfunc_m2",
    "invoke_block_from_c_bh",
    "invoke_iseq_block_from_c",
    "ractor_safe_call_cfunc_0",
    "ractor_safe_call_cfunc_1",
    "ractor_safe_call_cfunc_2",
    "ractor_safe_call_cfunc_3",
    "ractor_safe_call_cfunc_m1",
    "ractor_safe_call_cfunc_m2",
    "rb_call",
    "rb_call0",
    "rb_ec_exec_node",
    "rb_funcall",
    "rb_funcallv",
    "rb_funcallv_kw",
    "rb_funcallv_scope",
    "rb_iseq_eval",
    "rb_iseq_eval_main",
    "rb_vm_call0",
    "rb_vm_invoke_proc",
    "rb_yield",
    "rb_yield_0",
    "rb_yield_1",
    "rb_yield_force_blockarg",
    "rb_yield_splat",
    "rb_yield_values",
    "rb_yield_values2",
    "vm_call0_body",
    "vm_call0_cfunc",
    "vm_call0_cfunc_with_frame",
    "vm_call_bmethod",
    "vm_call_bmethod_body",
    "vm_call_cfunc",
    "vm_call_cfunc_with_frame",
    "vm_call_cfunc_with_frame_",
    "vm_call_general",
    "vm_call_method",
    "vm_call_method_each_type",
    "vm_call_opt_block_call",
    "vm_call_opt_call",
    "vm_call_opt_send",
    "vm_call_symbol",
    "vm_exec_loop",
    "vm_invoke_block",
    "vm_invoke_iseq_block",
    "vm_sendish",
    "vm_yield",
    "vm_yield_with_cref",
];

/// What the compiler makes of a function that it adapts to its callers keeps its name in front.
fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

fn recognise(image: &Image<'_>) -> Option<Result<AnyFacts, Refusal>> {
    // Extensions need these.
    let version = image.exported("ruby_version")?;
    image.exported("ruby_api_version")?;
    let version = version_at(image, version)?;
    let refuse = |why: &str| {
        Some(Err(Refusal {
            what: format!("Ruby {version} in {}", image.name()),
            why: why.into(),
        }))
    };
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    let Some(layout) = major.zip(minor).and_then(layout::of_version) else {
        return refuse("only 2.7 to 3.4 are supported");
    };
    let exec = (image.symbol("rb_vm_exec")).or_else(|| image.symbol("vm_exec"));
    let (Some(vm), Some(exec)) = (image.symbol("ruby_current_vm_ptr"), exec) else {
        return refuse(
            "its symbols were removed (strip), and it does not export where its threads are; one with its symbols \
             is read",
        );
    };
    let span = |p: Place| Some((image.offset(p.address)?, p.size));
    let all = |wanted: &dyn Fn(&str) -> bool| -> Vec<(u64, u64)> {
        let found = image.all(|name| wanted(plain(name)));
        let mut all: Vec<_> = found.into_iter().filter_map(span).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    // The compiler may have put the loop into its caller.
    let named = all(&|name| name == "vm_exec_core");
    let inner = (named.into_iter().max_by_key(|(_, bytes)| *bytes))
        .or_else(|| inner::called(image, exec).and_then(span))
        .unwrap_or_default();
    let data = image.symbol("ruby_global_symbols").map(|p| (p.address, 64));
    let data = data.or_else(|| image.extent(".data"));
    Some(Ok(AnyFacts::Ruby(Box::new(Facts {
        version,
        vm: vm.address,
        exec: span(exec)?,
        inner,
        glue: all(&|name| GLUE.binary_search(&name).is_ok()),
        layout,
        data: data.unwrap_or_default(),
        names: OnceLock::new(),
    }))))
}

/// The text at a symbol.
fn version_at(image: &Image<'_>, place: Place) -> Option<String> {
    let bytes = image.at(place.address, place.size.clamp(1, 16) as usize)?;
    let text = bytes.split(|b| *b == 0).next()?;
    let is_version = text.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    (is_version && !text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests;
