//! CPython's offsets for modules, attributes and suspended coroutines, by version.
//!
//! The structures are fixed within a minor version. The offsets in objects of the C module
//! `_asyncio` are not here: they are learnt from the first task.

/// Storage of the attributes of instances of Python classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Attributes {
    /// Up to 3.10: a dict, at an offset that the type gives.
    Dict,
    /// 3.11: values before the object, or a dict there.
    Before,
    /// 3.12: values or a dict, in one tagged word before the object.
    Tagged,
    /// From 3.13 on: values behind the object, or a dict before it.
    Inline,
}

/// Storage of a suspended coroutine's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Suspended {
    /// 3.8, 3.9: a frame object, with a pointer to the end of its stack.
    Pointer,
    /// 3.10: a frame object, with the depth of its stack.
    Depth,
    /// From 3.11 on: inside the coroutine.
    Within {
        /// Offset of its state, a signed byte.
        state: u16,
        /// Offset of the frame.
        frame: u16,
        /// In the frame: offset of the number of locals and stack entries; from 3.14 on, of the
        /// pointer to the stack's end.
        depth: u16,
        /// In the frame: offset of the first local, where they are counted.
        first: Option<u16>,
        /// State of a coroutine that has not started.
        created: i8,
        /// Whether the state alone shows an await; before 3.13 the next instruction does.
        awaits: bool,
    },
}

impl Suspended {
    /// A frame inside the coroutine, as from 3.11 to 3.13.
    const fn within(state: u16, frame: u16, created: i8, awaits: bool) -> Suspended {
        Suspended::Within {
            state,
            frame,
            depth: 64,
            first: Some(72),
            created,
            awaits,
        }
    }
}

/// Offsets of the circular lists of C tasks, from 3.14 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Lists {
    /// In an interpreter's state: the head of a list.
    pub interpreter: u64,
    /// In a thread's state: the head of a list.
    pub thread: u64,
    /// In a task: its list node.
    pub node: u64,
}

/// All offsets of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Offsets {
    /// In an interpreter's state: `sys.modules`.
    pub modules: u32,
    /// In a class: the keys shared by its instances.
    pub shared_keys: u16,
    pub attributes: Attributes,
    pub suspended: Suspended,
    /// In the module `asyncio.tasks`: names of the containers of tasks.
    pub sets: &'static [&'static str],
    pub lists: Option<Lists>,
    /// In a function: its name; in a tuple: its first member.
    pub function_name: u64,
    pub tuple_first: u64,
    /// Whether dict keys have the short header introduced in 3.11.
    pub short_heads: bool,
}

const ALL: &[&str] = &["_all_tasks"];
const TWO: &[&str] = &["_scheduled_tasks", "_eager_tasks"];

impl Offsets {
    /// The offsets of CPython 3.`minor`. `modules`: the runtime's own offset of `sys.modules`.
    pub(in super::super) fn of(minor: u32, modules: Option<u32>) -> Option<Offsets> {
        let within = Suspended::within;
        let old = Offsets {
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
        let new = Offsets {
            shared_keys: 880,
            sets: TWO,
            function_name: 32,
            short_heads: true,
            ..old
        };
        Some(match minor {
            8 => Offsets { modules: 56, ..old },
            9 => Offsets {
                modules: 856,
                ..old
            },
            10 => Offsets {
                modules: 856,
                suspended: Suspended::Depth,
                function_name: 32,
                ..old
            },
            11 => Offsets {
                modules: 888,
                shared_keys: 872,
                attributes: Attributes::Before,
                suspended: within(75, 80, -2, false),
                sets: ALL,
                ..new
            },
            12 => Offsets {
                modules: 944,
                attributes: Attributes::Tagged,
                suspended: within(67, 72, -2, false),
                ..new
            },
            13 => Offsets {
                modules: modules?,
                attributes: Attributes::Inline,
                suspended: within(67, 72, -3, true),
                ..new
            },
            14 => Offsets {
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
