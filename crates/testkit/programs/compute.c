// SPDX-License-Identifier: MIT OR Apache-2.0
// Computing and sleeping in shares that the program itself measures; an injected delay; a fixed
// amount of work, which takes longer under a measurement by the measurement's overhead.
#include "truth.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

// ---- mix ----

NAMED void mix_compute(u64 units) { SPIN(units); }
NAMED void mix_nap(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void mix_sleep(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void mix_both(u64 units, u64 ns) {
    SPIN(units);
    sleep_ns(ns);
    KEEP_FRAME();
}

static void mix_run(struct worker *self) {
    struct function_truth *compute = function_truth_new("mix_compute", "");
    struct function_truth *nap = function_truth_new("mix_nap", "timer");
    struct function_truth *sleep = function_truth_new("mix_sleep", "timer");
    struct function_truth *both = function_truth_new("mix_both", "timer");
    u64 cpu_units = (u64)option_long("cpu-us", 2000) * units_per_us();
    u64 sleep_time = (u64)option_long("sleep-us", 6000) * 1000;
    u64 nap_time = (u64)option_long("nap-us", 300) * 1000;
    while (!stopping()) {
        MEASURE(compute, mix_compute(jitter(&self->random, cpu_units)));
        for (int i = 0; i < 5; i++) MEASURE(nap, mix_nap(jitter(&self->random, nap_time)));
        MEASURE(sleep, mix_sleep(jitter(&self->random, sleep_time)));
        MEASURE(both, mix_both(jitter(&self->random, cpu_units / 2),
                               jitter(&self->random, sleep_time / 3)));
        self->truth->operations++;
    }
}

void program_mix(void) {
    static const char *NAMES[] = {"mix-0", "mix-1", "mix-2", "mix-3"};
    long threads = option_long("threads", 2);
    for (long i = 0; i < threads; i++) worker_start(NAMES[i % 4], mix_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- turns ----

NAMED void turns_long(void) { sleep_ns(700000000); KEEP_FRAME(); }
NAMED void turns_short(void) { sleep_ns(300000000); KEEP_FRAME(); }

static void turns_run(struct worker *self) {
    struct function_truth *longer = function_truth_new("turns_long", "timer");
    struct function_truth *shorter = function_truth_new("turns_short", "timer");
    sleep_ns(random_next(&self->random) % 1000000000);
    while (!stopping()) {
        MEASURE(longer, turns_long());
        MEASURE(shorter, turns_short());
        self->truth->operations++;
    }
}

void program_turns(void) {
    long threads = option_long("threads", 1500);
    for (long i = 0; i < threads; i++) worker_start("turns", turns_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- shares ----

NAMED void share_fifty(u64 units) { SPIN(units); }
NAMED void share_thirty(u64 units) { SPIN(units); }
NAMED void share_fifteen(u64 units) { SPIN(units); }
NAMED void share_five(u64 units) { SPIN(units); }

static void shares_run(struct worker *self) {
    static void (*const FUNCTIONS[])(u64) = {share_fifty, share_thirty, share_fifteen, share_five};
    static const char *const NAMES[] = {"share_fifty", "share_thirty", "share_fifteen",
                                        "share_five"};
    static const u64 PERCENT[] = {50, 30, 15, 5};
    struct function_truth *truth[4];
    for (int i = 0; i < 4; i++) truth[i] = function_truth_new(NAMES[i], "");
    u64 chunk = (u64)option_long("chunk-us", 1000) * units_per_us();
    while (!stopping()) {
        // Function and length are drawn at random, so that no sampling rate can fall in step.
        u64 draw = random_next(&self->random) / 7 % 100;
        int which = 0;
        while (draw >= PERCENT[which]) draw -= PERCENT[which++];
        u64 units = jitter(&self->random, chunk);
        MEASURE(truth[which], FUNCTIONS[which](units));
        self->truth->operations++;
    }
}

void program_shares(void) {
    static const char *NAMES[] = {"shares-0", "shares-1", "shares-2", "shares-3"};
    long threads = option_long("threads", 1);
    for (long i = 0; i < threads; i++) worker_start(NAMES[i % 4], shares_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- bursts: short stretches on the CPU between waits, and long ones, in one thread ----

NAMED void burst_short(u64 units) { SPIN(units); }
NAMED void burst_wait(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void burst_middle(u64 units) { SPIN(units); }
NAMED void burst_long(u64 units) { SPIN(units); }

static void bursts_run(struct worker *self) {
    pin_if_asked();
    // With slack, an interrupt for a sample ends a sleep that is nearly over, and the stretch that follows is
    // as far from the next sample as can be.
    prctl(PR_SET_TIMERSLACK, 1);
    struct function_truth *brief = function_truth_new("burst_short", "");
    struct function_truth *wait = function_truth_new("burst_wait", "timer");
    struct function_truth *middle = function_truth_new("burst_middle", "");
    struct function_truth *large = function_truth_new("burst_long", "");
    u64 unit = (u64)option_long("short-us", 40) * units_per_us();
    while (!stopping()) {
        for (int i = 0; i < 40; i++) {
            MEASURE(brief, burst_short(jitter(&self->random, unit)));
            MEASURE(wait, burst_wait(100000));
        }
        for (int i = 0; i < 8; i++) {
            MEASURE(middle, burst_middle(jitter(&self->random, 5 * unit)));
            MEASURE(wait, burst_wait(100000));
        }
        MEASURE(large, burst_long(jitter(&self->random, 50 * unit)));
        self->truth->operations++;
    }
}

void program_bursts(void) {
    worker_start("bursts", bursts_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- instep: rounds that are as long as samples are apart ----

NAMED void instep_first(u64 until) {
    while (now_ns() < until) SPIN(1000);
}
NAMED void instep_second(u64 until) {
    while (now_ns() < until) SPIN(1000);
}

static void instep_run(struct worker *self) {
    struct function_truth *first = function_truth_new("instep_first", "");
    struct function_truth *second = function_truth_new("instep_second", "");
    u64 round = 1000000000 / (u64)option_long("hz", 199);
    // By the clock and not by work done, so that rounds do not drift away from what is in step.
    u64 at = now_ns();
    while (!stopping()) {
        MEASURE(first, instep_first(at + round / 2));
        MEASURE(second, instep_second(at + round));
        at += round;
        self->truth->operations++;
    }
}

void program_instep(void) {
    worker_start("instep", instep_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- cover: many shares in one run, to see how often a printed interval holds the truth ----

#define COVER_ALL(each)                                                                            \
    each(00) each(01) each(02) each(03) each(04) each(05) each(06) each(07) each(08) each(09)      \
        each(10) each(11) each(12) each(13) each(14) each(15) each(16) each(17) each(18) each(19)
#define COVER_DEFINE(number) NAMED void cover_##number(u64 units) { SPIN(units); }
#define COVER_POINTER(number) cover_##number,
#define COVER_NAME(number) "cover_" #number,
COVER_ALL(COVER_DEFINE)
static void (*const COVER_FUNCTIONS[])(u64) = {COVER_ALL(COVER_POINTER)};
static const char *const COVER_NAMES[] = {COVER_ALL(COVER_NAME)};
#define COVER_COUNT 20

static void cover_run(struct worker *self) {
    struct function_truth *truth[COVER_COUNT];
    for (int i = 0; i < COVER_COUNT; i++) truth[i] = function_truth_new(COVER_NAMES[i], "");
    u64 chunk = (u64)option_long("chunk-us", 500) * units_per_us();
    while (!stopping()) {
        // The smaller of two draws: low numbers are drawn more often, from 9.75 % down to 0.25 %.
        u64 a = random_next(&self->random) / 7 % COVER_COUNT;
        u64 b = random_next(&self->random) / 7 % COVER_COUNT;
        u64 which = a < b ? a : b, units = jitter(&self->random, chunk);
        MEASURE(truth[which], COVER_FUNCTIONS[which](units));
        self->truth->operations++;
    }
}

void program_cover(void) {
    worker_start("cover", cover_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}

// ---- inject ----

enum { PARSE, LOOKUP, STORE, STEPS };
static const char *const STEP_NAMES[STEPS] = {"step_parse", "step_lookup", "step_store"};

static struct {
    int step; // which step is delayed
    char kind; // 's'leep, 'c'pu, 'l'ock, or 0
    u64 delay;
    u64 injected; // what the delays took, ns
    pthread_mutex_t lock;
    pthread_mutex_t hand;
    pthread_cond_t changed;
    bool wanted, held, over;
} injection = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .hand = PTHREAD_MUTEX_INITIALIZER,
               .changed = PTHREAD_COND_INITIALIZER};

// Holds the lock for the delay whenever a step asks to be delayed by it.
NAMED void inject_holder(void) {
    pthread_mutex_lock(&injection.hand);
    for (;;) {
        while (!injection.wanted && !injection.over)
            pthread_cond_wait(&injection.changed, &injection.hand);
        if (injection.over) break;
        injection.wanted = false;
        pthread_mutex_lock(&injection.lock);
        injection.held = true;
        pthread_cond_broadcast(&injection.changed);
        pthread_mutex_unlock(&injection.hand);
        sleep_ns(injection.delay);
        pthread_mutex_unlock(&injection.lock);
        pthread_mutex_lock(&injection.hand);
    }
    pthread_mutex_unlock(&injection.hand);
}

static void inject_holder_run(struct worker *self) {
    (void)self;
    inject_holder();
}

static inline __attribute__((always_inline)) void delay_here(int step) {
    if (step != injection.step || !injection.kind) return;
    u64 start = now_ns();
    if (injection.kind == 's') {
        sleep_ns(injection.delay);
    } else if (injection.kind == 'c') {
        u64 units = injection.delay / 1000 * units_per_us();
        SPIN(units);
    } else {
        pthread_mutex_lock(&injection.hand);
        injection.wanted = true;
        injection.held = false;
        pthread_cond_broadcast(&injection.changed);
        while (!injection.held) pthread_cond_wait(&injection.changed, &injection.hand);
        pthread_mutex_unlock(&injection.hand);
        pthread_mutex_lock(&injection.lock);
        pthread_mutex_unlock(&injection.lock);
    }
    __atomic_fetch_add(&injection.injected, now_ns() - start, __ATOMIC_RELAXED);
}

NAMED void step_parse(u64 units) {
    SPIN(units);
    delay_here(PARSE);
    KEEP_FRAME();
}
NAMED void step_lookup(u64 units) {
    SPIN(units / 4);
    sleep_ns(500000);
    delay_here(LOOKUP);
    KEEP_FRAME();
}
NAMED void step_store(u64 units) {
    SPIN(units / 2);
    delay_here(STORE);
    KEEP_FRAME();
}

static void inject_run(struct worker *self) {
    struct function_truth *truth[STEPS];
    for (int i = 0; i < STEPS; i++) truth[i] = function_truth_new(STEP_NAMES[i], "");
    u64 units = 300 * units_per_us();
    while (!stopping()) {
        MEASURE(truth[PARSE], step_parse(jitter(&self->random, units)));
        MEASURE(truth[LOOKUP], step_lookup(jitter(&self->random, units)));
        MEASURE(truth[STORE], step_store(jitter(&self->random, units)));
        self->truth->operations++;
    }
    pthread_mutex_lock(&injection.hand);
    injection.over = true;
    pthread_cond_broadcast(&injection.changed);
    pthread_mutex_unlock(&injection.hand);
}

void program_inject(void) {
    const char *in = option_text("in", "step_lookup");
    const char *kind = option_text("kind", "sleep");
    injection.step = STEPS;
    for (int i = 0; i < STEPS; i++)
        if (!strcmp(in, STEP_NAMES[i])) injection.step = i;
    CHECK(injection.step < STEPS, "--in wants step_parse, step_lookup or step_store, not %s", in);
    bool known = !strcmp(kind, "sleep") || !strcmp(kind, "cpu") || !strcmp(kind, "lock");
    CHECK(known, "--kind wants sleep, cpu or lock, not %s", kind);
    injection.delay = (u64)option_long("delay-us", 0) * 1000;
    injection.kind = injection.delay ? kind[0] : 0;
    worker_start("inject", inject_run, NULL);
    worker_start("inject-holder", inject_holder_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    extra_truth_set("injected_ns", (double)injection.injected);
}

// ---- fixed ----
// With --piece N: pieces of N units, until a line comes; when each ended is told.

NAMED void fixed_work(u64 units) { SPIN(units); }

static double fixed_wall, fixed_cpu;

static void fixed_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("fixed_work", "");
    u64 units = (u64)option_double("units", 1e9), piece = (u64)option_double("piece", 0);
    while (piece && !stopping()) {
        fixed_work(piece);
        piece_done();
    }
    if (piece) return;
    MEASURE(truth, fixed_work(units));
    fixed_wall = (double)truth->wall;
    fixed_cpu = (double)truth->on_cpu;
    self->truth->operations = units;
}

void program_fixed(void) {
    worker_start("fixed", fixed_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(!option_flag("piece"));
    workers_settle();
    if (option_flag("piece")) return;
    extra_truth_set("wall_ns", fixed_wall);
    extra_truth_set("cpu_ns", fixed_cpu);
}
