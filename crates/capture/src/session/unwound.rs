//! Stacks as they come in: unwound, not named.

use wallscope_model::StackEnd;
use wallscope_unwind::runtime::python;

/// Way in which a stack was unwound. Each way numbers files by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unwinding {
    /// At once, by the kernel programs.
    Immediate,
    /// Later, from a copy of its memory.
    Deferred,
}

/// An unwound user stack.
pub struct UserStack {
    /// End of the stack.
    pub end: StackEnd,
    /// Way in which it was unwound.
    pub unwinding: Unwinding,
    /// Frames, innermost first (see `uw_stack` in `unwind_abi.h`), with the facts of a
    /// VM's (see `hotspot_abi.h`).
    pub frames: Box<[u64]>,
}

/// A stack's managed frames.
#[derive(Debug)]
pub struct ManagedStack {
    /// Its process.
    pub pid: u32,
    /// End of the reading (`enum py_end`).
    pub end: u32,
    /// Two words a frame, innermost first (see `struct py_stack` in `python_abi.h`).
    pub words: Box<[u64]>,
}

impl ManagedStack {
    /// Returns the end of the whole stack; `native` is the end of its native frames. Managed frames that were
    /// not read are missing in the stack, too.
    pub fn end_with(&self, native: StackEnd) -> StackEnd {
        use python::abi::End;
        match End::from_raw(self.end) {
            Some(End::MaxFrames) => StackEnd::MaxFrames,
            Some(End::Unreadable) => StackEnd::Unreadable,
            Some(End::Garbage) => StackEnd::NoProgress,
            Some(End::Root | End::NotReady | End::NoThread) | None => native,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use python::abi::End;

    #[test]
    fn a_stack_without_some_of_its_managed_frames_is_not_whole() {
        let end = |end: End, native| {
            let words = Box::default();
            let stack = ManagedStack {
                pid: 1,
                end: end as u32,
                words,
            };
            stack.end_with(native)
        };
        assert_eq!(end(End::Root, StackEnd::Root), StackEnd::Root);
        assert_eq!(end(End::Root, StackEnd::BadRule), StackEnd::BadRule);
        assert_eq!(end(End::MaxFrames, StackEnd::Root), StackEnd::MaxFrames);
        assert_eq!(end(End::Unreadable, StackEnd::Root), StackEnd::Unreadable);
    }
}
