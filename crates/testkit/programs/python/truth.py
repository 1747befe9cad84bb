# SPDX-License-Identifier: MIT OR Apache-2.0
"""A Python program that measures its own functions by the clock, in the way of the C programs.

truth.py mix [--seconds S]     threads that compute, sleep, call back from C, recurse, wait for a
                               lock, and all want the interpreter's lock
truth.py gil [--seconds S]     two threads that compute, and one that sleeps and keeps the
                               interpreter's lock meanwhile
truth.py fixed [--units N]     a fixed amount of computing; tells its time
truth.py fixed --piece N       pieces of N units until a line comes; tells when each ended

Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
Runs on CPython 3.8 and later.
"""
import ctypes
import json
import os
import random
import select
import sys
import threading
import time

MINE = os.getpid()


def option(name, otherwise):
    if "--" + name in sys.argv:
        return float(sys.argv[sys.argv.index("--" + name) + 1])
    return otherwise


class Worker:
    """A thread with a name that the kernel knows, and what it measured."""

    def __init__(self, name, work):
        self.name, self.work = name, work
        self.functions, self.operations, self.chains = {}, 0, {}
        self.gate, self.released = os.pipe()
        self.buffer = ctypes.create_string_buffer(100)
        self.random = random.Random(name)
        self.ready, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.ready.wait()

    def run(self):
        self.tid = threading.get_native_id()
        with open("/proc/self/task/%d/comm" % self.tid, "w") as comm:
            comm.write(self.name)
        self.books = os.open("/proc/self/task/%d/schedstat" % self.tid, os.O_RDONLY)
        self.start_ns = time.monotonic_ns()
        self.ready.set()
        os.read(self.gate, 1)
        began = time.monotonic_ns()
        before = self.schedstat()
        while time.monotonic_ns() < END[0]:
            self.work(self)
            self.operations += 1
        self.on_cpu, self.delay = (b - a for a, b in zip(before, self.schedstat()))
        self.wall = time.monotonic_ns() - began
        self.done.set()
        os.read(self.gate, 1)

    def schedstat(self):
        # os.pread() would let the interpreter's lock go, and wait for it between two clocks.
        PREAD(self.books, self.buffer, 100, 0)
        on_cpu, delay, _ = self.buffer.value.split()
        return int(on_cpu), int(delay)

    def measure(self, function, reason, *arguments):
        truth = self.functions.setdefault(function.__name__, [reason, 0, 0, 0, 0])
        delay = self.schedstat()[1]
        # Wall time innermost: each of the other clocks is a system call, in which a thread may be
        # preempted for long.
        cpu = time.thread_time_ns()
        wall = time.monotonic_ns()
        function(self, *arguments)
        wall = time.monotonic_ns() - wall
        cpu = time.thread_time_ns() - cpu
        truth[1] += 1
        truth[2] += wall
        truth[3] += cpu
        truth[4] += self.schedstat()[1] - delay

    def chain(self, state):
        """Writes down the caller's caller, once."""
        frame = sys._getframe(1)
        leaf = frame.f_code.co_name
        if leaf in self.chains:
            return
        names = []
        while frame:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        self.chains[leaf] = (state, names)


def spin(turns):
    total = 0
    for i in range(int(turns)):
        total += i * i
    return total


def calibrate():
    """Turns of spin() in a microsecond."""
    best = min(timed(20000) for _ in range(5))
    return 20000 / (best / 1000)


def timed(turns):
    began = time.thread_time_ns()
    spin(turns)
    return time.thread_time_ns() - began


def some(worker, us):
    """About `us` of computing, never the same."""
    return us * worker.random.uniform(0.5, 1.5) * TURNS


def py_heavy(worker):
    total = 0
    for i in range(int(some(worker, 6000))):
        total += i * i
    return total


def py_light(worker):
    spin(some(worker, 2000))


def py_nap(worker):
    time.sleep(worker.random.uniform(0.002, 0.006))


def py_key(worker):
    worker.chain("on_cpu")
    return spin(some(worker, 100))


def py_sort(worker):
    """A function called by C code called by a function."""
    sorted(range(15), key=lambda _: py_key(worker))


def py_numbers(worker):
    for _ in range(15):
        worker.chain("on_cpu")
        yield spin(some(worker, 100))


def py_generate(worker):
    sum(py_numbers(worker))


def py_bottom(worker):
    worker.chain("blocked")
    time.sleep(worker.random.uniform(0.001, 0.003))


def py_dive(worker, depth=40):
    if depth:
        py_dive(worker, depth - 1)
    else:
        py_bottom(worker)


def py_hold(worker):
    with LOCK:
        time.sleep(worker.random.uniform(0.004, 0.010))


def py_want(worker):
    LOCK.acquire()
    LOCK.release()


def py_count(worker):
    total = 0
    for i in range(int(some(worker, 20000))):
        total += i * i
    return total


def py_hog(worker):
    total = 0
    for i in range(int(some(worker, 20000))):
        total += i * i
    return total


def py_grip(worker):
    """Called in this way, a C function keeps the lock."""
    us = int(worker.random.uniform(6000, 10000))
    NAP(us)
    worker.gripped = getattr(worker, "gripped", 0) + us * 1000


def hogging(worker):
    worker.measure(py_hog, "gil")


def gripping(worker):
    py_grip(worker)
    time.sleep(worker.random.uniform(0.004, 0.010))


def mixed(worker):
    for function, reason in [(py_heavy, ""), (py_light, ""), (py_nap, "timer"), (py_sort, ""),
                             (py_generate, ""), (py_dive, "timer")]:
        worker.measure(function, reason)


def holding(worker):
    worker.measure(py_hold, "timer")
    time.sleep(0.001)


def wanting(worker):
    worker.measure(py_want, "lock")
    time.sleep(0.002)


def counting(worker):
    worker.measure(py_count, "gil")


def tell(workers, released, ended, extra, piece_ends):
    threads = [dict(pid=MINE, tid=w.tid, name=w.name, start_ns=w.start_ns, end_ns=0,
                    work_wall_ns=w.wall, on_cpu_ns=w.on_cpu, run_delay_ns=w.delay,
                    voluntary_switches=0, involuntary_switches=0, operations=w.operations,
                    finished=True) for w in workers]
    functions = [dict(pid=MINE, tid=w.tid, name=name, reason=t[0], calls=t[1], wall_ns=t[2],
                      on_cpu_ns=t[3], run_delay_ns=t[4])
                 for w in workers for name, t in w.functions.items()]
    chains = [dict(pid=MINE, tid=w.tid, leaf=leaf, state=state,
                   frames=[dict(name=n, module="truth.py", offset=0) for n in names])
              for w in workers for leaf, (state, names) in w.chains.items()]
    print(json.dumps(dict(program="python", executable=os.path.basename(sys.executable), pid=MINE,
                          released_ns=released, ended_ns=ended, threads=threads,
                          functions=functions, chains=chains, extra=extra, piece_ends=piece_ends)), flush=True)


def main():
    if sys.argv[1:2] == ["mix"]:
        # On one CPU: of threads that are moved in their sleep, the kernel counts a part of it as
        # waiting for a CPU, and there would be no truth to compare with.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        workers = [Worker("py-mix", mixed), Worker("py-count-0", counting),
                   Worker("py-count-1", counting), Worker("py-hold", holding),
                   Worker("py-want", wanting)]
    elif sys.argv[1:2] == ["gil"]:
        workers = [Worker("py-hog-0", hogging), Worker("py-hog-1", hogging),
                   Worker("py-grip", gripping)]
    elif sys.argv[1:2] == ["fixed"]:
        workers = []
    else:
        sys.exit(__doc__)
    print("READY", MINE, flush=True)
    sys.stdin.readline()
    released = time.monotonic_ns()
    extra = {}
    END.append(released + int(option("seconds", 3) * 1e9))
    for w in workers:
        os.write(w.released, b"g")
    for w in workers:
        w.done.wait()
    extra["gripped_ns"] = sum(getattr(w, "gripped", 0) for w in workers)
    piece, piece_ends = int(option("piece", 0)), []
    while piece and not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(piece):
            spin(10000)
        piece_ends.append(time.monotonic_ns())
    if not workers and not piece:
        cpu = time.thread_time_ns()
        for _ in range(int(option("units", 1000))):
            spin(10000)
        extra["cpu_ns"] = time.thread_time_ns() - cpu
        extra["wall_ns"] = time.monotonic_ns() - released
    tell(workers, released, time.monotonic_ns(), extra, piece_ends)
    sys.stdin.read()


END = []
PREAD = ctypes.PyDLL(None).pread
PREAD.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]
NAP = ctypes.PyDLL(None).usleep
LOCK = threading.Lock()
TURNS = calibrate()
if __name__ == "__main__":
    main()
