// SPDX-License-Identifier: MIT OR Apache-2.0
// The truth table, the clocks and the course of a program; see truth.h.
#include "truth.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct table {
    u64 released, ended;
    int threads, functions, chains, extras;
    struct thread_truth thread[MAX_THREADS];
    struct function_truth function[MAX_FUNCTIONS];
    struct extra_truth extra[MAX_EXTRAS];
    struct chain_truth chain[MAX_CHAINS];
};

static struct table *table;
static int table_fd = -1;
static struct worker *workers[MAX_THREADS];
static int worker_count, workers_at_gate, workers_finished;
static int gate; // futex: 0 closed, 1 open
static int finished_fd = -1;
static volatile sig_atomic_t told_to_stop;
static u64 deadline;
static u64 spin_rate;
static __thread int schedstat_fd = -1;

void refuse(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("wallscope-truth: cannot run here: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(77);
}

void fail(const char *format, ...) {
    int error = errno;
    va_list list;
    va_start(list, format);
    fputs("wallscope-truth: ", stderr);
    vfprintf(stderr, format, list);
    fprintf(stderr, " (errno: %s)\n", strerror(error));
    va_end(list);
    exit(1);
}

// ---- clocks ----

static u64 clock_ns(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec;
}

u64 now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
u64 thread_cpu_ns(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

u64 run_delay_ns(void) {
    char text[96];
    if (schedstat_fd < 0) schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = pread(schedstat_fd, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    char *space = strchr(text, ' ');
    return space ? strtoull(space, NULL, 10) : 0;
}

void run_delay_close(void) {
    if (schedstat_fd >= 0) close(schedstat_fd);
    schedstat_fd = -1;
}

u64 units_per_us(void) {
    if (spin_rate) return spin_rate;
    u64 best = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        u64 start = thread_cpu_ns();
        SPIN(1000000);
        u64 took = thread_cpu_ns() - start;
        if (took < best) best = took;
    }
    spin_rate = 1000000ull * 1000 / (best ? best : 1);
    if (!spin_rate) spin_rate = 1;
    return spin_rate;
}

void sleep_ns(u64 ns) {
    struct timespec t = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    while (nanosleep(&t, &t) && errno == EINTR) {
    }
}

u64 random_next(u64 *state) {
    u64 x = *state ? *state : 88172645463325252ull;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

u64 jitter(u64 *state, u64 around) { return around / 2 + (around ? random_next(state) % around : 0); }

int cpu_count(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

void pin_to_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(!sched_setaffinity(0, sizeof set, &set), "cannot be pinned to CPU %d", cpu);
}

void pin_if_asked(void) {
    const char *cpu = option_text("cpu", NULL);
    if (cpu) pin_to_cpu(atoi(cpu));
}

// ---- the table ----

static void table_map(int fd) {
    table_fd = fd;
    void *memory = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED, "the truth table cannot be mapped");
    table = memory;
}

int truth_table_fd(void) { return table_fd; }
void truth_table_adopt(int fd) { table_map(fd); }

static int take_row(int *counter, int limit, const char *what) {
    int row = __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    CHECK(row < limit, "more than %d %s", limit, what);
    return row;
}

struct thread_truth *thread_truth_new(const char *name) {
    struct thread_truth *row = &table->thread[take_row(&table->threads, MAX_THREADS, "threads")];
    row->pid = getpid();
    row->tid = (int)syscall(SYS_gettid);
    row->start = now_ns();
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

void wait_until_blocked(int pid, int tid) {
    char path[64], text[256], state = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file, "%s cannot be read", path);
        char *end = fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
        fclose(file);
        state = end ? end[2] : 0;
        if (state != 'S') sleep_ns(200000);
    }
}

static void count_switches(u64 *voluntary, u64 *involuntary) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    *voluntary = (u64)usage.ru_nvcsw;
    *involuntary = (u64)usage.ru_nivcsw;
}

void thread_truth_end(struct thread_truth *row, const struct mark *since) {
    u64 voluntary, involuntary;
    count_switches(&voluntary, &involuntary);
    row->run_delay = run_delay_ns() - since->delay;
    row->on_cpu = thread_cpu_ns() - since->cpu;
    row->end = now_ns();
    row->work_wall = row->end - since->wall;
    row->switches_voluntary = voluntary - row->switches_voluntary;
    row->switches_involuntary = involuntary - row->switches_involuntary;
    __atomic_store_n(&row->finished, true, __ATOMIC_RELEASE);
}

static struct function_truth *function_new(const char *name, const char *reason, int tid) {
    struct function_truth *row =
        &table->function[take_row(&table->functions, MAX_FUNCTIONS, "functions")];
    row->pid = getpid();
    row->tid = tid;
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->reason, sizeof row->reason, "%s", reason);
    return row;
}

struct function_truth *function_truth_new(const char *name, const char *reason) {
    return function_new(name, reason, (int)syscall(SYS_gettid));
}

struct function_truth *function_truth_shared(const char *name, const char *reason) {
    return function_new(name, reason, 0);
}

struct function_truth *function_truth_find(const char *name) {
    for (int i = 0; i < table->functions; i++)
        if (!strcmp(table->function[i].name, name)) return &table->function[i];
    fail("no function is called %s", name);
}

// Reading the three clocks takes about this long; longer, and the thread was put off its CPU (or
// interrupted) between them, which belongs neither to one side of the mark nor to the other.
#define MARK_LIMIT_NS 20000

struct mark mark_now(void) {
    struct mark m;
    for (int tries = 0; tries < 20; tries++) {
        u64 start = now_ns();
        m.delay = run_delay_ns();
        m.cpu = thread_cpu_ns();
        m.wall = now_ns();
        if (m.wall - start < MARK_LIMIT_NS) break;
    }
    return m;
}

void mark_add(struct function_truth *function, const struct mark *since) {
    u64 wall = now_ns(), cpu = thread_cpu_ns(), delay = run_delay_ns() - since->delay;
    u64 gap = now_ns() - wall;
    if (gap > MARK_LIMIT_NS) delay -= gap < delay ? gap : delay;
    __atomic_fetch_add(&function->calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&function->wall, wall - since->wall, __ATOMIC_RELAXED);
    __atomic_fetch_add(&function->on_cpu, cpu - since->cpu, __ATOMIC_RELAXED);
    __atomic_fetch_add(&function->run_delay, delay, __ATOMIC_RELAXED);
}

void extra_truth_set(const char *name, double value) {
    struct extra_truth *row = &table->extra[take_row(&table->extras, MAX_EXTRAS, "extras")];
    snprintf(row->name, sizeof row->name, "%s", name);
    row->value = value;
}

// From libstdc++, which is linked in: C++ names as people write them.
char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

void chain_record(const char *leaf, const char *state) {
    void *addresses[MAX_FRAMES + 1];
    int count = backtrace(addresses, MAX_FRAMES + 1);
    struct chain_truth *row = &table->chain[take_row(&table->chains, MAX_CHAINS, "chains")];
    row->pid = getpid();
    row->tid = (int)syscall(SYS_gettid);
    snprintf(row->leaf, sizeof row->leaf, "%s", leaf);
    snprintf(row->state, sizeof row->state, "%s", state);
    // Frame 0 is this function.
    for (int i = 1; i < count; i++) {
        struct frame_truth *frame = &row->frames[i - 1];
        char *address = addresses[i];
        Dl_info info;
        if (!dladdr(address - 1, &info)) continue;
        const char *file = info.dli_fname ? info.dli_fname : "";
        const char *slash = strrchr(file, '/');
        snprintf(frame->module, sizeof frame->module, "%s", slash ? slash + 1 : file);
        const char *symbol = info.dli_sname ? info.dli_sname : "";
        int status;
        char *readable =
            strncmp(symbol, "_Z", 2) ? NULL : __cxa_demangle(symbol, NULL, NULL, &status);
        snprintf(frame->name, sizeof frame->name, "%s", readable ? readable : symbol);
        free(readable);
        frame->offset = (u64)(address - (char *)info.dli_fbase);
    }
    row->count = count - 1;
}

// ---- course of a program ----

static void futex(int *word, int operation, int value) {
    syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

// The kernel's counts of a blocked thread, which stand still while it is.
static void counts_read(int tid, struct thread_truth *into) {
    char path[64], line[256];
    wait_until_blocked(getpid(), tid);
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(line, sizeof line, file), "%s cannot be read", path);
    char *rest;
    into->on_cpu = strtoull(line, &rest, 10);
    into->run_delay = strtoull(rest, NULL, 10);
    fclose(file);
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    file = fopen(path, "r");
    CHECK(file, "%s cannot be read", path);
    static const char VOLUNTARY[] = "voluntary_ctxt_switches:";
    static const char INVOLUNTARY[] = "nonvoluntary_ctxt_switches:";
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, VOLUNTARY, sizeof VOLUNTARY - 1))
            into->switches_voluntary = strtoull(line + sizeof VOLUNTARY, NULL, 10);
        if (!strncmp(line, INVOLUNTARY, sizeof INVOLUNTARY - 1))
            into->switches_involuntary = strtoull(line + sizeof INVOLUNTARY, NULL, 10);
    }
    fclose(file);
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    prctl(PR_SET_NAME, self->name);
    self->truth = thread_truth_new(self->name);
    __atomic_fetch_add(&workers_at_gate, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&gate, __ATOMIC_ACQUIRE)) futex(&gate, FUTEX_WAIT_PRIVATE, 0);
    self->run(self);
    self->truth->work_wall = now_ns() - table->released;
    if (__atomic_add_fetch(&workers_finished, 1, __ATOMIC_ACQ_REL) == worker_count) {
        u64 one = 1;
        if (write(finished_fd, &one, sizeof one) < 0) fail("the end of work cannot be told");
    }
    __atomic_store_n(&self->done, true, __ATOMIC_RELEASE);
    for (;;) futex(&gate, FUTEX_WAIT_PRIVATE, 1);
    return NULL;
}

struct worker *worker_start_sized(const char *name, void (*run)(struct worker *), void *argument,
                                  size_t stack_size) {
    CHECK(worker_count < MAX_THREADS, "more than %d workers", MAX_THREADS);
    struct worker *self = calloc(1, sizeof *self);
    CHECK(self, "no memory for a worker");
    self->name = name;
    self->run = run;
    self->argument = argument;
    self->index = worker_count;
    self->random = 0x9e3779b97f4a7c15ull * (u64)(worker_count + 1);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack_size) pthread_attr_setstacksize(&attributes, stack_size);
    workers[worker_count++] = self;
    int error = pthread_create(&self->handle, &attributes, worker_main, self);
    if (error) {
        errno = error;
        fail("thread %d cannot be started", worker_count);
    }
    pthread_attr_destroy(&attributes);
    return self;
}

struct worker *worker_start(const char *name, void (*run)(struct worker *), void *argument) {
    return worker_start_sized(name, run, argument, 0);
}

static void on_term(int number) {
    (void)number;
    told_to_stop = 1;
}

// Called by main before anything else: table, signals, options that every program has.
void course_begin(void) {
    int fd = memfd_create("wallscope-truth", 0);
    CHECK(fd >= 0 && !ftruncate(fd, sizeof(struct table)), "the truth table cannot be made");
    table_map(fd);
    finished_fd = eventfd(0, EFD_CLOEXEC);
    CHECK(finished_fd >= 0, "no eventfd");
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    // Only main may be interrupted: workers' sleeps are part of the truth.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    // The first backtrace() loads libgcc; do it where it disturbs nothing.
    void *address;
    backtrace(&address, 1);
    units_per_us();
}

static void read_line(void) {
    char c;
    while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n') {
    }
}

void ready_and_wait(const int *other_pids, int count) {
    while (__atomic_load_n(&workers_at_gate, __ATOMIC_ACQUIRE) < worker_count) sleep_ns(100000);
    for (int i = 0; i < worker_count; i++) counts_read(workers[i]->truth->tid, workers[i]->truth);
    printf("READY %d", getpid());
    for (int i = 0; i < count; i++) printf(" %d", other_pids[i]);
    printf("\n");
    fflush(stdout);
    if (option_flag("hold")) read_line();
    table->released = now_ns();
    deadline = table->released + (u64)(option_double("seconds", 3.0) * 1e9);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    futex(&gate, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

bool stopping(void) {
    return told_to_stop || (!option_flag("until-line") && now_ns() >= deadline);
}

void wait_for_end(bool workers_finish_alone) {
    sigset_t open_set;
    sigemptyset(&open_set);
    bool until_line = option_flag("until-line");
    while (!told_to_stop && (workers_finish_alone || !stopping())) {
        struct pollfd fds[2] = {{.fd = finished_fd, .events = POLLIN},
                                {.fd = until_line ? STDIN_FILENO : -1, .events = POLLIN}};
        u64 now = now_ns();
        u64 left = deadline > now ? deadline - now : 0;
        struct timespec wait = {(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)};
        bool timed = !until_line && !workers_finish_alone;
        ppoll(fds, 2, timed ? &wait : NULL, &open_set);
        if (fds[0].revents) break;
        if (fds[1].revents) {
            read_line();
            break;
        }
    }
    told_to_stop = 1;
    table->ended = now_ns();
}

void workers_settle(void) {
    for (int i = 0; i < worker_count; i++) {
        struct worker *worker = workers[i];
        while (!__atomic_load_n(&worker->done, __ATOMIC_ACQUIRE)) sleep_ns(200000);
        struct thread_truth *row = worker->truth, before = *row;
        counts_read(row->tid, row);
        row->on_cpu -= before.on_cpu;
        row->run_delay -= before.run_delay;
        row->switches_voluntary -= before.switches_voluntary;
        row->switches_involuntary -= before.switches_involuntary;
        row->finished = true;
    }
}

// When pieces of work ended that are all alike.
static u64 piece_ends[1 << 16];
static size_t pieces;

void piece_done(void) {
    if (pieces < sizeof piece_ends / sizeof *piece_ends) piece_ends[pieces++] = now_ns();
}

static void print_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') putchar('\\');
        if (c >= 0x20) putchar(c);
    }
    putchar('"');
}

static void print_chain(const struct chain_truth *row) {
    printf("{\"pid\":%d,\"tid\":%d,\"leaf\":\"%s\",\"state\":\"%s\",\"frames\":[", row->pid,
           row->tid, row->leaf, row->state);
    for (int i = 0; i < row->count; i++) {
        const struct frame_truth *frame = &row->frames[i];
        printf("%s{\"name\":", i ? "," : "");
        print_text(frame->name);
        printf(",\"module\":");
        print_text(frame->module);
        printf(",\"offset\":%llu}", (unsigned long long)frame->offset);
    }
    printf("]}");
}

void print_truth(const char *program) {
    typedef unsigned long long ull;
    char self[256] = "";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *slash = length > 0 ? strrchr(self, '/') : NULL;
    printf("{\"program\":\"%s\",\"executable\":\"%s\",\"pid\":%d,\"clock\":\"monotonic\","
           "\"released_ns\":%llu,\"ended_ns\":%llu,\"threads\":[",
           program, slash ? slash + 1 : "", getpid(), (ull)table->released, (ull)table->ended);
    for (int i = 0; i < table->threads; i++) {
        const struct thread_truth *t = &table->thread[i];
        printf("%s{\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"start_ns\":%llu,\"end_ns\":%llu,"
               "\"work_wall_ns\":%llu,\"on_cpu_ns\":%llu,\"run_delay_ns\":%llu,"
               "\"voluntary_switches\":%llu,\"involuntary_switches\":%llu,\"operations\":%llu,"
               "\"finished\":%s}",
               i ? "," : "", t->pid, t->tid, t->name, (ull)t->start, (ull)t->end,
               (ull)t->work_wall, (ull)t->on_cpu, (ull)t->run_delay, (ull)t->switches_voluntary,
               (ull)t->switches_involuntary, (ull)t->operations, t->finished ? "true" : "false");
    }
    printf("],\"functions\":[");
    for (int i = 0; i < table->functions; i++) {
        const struct function_truth *f = &table->function[i];
        printf("%s{\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"reason\":\"%s\",\"calls\":%llu,"
               "\"wall_ns\":%llu,\"on_cpu_ns\":%llu,\"run_delay_ns\":%llu}",
               i ? "," : "", f->pid, f->tid, f->name, f->reason, (ull)f->calls, (ull)f->wall,
               (ull)f->on_cpu, (ull)f->run_delay);
    }
    printf("],\"chains\":[");
    for (int i = 0; i < table->chains; i++) {
        if (i) putchar(',');
        print_chain(&table->chain[i]);
    }
    printf("],\"extra\":{");
    for (int i = 0; i < table->extras; i++)
        printf("%s\"%s\":%.17g", i ? "," : "", table->extra[i].name, table->extra[i].value);
    printf("},\"piece_ends\":[");
    for (size_t i = 0; i < pieces; i++) printf("%s%llu", i ? "," : "", (ull)piece_ends[i]);
    printf("]}\n");
    fflush(stdout);
    // Stay until stdin ends, so that a recording can be stopped with the program still there.
    if (option_flag("linger")) {
        char c;
        while (read(STDIN_FILENO, &c, 1) > 0) {
        }
    }
}
