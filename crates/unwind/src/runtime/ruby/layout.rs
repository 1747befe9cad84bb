//! Where things are in CRuby's structures, by version: no build tells, so that it stands here.

/// Where the name of a class is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassNames {
    /// Among the class's variables, as `__classpath__`; the table of those is at this offset of what is pointed to at 24.
    Variables(u64),
    /// At this offset of the class; what a class of one object belongs to is at the other one.
    Beside(u64, u64),
    /// Not known.
    Nowhere,
}

/// Offsets, bytes. What is the same in all versions is in [`super::Facts::process`] and `code.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    version: (u32, u32),
    /// In the VM: the list of ractors; before 3.0 of threads.
    pub(super) lists: u32,
    /// In a ractor: its place in that list (0: there are none), and the list of its threads.
    pub(super) ractor: u32,
    pub(super) threads: u32,
    /// In a thread: its pointer, or what has it at `native`.
    pub(super) thread: u16,
    pub(super) native: Option<u16>,
    /// In a thread: the execution context.
    pub(super) context: u16,
    /// Where its pointer is: what it waits at for the lock; and in a thread: who can end its sleep.
    pub(super) wait: u16,
    pub(super) unblock: u16,
    /// In a ractor, from its threads on; before 3.0 in the VM: who has the lock.
    pub(super) holder: u32,
    /// From 8 in front of that, the lock's length.
    pub(super) lock: u32,
    /// Length of a frame.
    pub(super) frame: u16,
    /// In the body of a piece of code: its lines.
    pub(super) lines: usize,
    /// Length of an entry of those.
    pub(super) line: usize,
    /// Whether the first line is a number as the program knows it.
    pub(super) boxed_line: bool,
    /// Whether short texts have their length in front, not among their flags.
    pub(super) long_texts: bool,
    pub(super) classes: ClassNames,
}

const V27: Layout = Layout {
    version: (2, 7),
    lists: 312,
    ractor: 0,
    threads: 0,
    thread: 72,
    native: None,
    context: 32,
    wait: 104,
    unblock: 232,
    holder: 8,
    // Up to where who gives it waits.
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
    thread: 80,
    context: 40,
    wait: 112,
    unblock: 240,
    holder: 32,
    ..V27
};
const V31: Layout = Layout {
    version: (3, 1),
    wait: 120,
    unblock: 248,
    frame: 64,
    line: 12,
    ..V30
};
const V32: Layout = Layout {
    version: (3, 2),
    thread: 40,
    native: Some(8),
    context: 48,
    wait: 32,
    unblock: 200,
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
    native: Some(16),
    wait: 40,
    unblock: 328,
    holder: 72,
    // Given by naming the next one.
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

/// That of a version, if it is known.
pub(super) fn of_version(version: (u32, u32)) -> Option<Layout> {
    LAYOUTS.iter().find(|l| l.version == version).copied()
}
