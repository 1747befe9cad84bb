# SPDX-License-Identifier: MIT OR Apache-2.0
"""Processes with one trouble each, and healthy ones, in Python and as the programs that everybody has.

trouble.py CASE [--seconds S] [--dir D]

The victim is a process of its own: a Python function, or a program that it becomes. The parent plays
whatever lies outside of it, says READY and both processes, waits for a line, lets the victim go,
prints a line when the time is over, and stays until stdin ends. Runs on CPython 3.8 and later.
"""
import asyncio
import ctypes
import http.server
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor


def option(name, otherwise):
    return sys.argv[sys.argv.index("--" + name) + 1] if "--" + name in sys.argv else otherwise


def crew(count, run):
    for i in range(count):
        threading.Thread(target=run, daemon=True).start()
    while True:
        time.sleep(3600)


def listen():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def answer(connection, delay):
    while True:
        data = connection.recv(4096)
        if not data:
            return
        time.sleep(delay)
        if data.startswith(b"GET"):
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")
            connection.close()
            return
        connection.sendall(b"a")


def serve(delay):
    """A slow upstream, outside."""
    while True:
        connection, _ = LISTENER.accept()
        threading.Thread(target=answer, args=(connection, delay), daemon=True).start()


def ask_always(pause, port=None):
    """A client, outside."""
    port = port or LISTENER.getsockname()[1]
    while True:
        try:
            urllib.request.urlopen("http://127.0.0.1:%d/" % port).read()
        except OSError:
            pass
        time.sleep(pause)


LISTENER = listen()


# ---- computing ----

def render_template():
    return "".join("<td>%d</td>" % (i * i) for i in range(2000))


def hot():
    while True:
        render_template()


def count_words():
    total = 0
    for i in range(20000):
        total += i * i
    return total


def gil():
    def run():
        while True:
            count_words()
    crew(4, run)


def build_graph():
    nodes = [[] for _ in range(20000)]
    for i, node in enumerate(nodes):
        node.append(nodes[i - 1])


def garbage():
    import gc
    keep = [[i] for i in range(400000)]
    while keep:
        build_graph()
        gc.collect()


# ---- waiting ----

POOL = queue.Queue()


def run_query(connection):
    connection.sendall(b"q")
    connection.recv(1)


def handle_with_pool():
    connection = POOL.get()
    try:
        run_query(connection)
    finally:
        POOL.put(connection)


def pool():
    for _ in range(2):
        POOL.put(socket.create_connection(LISTENER.getsockname()))

    def run():
        while True:
            handle_with_pool()
    crew(8, run)


def fetch_rate():
    urllib.request.urlopen("http://127.0.0.1:%d/" % LISTENER.getsockname()[1], timeout=10).read()


def fetch():
    while True:
        fetch_rate()


async def handle_order():
    while True:
        fetch_rate()
        await asyncio.sleep(0.002)


def held_loop():
    """Handlers on an event loop, each of which holds it up with a call that waits."""
    async def handlers():
        await asyncio.gather(*[handle_order() for _ in range(8)])
    asyncio.run(handlers())


class Handler(http.server.BaseHTTPRequestHandler):
    delay = 0.0

    def do_GET(self):
        self.work()
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def work(self):
        if self.delay:
            time.sleep(self.delay)

    def log_message(self, *_):
        pass


def web():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket = LISTENER
    server.serve_forever()


def full_queue():
    """Pages are found faster than they are indexed: the queue between is full."""
    pages = queue.Queue(maxsize=4)

    def index_pages():
        while True:
            pages.get()
            time.sleep(0.02)

    def feed_pages():
        while True:
            pages.put(sum(range(2000)))

    threading.Thread(target=index_pages, name="indexer", daemon=True).start()
    feed_pages()


def sleepy_web():
    Handler.delay = 0.03
    web()


DATABASE = listen()


def answer_queries():
    """A quick database, outside."""
    while True:
        connection, _ = DATABASE.accept()
        threading.Thread(target=answer, args=(connection, 0.001), daemon=True).start()


def load_lines(connection):
    for _ in range(30):
        connection.sendall(b"select")
        connection.recv(64)


def many_queries():
    """A web service that asks for each line of an order by itself."""
    database = socket.create_connection(DATABASE.getsockname())
    Handler.work = lambda self: load_lines(database)
    web()


def shop():
    threading.Thread(target=answer_queries, daemon=True).start()
    ask_always(0.001)


LOG = os.pipe()


def write_log():
    os.write(LOG[1], b"x" * 512)


def log():
    while True:
        count_words()
        write_log()


def drain():
    while True:
        os.read(LOG[0], 4096)
        time.sleep(0.05)


def convert_image():
    subprocess.run(["sleep", "0.1"], check=True)


def child():
    while True:
        count_words()
        convert_image()


# ---- healthy ----

def executor():
    workers = ThreadPoolExecutor(4)
    while True:
        workers.submit(render_template)
        time.sleep(0.05)


class Offloaded:
    """A web service with an event loop that has a worker do what a request needs, as frameworks with functions that
    may block do."""
    def __init__(self):
        self.jobs = queue.Queue()
        self.loop = asyncio.new_event_loop()

    def run(self):
        while True:
            done, value = self.jobs.get()
            self.loop.call_soon_threadsafe(done.set_result, value)

    async def answer(self, reader, writer):
        while await reader.readline() not in (b"\r\n", b""):
            pass
        done = self.loop.create_future()
        self.jobs.put((done, b"ok"))
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n" + await done)
        writer.close()

    def serve(self):
        threading.Thread(target=self.run, daemon=True).start()
        self.loop.run_until_complete(asyncio.start_server(self.answer, sock=LISTENER))
        self.loop.run_forever()


def offloaded():
    Offloaded().serve()


class Pipeline:
    """Three threads: one has work now and then, the second asks the third for its part of it."""

    def __init__(self):
        self.orders, self.parts, self.made = queue.Queue(), queue.Queue(), queue.Queue()

    def take_orders(self):
        while True:
            self.parts.put(self.orders.get())
            self.made.get()

    def make_parts(self):
        while True:
            self.made.put(self.parts.get())

    def run(self):
        for stage in (self.take_orders, self.make_parts):
            threading.Thread(target=stage, daemon=True).start()
        while True:
            time.sleep(0.1)
            self.orders.put(1)


def pipeline():
    Pipeline().run()


SIGNALS = queue.SimpleQueue()


def wait_for_signals():
    try:
        return SIGNALS.get(timeout=0.25)
    except queue.Empty:
        return None


def arbiter():
    """The parent of workers: it waits for what a handler of signals puts into a queue, and looks round."""
    while True:
        wait_for_signals()


def blpop(connection):
    connection.sendall(b"*3 BLPOP jobs 5")
    return connection.recv(4096)


def consumer():
    """Asks a queue of another process for work, of which there is little."""
    connection = socket.create_connection(LISTENER.getsockname())
    while True:
        blpop(connection)


# Nobody listens there.
GONE = socket.socket()
GONE.bind(("127.0.0.1", 0))


def charge(_):
    """Asks a host that is not there, and again after a while."""
    for _ in range(3):
        try:
            socket.create_connection(GONE.getsockname()).close()
        except OSError:
            time.sleep(0.04)


def retries():
    Handler.work = charge
    web()


# ---- programs that everybody has ----

def become(*words, stdin=None, stdout=None):
    """`stdin`: a descriptor, or what makes one outside, before the victim is born."""
    def victim():
        if stdin is not None:
            os.dup2(victim.made if callable(stdin) else stdin, 0)
        os.dup2(stdout if stdout is not None else os.open("/dev/null", os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.execvp(words[0], words)
    victim.prepare = stdin if callable(stdin) else None
    return victim


FEED = os.pipe()


def feed_lines():
    while True:
        os.write(FEED[1], b"a line of text\n" * 20)
        time.sleep(0.02)


def folder_file(name):
    return os.path.join(option("dir", "."), "wallscope-truth-%d-%s" % (os.getpid(), name))


def random_file():
    """Something to compress that never ends, and costs nothing to make."""
    read, write = os.pipe()
    if not os.fork():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        block = os.urandom(1 << 16) * 4
        while True:
            os.write(write, block)
    return read


def statements():
    """Commits without end for a database."""
    read, write = os.pipe()
    if not os.fork():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        os.write(write, b"create table t (a, b);\n")
        while True:
            os.write(write, b"insert into t values (1, 'text');\n")
    return read


COPY = folder_file("copy")


def copy_slowly():
    """Writes at a rate of its own, as rsync --bwlimit does."""
    with open(COPY, "wb", buffering=0) as copy:
        while True:
            if copy.tell() > 1 << 26:
                copy.seek(0)
            copy.write(b"x" * (1 << 16))
            time.sleep(0.02)


LOCKED = folder_file("locked")


def hold_database():
    """A writer, outside, with long transactions."""
    import sqlite3
    other = sqlite3.connect(LOCKED, isolation_level=None)
    while True:
        other.execute("begin exclusive")
        time.sleep(0.4)
        other.execute("commit")
        time.sleep(0.02)


def insert_rows():
    import sqlite3
    own = sqlite3.connect(LOCKED, isolation_level=None, timeout=60)
    own.execute("create table if not exists t (a)")
    while True:
        own.execute("insert into t values (1)")
        time.sleep(0.01)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


REDIS = free_port()
WEB = free_port()
NODE_WEB = """require("http").createServer((_, answer) => answer.end("ok")).listen(+process.argv[1], "127.0.0.1")"""
RUBY_WORKERS = """jobs = Queue.new; 4.times { Thread.new { loop { jobs.pop } } }; loop { jobs << 1; sleep 0.1 }"""


def redis_client(words, pause):
    """A client, outside."""
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", REDIS))
            while connection.send(words) and connection.recv(64):
                time.sleep(pause)
        except OSError:
            time.sleep(0.02)


def redis_clients():
    threading.Thread(target=redis_client, args=(b"PING\r\n", 0.001), daemon=True).start()
    redis_client(b"DEBUG SLEEP 0.03\r\n", 0.001)


NOTHING = os.pipe()
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def go_service(*words):
    """A Go program, compiled before the victim is let go."""
    def victim():
        os.execv(victim.made, ("service",) + words)

    def prepare():
        source = os.path.join(PROGRAMS, "go", "trouble", "trouble.go")
        subprocess.run(["go", "build", "-o", folder_file("go"), source], check=True,
                       stdout=subprocess.DEVNULL)
        return folder_file("go")

    victim.prepare = prepare
    return victim


def with_warm_files(victim, *words):
    """A program whose files are in memory before it starts: `words` start it and end it once."""
    victim.prepare = lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return victim


def java_service(collector):
    """A Java program, compiled before the victim is let go."""
    def victim():
        os.execvp("java", ("java", collector, "-Xmx80m", "-cp", victim.made, "Garbage"))

    def prepare():
        source = os.path.join(PROGRAMS, "java", "Garbage.java")
        subprocess.run(["javac", "-d", folder_file("java"), source], check=True, stdout=subprocess.DEVNULL)
        return folder_file("java")

    victim.prepare = prepare
    return victim


REDIS_SERVER = become("redis-server", "--port", str(REDIS), "--bind", "127.0.0.1", "--save", "",
                      "--enable-debug-command", "yes")

# What the victim does, and what happens outside.
CASES = {
    "hot": (hot, None),
    "gil": (gil, None),
    "garbage": (garbage, None),
    "pool": (pool, lambda: serve(0.005)),
    "fetch": (fetch, lambda: serve(0.02)),
    "held-loop": (held_loop, lambda: serve(0.02)),
    "full-queue": (full_queue, None),
    "sleepy-web": (sleepy_web, lambda: ask_always(0.001)),
    "many-queries": (many_queries, shop),
    "log": (log, drain),
    "child": (child, None),
    "writer": (insert_rows, hold_database),
    "copy": (copy_slowly, None),
    "executor": (executor, None),
    "pipeline": (pipeline, None),
    "offloaded": (offloaded, lambda: ask_always(0.05)),
    "arbiter": (arbiter, None),
    "consumer": (consumer, lambda: serve(0.5)),
    "retries": (retries, lambda: ask_always(0.001)),
    "web": (web, lambda: ask_always(0.2)),
    "idle-web": (web, None),
    "gzip": (become("gzip", "-9", "-c", stdin=random_file), None),
    "grep": (become("grep", "nothing", stdin=FEED[0]), feed_lines),
    "spawn": (become("bash", "-c", "while :; do /bin/true; done"), None),
    "yes": (become("yes", "a line that somebody reads slowly", stdout=LOG[1]), drain),
    "dd": (become("dd", "if=/dev/zero", "of=" + folder_file("dd"), "bs=64k", "oflag=dsync",
                  "count=100000", "conv=notrunc"), None),
    "sqlite": (become("sqlite3", folder_file("db"), stdin=statements), None),
    "redis": (REDIS_SERVER, redis_clients),
    "node-garbage": (become("node", "--max-old-space-size=96",
                            os.path.join(PROGRAMS, "node", "trouble.js")), None),
    "java-serial": (java_service("-XX:+UseSerialGC"), None),
    "java-parallel": (java_service("-XX:+UseParallelGC"), None),
    "java-g1": (java_service("-XX:+UseG1GC"), None),
    "java-z": (java_service("-XX:+UseZGC"), None),
    "java-shenandoah": (java_service("-XX:+UseShenandoahGC"), None),
    "go-garbage": (go_service("garbage"), None),
    "go-mutex": (go_service("mutex"), None),
    "go-channel": (go_service("channel"), None),
    "curl": (become("bash", "-c", "while :; do curl -s http://127.0.0.1:%d/; done"
                    % LISTENER.getsockname()[1]), lambda: serve(0.4)),
    "go-web": (go_service("web", str(WEB)), lambda: ask_always(0.1, WEB)),
    "node-web": (with_warm_files(become("node", "-e", NODE_WEB, str(WEB)), "node", "-e", ""), lambda: ask_always(0.1, WEB)),
    "php-web": (with_warm_files(become("php", "-S", "127.0.0.1:%d" % WEB, "-t", os.path.join(PROGRAMS, "php")),
                                "php", "-r", ""), lambda: ask_always(0.1, WEB)),
    "ruby-workers": (with_warm_files(become("ruby", "-e", RUBY_WORKERS), "ruby", "-e", ""), None),
    "redis-quiet": (REDIS_SERVER, lambda: redis_client(b"PING\r\n", 0.05)),
    "tail": (become("tail", "-f", "/dev/null"), None),
    "sleep": (become("sleep", "1000"), None),
    "cat": (become("cat", stdin=NOTHING[0]), None),
}


def main():
    victim, outside = CASES[sys.argv[1]]
    if getattr(victim, "prepare", None):
        victim.made = victim.prepare()
    go = os.pipe()
    pid = os.fork()
    if not pid:
        # A parent that is gone takes its victim along (PR_SET_PDEATHSIG).
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        os.close(go[1])
        if os.read(go[0], 1):
            victim()
        os._exit(0)
    if outside:
        threading.Thread(target=outside, daemon=True).start()
    print("READY", os.getpid(), pid, flush=True)
    sys.stdin.readline()
    os.write(go[1], b"g")
    time.sleep(float(option("seconds", "3")))
    print("{}", flush=True)
    # The input ends after the measurement; the victim stays until then.
    sys.stdin.read()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for name in ("dd", "db", "db-journal", "copy", "go"):
        if os.path.exists(folder_file(name)):
            os.unlink(folder_file(name))
    shutil.rmtree(folder_file("java"), ignore_errors=True)
    os._exit(0)


main()
