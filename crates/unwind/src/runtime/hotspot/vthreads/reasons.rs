//! Classifies the waits of virtual threads by the parked-for object and the methods on the stack.

/// Kinds of wait that [`reason`] receives.
pub(super) const PARKED: &str = "parked";
pub(super) const PINNED: &str = "pinned";
pub(super) const MONITOR: &str = "monitor";
pub(super) const WAIT: &str = "Object.wait";
pub(super) const CARRIER: &str = "carrier waits";

/// Wait methods of the JDK and well-known libraries, as name prefixes. The first method of a stack,
/// innermost first, that matches a row gives the reason. If that reason is [`GENERAL`], a caller
/// may give a more specific one.
const WAITS: &[(&str, &str)] = &[
    ("java.lang.VirtualThread.sleep", "timer"),
    ("java.lang.Thread.sleep", "timer"),
    ("java.lang.VirtualThread.join", "task"),
    ("java.lang.Thread.join", "task"),
    ("sun.nio.ch.Poller", "network"),
    ("sun.nio.ch.", "network"),
    (
        "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject",
        "event",
    ),
    (
        "java.util.concurrent.locks.AbstractQueuedLongSynchronizer$ConditionObject",
        "event",
    ),
    ("java.util.concurrent.locks.ReentrantLock", "lock"),
    ("java.util.concurrent.locks.ReentrantReadWriteLock", "lock"),
    ("java.util.concurrent.locks.StampedLock", "lock"),
    ("java.util.concurrent.Semaphore", "semaphore"),
    ("java.util.concurrent.CountDownLatch", "event"),
    ("java.util.concurrent.CyclicBarrier", "event"),
    ("java.util.concurrent.Phaser", "event"),
    ("java.util.concurrent.Exchanger", "queue"),
    ("java.util.concurrent.ArrayBlockingQueue", "queue"),
    ("java.util.concurrent.LinkedBlockingQueue", "queue"),
    ("java.util.concurrent.LinkedBlockingDeque", "queue"),
    ("java.util.concurrent.LinkedTransferQueue", "queue"),
    ("java.util.concurrent.PriorityBlockingQueue", "queue"),
    ("java.util.concurrent.SynchronousQueue", "queue"),
    ("java.util.concurrent.DelayQueue", "queue"),
    ("java.util.concurrent.ThreadPoolExecutor.getTask", "parked"),
    (
        "java.util.concurrent.ThreadPoolExecutor.awaitTermination",
        "task",
    ),
    (
        "java.util.concurrent.ThreadPerTaskExecutor.awaitTermination",
        "task",
    ),
    ("java.util.concurrent.StructuredTaskScope.join", "task"),
    ("java.util.concurrent.StructuredTaskScopeImpl.join", "task"),
    ("jdk.internal.misc.ThreadFlock.awaitAll", "task"),
    ("java.util.concurrent.FutureTask.get", "task"),
    ("java.util.concurrent.FutureTask.awaitDone", "task"),
    ("java.util.concurrent.CompletableFuture.waitingGet", "task"),
    ("java.util.concurrent.CompletableFuture.timedGet", "task"),
    ("java.util.concurrent.CompletableFuture.get", "task"),
    ("java.util.concurrent.CompletableFuture.join", "task"),
    ("java.util.concurrent.ForkJoinTask.awaitDone", "task"),
    ("jdk.internal.net.http.HttpClientImpl.send", "network"),
    ("java.lang.ProcessImpl.waitFor", "child"),
    ("java.lang.Process.waitFor", "child"),
    ("com.zaxxer.hikari.pool.HikariPool.getConnection", "pool"),
    (
        "org.apache.commons.pool2.impl.GenericObjectPool.borrowObject",
        "pool",
    ),
    (
        "org.apache.commons.pool2.impl.GenericKeyedObjectPool.borrowObject",
        "pool",
    ),
    (
        "org.apache.tomcat.jdbc.pool.ConnectionPool.borrowConnection",
        "pool",
    ),
    ("org.apache.http.pool.AbstractConnPool", "pool"),
    (
        "org.apache.http.impl.conn.PoolingHttpClientConnectionManager",
        "pool",
    ),
    ("org.apache.hc.core5.pool.", "pool"),
    ("io.agroal.pool.ConnectionPool", "pool"),
    ("oracle.ucp.", "pool"),
    ("com.mchange.v2.resourcepool.", "pool"),
];
/// Number of methods searched from the first match on.
const CALLERS: usize = 12;
/// Packages of the JDK.
const LIBRARY: &[&str] = &["java.", "jdk.", "sun."];
const GENERAL: &[&str] = &["event", "queue", "lock", "semaphore", "task"];

/// Methods in which a server waits for its next client or request, or a pool thread for its next
/// task: nothing is in flight.
const PARKED_IN: &[&str] = &[
    "sun.nio.ch.NioSocketImpl.accept",
    "sun.nio.ch.ServerSocketChannelImpl.accept",
    "java.util.concurrent.ThreadPoolExecutor.getTask",
    "org.apache.coyote.http11.Http11InputBuffer.parseRequestLine",
    "org.apache.tomcat.util.net.NioEndpoint$Poller",
];

/// Classifies a wait; also returns details in the runtime's words. `word` is the kind of wait, with
/// the parked-for object's class after a colon. `methods` are those on the stack, innermost first.
pub fn reason<'n>(word: &str, methods: impl Iterator<Item = &'n str>) -> (&'static str, String) {
    let (how, class) = word.split_once(": ").unwrap_or((word, ""));
    let detail = |of: &str| match (of, class) {
        ("", class) => class.to_owned(),
        (of, "") => of.to_owned(),
        (of, class) => format!("{of}: {class}"),
    };
    match how {
        MONITOR => return ("lock", detail(MONITOR)),
        CARRIER => return ("syscall", detail("its carrier waits")),
        _ => {}
    }
    let methods: Vec<&str> = methods.collect();
    let begins = |method: &str, with: &str| {
        method.strip_prefix(with).is_some_and(|rest| {
            // `Thread.sleep` must not match `Thread.sleepy`, but lambdas and overloads must match.
            with.ends_with('.')
                || !rest.starts_with(|c: char| c.is_ascii_lowercase())
                || with.ends_with("sleep")
        })
    };
    // The poller's own threads, on which other threads wait.
    if methods.iter().any(|m| {
        begins(m, "sun.nio.ch.Poller.pollerLoop") || begins(m, "sun.nio.ch.Poller.subPollerLoop")
    }) {
        return ("runtime", detail(""));
    }
    let parked = |m: &&str| PARKED_IN.iter().any(|p| begins(m, p));
    let row = |m: &&str| WAITS.iter().find(|(with, _)| begins(m, with)).map(|r| r.1);
    let first = methods.iter().position(|m| row(m).is_some());
    let of_stack = first.and_then(|from| {
        let first = row(&methods[from])?;
        if !GENERAL.contains(&first) {
            return Some(first);
        }
        let callers = || methods[from..].iter().take(CALLERS);
        let special = callers().filter_map(row).find(|r| !GENERAL.contains(r));
        // In the JDK itself, queues and the like are built on conditions.
        let of_library = || callers().take_while(|m| LIBRARY.iter().any(|l| m.starts_with(l)));
        let made_of_it = || of_library().filter_map(row).find(|r| *r != first);
        special
            .or_else(|| made_of_it().filter(|_| first == "event"))
            .or(Some(first))
    });
    let reason = match of_stack {
        _ if methods.iter().any(parked) => "parked",
        Some(reason) => reason,
        // The object alone may give the reason.
        None => {
            let of_class = WAITS.iter().find(|(with, _)| class.starts_with(with));
            match (of_class, how) {
                (Some((_, reason)), _) => reason,
                (None, WAIT) => "event",
                _ => "other",
            }
        }
    };
    let of = match how {
        PINNED => "pinned",
        WAIT => WAIT,
        _ => "",
    };
    (reason, detail(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: &str, stack: &[&'static str]) -> (&'static str, String) {
        reason(word, stack.iter().copied())
    }

    #[test]
    fn a_wait_is_told_from_the_stack_and_from_what_is_parked_for() {
        let park = "java.lang.VirtualThread.park";
        let sleep = [
            park,
            "java.lang.VirtualThread.sleepNanos",
            "java.lang.Thread.sleep",
            "A.b",
        ];
        assert_eq!(of("parked", &sleep).0, "timer");
        let read = [
            park,
            "sun.nio.ch.Poller.poll",
            "sun.nio.ch.NioSocketImpl.park",
            "A.b",
        ];
        assert_eq!(of("parked", &read).0, "network");
        let accept = [
            "sun.nio.ch.NioSocketImpl.park",
            "sun.nio.ch.NioSocketImpl.accept",
        ];
        assert_eq!(of("parked", &accept).0, "parked");
        let lock = "parked: java.util.concurrent.locks.ReentrantLock$NonfairSync";
        assert_eq!(
            of(
                lock,
                &[
                    park,
                    "java.util.concurrent.locks.ReentrantLock$Sync.lock",
                    "A.b"
                ]
            ),
            (
                "lock",
                "java.util.concurrent.locks.ReentrantLock$NonfairSync".to_owned()
            )
        );
        // Without a stack, the object gives the reason.
        assert_eq!(of(lock, &[]).0, "lock");
        assert_eq!(of("parked", &[park, "A.b"]).0, "other");
        assert_eq!(of("monitor", &["A.b"]), ("lock", "monitor".to_owned()));
        assert_eq!(
            of("Object.wait", &["A.b"]),
            ("event", "Object.wait".to_owned())
        );
    }

    #[test]
    fn a_caller_may_say_more_than_what_it_is_made_of() {
        let take = [
            "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await",
            "java.util.concurrent.LinkedBlockingQueue.take",
            "A.b",
        ];
        assert_eq!(of("parked", &take).0, "queue");
        let pool = [
            "java.util.concurrent.SynchronousQueue.poll",
            "com.zaxxer.hikari.pool.HikariPool.getConnection",
        ];
        assert_eq!(of("parked", &pool).0, "pool");
        let http = [
            "java.util.concurrent.CompletableFuture.get",
            "jdk.internal.net.http.HttpClientImpl.send",
        ];
        assert_eq!(of("parked", &http).0, "network");
    }
}
