//! Where CPython keeps modules, attributes and suspended coroutines, by version.
//!
//! The structures are fixed within a minor version. What C's `_asyncio` has in its own objects is
//! not here: that is learnt from the first task.

/// How the instances of classes written in Python keep their attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    /// To 3.10: in a dict, at an offset that the type tells.
    Dict,
    /// 3.11: in values in front of the object, or in a dict there.
    Before,
    /// 3.12: likewise, in one word that tells which.
    Tagged,
    /// From 3.13: in values behind the object, or in a dict in front of it.
    Inline,
}

/// How a suspended coroutine keeps its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspended {
    /// 3.8, 3.9: in a frame object, with the end of its stack as a pointer.
    Pointer,
    /// 3.10: in a frame object, with the depth of its stack.
    Depth,
    /// From 3.11: within the coroutine.
    Within {
        /// Its state, a signed byte.
        state: u16,
        /// The frame.
        frame: u16,
        /// In the frame: how many things are on its stack and before it; from 3.14 on, where the
        /// stack ends.
        depth: u16,
        /// In the frame: the first of these things, where they are counted.
        first: Option<u16>,
        /// The state of one that has not begun.
        created: i8,
        /// Whether the state alone says that it awaits; before 3.13 the next instruction does.
        awaits: bool,
    },
}

/// Where tasks of C are in lists, which go in circles: from 3.14 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lists {
    /// A list's head, in the state of an interpreter.
    pub interpreter: u64,
    /// Another one, in that of each thread.
    pub thread: u64,
    /// In a task: its node.
    pub node: u64,
}

/// All of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// In an interpreter's state: `sys.modules`.
    pub modules: u32,
    /// In a class: the keys that its instances share.
    pub shared_keys: u16,
    pub attributes: Attributes,
    pub suspended: Suspended,
    /// In the module `asyncio.tasks`: what holds all tasks.
    pub sets: &'static [&'static str],
    pub lists: Option<Lists>,
    /// In a function: its name; in a tuple: its first member.
    pub function_name: u64,
    pub tuple_first: u64,
    /// Whether dicts have the head that came with 3.11.
    pub short_heads: bool,
}

const ALL: &[&str] = &["_all_tasks"];
const TWO: &[&str] = &["_scheduled_tasks", "_eager_tasks"];

impl Places {
    /// Those of CPython 3.`minor`. `modules`: where its runtime says that `sys.modules` is.
    pub(super) fn of(minor: u32, modules: Option<u32>) -> Option<Places> {
        let within = |state, frame, created, awaits| Suspended::Within {
            state,
            frame,
            depth: 64,
            first: Some(72),
            created,
            awaits,
        };
        let old = Places {
            modules: 0,
            shared_keys: 0,
            attributes: Attributes::Dict,
            suspended: Suspended::Pointer,
            sets: ALL,
            lists: None,
            function_name: 64,
            tuple_first: 24,
            short_heads: false,
        };
        let new = Places {
            shared_keys: 880,
            sets: TWO,
            function_name: 32,
            short_heads: true,
            ..old
        };
        Some(match minor {
            8 => Places { modules: 56, ..old },
            9 => Places {
                modules: 856,
                ..old
            },
            10 => Places {
                modules: 856,
                suspended: Suspended::Depth,
                function_name: 32,
                ..old
            },
            11 => Places {
                modules: 888,
                shared_keys: 872,
                attributes: Attributes::Before,
                suspended: within(75, 80, -2, false),
                sets: ALL,
                ..new
            },
            12 => Places {
                modules: 944,
                attributes: Attributes::Tagged,
                suspended: within(67, 72, -2, false),
                ..new
            },
            13 => Places {
                modules: modules?,
                attributes: Attributes::Inline,
                suspended: within(67, 72, -3, true),
                ..new
            },
            14 => Places {
                modules: modules?,
                attributes: Attributes::Inline,
                suspended: Suspended::Within {
                    state: 67,
                    frame: 72,
                    depth: 64,
                    first: None,
                    created: -3,
                    awaits: true,
                },
                lists: Some(Lists {
                    interpreter: 10880,
                    thread: 880,
                    node: 152,
                }),
                tuple_first: 32,
                ..new
            },
            _ => return None,
        })
    }
}
