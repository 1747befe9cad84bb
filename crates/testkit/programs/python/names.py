# SPDX-License-Identifier: MIT OR Apache-2.0
"""Threads with names that Python knows and the kernel mostly does not.

Said by the program of itself: each thread's name, by its id. One thread lives for a quarter of the time, one gets
another name half-way, one has a name in the kernel that is not Python's (before 3.14, where both are one).

Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
"""
import concurrent.futures
import json
import os
import sys
import threading
import time

SECONDS = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 3.0
NAMES, OVER = {}, threading.Event()


def tells(name=None):
    """The current thread's name is known from now on."""
    NAMES[threading.get_native_id()] = name or threading.current_thread().name


def work(until):
    while time.monotonic() < until:
        sum(i * i for i in range(20000))
        time.sleep(0.01)


def plain(end):
    tells()
    work(end)
    OVER.wait()


def brief(end):
    tells()
    work(end)


def renamed(end):
    work(end - SECONDS / 2)
    threading.current_thread().name = "renamed"
    plain(end)


def of_kernel(end):
    with open("/proc/thread-self/comm", "w") as comm:
        comm.write("own-name")
    tells("own-name")
    work(end)
    OVER.wait()


def main():
    early = threading.Thread(target=OVER.wait, name="found-at-start", daemon=True)
    early.start()
    NAMES[early.native_id] = early.name
    print("READY", os.getpid(), flush=True)
    sys.stdin.readline()
    released, end = time.monotonic_ns(), time.monotonic() + SECONDS
    threads = [threading.Thread(target=plain, args=(end,), name="loader", daemon=True),
               threading.Thread(target=plain, args=(end,), name="für 線程 – " + "long" * 10, daemon=True),
               threading.Thread(target=plain, args=(end,), daemon=True),
               threading.Thread(target=brief, args=(end - SECONDS * 0.75,), name="short-lived", daemon=True),
               threading.Thread(target=renamed, args=(end,), name="first-name", daemon=True),
               threading.Thread(target=of_kernel, args=(end,), name="hidden", daemon=True)]
    for thread in threads:
        thread.start()
    pool = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="pool")
    done = [pool.submit(brief, end) for _ in range(2)]
    work(end)
    concurrent.futures.wait(done)
    rows = [dict(pid=os.getpid(), tid=tid, name=name, start_ns=0, end_ns=0, work_wall_ns=0, on_cpu_ns=0,
                 run_delay_ns=0, voluntary_switches=0, involuntary_switches=0, operations=0, finished=True)
            for tid, name in NAMES.items()]
    print(json.dumps(dict(program="names", executable=os.path.basename(sys.executable), pid=os.getpid(),
                          released_ns=released, ended_ns=time.monotonic_ns(), threads=rows, functions=[],
                          chains=[], extra={})), flush=True)
    sys.stdin.read()
    OVER.set()


main()
