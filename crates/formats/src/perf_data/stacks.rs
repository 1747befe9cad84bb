//! Stacks of samples: call chains, branches that are call stacks, and copied memory.

use rustc_hash::FxHashMap;
use wallscope_model::{FrameId, FrameKind, StackEnd, StackId};

use super::super::import::{Called, Import};
use super::super::{RawStack, ReadError, Unwind};
use super::attribute::branch;
use super::file::{File, feature};
use super::maps::{CpuMode, Processes};
use super::order::{Fields, Order, Words};
use super::records::{self, Records};
use super::sample::{Registers, Sample};

/// Entries of a call chain from here on are no addresses.
const CONTEXT: u64 = -4096i64 as u64;
const CONTEXT_KERNEL: u64 = -128i64 as u64;
const CONTEXT_USER: u64 = -512i64 as u64;
/// The next entry is the cookie of the user's part, which a later record holds.
const CONTEXT_USER_DEFERRED: u64 = -640i64 as u64;

/// Reads the stacks of a file's samples.
pub(super) struct Stacks<'u, 'f> {
    order: Order,
    unwind: Option<&'u mut (dyn Unwind + 'u)>,
    /// The machine of the recording, as `uname -m` names it; empty where the file does not say.
    machine: String,
    /// Call chains that came after their samples, by their cookies.
    deferred: FxHashMap<u64, Words<'f>>,
    /// Room for frames.
    frames: Vec<FrameId>,
    /// Stacks that were copied and not unwound.
    not_unwound: u64,
    /// Samples of code in a virtual machine.
    guests: u64,
    /// Copies without an instruction or stack pointer.
    pub damaged: u64,
}

/// The frames of one stack, leaf first.
struct Frames<'a> {
    pid: u32,
    processes: &'a Processes,
    to: &'a mut Import,
    list: Vec<FrameId>,
}

impl Frames<'_> {
    fn push(&mut self, address: u64, kernel: bool) -> Result<(), ReadError> {
        let frame = match kernel {
            true => self.processes.kernel_frame(address, self.to)?,
            false => self.processes.frame(self.pid, address, self.to)?,
        };
        self.list.push(frame);
        Ok(())
    }
}

impl<'u, 'f> Stacks<'u, 'f> {
    pub(super) fn new(file: &'f File<'f>, unwind: Option<&'u mut (dyn Unwind + 'u)>) -> Self {
        let order = file.order;
        let deferred = Records::new(&file.records, order)
            .filter(|r| r.kind == records::CALLCHAIN_DEFERRED)
            .filter_map(|r| {
                let mut f = Fields::new(r.body, order);
                Some((f.long()?, f.long().and_then(|n| f.words(n))?))
            });
        Stacks {
            order,
            unwind,
            machine: file.text(feature::ARCH),
            deferred: deferred.collect(),
            frames: Vec::new(),
            not_unwound: 0,
            guests: 0,
            damaged: 0,
        }
    }

    /// The sample's stack.
    pub(super) fn stack(
        &mut self,
        (misc, branches): (u16, u64),
        s: &Sample,
        processes: &Processes,
        to: &mut Import,
    ) -> Result<StackId, ReadError> {
        let mut frames = Frames {
            pid: s.pid,
            processes,
            to,
            list: std::mem::take(&mut self.frames),
        };
        frames.list.clear();
        if let Some(name) = CpuMode::of(misc).guest() {
            self.guests += 1;
            let frame = frames.to.named(FrameKind::Native, Called::name(name))?;
            self.frames = frames.list;
            return to.stack(&[frame], StackEnd::Unreadable);
        }
        let in_kernel = CpuMode::of(misc) == CpuMode::Kernel;
        let (mut user, mut end) = self.chain(s.chain, in_kernel, &mut frames)?;
        if branches & branch::CALL_STACK != 0 && s.branches.len() > 0 {
            branch_stack(s, in_kernel, &mut frames)?;
            user = true;
        }
        if let (Some(regs), Some(memory)) = (&s.registers, s.stack) {
            // The chain holds only the kernel's part, because the user stack was copied.
            if !user || frames.list.len() <= 1 {
                if !in_kernel {
                    frames.list.clear();
                }
                end = self.unwind(s, regs, memory, &mut frames)?;
            }
        } else if frames.list.is_empty()
            && let Some(ip) = s.ip
        {
            frames.push(ip, in_kernel)?;
        }
        let stack = frames.to.stack(&frames.list, end)?;
        self.frames = frames.list;
        Ok(stack)
    }

    /// Appends the frames of a call chain; returns whether some are the user's, and the chain's end.
    fn chain(
        &self,
        chain: Words,
        mut kernel: bool,
        frames: &mut Frames,
    ) -> Result<(bool, StackEnd), ReadError> {
        let mut user = false;
        let mut exact = true;
        let mut deferred = false;
        for address in chain.iter() {
            if std::mem::take(&mut deferred) {
                let rest = self.deferred.get(&address).copied();
                // A deferred chain does not defer to another one.
                let rest = rest.filter(|r| !r.iter().any(|a| a == CONTEXT_USER_DEFERRED));
                return match rest {
                    Some(rest) => self.chain(rest, false, frames),
                    None => Ok((false, StackEnd::Unreadable)),
                };
            }
            if address >= CONTEXT {
                match address {
                    CONTEXT_KERNEL => kernel = true,
                    CONTEXT_USER => {
                        kernel = false;
                        // The thread entered the kernel here, so the address is no return address.
                        exact = true;
                    }
                    CONTEXT_USER_DEFERRED => deferred = true,
                    _ => {}
                }
                continue;
            }
            user |= !kernel;
            frames.push(address.saturating_sub(u64::from(!exact)), kernel)?;
            exact = false;
        }
        Ok((user, StackEnd::Root))
    }

    /// Whether the file's registers are those that the unwinder knows.
    fn registers_known(&self) -> bool {
        match &*self.machine {
            "" => self.order == Order::Little,
            machine => machine == "x86_64",
        }
    }

    /// Appends the frames of a copied stack.
    fn unwind(
        &mut self,
        s: &Sample,
        regs: &Registers,
        memory: &[u8],
        frames: &mut Frames,
    ) -> Result<StackEnd, ReadError> {
        // perf's numbers for rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15: DWARF's order.
        const ORDER: [u32; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23];
        const IP: u32 = 8;
        const ABI_64: u64 = 2;
        if !self.registers_known() || regs.abi != ABI_64 {
            self.not_unwound += 1;
            if let Some(ip) = s.ip.filter(|_| frames.list.is_empty()) {
                frames.push(ip, false)?;
            }
            return Ok(StackEnd::NoUnwindInfo);
        }
        let (Some(ip), Some(_)) = (regs.get(IP), regs.get(7)) else {
            self.damaged += 1;
            return Ok(StackEnd::Unreadable);
        };
        let Some(unwind) = self.unwind.as_deref_mut() else {
            self.not_unwound += 1;
            frames.push(ip, false)?;
            return Ok(StackEnd::NoUnwindInfo);
        };
        let raw = RawStack {
            process: s.pid,
            generation: frames.processes.generation(s.pid),
            mappings: frames.processes.mappings(s.pid),
            ip,
            general: ORDER.map(|n| regs.get(n).unwrap_or(0)),
            memory,
        };
        let (addresses, end) = unwind.unwind(&raw);
        for address in addresses {
            frames.push(address, false)?;
        }
        Ok(end)
    }

    /// Sentences about stacks that were not read.
    pub(super) fn warnings(&self) -> Vec<String> {
        let guests = (self.guests > 0).then(|| {
            format!(
                "{} samples are of code in virtual machines, which has no names here: perf kvm report \
                 finds them",
                self.guests
            )
        });
        self.not_unwound().into_iter().chain(guests).collect()
    }

    fn not_unwound(&self) -> Option<String> {
        let reason = match self.registers_known() {
            true if self.unwind.is_none() => "this reader was given no unwinder".to_string(),
            true => "they are of 32-bit programs".to_string(),
            false if self.machine.is_empty() => "they are another machine's".to_string(),
            false => format!("they are of {}, and only x86_64 is unwound", self.machine),
        };
        (self.not_unwound > 0).then(|| {
            format!(
                "{} stacks were copied and not unwound: {reason}",
                self.not_unwound
            )
        })
    }
}

/// Replaces the user frames by those of the branches, if these are calls that have not returned
/// (`--call-graph lbr`).
fn branch_stack(s: &Sample, in_kernel: bool, frames: &mut Frames) -> Result<(), ReadError> {
    frames.list.clear();
    if in_kernel {
        let kernel = s.chain.iter().take_while(|a| *a != CONTEXT_USER);
        for (i, address) in kernel.filter(|a| *a < CONTEXT).enumerate() {
            frames.push(address.saturating_sub(u64::from(i > 0)), true)?;
        }
    }
    // If the sample is in the kernel, the program's last branch led to the instruction that entered it.
    let leaf = match in_kernel {
        true => s.branches.get(1),
        false => s.ip,
    };
    let callers = (0..s.branches.len() / 3).filter_map(|i| s.branches.get(3 * i));
    for address in leaf.into_iter().chain(callers) {
        frames.push(address, false)?;
    }
    Ok(())
}
