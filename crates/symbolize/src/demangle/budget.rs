//! Limits the work of demangling a hostile name.

/// Maximum work for one name: a unit for each step and for each byte written.
const MAX_WORK: usize = 256 << 10;

/// Work left and depth of recursion.
pub(super) struct Budget {
    work: usize,
    depth: u32,
    max_depth: u32,
}

impl Budget {
    /// Creates a budget for one name.
    pub(super) fn new(max_depth: u32) -> Self {
        Budget {
            work: MAX_WORK,
            depth: 0,
            max_depth,
        }
    }

    /// Takes `units` of work. `None` if that is more than is left; then nothing is left.
    pub(super) fn spend(&mut self, units: usize) -> Option<()> {
        match self.work.checked_sub(units) {
            Some(left) => {
                self.work = left;
                Some(())
            }
            None => {
                self.work = 0;
                None
            }
        }
    }

    /// Enters a nested structure; [`Budget::leave`] leaves it.
    pub(super) fn enter(&mut self) -> Option<()> {
        self.spend(1)?;
        self.depth += 1;
        if self.depth > self.max_depth {
            self.work = 0;
        }
        (self.depth <= self.max_depth).then_some(())
    }

    /// Leaves a nested structure.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Depth of nested structures, to return to after a failed attempt.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns to `depth`.
    pub(super) fn restore_depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// Whether nothing is left: no other attempt may be made.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work == 0
    }
}
