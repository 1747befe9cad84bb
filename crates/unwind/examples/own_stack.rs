//! Unwinds its own stack from three registers, without frame pointers, and prints the frames:
//! `cargo run -p wallscope-unwind --example own_stack`

use std::arch::asm;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

use wallscope_procfs::maps::{self, Mapping};
use wallscope_unwind::native::{
    FileKey, MappingSpec, MemoryTables, Registers, Source, StackStart, TableStore, Unwinder,
};

/// DWARF numbers of registers.
const RBP: usize = 6;
const RSP: usize = 7;

/// A mapped file with code.
struct Code {
    mapping: Mapping,
    key: FileKey,
    file: File,
}

fn own_code(pid: u32) -> Result<Vec<Code>, Box<dyn Error>> {
    let mut code = Vec::new();
    for mapping in maps::read(pid)? {
        if mapping.execute && mapping.is_file() {
            let file = File::open(&mapping.path)?;
            let key = FileKey::of_file(&file)?;
            code.push(Code { mapping, key, file });
        }
    }
    Ok(code)
}

#[inline(always)]
fn registers() -> Registers {
    let mut registers = Registers::default();
    // SAFETY: copies three registers and touches no memory.
    unsafe {
        asm!(
            "lea {}, [rip]",
            "mov {}, rbp",
            "mov {}, rsp",
            out(reg) registers.ip,
            out(reg) registers.general[RBP],
            out(reg) registers.general[RSP],
        );
    }
    registers
}

#[inline(never)]
fn recurse(depth: u32, at_the_bottom: &mut dyn FnMut()) {
    match depth {
        0 => at_the_bottom(),
        _ => recurse(depth - 1, at_the_bottom),
    }
    std::hint::black_box(depth);
}

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::process::id();
    let code = own_code(pid)?;
    let mappings: Vec<MappingSpec<'_>> = code
        .iter()
        .map(|c| MappingSpec {
            start: c.mapping.start,
            end: c.mapping.end,
            pgoff: c.mapping.offset,
            source: Source::File {
                key: &c.key,
                file: Some(&c.file),
            },
        })
        .collect();
    let mut store = TableStore::new(MemoryTables::new(), 64 << 20)?;
    let ids = store.set_process(pid, &mappings)?;
    let memory = File::open("/proc/self/mem")?;
    let read = |address, to: &mut [u8]| memory.read_at(to, address).unwrap_or(0);
    let mut stack = None;
    recurse(5, &mut || {
        let registers = registers();
        let start = StackStart::new(pid, &registers).at_most(100);
        stack = Some(Unwinder::new().unwind(store.sink(), start, read));
    });
    let stack = stack.ok_or("nothing was unwound")?;
    for frame in &stack.frames {
        let path = (ids.iter().zip(&code))
            .find(|(id, _)| **id == frame.file())
            .map_or("[no file]", |(_, code)| &code.mapping.path);
        println!("{path}+{:#x}", frame.lookup_offset());
    }
    println!("{} frames, end: {:?}", stack.frames.len(), stack.end);
    Ok(())
}
