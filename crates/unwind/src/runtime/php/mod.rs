//! PHP 7.3 to 8.5: command line, `php-fpm`, Apache module, embedded.
//!
//! ```text
//! code.rs     functions → names, files
//! ```
//!
//! The engine has one chain of frames for the whole process, which starts at a fixed address and
//! includes functions written in C. The walk is that of CPython's frames (`bpf/python_core.h`), as
//! another kind of chain. A frame knows its line, so no line tables are read.
//!
//! Only the chain's start and the offset of a function's file depend on the version. Builds do not
//! export them, so they are in a table here. Thread-safe builds, which keep a chain for each
//! thread, are refused with a message. Machine code of the engine's JIT (`opcache.jit`) is unwound
//! as any other code.

mod code;

use super::image::{Image, Refusal};
use super::python::{Code, Miss, abi};

/// Offsets of one version, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    version: (u32, u32),
    /// In `executor_globals`: the innermost frame.
    current: u32,
    /// In a function: its file; its first line follows.
    file: u16,
}

const fn layout(version: (u32, u32), current: u32, file: u16) -> Layout {
    Layout {
        version,
        current,
        file,
    }
}

/// All supported versions; offsets common to all of them are in [`Facts::process`].
const LAYOUTS: &[Layout] = &[
    layout((7, 3), 488, 128),
    layout((7, 4), 488, 136),
    layout((8, 0), 488, 144),
    layout((8, 1), 488, 144),
    layout((8, 2), 488, 152),
    layout((8, 3), 488, 144),
    layout((8, 4), 488, 168),
    layout((8, 5), 512, 168),
];

/// Facts about a file with PHP's engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `8.2.7`.
    pub version: String,
    /// Virtual address of `executor_globals`.
    globals: u64,
    /// The engine's eval loop: offset in the file and length, bytes.
    execute: (u64, u64),
    /// Functions that only pass calls on: offset in the file and length, ascending.
    pub(super) glue: Vec<(u64, u64)>,
    layout: Layout,
}

impl Facts {
    /// The parameters of the walk for a process that maps this file with load bias `bias`. `file`
    /// is the unwinder's id of the file.
    pub fn process(&self, bias: u64, file: u16) -> abi::Proc {
        let (offset, bytes) = self.execute;
        let execute = abi::Span {
            first: u64::from(file) << 48 | offset,
            bytes,
        };
        abi::Proc {
            runtime: self.globals.wrapping_add(bias),
            eval: [execute, abi::Span::default()],
            interp_head: self.layout.current,
            frame_instr: 0,
            frame_code: 24,
            frame_mark: 40,
            frame_back: 48,
            code_line: 0,
            code_name: 8,
            code_start: 24,
            kind: abi::KIND_PHP,
            ..abi::Proc::default()
        }
    }

    /// Reads the function at `address`. `check` is the checksum that the walk computed.
    ///
    /// # Errors
    /// The reason for the miss.
    pub fn read_code(
        &self,
        address: u64,
        check: u32,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Code, Miss> {
        code::read(self.layout.file, address, check, &mut read)
    }
}

/// Functions between two calls of the eval loop that only pass the call on.
const GLUE: &[&str] = &[
    "_call_user_function_impl",
    "zend_call_function",
    "zend_call_known_function",
    "zend_call_known_instance_method_with_2_params",
    "zend_call_method",
    "zend_execute",
];

/// Header that PHP adds to HTTP responses by default.
const BANNER: &[u8] = b"X-Powered-By: PHP/";

/// The facts of a file that contains the runtime.
pub(super) fn recognise(image: &Image<'_>) -> Option<Result<Facts, Refusal>> {
    let execute = image.exported("execute_ex")?;
    // Extensions need one of the two symbols.
    let globals = image.exported("executor_globals");
    if globals.is_none() && image.exported("executor_globals_offset").is_none() {
        return None;
    }
    let version = version(image.section(".rodata")?);
    let name = version.as_deref().unwrap_or("of unknown version");
    let refuse = |why: &str| {
        Some(Err(Refusal {
            what: format!("PHP {name} in {}", image.name()),
            why: why.into(),
        }))
    };
    let Some(globals) = globals else {
        return refuse("it is a thread-safe build (ZTS); stacks show the engine's own functions");
    };
    let mut numbers = name.split('.').map(|n| n.parse::<u32>().ok());
    let known = match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => LAYOUTS.iter().find(|l| l.version == (major, minor)),
        _ => None,
    };
    let Some(layout) = known else {
        return refuse("only 7.3 to 8.5 are supported");
    };
    let span = |p: super::SymbolRange| Some((image.offset(p.address)?, p.size));
    let mut glue: Vec<_> = (image.all(|name| GLUE.binary_search(&name).is_ok()))
        .into_iter()
        .filter_map(span)
        .collect();
    glue.sort_unstable();
    glue.dedup();
    Some(Ok(Facts {
        version: name.to_owned(),
        globals: globals.address,
        execute: span(execute)?,
        glue,
        layout: *layout,
    }))
}

/// The version in the program's constants.
fn version(constants: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(constants, BANNER)?;
    let rest = &constants[at + BANNER.len()..];
    let told = rest
        .iter()
        .take_while(|b| b.is_ascii_digit() || **b == b'.');
    let told: Vec<u8> = told.copied().take(16).collect();
    String::from_utf8(told).ok().filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        assert!(GLUE.is_sorted());
        assert!(LAYOUTS.is_sorted_by_key(|l| l.version));
    }

    #[test]
    fn the_version_is_told_by_the_banner() {
        let rodata = b"x\0X-Powered-By: PHP/8.2.36-1\0y";
        assert_eq!(version(rodata).as_deref(), Some("8.2.36"));
        assert_eq!(version(b"X-Powered-By: PHP/"), None);
        assert_eq!(version(b"PHP/8.2"), None);
    }

    /// A process as memory by address.
    fn read(memory: &[(u64, Vec<u8>)]) -> impl FnMut(u64, &mut [u8]) -> bool + '_ {
        |at, to| {
            memory.iter().any(|(from, bytes)| {
                let into = at.wrapping_sub(*from) as usize;
                let part = bytes.get(into..into.saturating_add(to.len()));
                part.map(|part| to.copy_from_slice(part)).is_some()
            })
        }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// A text in the engine's layout.
    fn string(text: &str) -> Vec<u8> {
        let mut bytes = words(&[1, 0, text.len() as u64]);
        bytes.extend(text.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    const TOP: u64 = 1 << 17;

    /// The engine runs `Shop::total`, called by `array_map`, called by a script. A generator's
    /// frame without a function stands before the script's.
    fn process() -> Vec<(u64, Vec<u8>)> {
        let mut method = words(&[2, 0x30_000, 0x31_000]);
        method.resize(152, 0);
        method.extend(words(&[0x32_000, 7]));
        let mut script = words(&[2, 0, 0]);
        script.resize(152, 0);
        script.extend(words(&[0x32_000, 1]));
        vec![
            (0x10_000 + 488, words(&[0x20_000])),
            // opline, call, return value, function, this, call info, caller
            (
                0x20_000,
                words(&[0x40_000, 0, 0, 0x50_000, 0, TOP, 0x20_100]),
            ),
            (0x20_100, words(&[0, 0, 0, 0x51_000, 0, 0, 0x20_200])),
            (0x20_200, words(&[0, 0, 0, 0, 0, 0, 0x20_300])),
            (0x20_300, words(&[0x40_020, 0, 0, 0x52_000, 0, TOP, 0])),
            (0x40_000, words(&[0, 0, 0, 12, 0, 0, 0, 40])),
            (0x50_000, method),
            (0x51_000, words(&[1, 0x33_000, 0])),
            (0x52_000, script),
            (0x31_000, words(&[0, 0x34_000])),
            (0x30_000, string("total")),
            (0x32_000, string("/srv/shop.php")),
            (0x33_000, string("array_map")),
            (0x34_000, string("Shop")),
        ]
    }

    fn facts() -> Facts {
        Facts {
            version: "8.2.0".into(),
            globals: 0x1000,
            execute: (0, 16),
            glue: Vec::new(),
            layout: LAYOUTS[4],
        }
    }

    #[test]
    fn a_chain_is_walked_and_named() {
        let (memory, facts) = (process(), facts());
        let proc = facts.process(0xf000, 3);
        let stack = super::super::python::Walker::new().walk(&proc, 1, &mut 0, read(&memory));
        assert_eq!(stack.end, abi::End::Root);
        let told: Vec<_> = (stack.words.chunks_exact(2))
            .map(|w| {
                let (address, check) = (w[0] & (abi::WORD_ENTRY - 1), (w[1] >> 32) as u32);
                let code = facts
                    .read_code(address, check, read(&memory))
                    .expect("a function");
                let line = code.line_at(w[1] as u32 as i32);
                (code.name, code.file, line, w[0] & abi::WORD_ENTRY != 0)
            })
            .collect();
        let frame = |name: &str, file: &str, line, entry| (name.into(), file.into(), line, entry);
        assert_eq!(
            told,
            [
                frame("Shop::total", "/srv/shop.php", 12, true),
                frame("array_map", "php:internal", 0, false),
                frame("<main>", "/srv/shop.php", 40, true),
            ]
        );
    }

    #[test]
    fn what_is_no_function_is_none() {
        let (mut memory, facts) = (process(), facts());
        let check = |name: u64| super::super::python::check(name, 2);
        let read_at = |memory: &[_], at, check| facts.read_code(at, check, read(memory));
        assert!(read_at(&memory, 0x50_000, check(0x30_000)).is_ok());
        assert_eq!(read_at(&memory, 0x50_000, 1), Err(Miss::Changed));
        assert_eq!(read_at(&memory, 0x60_000, 1), Err(Miss::Unreadable));
        // A text of 2⁶³ bytes.
        memory.retain(|(at, _)| *at != 0x30_000);
        memory.push((0x30_000, words(&[1, 0, 1 << 63, 0])));
        assert_eq!(
            read_at(&memory, 0x50_000, check(0x30_000)),
            Err(Miss::Changed)
        );
        // A cyclic chain, and one to unmapped memory.
        for (back, end) in [
            (0x20_000, abi::End::MaxFrames),
            (0x90_000, abi::End::Unreadable),
            (0x90_001, abi::End::Garbage),
        ] {
            let mut memory = process();
            memory[4].1 = words(&[0x40_020, 0, 0, 0x52_000, 0, TOP, back]);
            let proc = facts.process(0xf000, 3);
            let stack = super::super::python::Walker::new().walk(&proc, 1, &mut 0, read(&memory));
            assert_eq!(stack.end, end);
        }
    }
}
