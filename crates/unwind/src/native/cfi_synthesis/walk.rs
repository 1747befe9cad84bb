//! Walks all paths through functions, and finds where functions begin.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpKind,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

use super::state::{ENTRY, State};

/// A range of code without unwind information.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeRange<'d> {
    /// Its link-time address.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u32,
    pub bytes: &'d [u8],
}

impl CodeRange<'_> {
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }
}

/// Maximum instructions walked in one function.
const MAX_FUNCTION_STEPS: usize = 100_000;
/// Maximum instructions walked in one file, repeats included: some 0.3 s.
const MAX_FILE_STEPS: usize = 1 << 20;
/// Unreached code is tried while fewer instructions were wasted than this plus those that gave a
/// result.
const MAX_WASTED_STEPS: usize = 32 << 10;
/// Maximum rounds in which new calls and functions that never return are found.
const MAX_ROUNDS: usize = 8;
/// Maximum attempts on a function that contradicts itself.
const MAX_ATTEMPTS: u32 = 2;

/// An instruction that was walked.
#[derive(Clone, Copy, Debug)]
struct Node {
    state: State,
    len: u8,
    /// Reached only through a call that may never return.
    after_call: bool,
    replaced: bool,
    /// The last call on the path here; 0: none.
    via: u64,
}

/// The part of a node that is kept: a file has hundreds of thousands of instructions, and few
/// states.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownInstruction {
    pub(super) state: u32,
    pub(super) len: u8,
}

/// Assumptions of one walk through a function.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    /// Calls on the path that are taken not to return.
    cut: &'a FxHashSet<u64>,
    /// Whether code behind a call is walked to see if a function begins there.
    outer: bool,
}

/// Result of walking a function.
#[derive(Default)]
struct WalkResult {
    nodes: FxHashMap<u64, Node>,
    /// It returned with the stack pointer restored.
    returned_clean: bool,
    /// A contradiction shows that this is not a function, or that the stack was misread. The value
    /// is the last call on the path there, or 0.
    contradiction: Option<u64>,
    returns: bool,
    calls: Vec<u64>,
    /// Code addresses that it takes.
    address_taken: Vec<u64>,
    /// States at jumps with unknown targets.
    jumps: Vec<State>,
}

/// Facts kept of a function, or of a part of one.
struct Function {
    calls: Vec<u64>,
    address_taken: Vec<u64>,
    reached: Vec<u64>,
    /// The state at its jumps with unknown targets, if all agree.
    jumps: Option<State>,
}

impl WalkResult {
    /// Meets the state of a path that comes to an instruction of `len` bytes with its known state. `None`: the
    /// path adds nothing, or contradicts.
    fn arrive(&mut self, way: &PendingPath, len: u8) -> Option<Node> {
        let PendingPath {
            at,
            state,
            after_call,
            via,
        } = *way;
        let Some(node) = self.nodes.get_mut(&at) else {
            let node = Node {
                state,
                len,
                after_call,
                replaced: false,
                via,
            };
            self.nodes.insert(at, node);
            return Some(node);
        };
        if node.state.agrees(&state) {
            node.after_call &= after_call;
            return node.state.meet(&state).then_some(*node);
        }
        // The call before it did not return.
        if after_call {
            return None;
        }
        if node.after_call && !node.replaced {
            *node = Node {
                state,
                after_call: false,
                replaced: true,
                via,
                ..*node
            };
            return Some(*node);
        }
        // The paths differ where neither knows the offset: nothing is known from here on.
        if node.state.cfa_offset.is_none() || state.cfa_offset.is_none() {
            return node.state.meet(&state).then_some(*node);
        }
        self.contradiction = Some(if via != 0 { via } else { node.via });
        None
    }
}

/// A path to continue.
#[derive(Clone, Copy)]
struct PendingPath {
    at: u64,
    state: State,
    after_call: bool,
    via: u64,
}

/// Walks the code of one file.
pub(super) struct CodeWalker<'s, 'd> {
    code: &'s [CodeRange<'d>],
    entries: FxHashSet<u64>,
    /// Addresses that the code takes, where functions likely begin.
    likely: FxHashSet<u64>,
    noreturn: FxHashSet<u64>,
    /// Call instructions known not to return.
    cut: FxHashSet<u64>,
    /// Number of such calls by target; after two, no call of the target is taken to return.
    noreturn_votes: FxHashMap<u64, u32>,
    /// Whether a function begins after padding, by address.
    begins: FxHashMap<u64, bool>,
    known: FxHashMap<u64, KnownInstruction>,
    /// The distinct states of `known`.
    states: Vec<State>,
    ids: FxHashMap<State, u32>,
    functions: BTreeMap<u64, Function>,
    /// Failed attempts by entry.
    tries: FxHashMap<u64, u32>,
    /// Instructions walked so far, and those that gave no result; the latter are halved each round.
    steps: usize,
    wasted: usize,
    info: InstructionInfoFactory,
}

impl<'s, 'd> CodeWalker<'s, 'd> {
    /// `entries`: addresses of known functions.
    pub(super) fn new(
        code: &'s [CodeRange<'d>],
        entries: impl Iterator<Item = u64>,
    ) -> CodeWalker<'s, 'd> {
        let mut follower = CodeWalker {
            code,
            entries: FxHashSet::default(),
            likely: FxHashSet::default(),
            noreturn: FxHashSet::default(),
            cut: FxHashSet::default(),
            noreturn_votes: FxHashMap::default(),
            begins: FxHashMap::default(),
            known: FxHashMap::default(),
            states: Vec::new(),
            ids: FxHashMap::default(),
            functions: BTreeMap::new(),
            tries: FxHashMap::default(),
            steps: 0,
            wasted: 0,
            info: InstructionInfoFactory::new(),
        };
        follower.entries = entries.filter(|at| follower.holds(*at)).collect();
        follower
    }

    fn decode(&self, at: u64) -> Option<Instruction> {
        let after = self.code.partition_point(|s| s.address <= at);
        let range = self.code[..after].last().filter(|s| at < s.end())?;
        let bytes = &range.bytes[(at - range.address) as usize..];
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        let i = decoder.decode();
        (!i.is_invalid()).then_some(i)
    }

    fn holds(&self, at: u64) -> bool {
        let after = self.code.partition_point(|s| s.address <= at);
        self.code[..after].last().is_some_and(|s| at < s.end())
    }

    /// Walks all paths from `start`. If they contradict each other, it walks again without a call
    /// on the path, which cannot have returned. Returns these calls too.
    fn follow(&mut self, start: u64, state: State, outer: bool) -> (WalkResult, FxHashSet<u64>) {
        const MAX_CUT_CALLS: usize = 16;
        let mut cut = FxHashSet::default();
        loop {
            let found = self.walk(start, state, &cut, outer);
            let noreturn_votes = found
                .contradiction
                .filter(|via| *via != 0 && cut.len() < MAX_CUT_CALLS);
            let Some(via) = noreturn_votes else {
                return (found, cut);
            };
            // Prefer a call on the path behind which a function may begin.
            let way = std::iter::successors(Some(via), |call| {
                found.nodes.get(call).map(|n| n.via).filter(|v| *v != 0)
            });
            let call = way
                .take(MAX_FUNCTION_STEPS)
                .find(|call| self.may_be_last_call(*call))
                .unwrap_or(via);
            if !cut.insert(call) {
                return (found, cut);
            }
        }
    }

    /// Whether the call at `at` is followed by padding, or ends where functions may begin.
    fn may_be_last_call(&self, at: u64) -> bool {
        let Some(next) = self.decode(at).map(|i| i.next_ip()) else {
            return true;
        };
        next.is_multiple_of(16) || self.decode(next).is_none_or(|i| is_padding(&i))
    }

    fn walk(&mut self, start: u64, state: State, cut: &FxHashSet<u64>, outer: bool) -> WalkResult {
        let attempt = Attempt { cut, outer };
        let mut found = WalkResult::default();
        let mut pending = vec![PendingPath {
            at: start,
            state,
            after_call: false,
            via: 0,
        }];
        let mut steps = 0;
        while let Some(way) = pending.pop() {
            let at = way.at;
            steps += 1;
            self.steps += 1;
            if steps > MAX_FUNCTION_STEPS || self.steps > MAX_FILE_STEPS {
                found.contradiction = Some(0);
            }
            if found.contradiction.is_some() {
                break;
            }
            if at != start && self.left_function(&way, &mut found) {
                continue;
            }
            let Some(i) = self.decode(at) else {
                found.contradiction = Some(way.via);
                continue;
            };
            let Some(node) = found.arrive(&way, i.len() as u8) else {
                continue;
            };
            let way = PendingPath {
                state: node.state,
                via: node.via,
                ..way
            };
            let further = self.continue_path(way, &i, attempt, &mut found);
            pending.extend(further.into_iter().flatten());
        }
        found
    }

    /// Whether a path left this function; records the evidence in `found`.
    fn left_function(&self, way: &PendingPath, found: &mut WalkResult) -> bool {
        let PendingPath {
            at,
            state,
            after_call,
            ..
        } = way;
        let other = (self.known.get(at)).map(|known| &self.states[known.state as usize]);
        let entry = self.entries.contains(at);
        if !entry && other.is_none() && self.holds(*at) {
            return false;
        }
        if *after_call {
            return true;
        }
        found.returns = true;
        let agrees = match other {
            Some(other) if !entry => other.agrees(state),
            // Cold parts of functions may lie elsewhere.
            _ if !entry => state.cfa_offset == Some(8) && state.saved == [0; 6],
            _ => state.agrees(&ENTRY) && state.saved == [0; 6],
        };
        found.returned_clean |= agrees;
        if !agrees && (entry || other.is_some()) && state.cfa_offset.is_some() {
            found.contradiction = Some(way.via);
        }
        true
    }

    /// Whether another function begins after a call and padding. Unless `tries`, it is assumed to.
    fn next_is_function(&mut self, mut at: u64, tries: bool) -> bool {
        while let Some(i) = self.decode(at)
            && is_padding(&i)
        {
            at = i.next_ip();
        }
        if !at.is_multiple_of(16) {
            return false;
        }
        if let Some(known) = self.begins.get(&at) {
            return *known;
        }
        if !tries {
            return true;
        }
        let (found, _) = self.follow(at, ENTRY, false);
        let begins = found.returned_clean && found.contradiction.is_none();
        self.begins.insert(at, begins);
        begins
    }

    /// Applies an instruction of a path. Returns the paths that go on from it.
    fn continue_path(
        &mut self,
        way: PendingPath,
        i: &Instruction,
        attempt: Attempt<'_>,
        found: &mut WalkResult,
    ) -> [Option<PendingPath>; 2] {
        let PendingPath {
            at, mut state, via, ..
        } = way;
        let next = i.next_ip();
        let to = |at, state| PendingPath {
            at,
            state,
            after_call: false,
            via,
        };
        let behind = PendingPath {
            at: next,
            state,
            after_call: true,
            via: at,
        };
        let mut paths = [None, None];
        match i.flow_control() {
            FlowControl::Next if i.mnemonic() == Mnemonic::Hlt => {}
            FlowControl::Next => {
                if i.is_ip_rel_memory_operand() && i.mnemonic() == Mnemonic::Lea {
                    found.address_taken.push(i.ip_rel_memory_address());
                } else if i.mnemonic() == Mnemonic::Mov && i.op1_kind() == OpKind::Immediate32 {
                    found.address_taken.push(i.immediate(1));
                }
                state.step(i, &mut self.info);
                paths[0] = Some(to(next, state));
            }
            FlowControl::Call if matches!(i.code(), Code::Syscall) => {
                paths[0] = Some(to(next, state))
            }
            FlowControl::Call if i.is_call_near() && i.near_branch_target() == next => {
                // A call to the next instruction only reads the address.
                state.move_to(state.cfa_offset.map(|h| h + 8));
                paths[0] = Some(to(next, state));
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                found
                    .calls
                    .extend(i.is_call_near().then(|| i.near_branch_target()));
                let noreturn = target_of(i).is_some_and(|t| self.noreturn.contains(&t))
                    || self.cut.contains(&at)
                    || attempt.cut.contains(&at)
                    || self.next_is_function(next, attempt.outer);
                if !noreturn {
                    paths[0] = Some(behind);
                }
            }
            FlowControl::UnconditionalBranch if i.is_jmp_short_or_near() => {
                paths[0] = Some(to(i.near_branch_target(), state));
            }
            FlowControl::ConditionalBranch => {
                paths = [
                    Some(to(next, state)),
                    Some(to(i.near_branch_target(), state)),
                ];
            }
            FlowControl::IndirectBranch => {
                found.returns = true;
                if i.op0_kind() == OpKind::Memory && state.is_callers(i.memory_base()) {
                    // The jump target comes from a register that this function never set. C code
                    // does not know its content; in Haskell code it is a stack pointer.
                    found.contradiction = Some(0);
                }
                // The saved registers are restored: a tail call.
                let saved_any = || found.nodes.values().any(|n| n.state.saved != [0; 6]);
                found.returned_clean |=
                    state.cfa_offset == Some(8) && state.saved == [0; 6] && saved_any();
                found.jumps.push(state);
            }
            FlowControl::Return => {
                found.returns = true;
                match state.cfa_offset {
                    Some(8) if state.saved == [0; 6] => found.returned_clean = true,
                    Some(_) => found.contradiction = Some(via),
                    None => {}
                }
            }
            FlowControl::Interrupt if i.mnemonic() != Mnemonic::Int3 => {
                paths[0] = Some(to(next, state));
            }
            FlowControl::XbeginXabortXend => paths[0] = Some(to(next, state)),
            _ => {}
        }
        paths
    }

    /// Keeps the result for the function at `start`.
    fn commit(&mut self, start: u64, (found, cut): (WalkResult, FxHashSet<u64>)) {
        for at in cut {
            let target = self.decode(at).and_then(|i| target_of(&i));
            let times = target.map(|t| self.noreturn_votes.entry(t).or_default());
            if let (Some(target), Some(times)) = (target, times) {
                *times += 1;
                if *times == 2 {
                    self.noreturn.insert(target);
                }
            }
            self.cut.insert(at);
        }
        if !found.returns {
            self.noreturn.insert(start);
        }
        let same = (found.jumps.first()).filter(|s| found.jumps.iter().all(|other| other == *s));
        let function = Function {
            calls: found.calls,
            address_taken: found.address_taken,
            reached: found.nodes.keys().copied().collect(),
            jumps: same.copied(),
        };
        self.functions.insert(start, function);
        for (at, node) in found.nodes {
            let state = *self.ids.entry(node.state).or_insert_with(|| {
                self.states.push(node.state);
                self.states.len() as u32 - 1
            });
            let len = node.len;
            self.known.insert(at, KnownInstruction { state, len });
        }
    }

    /// Walks all code, and walks functions again while new results change theirs. Returns the known
    /// instructions, by address, and the states that they refer to.
    pub(super) fn walk_all(mut self) -> (Vec<(u64, KnownInstruction)>, Vec<State>) {
        for _ in 0..MAX_ROUNDS {
            self.wasted /= 2;
            let noreturn = self.noreturn.clone();
            let mut entries: Vec<u64> = self.entries.iter().copied().collect();
            entries.retain(|at| {
                let tries = self.tries.get(at).copied().unwrap_or(0);
                !self.functions.contains_key(at) && tries < MAX_ATTEMPTS
            });
            entries.sort_unstable();
            for start in entries {
                let found = self.follow(start, ENTRY, true);
                if found.0.contradiction.is_none() {
                    self.commit(start, found);
                } else {
                    *self.tries.entry(start).or_default() += 1;
                }
            }
            self.try_unreached();
            let calls = self.functions.values().flat_map(|f| &f.calls);
            let new: FxHashSet<u64> = calls
                .copied()
                .filter(|at| self.holds(*at) && !self.entries.contains(at))
                .collect();
            let ends = |at: &u64| self.noreturn.contains(at) && !noreturn.contains(at);
            let stale: Vec<u64> = (self.functions.iter())
                .filter(|(start, f)| {
                    let others = |at: &u64| at != *start && new.contains(at);
                    f.calls.iter().any(ends) || f.reached.iter().any(others)
                })
                .map(|(start, _)| *start)
                .collect();
            let address_taken = self.functions.values().flat_map(|f| &f.address_taken);
            let likely: FxHashSet<u64> = address_taken
                .copied()
                .filter(|at| self.holds(*at))
                .collect();
            let settled = new.is_empty() && stale.is_empty() && likely.len() == self.likely.len();
            // A result from before is better than none: it agreed with itself.
            if settled || self.steps > MAX_FILE_STEPS {
                break;
            }
            self.likely = likely;
            self.entries.extend(new);
            self.begins.retain(|_, begins| *begins);
            for start in stale {
                for at in self
                    .functions
                    .remove(&start)
                    .map(|f| f.reached)
                    .unwrap_or_default()
                {
                    self.known.remove(&at);
                }
            }
        }
        let mut known: Vec<(u64, KnownInstruction)> = self.known.into_iter().collect();
        known.sort_unstable_by_key(|(at, _)| *at);
        (known, self.states)
    }

    /// Tries code that was not reached.
    fn try_unreached(&mut self) {
        for range in self.code {
            let mut at = range.address;
            while at < range.end() {
                if let Some(known) = self.known.get(&at) {
                    at += u64::from(known.len);
                    continue;
                }
                let Some(i) = self.decode(at) else {
                    at += 1;
                    continue;
                };
                let fills = is_padding(&i)
                    || range.bytes[(at - range.address) as usize..].starts_with(&[0, 0]);
                if fills {
                    at = i.next_ip();
                    continue;
                }
                if self.wasted > MAX_WASTED_STEPS + self.known.len() {
                    return;
                }
                let begun = self.steps;
                let mut before = self.functions.range(..at).rev().take(256);
                let before = before.find_map(|(_, function)| function.jumps);
                let address_taken = [before, Some(ENTRY)]
                    .into_iter()
                    .flatten()
                    .find_map(|state| {
                        let (found, cut) = self.follow(at, state, true);
                        let likely = state == ENTRY && self.likely.contains(&at);
                        let good =
                            found.contradiction.is_none() && (found.returned_clean || likely);
                        good.then_some((found, cut))
                    });
                if let Some(found) = address_taken {
                    self.commit(at, found);
                    continue;
                }
                self.wasted += self.steps - begun;
                // The next function may begin after the end of this one.
                while let Some(i) = self.decode(at)
                    && !self.known.contains_key(&at)
                {
                    at = i.next_ip();
                    let ends = [
                        FlowControl::Return,
                        FlowControl::UnconditionalBranch,
                        FlowControl::IndirectBranch,
                        FlowControl::Exception,
                        FlowControl::Interrupt,
                    ];
                    if ends.contains(&i.flow_control()) || i.mnemonic() == Mnemonic::Hlt {
                        break;
                    }
                }
            }
        }
    }
}

/// The target of a call: an address in the code, or of the word that holds it.
fn target_of(i: &Instruction) -> Option<u64> {
    if i.is_call_near() {
        return Some(i.near_branch_target());
    }
    (i.is_call_near_indirect() && i.is_ip_rel_memory_operand()).then(|| i.ip_rel_memory_address())
}

/// Whether `i` is padding between functions or before loops.
pub(super) fn is_padding(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}
