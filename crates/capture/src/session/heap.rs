//! Block of heap memory that holds an address, and the object that begins there.
//!
//! glibc writes each block's size before it, with a bit that says whether the block before is in
//! use (`malloc_chunk` in malloc/malloc.c), so blocks can be followed one after the other. A C++
//! object with virtual functions begins with the address of its class's table, and before that
//! table stands the name of the class (Itanium C++ ABI 2.5.2, 2.9.4). Both are read from the process
//! without stopping it, and only consistent data is believed: other allocators' blocks, and those
//! of other languages, have no such marks, and are not named.

use std::ops::Range;

use wallscope_symbolize::demangle;

/// Distance before an address within which a chain of blocks is searched for, bytes.
const REACH: u64 = 64 * 1024;
/// The longest name of a class that is read, bytes.
const MAX_NAME: usize = 256;
/// Block before this one in use; mapped by itself; of an arena that is not the first.
const IN_USE: u64 = 1;
const MAPPED: u64 = 2;
const ARENA: u64 = 4;
const FLAGS: u64 = IN_USE | MAPPED | ARENA;

/// A block of the heap.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub start: u64,
    /// Bytes that its owner may use.
    pub size: u64,
    /// The C++ class of the object that begins there.
    pub class: Option<String>,
}

/// The memory of a process: reads up to as many bytes as asked for, returns how many it could.
pub type Memory<'m> = &'m dyn Fn(u64, &mut [u8]) -> usize;

fn word(memory: Memory<'_>, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (memory(at, &mut bytes) == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

/// The block of glibc's that holds `address`, within the mapping `region`. `in_file`: whether an
/// address lies in a mapped file.
pub fn block(
    memory: Memory<'_>,
    address: u64,
    region: Range<u64>,
    in_file: &dyn Fn(u64) -> bool,
) -> Option<Block> {
    let (start, size) = alone(memory, address, &region).or_else(|| {
        let from = address.saturating_sub(REACH).max(region.start) & !15;
        let mut bytes = vec![0; (address - from) as usize + 8];
        let readable = memory(from, &mut bytes);
        bytes.truncate(readable);
        let before = Before {
            memory,
            from,
            bytes: &bytes,
            end: region.end,
        };
        // Memory in use may hold old marks of blocks. A chain of blocks meets the true
        // ones after at most one of those, so the first chain that reaches the address is right.
        let mut chunks = (from..address).step_by(16);
        chunks.find_map(|chunk| before.chain(chunk, address))
    })?;
    let class = class(memory, start, in_file);
    Some(Block { start, size, class })
}

/// The block that has its mapping for itself, where `region` is that.
fn alone(memory: Memory<'_>, address: u64, region: &Range<u64>) -> Option<(u64, u64)> {
    let mark = word(memory, region.start + 8)?;
    let whole = mark & !FLAGS;
    let fits =
        mark & MAPPED != 0 && whole.is_multiple_of(4096) && whole <= region.end - region.start;
    let start = region.start + 16;
    (fits && (start..region.start + whole).contains(&address)).then(|| (start, whole - 16))
}

/// Memory before an address, in which blocks are searched for.
struct Before<'m> {
    memory: Memory<'m>,
    /// Address of the bytes.
    from: u64,
    bytes: &'m [u8],
    /// End of the mapping.
    end: u64,
}

impl Before<'_> {
    /// The end of the block at `chunk` with this mark, if there may be one.
    fn end_of(&self, mark: u64, chunk: u64) -> Option<u64> {
        let whole = mark & !FLAGS;
        let end = chunk.checked_add(whole)?;
        let plausible = mark & MAPPED == 0 && whole >= 32 && whole.is_multiple_of(16);
        (plausible && end <= self.end).then_some(end)
    }

    /// Follows blocks from `chunk`, where one may begin, to the one in use that holds `address`: where
    /// that begins for its owner, and its size.
    fn chain(&self, mut chunk: u64, address: u64) -> Option<(u64, u64)> {
        loop {
            let at = (chunk + 8 - self.from) as usize;
            let mark = u64::from_ne_bytes(*self.bytes.get(at..)?.first_chunk()?);
            let end = self.end_of(mark, chunk)?;
            // Its owner may use the first word of the next one, too.
            if address < end + 8 {
                let next = word(self.memory, end + 8)?;
                let last = next & !FLAGS == 16;
                let known = last || self.end_of(next, end).is_some();
                // Only blocks in use bear the arena's bit.
                let used = next & IN_USE != 0 && next & ARENA & !mark == 0;
                let start = chunk + 16;
                return (known && used && address >= start).then_some((start, (mark & !FLAGS) - 8));
            }
            chunk = end;
        }
    }
}

/// The class of the object at `start`, if it has virtual functions.
fn class(memory: Memory<'_>, start: u64, in_file: &dyn Fn(u64) -> bool) -> Option<String> {
    let pointer = |at: u64| word(memory, at).filter(|p| in_file(*p));
    let table = pointer(start)?;
    // The whole object begins here, not a part of it.
    if word(memory, table.checked_sub(16)?)? != 0 {
        return None;
    }
    let info = pointer(table - 8)?;
    // A `std::type_info` is itself an object with virtual functions.
    pointer(info)?;
    let at = pointer(info + 8)?;
    let mut bytes = [0; MAX_NAME];
    let readable = memory(at, &mut bytes);
    let end = bytes[..readable].iter().position(|b| *b == 0)?;
    let name = bytes[..end].strip_prefix(b"*").unwrap_or(&bytes[..end]);
    let mangled = [b"_ZTS", name].concat();
    let name = demangle(&mangled);
    name.strip_prefix("typeinfo name for ").map(shared)
}

/// Returns the class of the object in a block of `std::make_shared`. The block holds the counts before the object and
/// has a class of the library, with the object's class as its first argument.
fn shared(class: &str) -> String {
    const COUNTED: [&str; 2] = [
        "std::_Sp_counted_ptr_inplace<",
        "std::__1::__shared_ptr_emplace<",
    ];
    let Some(arguments) = COUNTED.iter().find_map(|c| class.strip_prefix(c)) else {
        return class.into();
    };
    let mut depth = 0;
    let end = arguments.find(|c| {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            _ => {}
        }
        depth < 0 || (c == ',' && depth == 0)
    });
    format!("shared {}", &arguments[..end.unwrap_or(arguments.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::read_memory;

    fn own(at: u64, to: &mut [u8]) -> usize {
        read_memory(std::process::id(), at, to)
    }

    /// The mapping around an address of this process.
    fn region(at: u64) -> Range<u64> {
        let maps = wallscope_procfs::maps::read(std::process::id()).unwrap();
        let m = maps
            .iter()
            .find(|m| (m.start..m.end).contains(&at))
            .unwrap();
        m.start..m.end
    }

    /// Blocks that are found from an address within them, and all that were tried.
    fn found_blocks() -> (u8, u8) {
        let (mut right, mut all) = (0, 0);
        for size in (24..3000).step_by(40) {
            // SAFETY: freed below; only its address is used.
            let p = unsafe { libc::malloc(size) } as u64;
            for offset in [0, 8, size as u64 - 4] {
                let at = p + offset;
                all += 1;
                right += u8::from(
                    block(&own, at, region(at), &|_| false).is_some_and(|found| {
                        found.start == p && (size..size + 32).contains(&(found.size as usize))
                    }),
                );
            }
            // SAFETY: from malloc above, once.
            unsafe { libc::free(p as *mut libc::c_void) };
        }
        (right, all)
    }

    #[test]
    fn blocks_of_malloc_are_found_from_within() {
        // In a process of its own: other tests allocate meanwhile, which may tear a chain.
        // SAFETY: the child has one thread, uses memory and files, and ends without destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let found = std::panic::catch_unwind(found_blocks);
            // SAFETY: ends this process.
            unsafe { libc::_exit(found.map_or(255, |(right, all)| (all - right).into())) };
        }
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status), "{status:#x}");
        let missed = libc::WEXITSTATUS(status);
        assert!(missed <= 22, "{missed} of 225 missed");
        let on_stack = 0u64;
        let at = &raw const on_stack as u64;
        let far = at..at + 8;
        assert_eq!(block(&own, at, far, &|_| false), None);
    }

    /// A heap and a class as they lie in memory.
    struct Words(Vec<(u64, Vec<u8>)>);

    impl Words {
        fn read(&self, at: u64, to: &mut [u8]) -> usize {
            let inside = |(start, bytes): &&(u64, Vec<u8>)| {
                (*start..start + bytes.len() as u64).contains(&at)
            };
            let Some((start, bytes)) = self.0.iter().find(inside) else {
                return 0;
            };
            let rest = &bytes[(at - start) as usize..];
            let n = rest.len().min(to.len());
            to[..n].copy_from_slice(&rest[..n]);
            n
        }
    }

    fn words(all: &[u64]) -> Vec<u8> {
        all.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn with_class(name: &[u8]) -> Words {
        Words(vec![
            // A block of 0x40 at 0x1010: the object, its lock at +0x20; then the rest of the heap.
            (
                0x1000,
                words(&[0, 0x41, 0x8010, 1, 2, 3, 4, 5, 0, 0x1fc1, 0, 0]),
            ),
            (0x8000, words(&[0, 0x9000, 0xa000])),
            (0x9000, words(&[0xb000, 0xc000])),
            (0xc000, [name, &[0; 8]].concat()),
        ])
    }

    fn found(memory: &Words, at: u64) -> Option<Block> {
        let file = |p: u64| (0x8000..0xd000).contains(&p);
        block(&|at, to| memory.read(at, to), at, 0x1000..0x3000, &file)
    }

    #[test]
    fn an_object_of_a_class_is_named_by_it() {
        let memory = with_class(b"N3app5CacheE");
        let block = found(&memory, 0x1030).unwrap();
        assert_eq!((block.start, block.size), (0x1010, 0x38));
        assert_eq!(block.class.as_deref(), Some("app::Cache"));
        let counted = b"St23_Sp_counted_ptr_inplaceI5CacheSaIvELN9__gnu_cxx12_Lock_policyE2EE";
        let block = found(&with_class(counted), 0x1030).unwrap();
        assert_eq!(block.class.as_deref(), Some("shared Cache"));
    }

    #[test]
    fn what_is_no_block_or_no_class_is_not_believed() {
        let mut memory = with_class(b"no name of a class");
        assert_eq!(found(&memory, 0x1030).unwrap().class, None);
        // The next block says that this one is free.
        memory.0[0].1[0x48..0x50].copy_from_slice(&0x1fc0u64.to_ne_bytes());
        assert_eq!(found(&memory, 0x1030), None);
        // It ends before the address.
        let memory = Words(vec![(0x1000, words(&[0, 0x21, 0, 0, 0, 0x41, 0, 0, 0, 0]))]);
        assert_eq!(found(&memory, 0x1048), None);
        // One that has its mapping for itself.
        let memory = Words(vec![(0x1000, words(&[0, 0x2002, 0, 0, 0]))]);
        let block = found(&memory, 0x1018).unwrap();
        assert_eq!((block.start, block.size), (0x1010, 0x1ff0));
    }
}
