// SPDX-License-Identifier: MIT OR Apache-2.0

/** A Java service that keeps its heap nearly full, so that the VM collects garbage most of the time. */
public final class Garbage {
    static final int KEPT = 400_000;
    static final Object[][] kept = new Object[KEPT][];

    static void replaceEntries(int from) {
        for (int n = from; n < from + 20_000; n++) {
            kept[(int) (n * 7919L % KEPT)] = new Object[] {"entry", new int[24]};
        }
    }

    public static void main(String[] arguments) {
        for (int from = 0; ; from = (from + 20_000) % 100_000_000) {
            replaceEntries(from);
        }
    }
}
