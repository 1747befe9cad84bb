// SPDX-License-Identifier: MIT OR Apache-2.0

import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A Java program that measures its own methods by the clock, in the way of the C programs.
 *
 * <pre>
 * Truth mix [--seconds S]   threads that compute in a loop without calls, in calls and in the
 *                           interpreter, sleep, park, recurse, and wait for a monitor and a lock
 * Truth fixed [--units N]   a fixed amount of computing; tells its time
 * Truth fixed --piece N     pieces of N units until a line comes; tells when each ended
 * </pre>
 *
 * Says READY and its process, waits for a line, works, tells its truth, stays until its input ends.
 * Runs on Java 11 and later, straight from this file.
 */
public final class Truth {
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static final long PID = ProcessHandle.current().pid();
    static final Object MONITOR = new Object();
    static final ReentrantLock LOCK = new ReentrantLock();
    static volatile long end;
    static volatile long sink;
    /** Turns of each kind of computing in a microsecond. */
    static double loopTurns = 1, callTurns = 1, slowTurns = 1;

    /** What a method measured of itself on one thread. */
    static final class Measured {
        final String reason;
        long calls, wall, cpu, delay;

        Measured(String reason) {
            this.reason = reason;
        }
    }

    /** Something to be measured. */
    interface Work {
        void run(Worker worker) throws Exception;
    }

    /** A thread, and what it measured. */
    static final class Worker extends Thread {
        final Work work;
        final Map<String, Measured> functions = new LinkedHashMap<>();
        final Map<String, List<String>> chains = new LinkedHashMap<>();
        final CountDownLatch ready = new CountDownLatch(1), gate = new CountDownLatch(1);
        final CountDownLatch done = new CountDownLatch(1), leave = new CountDownLatch(1);
        final Random random;
        final byte[] buffer = new byte[128];
        RandomAccessFile books;
        long tid, start, wall, onCpu, delay, operations;

        Worker(String name, Work work) {
            super(name);
            this.work = work;
            random = new Random(name.hashCode());
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            try {
                String self = Files.readSymbolicLink(Path.of("/proc/thread-self")).toString();
                tid = Long.parseLong(self.substring(self.lastIndexOf('/') + 1));
                books = new RandomAccessFile("/proc/self/task/" + tid + "/schedstat", "r");
                start = System.nanoTime();
                ready.countDown();
                gate.await();
                long began = System.nanoTime(), delayed = delayed();
                long cpu = THREADS.getCurrentThreadCpuTime();
                while (System.nanoTime() < end) {
                    work.run(this);
                    operations++;
                }
                onCpu = THREADS.getCurrentThreadCpuTime() - cpu;
                delay = delayed() - delayed;
                wall = System.nanoTime() - began;
                done.countDown();
                leave.await();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        }

        /** How long it has waited for a CPU. */
        long delayed() throws IOException {
            books.seek(0);
            int n = books.read(buffer);
            long value = 0;
            int field = 0;
            for (int i = 0; i < n && field < 2; i++) {
                if (buffer[i] == ' ') {
                    field++;
                } else if (field == 1) {
                    value = value * 10 + (buffer[i] - '0');
                }
            }
            return value;
        }

        void measure(String name, String reason, Work function) throws Exception {
            Measured m = functions.computeIfAbsent("Truth." + name, n -> new Measured(reason));
            long delayed = delayed();
            // Wall time innermost: each of the other clocks is a system call, in which a thread may be
            // preempted for long.
            long cpu = THREADS.getCurrentThreadCpuTime(), began = System.nanoTime();
            function.run(this);
            long wall = System.nanoTime() - began;
            m.cpu += THREADS.getCurrentThreadCpuTime() - cpu;
            m.wall += wall;
            m.delay += delayed() - delayed;
            m.calls++;
        }

        /** Records the caller's stack, once for each function. */
        void chain() {
            StackTraceElement[] trace = new Throwable().getStackTrace();
            List<String> names = new ArrayList<>();
            for (int i = 1; i < trace.length; i++) {
                names.add(trace[i].getClassName() + "." + trace[i].getMethodName());
            }
            chains.putIfAbsent(names.get(0), names);
        }

        /** A random value around `mean`. */
        double some(double mean) {
            return mean * (0.5 + random.nextDouble());
        }
    }

    /** A counted loop without calls: compiled, it has no place at which the VM could stop it. */
    static int spinLoop(int turns) {
        int x = turns;
        for (int i = 0; i < turns; i++) {
            x = x * 31 + (x >>> 7) + i;
        }
        return x;
    }

    interface Shape {
        int area(int by);
    }

    static final class Square implements Shape {
        public int area(int by) {
            return by * by;
        }
    }

    static final class Strip implements Shape {
        public int area(int by) {
            return by * 3;
        }
    }

    static final class Dot implements Shape {
        public int area(int by) {
            return by ^ 1;
        }
    }

    static final Shape[] SHAPES = {new Square(), new Strip(), new Dot()};

    static int descend(int depth, int by) {
        return depth == 0 ? SHAPES[by % 3].area(by) : 1 + descend(depth - 1, by + 1);
    }

    static int spinCalls(int turns) {
        int x = 0;
        for (int i = 0; i < turns; i++) {
            x += descend(i & 15, i & 1023);
        }
        return x;
    }

    /** The interpreter is told never to compile this. */
    static int slow(int turns) {
        int x = turns;
        for (int i = 0; i < turns; i++) {
            x = x * 31 + i;
        }
        return x;
    }

    static final class Loop implements Work {
        public void run(Worker w) {
            loop(w);
        }
    }

    static void loop(Worker w) {
        sink = spinLoop((int) w.some(6000 * loopTurns));
    }

    static final class Calls implements Work {
        public void run(Worker w) {
            calls(w);
        }
    }

    static void calls(Worker w) {
        sink = spinCalls((int) w.some(4000 * callTurns));
    }

    static final class Interpreted implements Work {
        public void run(Worker w) {
            interpreted(w);
        }
    }

    static void interpreted(Worker w) {
        sink = slow((int) w.some(3000 * slowTurns));
    }

    static final class Nap implements Work {
        public void run(Worker w) throws Exception {
            nap(w);
        }
    }

    static void nap(Worker w) throws Exception {
        Thread.sleep((long) w.some(4), 100);
    }

    static final class Park implements Work {
        public void run(Worker w) {
            park(w);
        }
    }

    static void park(Worker w) {
        long until = System.nanoTime() + (long) w.some(3_000_000);
        for (long left; (left = until - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(left);
        }
    }

    static final class Dive implements Work {
        public void run(Worker w) throws Exception {
            dive(w, 40);
        }
    }

    static void dive(Worker w, int depth) throws Exception {
        if (depth > 0) {
            dive(w, depth - 1);
        } else {
            bottom(w);
        }
    }

    static void bottom(Worker w) throws Exception {
        w.chain();
        Thread.sleep((long) w.some(3));
    }

    static final class Hold implements Work {
        public void run(Worker w) throws Exception {
            hold(w);
        }
    }

    static void hold(Worker w) throws Exception {
        synchronized (MONITOR) {
            Thread.sleep((long) w.some(7));
        }
    }

    static final class Want implements Work {
        public void run(Worker w) {
            want(w);
        }
    }

    static void want(Worker w) {
        synchronized (MONITOR) {
            sink++;
        }
    }

    static final class Rest implements Work {
        public void run(Worker w) throws Exception {
            rest(w);
        }
    }

    static void rest(Worker w) throws Exception {
        Thread.sleep(Math.max(1, (end - System.nanoTime()) / 1_000_000));
    }

    static final class Keep implements Work {
        public void run(Worker w) throws Exception {
            keep(w);
        }
    }

    static void keep(Worker w) throws Exception {
        LOCK.lock();
        try {
            Thread.sleep((long) w.some(7));
        } finally {
            LOCK.unlock();
        }
    }

    static final class Take implements Work {
        public void run(Worker w) {
            take(w);
        }
    }

    static void take(Worker w) {
        LOCK.lock();
        LOCK.unlock();
    }

    static void mixed(Worker w) throws Exception {
        w.measure("loop", "", new Loop());
        w.measure("calls", "", new Calls());
        w.measure("interpreted", "", new Interpreted());
        w.measure("nap", "timer", new Nap());
        w.measure("park", "lock", new Park());
        w.measure("dive", "timer", new Dive());
    }

    static void holding(Worker w) throws Exception {
        w.measure("hold", "timer", new Hold());
        Thread.sleep(1);
    }

    static void wanting(Worker w) throws Exception {
        w.measure("want", "lock", new Want());
        Thread.sleep(2);
    }

    static void keeping(Worker w) throws Exception {
        w.measure("keep", "timer", new Keep());
        Thread.sleep(1);
    }

    static void taking(Worker w) throws Exception {
        w.measure("take", "lock", new Take());
        Thread.sleep(2);
    }

    /** Sleeps once, to the end: its first sleep is all that it does. */
    static void resting(Worker w) throws Exception {
        w.measure("rest", "timer", new Rest());
    }

    /** Runs each kind of computing until it is compiled, and counts its turns in a microsecond. */
    static void calibrate() {
        for (int i = 0; i < 200; i++) {
            loopTurns = turns(100_000, loopTurns, i, t0 -> sink = spinLoop(t0));
            callTurns = turns(10_000, callTurns, i, t0 -> sink = spinCalls(t0));
            if (i < 20) {
                slowTurns = turns(10_000, slowTurns, i, t0 -> sink = slow(t0));
            }
        }
    }

    interface Spin {
        void run(int turns);
    }

    static double turns(int turns, double best, int round, Spin spin) {
        long began = THREADS.getCurrentThreadCpuTime();
        spin.run(turns);
        double now = turns * 1000.0 / Math.max(1, THREADS.getCurrentThreadCpuTime() - began);
        return round == 0 ? now : Math.max(now, best);
    }

    static double option(String[] args, String name, double otherwise) {
        for (int i = 0; i + 1 < args.length; i++) {
            if (args[i].equals("--" + name)) {
                return Double.parseDouble(args[i + 1]);
            }
        }
        return otherwise;
    }

    static String quoted(String text) {
        return '"' + text + '"';
    }

    static String tell(List<Worker> workers, long released, long ended, String extra,
            List<String> pieceEnds) {
        List<String> threads = new ArrayList<>(), functions = new ArrayList<>();
        List<String> chains = new ArrayList<>();
        for (Worker w : workers) {
            String own = "{\"pid\":" + PID + ",\"tid\":" + w.tid;
            threads.add(own + ",\"name\":" + quoted(w.getName()) + ",\"start_ns\":" + w.start
                    + ",\"end_ns\":0,\"work_wall_ns\":" + w.wall + ",\"on_cpu_ns\":" + w.onCpu
                    + ",\"run_delay_ns\":" + w.delay + ",\"voluntary_switches\":0"
                    + ",\"involuntary_switches\":0,\"operations\":" + w.operations
                    + ",\"finished\":true}");
            w.functions.forEach((name, m) -> functions.add(own + ",\"name\":" + quoted(name)
                    + ",\"reason\":" + quoted(m.reason) + ",\"calls\":" + m.calls
                    + ",\"wall_ns\":" + m.wall + ",\"on_cpu_ns\":" + m.cpu
                    + ",\"run_delay_ns\":" + m.delay + "}"));
            w.chains.forEach((leaf, names) -> {
                List<String> frames = new ArrayList<>();
                for (String name : names) {
                    frames.add("{\"name\":" + quoted(name) + ",\"module\":\"\",\"offset\":0}");
                }
                chains.add(own + ",\"leaf\":" + quoted(leaf) + ",\"state\":\"blocked\",\"frames\":["
                        + String.join(",", frames) + "]}");
            });
        }
        return "{\"program\":\"java\",\"executable\":\"java\",\"pid\":" + PID + ",\"released_ns\":"
                + released + ",\"ended_ns\":" + ended + ",\"threads\":[" + String.join(",", threads)
                + "],\"functions\":[" + String.join(",", functions) + "],\"chains\":["
                + String.join(",", chains) + "],\"extra\":{" + extra + "},\"piece_ends\":["
                + String.join(",", pieceEnds) + "]}";
    }

    static void line(InputStream in) throws IOException {
        for (int c; (c = in.read()) >= 0 && c != '\n'; ) {}
    }

    static volatile boolean told;

    /** Waits for a line, or for the end of input. */
    static void told() {
        try {
            System.in.read();
        } catch (IOException e) {
            // As good as its end.
        }
        told = true;
    }

    public static void main(String[] args) throws Exception {
        String what = args.length > 0 ? args[0] : "";
        List<Worker> workers = new ArrayList<>();
        calibrate();
        if (what.equals("mix")) {
            workers.add(new Worker("java-mix", Truth::mixed));
            workers.add(new Worker("java-hold", Truth::holding));
            workers.add(new Worker("java-want", Truth::wanting));
            workers.add(new Worker("java-keep", Truth::keeping));
            workers.add(new Worker("java-take", Truth::taking));
            workers.add(new Worker("java-rest", Truth::resting));
        } else if (!what.equals("fixed")) {
            System.err.println("usage: Truth mix [--seconds S] | fixed [--units N]");
            System.exit(2);
        }
        for (Worker w : workers) {
            w.ready.await();
        }
        System.out.println("READY " + PID);
        line(System.in);
        long released = System.nanoTime();
        end = released + (long) (option(args, "seconds", 3) * 1e9);
        String extra = "";
        for (Worker w : workers) {
            w.gate.countDown();
        }
        for (Worker w : workers) {
            w.done.await();
        }
        int piece = (int) option(args, "piece", 0);
        List<String> pieceEnds = new ArrayList<>();
        if (piece > 0) {
            // Asking for what is there would not tell that there is nobody any more.
            Thread reader = new Thread(Truth::told);
            reader.setDaemon(true);
            reader.start();
        }
        while (piece > 0 && !told) {
            for (int i = 0; i < piece; i++) {
                sink = spinLoop(100_000) + spinCalls(2_000);
            }
            pieceEnds.add(Long.toString(System.nanoTime()));
        }
        if (workers.isEmpty() && piece == 0) {
            long cpu = THREADS.getCurrentThreadCpuTime();
            for (int i = 0; i < (int) option(args, "units", 1000); i++) {
                sink = spinLoop(100_000) + spinCalls(2_000);
            }
            extra = "\"cpu_ns\":" + (THREADS.getCurrentThreadCpuTime() - cpu) + ",\"wall_ns\":"
                    + (System.nanoTime() - released);
        }
        System.out.write(tell(workers, released, System.nanoTime(), extra, pieceEnds)
                .getBytes(StandardCharsets.UTF_8));
        System.out.println();
        System.out.flush();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
