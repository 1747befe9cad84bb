//! Classifies the waits of tasks by the functions on the stack: the runtime itself knows only a
//! future.

/// Wait functions of asyncio and well-known libraries, by file and function (`*`: any). The first
/// function of a stack, innermost first, that matches a row gives the reason. If that reason is
/// [`GENERAL`], a caller may give a more specific one.
const WAITS: &[(&str, &str, &str)] = &[
    ("asyncio/tasks.py", "sleep", "timer"),
    ("asyncio/tasks.py", "*", "task"),
    ("asyncio/taskgroups.py", "*", "task"),
    ("asyncio/locks.py", "acquire", "lock"),
    ("asyncio/locks.py", "*", "event"),
    ("asyncio/queues.py", "*", "queue"),
    ("asyncio/threads.py", "*", "thread"),
    ("asyncio/subprocess.py", "*", "child"),
    ("asyncio/base_subprocess.py", "*", "child"),
    ("asyncio/unix_events.py", "*", "child"),
    ("asyncio/streams.py", "*", "network"),
    ("asyncio/base_events.py", "*", "network"),
    ("asyncio/selector_events.py", "*", "network"),
    ("asyncio/sslproto.py", "*", "network"),
    (
        "aiohttp/connector.py",
        "_wait_for_available_connection",
        "pool",
    ),
    ("aiohttp/", "*", "network"),
    (
        "anyio/_backends/_asyncio.py",
        "run_sync_in_worker_thread",
        "thread",
    ),
    ("anyio/_backends/_asyncio.py", "acquire", "lock"),
    (
        "anyio/_backends/_asyncio.py",
        "acquire_on_behalf_of",
        "lock",
    ),
    ("anyio/_backends/_asyncio.py", "wait", "event"),
    ("anyio/_backends/_asyncio.py", "__aexit__", "task"),
    ("anyio/_backends/_asyncio.py", "*", "network"),
    ("httpcore/_synchronization.py", "*", "event"),
    (
        "httpcore/_async/connection_pool.py",
        "wait_for_connection",
        "pool",
    ),
    ("asyncpg/pool.py", "*", "pool"),
    ("asyncpg/", "*", "network"),
    ("grpc/aio/", "*", "network"),
    ("websockets/", "*", "network"),
    ("uvicorn/protocols/", "*", "network"),
];

const GENERAL: &[&str] = &["event", "queue", "lock"];

/// Functions in which a server waits for its next request or its end: nothing is in flight.
/// Compared with the innermost function outside asyncio.
const PARKED: &[(&str, &str)] = &[
    ("aiohttp/web_protocol.py", "start"),
    ("aiohttp/web.py", "_run_app"),
    ("uvicorn/server.py", "main_loop"),
    ("uvicorn/lifespan/on.py", "receive"),
    ("hypercorn/asyncio/run.py", "worker_serve"),
    ("websockets/legacy/server.py", "wait_closed"),
];
const PARKED_ITSELF: &[(&str, &str)] = &[
    ("asyncio/base_events.py", "serve_forever"),
    ("asyncio/base_events.py", "wait_closed"),
];

/// Classifies a wait by its word and by the functions on the stack, innermost first: file and name.
pub fn reason<'n>(word: &str, functions: impl Iterator<Item = (&'n str, &'n str)>) -> &'static str {
    let all: Vec<_> = functions.collect();
    let is = |(file, name): (&str, &str), in_file: &str, called: &str| {
        // From 3.11 on names include the class.
        let plain = name.rsplit('.').next().unwrap_or(name);
        let there = match in_file.strip_suffix('/') {
            Some(_) => file.contains(&format!("/{in_file}")),
            None => file
                .strip_suffix(in_file)
                .is_some_and(|f| f.is_empty() || f.ends_with('/')),
        };
        there && (called == "*" || called == plain)
    };
    let parked = |place: &(&str, &str), table: &[(&str, &str)]| {
        table.iter().any(|(file, name)| is(*place, file, name))
    };
    let installed =
        |file: &str| file.contains("/site-packages/") || file.contains("/dist-packages/");
    let of_asyncio = |file: &str| file.contains("/asyncio/") && !installed(file);
    let own = all.iter().find(|(file, _)| !of_asyncio(file));
    if all.iter().any(|place| parked(place, PARKED_ITSELF))
        || own.is_some_and(|place| parked(place, PARKED))
    {
        return "parked";
    }
    if word.starts_with("task ") {
        return "task";
    }
    let of_place = |place: &(&str, &str)| {
        let mut rows = WAITS.iter();
        let row = rows.find(|(file, name, _)| is(*place, file, name))?;
        Some(row.2)
    };
    let of_callers = || {
        let from = all.iter().position(|place| of_place(place).is_some())?;
        let known = all[from..].iter().map_while(of_place);
        let mut special = known.filter(|reason| !GENERAL.contains(reason));
        special.next().or_else(|| of_place(&all[from]))
    };
    match of_callers() {
        // Name look-ups run on other threads, too.
        Some("network") => "network",
        _ if !word.is_empty() => "thread",
        other => other.unwrap_or("other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: &str, stack: &[(&'static str, &'static str)]) -> &'static str {
        reason(word, stack.iter().copied())
    }

    const APP: (&str, &str) = ("/srv/app.py", "handler");

    #[test]
    fn the_innermost_place_that_is_known_says_what_for() {
        let sleep = ("/usr/lib/python3.11/asyncio/tasks.py", "sleep");
        assert_eq!(of("", &[sleep, APP]), "timer");
        let lock = ("/usr/lib/python3.11/asyncio/locks.py", "Lock.acquire");
        let enter = (
            "/usr/lib/python3.11/asyncio/locks.py",
            "_ContextManagerMixin.__aenter__",
        );
        assert_eq!(of("", &[lock, enter, APP]), "lock");
        assert_eq!(of("", &[APP]), "other");
        assert_eq!(of("", &[("/srv/myasyncio/locks.py", "acquire")]), "other");
        assert_eq!(of("task fetch", &[APP]), "task");
        assert_eq!(of("executor", &[APP]), "thread");
        let look_up = (
            "/usr/lib/python3.11/asyncio/base_events.py",
            "BaseEventLoop.getaddrinfo",
        );
        assert_eq!(of("executor", &[look_up, APP]), "network");
        let read = (
            "/venv/lib/site-packages/aiohttp/streams.py",
            "DataQueue.read",
        );
        assert_eq!(of("", &[read, APP]), "network");
        // A wait built on an event is named for its purpose.
        let event = ("/usr/lib/python3.11/asyncio/locks.py", "Event.wait");
        let any = ("/venv/anyio/_backends/_asyncio.py", "Event.wait");
        let receive = ("/venv/anyio/_backends/_asyncio.py", "SocketStream.receive");
        assert_eq!(of("", &[event, receive, APP]), "network");
        let http = ("/venv/httpcore/_synchronization.py", "AsyncEvent.wait");
        let pool = (
            "/venv/httpcore/_async/connection_pool.py",
            "AsyncPoolRequest.wait_for_connection",
        );
        assert_eq!(of("", &[event, any, http, pool, APP]), "pool");
        assert_eq!(of("", &[event, APP]), "event");
    }

    #[test]
    fn a_server_that_waits_for_requests_is_parked() {
        let start = ("/venv/aiohttp/web_protocol.py", "RequestHandler.start");
        assert_eq!(of("", &[start]), "parked");
        // A handler is called by the function that otherwise is parked.
        let read = ("/venv/aiohttp/streams.py", "StreamReader.read");
        assert_eq!(of("", &[read, APP, start]), "network");
        let sleep = ("/usr/lib/python3.11/asyncio/tasks.py", "sleep");
        let tick = ("/venv/uvicorn/server.py", "Server.main_loop");
        assert_eq!(of("", &[sleep, tick]), "parked");
        let forever = (
            "/usr/lib/python3.11/asyncio/base_events.py",
            "Server.serve_forever",
        );
        assert_eq!(of("", &[forever, APP]), "parked");
    }
}
