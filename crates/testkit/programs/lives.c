// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads and processes that come and go: a millisecond long, by the ten thousand, renamed, and
// through fork, vfork and exec.
#include "truth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- short ----

static struct function_truth *short_compute_truth, *short_sleep_truth;
static u64 short_count;

NAMED void short_compute(u64 units) { SPIN(units); }
NAMED void short_sleep(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

static void *short_main(void *argument) {
    u64 *random = argument;
    prctl(PR_SET_NAME, "short");
    struct thread_truth *row = thread_truth_new("short");
    u64 units = (u64)option_long("compute-us", 300) * units_per_us();
    u64 pause = (u64)option_long("sleep-us", 600) * 1000;
    MEASURE(short_compute_truth, short_compute(jitter(random, units)));
    MEASURE(short_sleep_truth, short_sleep(jitter(random, pause)));
    run_delay_close();
    // From birth, not from a gate: nothing of so short a life may be missed.
    row->on_cpu = thread_cpu_ns();
    row->end = now_ns();
    row->work_wall = row->end - row->start;
    row->operations = 1;
    row->finished = true;
    return NULL;
}

static void short_run(struct worker *self) {
    u64 most = (u64)option_long("count", 4000);
    while (!stopping()) {
        if (__atomic_add_fetch(&short_count, 1, __ATOMIC_RELAXED) > most) break;
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 65536);
        int error = pthread_create(&thread, &attributes, short_main, &self->random);
        pthread_attr_destroy(&attributes);
        CHECK(!error, "a short thread cannot be started");
        pthread_join(thread, NULL);
        self->truth->operations++;
    }
}

void program_short(void) {
    static const char *NAMES[] = {"maker-0", "maker-1", "maker-2", "maker-3"};
    long parallel = option_long("parallel", 3);
    CHECK(parallel <= 64, "--parallel is at most 64");
    short_compute_truth = function_truth_shared("short_compute", "");
    short_sleep_truth = function_truth_shared("short_sleep", "timer");
    for (long i = 0; i < parallel; i++) worker_start(NAMES[i % 4], short_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- rename ----

NAMED void rename_before(u64 units, u64 ns) {
    SPIN(units);
    sleep_ns(ns);
    KEEP_FRAME();
}
NAMED void rename_after(u64 units, u64 ns) {
    SPIN(units);
    sleep_ns(ns);
    KEEP_FRAME();
}

static void rename_run(struct worker *self) {
    struct function_truth *before = function_truth_new("rename_before", "timer");
    struct function_truth *after = function_truth_new("rename_after", "timer");
    u64 half = now_ns() + (u64)(option_double("seconds", 3.0) * 5e8), units = 500 * units_per_us();
    while (now_ns() < half && !stopping()) MEASURE(before, rename_before(units, 2000000));
    prctl(PR_SET_NAME, "name-after");
    snprintf(self->truth->name, sizeof self->truth->name, "name-after");
    while (!stopping()) MEASURE(after, rename_after(units, 2000000));
}

void program_rename(void) {
    worker_start("name-before", rename_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- veil ----

NAMED void veil_before(u64 units, u64 ns) {
    SPIN(units);
    sleep_ns(ns);
    KEEP_FRAME();
}
NAMED void veil_after(u64 units, u64 ns) {
    SPIN(units);
    sleep_ns(ns);
    KEEP_FRAME();
}

static void veil_run(struct worker *self) {
    struct function_truth *before = function_truth_new("veil_before", "timer");
    struct function_truth *after = function_truth_new("veil_after", "timer");
    u64 half = now_ns() + (u64)(option_double("seconds", 3.0) * 5e8), units = 500 * units_per_us();
    while (now_ns() < half && !stopping()) MEASURE(before, veil_before(units, 2000000));
    prctl(PR_SET_DUMPABLE, 0);
    while (!stopping()) MEASURE(after, veil_after(units, 2000000));
    (void)self;
}

void program_veil(void) {
    worker_start("veil", veil_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- parked ----

static pthread_mutex_t parked_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t parked_changed = PTHREAD_COND_INITIALIZER;

// For as long as the process lives: ten thousand ends at once would be another experiment.
NAMED void parked_wait(void) {
    pthread_mutex_lock(&parked_lock);
    for (;;) pthread_cond_wait(&parked_changed, &parked_lock);
}

// Wakes now and then, each at a time of its own.
NAMED void parked_nap(u64 every_ns) {
    static u64 seed = 1;
    u64 own = __atomic_add_fetch(&seed, 1, __ATOMIC_RELAXED);
    sleep_ns(random_next(&own) % every_ns);
    for (;;) sleep_ns(every_ns);
}

static void *parked_main(void *argument) {
    u64 every_ns = *(const u64 *)argument;
    prctl(PR_SET_NAME, "parked");
    thread_truth_new("parked");
    if (every_ns)
        parked_nap(every_ns);
    else
        parked_wait();
    return NULL;
}

NAMED void parked_spin(u64 units) { SPIN(units); }

static void parked_busy_run(struct worker *self) {
    struct function_truth *spin = function_truth_new("parked_spin", "");
    while (!stopping()) {
        MEASURE(spin, parked_spin(500 * units_per_us()));
        sleep_ns(1000000);
        self->truth->operations++;
    }
}

void program_parked(void) {
    long threads = option_long("threads", 10000);
    static u64 every_ns;
    every_ns = (u64)option_long("wake-ms", 0) * 1000000;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32768);
    for (long i = 0; i < threads; i++) {
        pthread_t handle;
        errno = pthread_create(&handle, &attributes, parked_main, &every_ns);
        if (errno) refuse("only %ld of %ld threads could be started", i, threads);
    }
    if (!every_ns) worker_start("parked-busy", parked_busy_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- execs ----
//
// A child's life: fork or vfork, some execs, a last stage that computes and sleeps and writes its
// own row. What it must carry along goes by argument: --exec-child STAGES FD START HOW.

NAMED void exec_child_compute(u64 units) { SPIN(units); }
NAMED void exec_child_sleep(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void exec_child_start(char **arguments) {
    execv("/proc/self/exe", arguments);
    _exit(127);
}
NAMED void exec_wait_child(int pid, int *status) { waitpid(pid, status, 0); KEEP_FRAME(); }

static void *exec_from_thread(void *argument) {
    exec_child_start(argument);
    return NULL;
}

static void exec_next(long stages, int fd, u64 start, const char *how) {
    char stages_text[24], fd_text[16], start_text[32];
    snprintf(stages_text, sizeof stages_text, "%ld", stages);
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    snprintf(start_text, sizeof start_text, "%llu", (unsigned long long)start);
    char *arguments[] = {"wallscope-truth", "--exec-child", stages_text, fd_text,
                         start_text,        (char *)how,    NULL};
    exec_child_start(arguments);
}

int execs_child(int argc, char **argv) {
    CHECK(argc == 6, "--exec-child is for this program's own use");
    long stages = atol(argv[2]);
    int fd = atoi(argv[3]);
    u64 start = strtoull(argv[4], NULL, 10);
    const char *how = argv[5];
    if (stages > 1) {
        if (!strcmp(how, "thread")) {
            // A thread that is not the leader execs, and becomes the leader by it.
            char *arguments[] = {"wallscope-truth", "--exec-child", "1", argv[3],
                                 argv[4],           argv[5],        NULL};
            pthread_t thread;
            CHECK(!pthread_create(&thread, NULL, exec_from_thread, arguments), "no thread");
            for (;;) pause();
        }
        exec_next(stages - 1, fd, start, how);
    }
    truth_table_adopt(fd);
    char name[16];
    snprintf(name, sizeof name, "exec-%s", how);
    prctl(PR_SET_NAME, name);
    struct thread_truth *row = thread_truth_new(name);
    row->start = start;
    struct function_truth *compute = function_truth_new("exec_child_compute", "");
    struct function_truth *sleep = function_truth_new("exec_child_sleep", "timer");
    u64 units = 8000 * units_per_us();
    MEASURE(compute, exec_child_compute(units));
    MEASURE(sleep, exec_child_sleep(20000000));
    row->on_cpu = thread_cpu_ns();
    row->end = now_ns();
    row->work_wall = row->end - row->start;
    row->operations = 1;
    row->finished = true;
    return 0;
}

static void execs_run(struct worker *self) {
    struct function_truth *wait = function_truth_new("exec_wait_child", "child");
    static const char *const HOWS[] = {"chain", "thread", "vfork"};
    long rounds = option_long("rounds", 12);
    for (long i = 0; i < rounds; i++) {
        const char *how = HOWS[i % 3];
        u64 start = now_ns();
        int pid, status = 0;
        if (!strcmp(how, "vfork")) {
            char fd[16], began[32];
            snprintf(fd, sizeof fd, "%d", truth_table_fd());
            snprintf(began, sizeof began, "%llu", (unsigned long long)start);
            char *arguments[] = {"wallscope-truth", "--exec-child", "1", fd, began, "vfork", NULL};
            pid = vfork();
            if (!pid) {
                execv("/proc/self/exe", arguments);
                _exit(127);
            }
        } else {
            pid = fork();
            if (!pid) exec_next(!strcmp(how, "chain") ? 4 : 2, truth_table_fd(), start, how);
        }
        CHECK(pid > 0, "fork failed");
        MEASURE(wait, exec_wait_child(pid, &status));
        CHECK(status == 0, "a child ended with status %d", status);
        self->truth->operations++;
    }
}

void program_execs(void) {
    CHECK(option_long("rounds", 12) <= 200, "--rounds is at most 200");
    worker_start("execs", execs_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(true);
    workers_settle();
}

// ---- starts ----
//
// Processes in a row, by vfork and exec. Each computes a little and ends: --start-child FD UNITS.

NAMED void starts_compute(u64 units) { SPIN(units); }
NAMED void starts_wait(int pid, int *status) { waitpid(pid, status, 0); KEEP_FRAME(); }

int starts_child(int argc, char **argv) {
    CHECK(argc == 4, "--start-child is for this program's own use");
    truth_table_adopt(atoi(argv[2]));
    struct function_truth *compute = function_truth_find("starts_compute");
    u64 units = strtoull(argv[3], NULL, 10);
    MEASURE(compute, starts_compute(units));
    return 0;
}

static void starts_run(struct worker *self) {
    u64 units = (u64)option_long("compute-us", 1000) * units_per_us();
    char fd[16], text[32];
    snprintf(fd, sizeof fd, "%d", truth_table_fd());
    snprintf(text, sizeof text, "%llu", (unsigned long long)units);
    char *arguments[] = {"wallscope-truth", "--start-child", fd, text, NULL};
    struct function_truth *wait = function_truth_new("starts_wait", "child");
    while (!stopping()) {
        int status = 0, pid = vfork();
        if (!pid) {
            execv("/proc/self/exe", arguments);
            _exit(127);
        }
        CHECK(pid > 0, "vfork failed");
        MEASURE(wait, starts_wait(pid, &status));
        CHECK(status == 0, "a child ended with status %d", status);
        self->truth->operations++;
    }
}

void program_starts(void) {
    long parallel = option_long("parallel", 2);
    function_truth_shared("starts_compute", "");
    for (long i = 0; i < parallel; i++) worker_start("starts", starts_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}
