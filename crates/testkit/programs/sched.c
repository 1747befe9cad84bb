// SPDX-License-Identifier: MIT OR Apache-2.0
// Wanting a CPU and not having one: crowded, throttled by a quota; and blocks that move between
// CPUs.
#include "truth.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- crowd ----

NAMED void crowd_spin(u64 units) { SPIN(units); }

static void crowd_run(struct worker *self) {
    pin_to_cpu((int)option_long("cpu", 0));
    struct function_truth *spin = function_truth_new("crowd_spin", "");
    // Long turns: a thread is preempted inside them, and hardly ever between the reads of the clocks.
    u64 units = 20000 * units_per_us();
    while (!stopping()) {
        MEASURE(spin, crowd_spin(jitter(&self->random, units)));
        self->truth->operations++;
    }
}

void program_crowd(void) {
    static const char *NAMES[] = {"crowd-0", "crowd-1", "crowd-2", "crowd-3"};
    long threads = option_long("threads", 4);
    for (long i = 0; i < threads; i++) worker_start(NAMES[i % 4], crowd_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- throttled ----

static char cgroup_folder[256], cgroup_parent[128];
// What went wrong last.
static char cgroup_trouble[500];

static bool in_trouble(const char *path) {
    snprintf(cgroup_trouble, sizeof cgroup_trouble, "%s: %s", path, strerror(errno));
    return false;
}

static bool write_file(const char *folder, const char *name, const char *format, long a, long b) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file) return in_trouble(path);
    fprintf(file, format, a, b);
    return fclose(file) == 0 || in_trouble(path);
}

static double cgroup_stat(const char *key) {
    char path[400], line[128];
    snprintf(path, sizeof path, "%s/cpu.stat", cgroup_folder);
    FILE *file = fopen(path, "r");
    double value = -1;
    size_t length = strlen(key);
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && line[length] == ' ') value = atof(line + length);
    if (file) fclose(file);
    return value;
}

// Leaves the group again, which then can be removed.
static void cgroup_leave(void) {
    if (!*cgroup_folder) return;
    write_file(cgroup_parent, "cgroup.procs", "%ld", getpid(), 0);
    // The last thread's move may be seen late.
    for (int i = 0; i < 100 && rmdir(cgroup_folder) && errno == EBUSY; i++) sleep_ns(10000000);
    *cgroup_folder = 0;
}

// Makes a group with that quota, µs in each period.
static bool cgroup_make(long quota, long period) {
    static const char *const PARENTS[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified",
                                          "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    for (size_t i = 0; i < sizeof PARENTS / sizeof *PARENTS; i++) {
        bool second = i < 2;
        char name[64];
        snprintf(cgroup_parent, sizeof cgroup_parent, "%s", PARENTS[i]);
        snprintf(name, sizeof name, "wallscope-truth-%d", getpid());
        snprintf(cgroup_folder, sizeof cgroup_folder, "%s/%s", PARENTS[i], name);
        if (second) {
            // Without this file the folder is no cgroup of the second version.
            char controllers[200];
            snprintf(controllers, sizeof controllers, "%s/cgroup.controllers", PARENTS[i]);
            if (access(controllers, R_OK)) continue;
            write_file(PARENTS[i], "cgroup.subtree_control", "+cpu", 0, 0);
        }
        // A killed run with our process id may have left the folder.
        rmdir(cgroup_folder);
        if (mkdir(cgroup_folder, 0755)) {
            in_trouble(cgroup_folder);
            continue;
        }
        bool limited = second ? write_file(cgroup_folder, "cpu.max", "%ld %ld", quota, period)
                              : write_file(cgroup_folder, "cpu.cfs_period_us", "%ld", period, 0) &&
                                    write_file(cgroup_folder, "cpu.cfs_quota_us", "%ld", quota, 0);
        if (limited) {
            extra_truth_set("cgroup_version", second ? 2 : 1);
            return true;
        }
        rmdir(cgroup_folder);
    }
    *cgroup_folder = 0;
    return false;
}

static bool cgroup_enter(long quota, long period) {
    if (!cgroup_make(quota, period)) return false;
    if (write_file(cgroup_folder, "cgroup.procs", "%ld", getpid(), 0)) return true;
    rmdir(cgroup_folder);
    *cgroup_folder = 0;
    return false;
}

void cpu_quota_make(long quota, long period) {
    if (!cgroup_make(quota, period)) refuse("no cgroup with a CPU quota can be made: %s", cgroup_trouble);
    atexit(cgroup_leave);
}

void cpu_quota_place(int pid) {
    CHECK(write_file(cgroup_folder, "cgroup.procs", "%ld", pid, 0), "the cgroup cannot be entered: %s", cgroup_trouble);
}

NAMED void throttled_spin(u64 units) { SPIN(units); }

// A process outside the cgroup that computes on the same CPU: with a new quota, the throttled thread still
// waits for its turn.
static int rival_start(void) {
    int rival = fork();
    CHECK(rival >= 0, "fork failed");
    if (!rival) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin_to_cpu(0);
        for (;;) SPIN(1000);
    }
    return rival;
}

static void throttled_run(struct worker *self) {
    if (option_long("rival", 0)) pin_to_cpu(0);
    struct function_truth *spin = function_truth_new("throttled_spin", "");
    u64 units = 500 * units_per_us();
    while (!stopping()) {
        MEASURE(spin, throttled_spin(jitter(&self->random, units)));
        self->truth->operations++;
    }
}

static void throttled_counts(double *periods, double *throttled, double *ns) {
    *periods = cgroup_stat("nr_periods");
    *throttled = cgroup_stat("nr_throttled");
    double us = cgroup_stat("throttled_usec");
    *ns = us >= 0 ? us * 1e3 : cgroup_stat("throttled_time");
}

void program_throttled(void) {
    double before[3], after[3];
    int rival = option_long("rival", 0) ? rival_start() : 0;
    worker_start("throttled", throttled_run, NULL);
    if (!cgroup_enter(option_long("quota-us", 30000), option_long("period-us", 100000)))
        refuse("no cgroup with a CPU quota can be made (needs root and a writable cgroup cpu "
               "controller); %s", cgroup_trouble);
    atexit(cgroup_leave);
    ready_and_wait(NULL, 0);
    throttled_counts(&before[0], &before[1], &before[2]);
    wait_for_end(false);
    throttled_counts(&after[0], &after[1], &after[2]);
    workers_settle();
    if (rival) {
        kill(rival, SIGKILL);
        waitpid(rival, NULL, 0);
    }
    cgroup_leave();
    extra_truth_set("periods", after[0] - before[0]);
    extra_truth_set("throttled_periods", after[1] - before[1]);
    extra_truth_set("throttled_ns", after[2] - before[2]);
}

// ---- migrate ----

static struct worker *migrate_sleeper;
static u64 migrate_crossings, migrate_requested;

NAMED void migrate_block(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void migrate_spin(u64 units) { SPIN(units); }

static void migrate_sleep_run(struct worker *self) {
    struct function_truth *block = function_truth_new("migrate_block", "timer");
    struct function_truth *spin = function_truth_new("migrate_spin", "");
    u64 pause = (u64)option_long("sleep-us", 3000) * 1000;
    while (!stopping()) {
        // Pinned just before it blocks; the mover changes its place in the middle of the block.
        pin_to_cpu((int)(self->truth->operations % (u64)cpu_count()));
        int before = sched_getcpu();
        u64 ns = jitter(&self->random, pause);
        MEASURE(block, migrate_block(ns));
        migrate_requested += ns;
        if (sched_getcpu() != before) migrate_crossings++;
        MEASURE(spin, migrate_spin(200 * units_per_us()));
        self->truth->operations++;
    }
}

static void migrate_move_run(struct worker *self) {
    while (!stopping()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((int)(self->truth->operations % (u64)cpu_count()), &set);
        sched_setaffinity(migrate_sleeper->truth->tid, sizeof set, &set);
        sleep_ns(jitter(&self->random, 1000000));
        self->truth->operations++;
    }
}

void program_migrate(void) {
    if (cpu_count() < 2) refuse("only one CPU is online");
    migrate_sleeper = worker_start("migrate", migrate_sleep_run, NULL);
    worker_start("migrate-mover", migrate_move_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    extra_truth_set("crossings", (double)migrate_crossings);
    extra_truth_set("requested_ns", (double)migrate_requested);
}
