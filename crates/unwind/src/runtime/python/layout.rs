//! Offsets in CPython's structures, by version.
//!
//! Up to 3.12 they are in tables here: the structures are fixed within a minor version. From 3.13
//! on the runtime starts with a table of its own, `_Py_DebugOffsets`, which is read from the file.

use super::abi::{self, Proc};

/// Line table format of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Up to 3.9, `co_lnotab`.
    Increments,
    /// 3.10, `co_linetable`.
    Ranges,
    /// From 3.11 on, `co_linetable`.
    Locations,
    /// None: each frame holds its line, in place of the instruction (PHP).
    InFrame,
    /// Pairs of position and line, by the address of the next instruction (Ruby; `ruby/lines.rs`).
    Places,
}

/// Location of the GIL's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gil {
    /// At this offset in the runtime.
    InRuntime(u32),
    /// Behind the pointer at the first offset in the main interpreter. The runtime has that
    /// interpreter's address at the second offset.
    Pointer(u32, u32),
}

/// Offsets in code objects and texts that user space reads, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objects {
    /// In a code object: flags, first line, file name, name, line table.
    pub(crate) flags: u16,
    pub(crate) line: u16,
    pub(crate) file: u16,
    pub(crate) name: u16,
    pub(crate) table: u16,
    pub(crate) lines: Lines,
    /// Bytes of the header of an ASCII text, and of another compact one.
    pub(crate) ascii: u16,
    pub(crate) compact: u16,
}

/// Offsets of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Parameters of the walk, without addresses.
    pub(crate) walk: Proc,
    pub(crate) objects: Objects,
    pub(crate) gil: Gil,
    /// In an interpreter's state: `sys.modules`, if the runtime exports it.
    pub(crate) modules: Option<u32>,
}

/// Bytes of the GIL's structure, which contains its condition variables and mutexes.
const GIL_BYTES: u32 = 208;

const OBJECTS: Objects = Objects {
    flags: 36,
    line: 40,
    file: 104,
    name: 112,
    table: 120,
    lines: Lines::Increments,
    ascii: 48,
    compact: 72,
};

/// 3.9; its neighbours differ little.
const V3_9: Layout = Layout {
    walk: Proc {
        runtime: 0,
        gil: 0,
        eval: [abi::Span { first: 0, bytes: 0 }; 2],
        gil_bytes: GIL_BYTES,
        interp_head: 32,
        interp_next: 0,
        interp_threads: 8,
        ts_next: 8,
        ts_thread: 176,
        ts_frame: 24,
        cframe_frame: 0,
        ts_cframe: 0,
        frame_code: 32,
        frame_back: 24,
        frame_instr: 104,
        frame_mark: 0,
        code_line: 40,
        code_name: 112,
        code_start: 0,
        kind: abi::KIND_OBJECTS,
        cframe: 0,
        lasti_shift: 0,
        ts_wait: 0,
        ts_unblock: 0,
        pad0: [0; 1],
    },
    objects: OBJECTS,
    gil: Gil::InRuntime(352),
    modules: None,
};

/// The offsets of CPython 3.`minor`, for versions without a table of their own.
pub(crate) fn of_version(minor: u32) -> Option<Layout> {
    let v = V3_9;
    Some(match minor {
        8 => Layout {
            gil: Gil::InRuntime(1152),
            ..v
        },
        9 => v,
        10 => Layout {
            walk: Proc {
                ts_cframe: 48,
                frame_instr: 96,
                lasti_shift: 1,
                ..v.walk
            },
            objects: Objects {
                lines: Lines::Ranges,
                ..OBJECTS
            },
            ..v
        },
        11 => Layout {
            walk: Proc {
                interp_head: 40,
                interp_next: 0,
                interp_threads: 16,
                ts_thread: 152,
                ts_frame: 56,
                cframe: 1,
                cframe_frame: 8,
                ts_cframe: 56,
                frame_code: 32,
                frame_back: 48,
                frame_instr: 56,
                frame_mark: 68,
                code_line: 72,
                code_name: 128,
                code_start: 184,
                kind: abi::KIND_ENTRY,
                ..v.walk
            },
            objects: Objects {
                flags: 48,
                line: 72,
                file: 112,
                name: 128,
                table: 136,
                lines: Lines::Locations,
                ..OBJECTS
            },
            gil: Gil::InRuntime(360),
            modules: None,
        },
        12 => Layout {
            walk: Proc {
                interp_head: 40,
                interp_next: 0,
                interp_threads: 72,
                ts_thread: 136,
                ts_frame: 56,
                cframe: 1,
                cframe_frame: 0,
                ts_cframe: 56,
                frame_code: 0,
                frame_back: 8,
                frame_instr: 56,
                frame_mark: 70,
                code_line: 68,
                code_name: 128,
                code_start: 192,
                kind: abi::KIND_SHIM,
                ..v.walk
            },
            objects: Objects {
                flags: 48,
                line: 68,
                file: 112,
                name: 128,
                table: 136,
                lines: Lines::Locations,
                ascii: 40,
                compact: 56,
            },
            gil: Gil::Pointer(384, 48),
            modules: None,
        },
        _ => return None,
    })
}

/// The first bytes of a runtime that exports its offsets.
pub(crate) const COOKIE: &[u8; 8] = b"xdebugpy";
/// Words of `_Py_DebugOffsets` that are read, from the cookie on.
pub(crate) const WORDS: usize = 64;

/// The offsets in `_Py_DebugOffsets` of 3.13 or 3.14; an error says why they cannot be used.
pub(crate) fn of_offsets(words: &[u64; WORDS], minor: u32) -> Result<Layout, String> {
    // The order of the fields: cookie, version, free_threaded, then a size and offsets for each
    // structure.
    let free_threaded = words[2];
    if free_threaded != 0 {
        return Err("free-threaded builds are not supported yet".into());
    }
    let [runtime, interp, thread, frame, code] = match minor {
        13 => [3, 6, 19, 28, 34],
        _ => [3, 6, 22, 31, 39],
    };
    // From 3.14 on an interpreter has one more field before these.
    let [modules, gil] = match minor {
        13 => [interp + 5, interp + 8],
        _ => [interp + 6, interp + 9],
    };
    let small = |at: usize, what: &str| -> Result<u16, String> {
        match words[at] {
            n if n + 8 <= u64::from(abi::MAX_READ_BYTES) => Ok(n as u16),
            n => Err(format!(
                "offset of {what} is {n}: not a layout that is known"
            )),
        }
    };
    let large = |at: usize, what: &str| -> Result<u32, String> {
        match words[at] {
            n if n < 1 << 24 && n.is_multiple_of(8) => Ok(n as u32),
            n => Err(format!(
                "offset of {what} is {n}: not a layout that is known"
            )),
        }
    };
    let interp_head = large(runtime + 2, "the interpreters")?;
    let walk = Proc {
        gil_bytes: GIL_BYTES,
        interp_head,
        interp_next: large(interp + 2, "the next interpreter")?,
        interp_threads: large(interp + 3, "the threads")?,
        ts_next: small(thread + 2, "the next thread")?,
        ts_frame: small(thread + 4, "the current frame")?,
        ts_thread: small(thread + 5, "a thread's pointer")?,
        frame_back: small(frame + 1, "the calling frame")?,
        frame_code: small(frame + 2, "a frame's code")?,
        frame_instr: small(frame + 3, "a frame's instruction")?,
        frame_mark: small(frame + 5, "a frame's owner")?,
        code_line: small(code + 5, "a code's first line")?,
        code_name: small(code + 3, "a code's name")?,
        code_start: small(code + 9, "a code's instructions")?,
        kind: abi::KIND_SHIM,
        ..Proc::default()
    };
    if walk.interp_next.abs_diff(walk.interp_threads) + 8 > abi::MAX_READ_BYTES {
        return Err("the interpreter's state is laid out in a way that is not known".into());
    }
    Ok(Layout {
        walk,
        objects: Objects {
            flags: 48,
            line: walk.code_line,
            file: small(code + 1, "a code's file")?,
            name: walk.code_name,
            table: small(code + 4, "a code's line table")?,
            lines: Lines::Locations,
            ascii: 40,
            compact: 56,
        },
        // The main interpreter follows the list's head.
        gil: Gil::Pointer(large(gil, "the GIL")?, interp_head + 8),
        modules: Some(large(modules, "the modules")?),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The table of 3.14.10.
    pub(crate) const V3_14: [u64; WORDS] = [
        0x7970_6775_6265_6478,
        0x030e_0af0,
        0,
        316616,
        784,
        808,
        225864,
        7280,
        7272,
        7344,
        7360,
        7408,
        7688,
        7672,
        7680,
        16,
        7784,
        0,
        7800,
        7792,
        7992,
        0,
        832,
        0,
        8,
        16,
        72,
        152,
        160,
        232,
        32,
        88,
        8,
        0,
        56,
        80,
        74,
        64,
        0,
        216,
        112,
        120,
        128,
        136,
        68,
        52,
        96,
        104,
        208,
        0,
        16,
        8,
        416,
        24,
        88,
        168,
        40,
        32,
        16,
        40,
        24,
        16,
        200,
        24,
    ];

    #[test]
    fn a_real_table_is_read() {
        let layout = of_offsets(&V3_14, 14).expect("a layout");
        let w = layout.walk;
        assert_eq!(
            (w.interp_head, w.interp_next, w.interp_threads),
            (808, 7272, 7344)
        );
        assert_eq!((w.ts_next, w.ts_thread, w.ts_frame), (8, 152, 72));
        assert_eq!(
            (w.frame_code, w.frame_back, w.frame_instr, w.frame_mark),
            (0, 8, 56, 74)
        );
        assert_eq!((w.code_name, w.code_line, w.code_start), (128, 68, 208));
        assert_eq!(layout.gil, Gil::Pointer(16, 816));
        assert_eq!(layout.modules, Some(7688));
    }

    #[test]
    fn every_offset_of_the_tables_lies_in_one_piece() {
        for minor in 8..=12 {
            let w = of_version(minor).expect("a table").walk;
            let all = [
                w.ts_next,
                w.ts_thread,
                w.ts_frame,
                w.cframe_frame,
                w.frame_code,
                w.frame_back,
                w.frame_instr,
                w.frame_mark,
                w.code_line,
                w.code_name,
            ];
            assert!(
                all.iter()
                    .all(|at| u32::from(*at) + 8 <= abi::MAX_READ_BYTES)
            );
            assert!(w.interp_next.abs_diff(w.interp_threads) + 8 <= abi::MAX_READ_BYTES);
        }
        assert!(of_version(7).is_none() && of_version(13).is_none());
    }

    #[test]
    fn offsets_that_make_no_sense_are_refused() {
        for (minor, thread) in [(13, 19), (14, 22)] {
            let mut words = [0u64; WORDS];
            words[thread + 4] = 1 << 40;
            assert!(of_offsets(&words, minor).is_err());
            words[2] = 1;
            let error = of_offsets(&words, minor).unwrap_err();
            assert!(error.contains("free-threaded"));
        }
    }
}
