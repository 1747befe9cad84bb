//! Unwind rules, deduplicated over all files: a large program has a million rows and a few thousand
//! rules.

use crate::native::abi::{
    End, KIND_FP, KIND_REG, KIND_SIGNAL, RA_IN_REG, RULE_FP, RULE_FP_ENTRY, RULE_FP_POPPED,
    RULE_FP_PUSHED, RULE_RETURNS, RULE_SIGNAL, RULE_USER, Rule, SAVED_REGS,
};
use crate::native::packed_rows::MAX_RULES;
use rustc_hash::FxHashMap;

/// The rule from some offset on, or the reason why stacks end there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleRow {
    /// Apply this rule.
    Rule(Rule),
    /// The stack ends here: `Root`, `NoInfo` or `BadRule`.
    End(End),
    /// A signal handler's return trampoline.
    Signal,
    /// Code that keeps frame pointers and has no unwind information.
    FramePointer,
}

/// All rules in use; an id never changes its meaning.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    ids: FxHashMap<Rule, u32>,
    capacity: usize,
    overflows: u64,
    last: (Rule, u32),
}

impl RuleSet {
    /// Creates a set that gives ids below `capacity`, and no more than the rows of a table can hold (1 << 20).
    pub fn new(capacity: usize) -> RuleSet {
        let mut rules = vec![Rule::default(); RULE_USER as usize];
        let fp = Rule {
            kind: KIND_FP,
            reg: 6,
            cfa_off: 16,
            saved: 1 << 1,
            slot: [0, -2, 0, 0, 0, 0],
            // Run-time code saves the other registers at unknown places.
            lost: ((1 << SAVED_REGS.len()) - 1) & !(1 << 1),
            ..Rule::default()
        };
        rules[RULE_FP as usize] = fp;
        rules[RULE_FP_PUSHED as usize] = Rule { reg: 7, ..fp };
        rules[RULE_FP_ENTRY as usize] = Rule {
            reg: 7,
            cfa_off: 8,
            saved: 0,
            ..fp
        };
        rules[RULE_FP_POPPED as usize] = Rule {
            reg: 7,
            cfa_off: 0,
            saved: 0,
            ra: RA_IN_REG | 10,
            ..fp
        };
        rules[RULE_RETURNS as usize] = Rule {
            kind: KIND_REG,
            reg: 7,
            cfa_off: 8,
            ..Rule::default()
        };
        rules[RULE_SIGNAL as usize] = Rule {
            kind: KIND_SIGNAL,
            reg: 7,
            cfa_off: 160,
            ..Rule::default()
        };
        RuleSet {
            rules,
            ids: FxHashMap::default(),
            capacity: capacity.min(MAX_RULES),
            overflows: 0,
            last: (Rule::default(), 0),
        }
    }

    /// Returns the id of `row`. In a full set it is the id of an unusable rule, and the case is
    /// counted.
    pub fn id(&mut self, row: RuleRow) -> u32 {
        let rule = match row {
            RuleRow::End(end) => return end as u32,
            RuleRow::Signal => return RULE_SIGNAL,
            RuleRow::FramePointer => return RULE_FP,
            RuleRow::Rule(rule) => rule,
        };
        if self.last.1 != 0 && self.last.0 == rule {
            return self.last.1;
        }
        let id = match self.ids.get(&rule) {
            Some(id) => *id,
            None if self.rules.len() >= self.capacity => {
                self.overflows += 1;
                return End::BadRule as u32;
            }
            None => {
                let id = self.rules.len() as u32;
                self.rules.push(rule);
                self.ids.insert(rule, id);
                id
            }
        };
        self.last = (rule, id);
        id
    }

    /// The rules by id; the first ones are fixed.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Number of rows without a rule because the set was full.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_is_counted_and_never_lies() {
        let mut set = RuleSet::new(RULE_USER as usize + 1);
        let rule = |cfa_off| {
            RuleRow::Rule(Rule {
                kind: 1,
                reg: 7,
                cfa_off,
                ..Rule::default()
            })
        };
        assert_eq!(set.id(rule(8)), RULE_USER);
        assert_eq!(set.id(rule(16)), End::BadRule as u32);
        assert_eq!(set.id(rule(8)), RULE_USER);
        assert_eq!(set.overflows(), 1);
        assert_eq!(set.id(RuleRow::End(End::Root)), 1);
    }
}
