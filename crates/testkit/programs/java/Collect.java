// SPDX-License-Identifier: MIT OR Apache-2.0

import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A Java program that makes garbage, and tells by the VM's own log how long that stopped it.
 *
 * <pre>
 * Collect --log FILE [--seconds S]   FILE: written by the VM, -Xlog:safepoint:file=FILE:none
 * </pre>
 *
 * Two threads allocate, and keep some of it. A third one asks for a full collection and for the stacks of all
 * threads now and then. Says READY and its process, waits for a line, works, tells its truth, stays until its input
 * ends. Runs on Java 17 and later, straight from this file.
 */
public final class Collect {
    static final long PID = ProcessHandle.current().pid();
    static final Pattern SAFEPOINT = Pattern.compile("Safepoint \"(\\w+)\".* Total: *(\\d+) ns");
    static volatile long end;
    static volatile Object sink;

    static void allocate() {
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 4000; i++) {
            kept.add(new byte[4096]);
        }
        for (int i = 0; System.nanoTime() < end; i++) {
            kept.set(i % kept.size(), new byte[4096]);
            sink = new byte[500];
        }
    }

    static void ask() {
        try {
            while (System.nanoTime() < end) {
                Thread.sleep(300);
                System.gc();
                sink = Thread.getAllStackTraces();
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void line(InputStream in) throws Exception {
        for (int c; (c = in.read()) >= 0 && c != '\n'; ) {}
    }

    public static void main(String[] arguments) throws Exception {
        Path log = null;
        double seconds = 2;
        for (int i = 0; i < arguments.length; i += 2) {
            switch (arguments[i]) {
                case "--log" -> log = Path.of(arguments[i + 1]);
                case "--seconds" -> seconds = Double.parseDouble(arguments[i + 1]);
                default -> throw new IllegalArgumentException(arguments[i]);
            }
        }
        Thread[] threads = {
            new Thread(Collect::allocate, "gc-allocate-0"),
            new Thread(Collect::allocate, "gc-allocate-1"),
            new Thread(Collect::ask, "gc-ask"),
        };
        System.out.println("READY " + PID);
        line(System.in);
        int before = Files.readAllBytes(log).length;
        long released = System.nanoTime();
        end = released + (long) (seconds * 1e9);
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        long ended = System.nanoTime();
        byte[] bytes = Files.readAllBytes(log);
        String own = new String(bytes, before, bytes.length - before, StandardCharsets.UTF_8);
        long pauses = 0, ns = 0, others = 0;
        for (Matcher m = SAFEPOINT.matcher(own); m.find(); ) {
            if (m.group(1).matches(".*(Collect|ParallelGC|PauseRemark|PauseCleanup|TryInitiate|^Z|^Shen|SerialGC).*")) {
                pauses++;
                ns += Long.parseLong(m.group(2));
            } else {
                others++;
            }
        }
        System.out.println("{\"program\":\"collect\",\"executable\":\"java\",\"pid\":" + PID
                + ",\"released_ns\":" + released + ",\"ended_ns\":" + ended
                + ",\"threads\":[],\"functions\":[],\"chains\":[],\"extra\":{\"pauses\":" + pauses
                + ",\"paused_ns\":" + ns + ",\"other_pauses\":" + others + "}}");
        System.out.flush();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
