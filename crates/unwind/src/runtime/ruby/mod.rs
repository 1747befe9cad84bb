//! CRuby 2.7 to 3.4: with a static interpreter, in `libruby`, or embedded.
//!
//! ```text
//! layout.rs            structure offsets, by version
//! code.rs              iseqs and method entries → names, files
//! lines.rs             the interpreter's line table
//! objects.rs           texts, arrays, names of identifiers and classes
//! eval_loop_finder.rs  finds the eval loop in stripped files
//! ```
//!
//! The walk is that of CPython's frames (`bpf/ruby_core.h`), as another kind of chain. It goes from
//! the interpreter's one global pointer to the ractors, to their threads, to the execution context
//! that a thread runs (its own or a fiber's), and along that context's frames. Methods written in C
//! have frames too.
//!
//! Machine code of its JIT compilers (YJIT, RJIT, MJIT) is unwound as any other code; it keeps
//! interpreter frames. Stripped files that export none of the needed symbols are refused with a
//! message.

mod code;
mod eval_loop_finder;
mod layout;
mod lines;
mod objects;

use std::sync::OnceLock;

use super::image::{Image, Refusal, SymbolRange};
use super::memory::Memory;
use super::python::abi;
use layout::Layout;
pub(in crate::runtime) use lines::line_at;

/// Facts about a file with Ruby's interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `3.1.2`.
    pub version: String,
    /// Virtual address of the pointer to the VM.
    vm: u64,
    /// The function that calls the eval loop, and the loop: offset in the file and length, bytes.
    exec: (u64, u64),
    eval_loop: (u64, u64),
    /// Functions that only pass calls on: offset in the file and length, ascending.
    pub(super) glue: Vec<(u64, u64)>,
    layout: Layout,
    /// Virtual address and length of the data that holds the pointer to the table of identifiers.
    data: (u64, u64),
    /// Virtual address of that pointer, once known.
    names: OnceLock<u64>,
}

impl Facts {
    /// The parameters of the walk for a process that maps this file with load bias `bias`. `file`
    /// is the unwinder's id of the file.
    pub fn process(&self, bias: u64, file: u16) -> abi::Proc {
        let span = |(offset, bytes): (u64, u64)| abi::Span {
            first: u64::from(file) << 48 | offset,
            bytes,
        };
        let l = &self.layout;
        abi::Proc {
            runtime: self.vm.wrapping_add(bias),
            eval: [span(self.eval_loop), span(self.exec)],
            interp_head: l.lists,
            interp_next: l.ractor,
            interp_threads: l.threads,
            ts_next: 0,
            ts_thread: l.thread.pointer,
            ts_frame: l.thread.context,
            cframe: l.thread.native.is_some().into(),
            cframe_frame: l.thread.native.unwrap_or_default(),
            frame_instr: 0,
            frame_code: 16,
            frame_mark: 32,
            frame_back: l.frame,
            ts_wait: l.thread.wait,
            ts_unblock: l.thread.unblock,
            gil_bytes: l.lock,
            code_name: layout::BODY,
            code_line: layout::CALLED,
            kind: abi::KIND_RUBY,
            ..abi::Proc::default()
        }
    }

    /// The address 8 bytes before the GVL's holder, in the process that `proc` describes. Each
    /// ractor has a GVL; this is the first ractor's.
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
}

/// Maximum threads and ractors visited in a search.
const MAX_HOPS: usize = 2048;
/// Offset of the thread id in glibc's thread structure on x86-64, for all its versions.
const GLIBC_TID: u64 = 720;

/// The pointer of the thread with id `tid`, as seen in the process that `proc` describes.
pub fn thread_pointer(
    proc: &abi::Proc,
    tid: u32,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Option<u64> {
    let mut memory = Memory(read);
    let vm = memory.word(proc.runtime)?;
    let lists = vm.wrapping_add(proc.interp_head.into());
    let from_node = i64::from(proc.interp_threads) - i64::from(proc.interp_next);
    let mut hops = 0..MAX_HOPS;
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

/// Functions between two calls of the eval loop that only pass the call on.
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

/// A function's name without the compiler's suffix for specialised copies.
fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The facts of a file that contains the runtime.
pub(super) fn recognise(image: &Image<'_>) -> Option<Result<Facts, Refusal>> {
    // Extensions need these symbols.
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
    let span = |p: SymbolRange| Some((image.offset(p.address)?, p.size));
    let all = |wanted: &dyn Fn(&str) -> bool| -> Vec<(u64, u64)> {
        let found = image.all(|name| wanted(plain(name)));
        let mut all: Vec<_> = found.into_iter().filter_map(span).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    // The compiler may have inlined the loop into its caller.
    let named = all(&|name| name == "vm_exec_core");
    let eval_loop = (named.into_iter().max_by_key(|(_, bytes)| *bytes))
        .or_else(|| eval_loop_finder::longest_callee(image, exec).and_then(span))
        .unwrap_or_default();
    let data = image.symbol("ruby_global_symbols").map(|p| (p.address, 64));
    let data = data.or_else(|| image.extent(".data"));
    Some(Ok(Facts {
        version,
        vm: vm.address,
        exec: span(exec)?,
        eval_loop,
        glue: all(&|name| GLUE.binary_search(&name).is_ok()),
        layout,
        data: data.unwrap_or_default(),
        names: OnceLock::new(),
    }))
}

/// The version text at a symbol.
fn version_at(image: &Image<'_>, place: SymbolRange) -> Option<String> {
    let bytes = image.at(place.address, place.size.clamp(1, 16) as usize)?;
    let text = bytes.split(|b| *b == 0).next()?;
    let is_version = text.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    (is_version && !text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests;
