// SPDX-License-Identifier: MIT OR Apache-2.0

import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A Java program with virtual threads that measure by the clock how long they wait, and for what.
 *
 * <pre>
 * Virtual [--seconds S] [--garbage]   --garbage: a thread makes garbage meanwhile, so that objects move
 * </pre>
 *
 * Half of the threads belong to an executor, half are started alone. Threads that park for good record
 * their own stacks, as the library reports them. Says READY and its process, waits for a line, works, tells
 * its truth, stays until its input ends. Runs on Java 21 and later, straight from this file.
 */
public final class Virtual {
    static final long PID = ProcessHandle.current().pid();
    static final ReentrantLock LOCK = new ReentrantLock();
    static final Object MONITOR = new Object(), SIGNAL = new Object();
    static final BlockingQueue<Integer> QUEUE = new SynchronousQueue<>();
    static final int PARKED = 8;
    static volatile long end;
    static volatile long sink;
    static volatile Object garbage;

    /** What one thread did: ns in its function, ns that it computed, and ns that it existed. */
    record Did(String function, long waited, long ran, long existed) {}

    static final List<Did> TRUTH = new ArrayList<>();
    static final Map<String, List<String>> CHAINS = new LinkedHashMap<>();

    interface Work {
        void run(Random random) throws Exception;
    }

    static long some(Random random, double ms) {
        return (long) ((0.5 + random.nextDouble()) * ms * 1e6);
    }

    /** Computes for so long; how long it was. */
    static long compute(long ns) {
        long began = System.nanoTime(), now = began;
        while (now - began < ns) {
            sink++;
            now = System.nanoTime();
        }
        return now - began;
    }

    static void rest(long ns) throws Exception {
        Thread.sleep(ns / 1_000_000, (int) (ns % 1_000_000));
    }

    static void vtNap(Random r) throws Exception {
        rest(some(r, 12));
    }

    static void vtHold(Random r) throws Exception {
        LOCK.lock();
        try {
            rest(some(r, 8));
        } finally {
            LOCK.unlock();
        }
    }

    static void vtWant(Random r) {
        LOCK.lock();
        LOCK.unlock();
    }

    static void vtEnter(Random r) {
        synchronized (MONITOR) {
            sink++;
        }
    }

    static void vtWait(Random r) throws Exception {
        synchronized (SIGNAL) {
            SIGNAL.wait();
        }
    }

    static void vtTake(Random r) throws Exception {
        QUEUE.take();
    }

    static void vtPark(Random r) {
        long until = System.nanoTime() + some(r, 10);
        for (long left; (left = until - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(MONITOR, left);
        }
    }

    static Socket client;

    static void vtRead(Random r) throws Exception {
        if (client.getInputStream().read() < 0) {
            throw new IllegalStateException("the other side hung up");
        }
    }

    /** Computes. */
    static void vtSpin(Random r) {
        compute(some(r, 3));
    }

    /** Computes after a wait, below some calls. */
    static int later(Random r, int depth) throws Exception {
        if (depth > 0) {
            return later(r, depth - 1) + 1;
        }
        rest(some(r, 3));
        late += vtLate(some(r, 4));
        return 0;
    }

    /** What it has computed; one thread's only. */
    static long late;

    static long vtLate(long ns) {
        return compute(ns);
    }

    static void drive(String name, double pause, Work work, CountDownLatch gate, CountDownLatch done) {
        try {
            gate.await();
            Random random = new Random(name.hashCode());
            long began = System.nanoTime(), waited = 0, ran = 0;
            while (System.nanoTime() < end) {
                long start = System.nanoTime(), before = late;
                work.run(random);
                long took = System.nanoTime() - start;
                long computed = switch (name) {
                    case "vtSpin" -> took;
                    case "vtLater" -> late - before;
                    default -> 0;
                };
                ran += computed;
                waited += took - computed;
                ran += compute(some(random, 0.3));
                if (pause > 0) {
                    rest(some(random, pause));
                }
            }
            synchronized (TRUTH) {
                TRUTH.add(new Did(name, waited, ran, System.nanoTime() - began));
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
        done.countDown();
    }

    /** Parks for good below `depth` calls of itself. */
    static int dive(int depth) {
        if (depth > 0) {
            return dive(depth - 1) + 1;
        }
        while (end != 1) {
            LockSupport.park();
        }
        return 0;
    }

    /** A thread of the system's own that ends others' waits, as often as it likes. */
    static void helper(String name, Work work) {
        Thread thread = new Thread(() -> {
            Random random = new Random(name.hashCode());
            try {
                while (true) {
                    work.run(random);
                }
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    static void line(InputStream in) throws Exception {
        for (int c; (c = in.read()) >= 0 && c != '\n'; ) {}
    }

    static String quoted(String text) {
        return '"' + text + '"';
    }

    public static void main(String[] args) throws Exception {
        double seconds = 3;
        boolean moving = false;
        for (int i = 0; i < args.length; i++) {
            if (args[i].equals("--seconds")) {
                seconds = Double.parseDouble(args[++i]);
            } else if (args[i].equals("--garbage")) {
                moving = true;
            }
        }
        ServerSocket server = new ServerSocket(0);
        client = new Socket("127.0.0.1", server.getLocalPort());
        Socket answers = server.accept();
        helper("vt-holder", r -> {
            synchronized (MONITOR) {
                rest(some(r, 9));
            }
            rest(some(r, 1));
        });
        helper("vt-feeder", r -> {
            rest(some(r, 9));
            QUEUE.put(1);
        });
        helper("vt-caller", r -> {
            rest(some(r, 9));
            synchronized (SIGNAL) {
                SIGNAL.notifyAll();
            }
        });
        helper("vt-server", r -> {
            rest(some(r, 9));
            answers.getOutputStream().write(1);
        });
        if (moving) {
            helper("vt-litter", r -> {
                for (int i = 0; i < 4000; i++) {
                    garbage = new byte[1000];
                }
                rest(some(r, 2));
            });
        }
        Map<String, Work> works = new LinkedHashMap<>();
        works.put("vtNap", Virtual::vtNap);
        works.put("vtHold", Virtual::vtHold);
        works.put("vtWant", Virtual::vtWant);
        works.put("vtEnter", Virtual::vtEnter);
        works.put("vtWait", Virtual::vtWait);
        works.put("vtTake", Virtual::vtTake);
        works.put("vtPark", Virtual::vtPark);
        works.put("vtRead", Virtual::vtRead);
        works.put("vtSpin", Virtual::vtSpin);
        works.put("vtLater", r -> sink += later(r, 12));
        CountDownLatch gate = new CountDownLatch(1), done = new CountDownLatch(works.size());
        ExecutorService executor = Executors.newVirtualThreadPerTaskExecutor();
        List<Thread> parked = new ArrayList<>();
        int turn = 0;
        for (Map.Entry<String, Work> work : works.entrySet()) {
            String name = work.getKey();
            // What feeds others at once needs no pause.
            double pause = switch (name) {
                case "vtTake", "vtWait", "vtRead" -> 0;
                case "vtHold" -> 1;
                default -> 4;
            };
            Runnable all = () -> drive(name, pause, work.getValue(), gate, done);
            if (turn++ % 2 == 0) {
                executor.execute(all);
            } else {
                Thread.ofVirtual().name(name + "-" + turn).start(all);
            }
        }
        for (int i = 0; i < PARKED; i++) {
            int depth = 3 * i;
            parked.add(Thread.ofVirtual().name("vt-parked-" + i).start(() -> sink = dive(depth)));
        }
        for (Thread thread : parked) {
            while (thread.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
        }
        System.out.println("READY " + PID);
        line(System.in);
        long released = System.nanoTime();
        end = released + (long) (seconds * 1e9);
        gate.countDown();
        done.await();
        for (int i = 0; i < PARKED; i++) {
            List<String> names = new ArrayList<>();
            for (StackTraceElement element : parked.get(i).getStackTrace()) {
                names.add(element.getClassName() + "." + element.getMethodName());
            }
            CHAINS.put("parked " + i, names);
        }
        List<String> extra = new ArrayList<>();
        for (Did did : TRUTH) {
            extra.add(quoted(did.function + " waited") + ":" + did.waited);
            extra.add(quoted(did.function + " existed") + ":" + did.existed);
            extra.add(quoted(did.function + " ran") + ":" + did.ran);
        }
        List<String> chains = new ArrayList<>();
        CHAINS.forEach((leaf, names) -> {
            List<String> frames = new ArrayList<>();
            for (String name : names) {
                frames.add("{\"name\":" + quoted(name) + ",\"module\":\"\",\"offset\":0}");
            }
            chains.add("{\"pid\":" + PID + ",\"tid\":0,\"leaf\":" + quoted(leaf)
                    + ",\"state\":\"blocked\",\"frames\":[" + String.join(",", frames) + "]}");
        });
        System.out.println("{\"program\":\"virtual\",\"executable\":\"java\",\"pid\":" + PID
                + ",\"released_ns\":" + released + ",\"ended_ns\":" + System.nanoTime()
                + ",\"threads\":[],\"functions\":[],\"chains\":[" + String.join(",", chains)
                + "],\"extra\":{" + String.join(",", extra) + "}}");
        System.out.flush();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
