//! Offsets in CRuby's structures, by version. Builds do not export them.

/// In an iseq: its body.
pub(super) const BODY: u16 = 16;
/// In a method entry: the called name; its definition comes before it, the class after it.
pub(super) const CALLED: u16 = 24;

/// Location of a class's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassNames {
    /// Class variable `__classpath__`. The variable table is at this offset of the object pointed
    /// to at offset 24.
    Variables(u64),
    /// At the first offset of the class; the attached object of a singleton class is at the second.
    Beside(u64, u64),
    /// Unknown.
    Nowhere,
}

/// Offsets of one version, bytes. Offsets common to all versions are in [`super::Facts::process`]
/// and `code.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    version: (u32, u32),
    /// In the VM: the list of ractors; before 3.0 of threads.
    pub(super) lists: u32,
    /// In a ractor: its link in that list (0: there are none), and the list of its threads.
    pub(super) ractor: u32,
    pub(super) threads: u32,
    pub(super) thread: ThreadOffsets,
    /// From a ractor's list of threads, before 3.0 from the VM: the GVL's holder.
    pub(super) holder: u32,
    /// Bytes of the GVL, from 8 before the holder on.
    pub(super) lock: u32,
    /// Bytes of a frame.
    pub(super) frame: u16,
    /// In an iseq's body: its line table.
    pub(super) lines: usize,
    /// Bytes of an entry of that table.
    pub(super) line: usize,
    /// Whether the first line is stored as a Ruby integer.
    pub(super) boxed_line: bool,
    /// Whether embedded texts have a length field; otherwise the length is in their flags.
    pub(super) long_texts: bool,
    pub(super) classes: ClassNames,
}

/// Offsets in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadOffsets {
    /// Its pointer, or an object with the pointer at `native`.
    pub(super) pointer: u16,
    pub(super) native: Option<u16>,
    /// The execution context.
    pub(super) context: u16,
    /// In the object with the pointer: the condition variable on which the thread waits for the
    /// GVL.
    pub(super) wait: u16,
    /// The function that can end its sleep.
    pub(super) unblock: u16,
}

const V27: Layout = Layout {
    version: (2, 7),
    lists: 312,
    ractor: 0,
    threads: 0,
    thread: ThreadOffsets {
        pointer: 72,
        native: None,
        context: 32,
        wait: 104,
        unblock: 232,
    },
    holder: 8,
    // Up to the condition variable on which the releasing thread waits.
    lock: 8 + 176,
    frame: 56,
    lines: 120,
    line: 8,
    boxed_line: true,
    long_texts: false,
    classes: ClassNames::Variables(8),
};
const V30: Layout = Layout {
    version: (3, 0),
    lists: 8,
    ractor: 568,
    threads: 304,
    thread: ThreadOffsets {
        pointer: 80,
        native: None,
        context: 40,
        wait: 112,
        unblock: 240,
    },
    holder: 32,
    ..V27
};
const V31: Layout = Layout {
    version: (3, 1),
    thread: ThreadOffsets {
        wait: 120,
        unblock: 248,
        ..V30.thread
    },
    frame: 64,
    line: 12,
    ..V30
};
const V32: Layout = Layout {
    version: (3, 2),
    thread: ThreadOffsets {
        pointer: 40,
        native: Some(8),
        context: 48,
        wait: 32,
        unblock: 200,
    },
    lines: 112,
    boxed_line: false,
    long_texts: true,
    classes: ClassNames::Nowhere,
    ..V31
};
const V33: Layout = Layout {
    version: (3, 3),
    ractor: 432,
    threads: 256,
    thread: ThreadOffsets {
        native: Some(16),
        wait: 40,
        unblock: 328,
        ..V32.thread
    },
    holder: 72,
    // Handed over by naming the next thread.
    lock: 8,
    frame: 56,
    classes: ClassNames::Beside(152, 128),
    ..V32
};
const V34: Layout = Layout {
    version: (3, 4),
    ..V33
};

const LAYOUTS: &[Layout] = &[V27, V30, V31, V32, V33, V34];

/// Returns the layout of a version, if it is supported.
pub(super) fn of_version(version: (u32, u32)) -> Option<Layout> {
    LAYOUTS.iter().find(|l| l.version == version).copied()
}
