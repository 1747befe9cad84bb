//! Hops and lock waits ↔ their messages.

use wallscope_model::{
    Above, Actor, ActorId, BlockReason, ContextId, Hop, LabelsId, LockWait, Part, Recording, Role,
    StackId,
};

use super::super::ReadError;
use super::checks::{below, damaged, same};
use super::extension as ext;

pub(super) fn actors(rec: &Recording) -> Vec<ext::Actor> {
    let message = |a: &Actor| match a {
        Actor::Context(c) => ext::Actor {
            context: 1 + c.0,
            ..ext::Actor::default()
        },
        Actor::Stranger { pid, tid, name } => ext::Actor {
            pid: *pid,
            tid: *tid,
            name: name.to_string(),
            ..ext::Actor::default()
        },
        Actor::Interrupt(name) => ext::Actor {
            interrupt: true,
            name: name.to_string(),
            ..ext::Actor::default()
        },
        Actor::Unknown => ext::Actor::default(),
    };
    rec.actors.iter().map(message).collect()
}

pub(super) fn hops(rec: &Recording) -> Option<ext::Hops> {
    let all = &rec.hops;
    (!all.is_empty()).then(|| ext::Hops {
        roles: Role::ALL.iter().map(|r| r.name().to_string()).collect(),
        above: all
            .iter()
            .map(|h| match h.above {
                Above::Sample(s) => 2 * s,
                Above::Hop(h) => 2 * h + 1,
            })
            .collect(),
        role: all.iter().map(|h| h.role as u32).collect(),
        actor: all.iter().map(|h| h.actor.0).collect(),
        stack: all.iter().map(|h| h.stack.map_or(0, |s| 1 + s.0)).collect(),
        reason: all
            .iter()
            .map(|h| h.reason.map_or(0, |r| 1 + r as u32))
            .collect(),
        part: all
            .iter()
            .map(|h| h.part.map_or(0, |p| 1 + p as u32))
            .collect(),
        labels: all
            .iter()
            .map(|h| h.labels.map_or(0, |l| 1 + l.0))
            .collect(),
        count: all.iter().map(|h| h.count).collect(),
        ns: all.iter().map(|h| h.ns).collect(),
    })
}

pub(super) fn locks(rec: &Recording) -> Option<ext::LockWaits> {
    let all = &rec.locks;
    (!all.is_empty()).then(|| ext::LockWaits {
        context: all.iter().map(|l| l.context.0).collect(),
        labels: all
            .iter()
            .map(|l| l.labels.map_or(0, |l| 1 + l.0))
            .collect(),
        address: all.iter().map(|l| l.address).collect(),
        total: all.iter().map(|l| l.total_ns).collect(),
        longest: all.iter().map(|l| l.longest_ns).collect(),
        count: all.iter().map(|l| l.count).collect(),
    })
}

pub(super) fn restore_actors(m: Vec<ext::Actor>, rec: &Recording) -> Result<Vec<Actor>, ReadError> {
    let contexts = rec.contexts.len();
    m.into_iter()
        .map(|a| {
            Ok(match (a.context.checked_sub(1), a.interrupt, a.tid) {
                (Some(c), _, _) => Actor::Context(ContextId(below(c, contexts, "context")?)),
                (None, true, _) => Actor::Interrupt(a.name.into()),
                (None, false, 0) if a.name.is_empty() => Actor::Unknown,
                (None, false, tid) => Actor::Stranger {
                    pid: a.pid,
                    tid,
                    name: a.name.into(),
                },
            })
        })
        .collect()
}

/// `reasons` and `parts`: the meaning of the file's numbers.
pub(super) fn restore_hops(
    m: &ext::Hops,
    reasons: &[Option<BlockReason>],
    parts: &[Option<Part>],
    rec: &Recording,
) -> Result<Vec<Hop>, ReadError> {
    let n = m.above.len();
    same(&m.role, n, "the roles of hops")?;
    same(&m.actor, n, "the actors of hops")?;
    same(&m.stack, n, "the stacks of hops")?;
    same(&m.reason, n, "the reasons of hops")?;
    same(&m.part, n, "the parts of hops")?;
    same(&m.labels, n, "the labels of hops")?;
    same(&m.count, n, "the counts of hops")?;
    same(&m.ns, n, "the times of hops")?;
    let roles: Vec<Option<Role>> = (m.roles.iter())
        .map(|name| Role::ALL.into_iter().find(|r| r.name() == name))
        .collect();
    let optional = |index: u32, len: usize, what: &str| {
        index
            .checked_sub(1)
            .map(|i| below(i, len, what))
            .transpose()
    };
    let mut out = Vec::with_capacity(n);
    for i in 0..n {
        let above = match (m.above[i] / 2, m.above[i] % 2) {
            (s, 0) => Above::Sample(below(s, rec.samples.len(), "sample")?),
            (h, _) => Above::Hop(below(h, i, "earlier hop")?),
        };
        let role = (roles.get(m.role[i] as usize).copied().flatten())
            .ok_or_else(|| damaged("a hop has an unknown role"))?;
        let pick = |index: u32| index.checked_sub(1).map(|i| i as usize);
        out.push(Hop {
            above,
            role,
            actor: ActorId(below(m.actor[i], rec.actors.len(), "actor")?),
            stack: optional(m.stack[i], rec.stacks.len(), "stack")?.map(StackId),
            reason: pick(m.reason[i]).and_then(|r| reasons.get(r).copied().flatten()),
            part: pick(m.part[i]).and_then(|p| parts.get(p).copied().flatten()),
            labels: optional(m.labels[i], rec.label_sets.len(), "set of labels")?.map(LabelsId),
            count: m.count[i],
            ns: m.ns[i],
        });
    }
    Ok(out)
}

pub(super) fn restore_locks(
    m: &ext::LockWaits,
    rec: &Recording,
) -> Result<Vec<LockWait>, ReadError> {
    let n = m.context.len();
    same(&m.labels, n, "the labels of locks")?;
    same(&m.address, n, "the addresses of locks")?;
    same(&m.total, n, "the times of locks")?;
    same(&m.longest, n, "the longest waits of locks")?;
    same(&m.count, n, "the counts of locks")?;
    (0..n)
        .map(|i| {
            Ok(LockWait {
                context: ContextId(below(m.context[i], rec.contexts.len(), "context")?),
                labels: (m.labels[i].checked_sub(1))
                    .map(|l| below(l, rec.label_sets.len(), "set of labels").map(LabelsId))
                    .transpose()?,
                address: m.address[i],
                total_ns: m.total[i],
                longest_ns: m.longest[i],
                count: m.count[i],
            })
        })
        .collect()
}
