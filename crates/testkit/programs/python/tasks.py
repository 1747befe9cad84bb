# SPDX-License-Identifier: MIT OR Apache-2.0
"""An asyncio program with tasks that measure by the clock how long they await, and for what.

tasks.py [--seconds S] [--plain]     --plain: asyncio without its part in C

Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
Runs on CPython 3.8 and later.
"""
import sys

if "--plain" in sys.argv:
    sys.modules["_asyncio"] = None

import asyncio
import json
import os
import random
import time

MINE = os.getpid()
RANDOM = random.Random(7)
# By function: ns spent awaiting in it, and ns that its task existed.
WAITED, EXISTED = {}, {}


def some(ms):
    return RANDOM.uniform(0.5, 1.5) * ms / 1000


def compute():
    until = time.monotonic() + some(0.3)
    while time.monotonic() < until:
        pass


async def rest(seconds):
    await asyncio.sleep(seconds)


async def aio_nap():
    """A coroutine that awaits another one."""
    await rest(some(12))


async def aio_hold(lock):
    async with lock:
        await rest(some(8))


async def aio_want(lock):
    await lock.acquire()
    lock.release()


async def aio_gather():
    await asyncio.gather(rest(some(5)), rest(some(10)))


async def aio_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(rest(some(5)))
        group.create_task(rest(some(10)))


async def aio_await():
    """Awaits a task that somebody cancels."""
    task = asyncio.ensure_future(rest(1000))
    asyncio.get_running_loop().call_later(some(10), task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        pass


def in_thread():
    return asyncio.get_running_loop().run_in_executor(None, time.sleep, some(10))


async def aio_thread(future):
    await future


async def aio_threads(first, second):
    await asyncio.gather(first, second)


async def aio_take(queue):
    await queue.get()


async def aio_read(reader):
    await reader.readexactly(1)


async def numbers():
    while True:
        await rest(some(10))
        yield 1


async def aio_next(generator):
    await generator.__anext__()


async def drive(function, pause, *arguments):
    """Calls `function` again and again, and measures its calls, which only await."""
    began, waited = time.monotonic_ns(), 0
    while time.monotonic_ns() < END[0]:
        # What it takes to begin is no awaiting: a thread that is given work wants the lock at once.
        values = [a() if callable(a) else a for a in arguments]
        start = time.monotonic_ns()
        await function(*values)
        waited += time.monotonic_ns() - start
        compute()
        if pause:
            await asyncio.sleep(some(pause))
    EXISTED[function.__name__] = time.monotonic_ns() - began
    WAITED[function.__name__] = waited


async def feed(queue):
    while True:
        await asyncio.sleep(some(9))
        queue.put_nowait(1)


async def serve(reader, writer):
    """Answers with a byte after a while, until nobody listens."""
    try:
        while True:
            await asyncio.sleep(some(9))
            writer.write(b"x")
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass


async def work():
    lock, queue = asyncio.Lock(), asyncio.Queue()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wanted = [(aio_nap, 4), (aio_hold, 1, lock), (aio_want, 4, lock), (aio_gather, 4), (aio_await, 4),
              (aio_thread, 4, in_thread), (aio_threads, 4, in_thread, in_thread), (aio_take, 0, queue), (aio_read, 0, reader),
              (aio_next, 4, numbers())]
    if hasattr(asyncio, "TaskGroup"):
        wanted.append((aio_group, 4))
    feeder = asyncio.ensure_future(feed(queue))
    tasks = []
    for function, *arguments in wanted:
        task = asyncio.ensure_future(drive(function, *arguments))
        task.set_name("does " + function.__name__)
        tasks.append(task)
    await asyncio.wait(tasks)
    feeder.cancel()
    writer.close()
    server.close()


def main():
    seconds = 3.0
    if "--seconds" in sys.argv:
        seconds = float(sys.argv[sys.argv.index("--seconds") + 1])
    print("READY", MINE, flush=True)
    sys.stdin.readline()
    released = time.monotonic_ns()
    END.append(released + int(seconds * 1e9))
    asyncio.run(work())
    extra = {}
    for name in WAITED:
        extra[name + " waited"], extra[name + " existed"] = WAITED[name], EXISTED[name]
    print(json.dumps(dict(program="tasks", executable=os.path.basename(sys.executable), pid=MINE,
                          released_ns=released, ended_ns=time.monotonic_ns(), threads=[],
                          functions=[], chains=[], extra=extra)), flush=True)
    sys.stdin.read()


END = []
if __name__ == "__main__":
    main()
