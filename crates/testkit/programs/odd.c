// SPDX-License-Identifier: MIT OR Apache-2.0
// Deep and odd stacks. Each case runs in a thread of its own and takes its call path twice a round,
// once to compute and once to block at the deepest point. The true stack is glibc's backtrace() from
// that point. Cases that need x86-64 are left out elsewhere.
#include "odd.h"

#include <alloca.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

__thread u64 odd_spin_units, odd_block_ns;

// ---- deep recursion ----
LEAVES(deep)
NAMED void odd_deep_recurse(int depth, odd_leaf leaf) {
    if (depth == 0)
        leaf();
    else
        odd_deep_recurse(depth - 1, leaf);
    KEEP_FRAME();
}
static void case_deep(bool block) { odd_deep_recurse(620, block ? odd_deep_block : odd_deep_spin); }

// ---- deeper than the limit of frames: truncated, and marked so ----
LEAVES(abyss)
static void case_abyss(bool block) {
    odd_deep_recurse(1300, block ? odd_abyss_block : odd_abyss_spin);
}

// ---- a frame of a size that is known only at run time ----
LEAVES(alloca)
NAMED void odd_alloca_frame(size_t bytes, odd_leaf leaf) {
    volatile char *memory = alloca(bytes);
    memory[0] = 1;
    leaf();
    memory[bytes - 1] = memory[0];
}
static void case_alloca(bool block) {
    odd_alloca_frame(64 + odd_block_ns % 3000, block ? odd_alloca_block : odd_alloca_spin);
    KEEP_FRAME();
}

// ---- 64 KB in one frame ----
LEAVES(buffer)
NAMED void odd_buffer_frame(odd_leaf leaf) {
    volatile char buffer[65536];
    for (size_t i = 0; i < sizeof buffer; i += 1024) buffer[i] = (char)i;
    leaf();
    buffer[0] = buffer[65535];
}
static void case_buffer(bool block) {
    odd_buffer_frame(block ? odd_buffer_block : odd_buffer_spin);
    KEEP_FRAME();
}

// ---- the program's own use of PLT entries and of the vdso ----
NAMED void odd_plt_spin(void) {
    static bool seen;
    if (!__atomic_exchange_n(&seen, true, __ATOMIC_RELAXED)) chain_record("odd_plt_spin", "on_cpu");
    static volatile unsigned sink;
    char text[] = "12";
    // Kept from being folded, so that every turn goes through two PLT entries.
    for (u64 i = 0; i < odd_spin_units / 16; i++) {
        char *volatile at = text;
        sink += (unsigned)strtol(at, NULL, 10) + (unsigned)strnlen(at, 3);
    }
}
NAMED void odd_plt_block(void) {
    static bool seen;
    if (!__atomic_exchange_n(&seen, true, __ATOMIC_RELAXED)) chain_record("odd_plt_block", "blocked");
    usleep((useconds_t)(odd_block_ns / 1000));
    KEEP_FRAME();
}
NAMED void odd_plt_frame(odd_leaf leaf) { leaf(); KEEP_FRAME(); }
static void case_plt(bool block) { odd_plt_frame(block ? odd_plt_block : odd_plt_spin); }

NAMED void odd_vdso_spin(void) {
    static bool seen;
    if (!__atomic_exchange_n(&seen, true, __ATOMIC_RELAXED)) chain_record("odd_vdso_spin", "on_cpu");
    struct timespec t;
    for (u64 i = 0; i < odd_spin_units / 32; i++) clock_gettime(CLOCK_MONOTONIC, &t);
}
NAMED void odd_vdso_block(void) {
    static bool seen;
    if (!__atomic_exchange_n(&seen, true, __ATOMIC_RELAXED))
        chain_record("odd_vdso_block", "blocked");
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    u64 at = (u64)until.tv_nsec + odd_block_ns;
    until.tv_sec += (time_t)(at / 1000000000ull);
    until.tv_nsec = (long)(at % 1000000000ull);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    KEEP_FRAME();
}
NAMED void odd_vdso_frame(odd_leaf leaf) { leaf(); KEEP_FRAME(); }
static void case_vdso(bool block) { odd_vdso_frame(block ? odd_vdso_block : odd_vdso_spin); }

// ---- tail calls: the frames between outer and leaf are gone ----
LEAVES(tail)
NAMED void odd_tail_second(odd_leaf leaf) { leaf(); }
NAMED void odd_tail_first(odd_leaf leaf) { odd_tail_second(leaf); }
NAMED void odd_tail_outer(odd_leaf leaf) { odd_tail_first(leaf); KEEP_FRAME(); }
static void case_tail(bool block) { odd_tail_outer(block ? odd_tail_block : odd_tail_spin); }

// ---- callbacks through libc ----
LEAVES(qsort)
static __thread odd_leaf qsort_leaf;
NAMED int odd_qsort_compare(const void *a, const void *b) {
    if (qsort_leaf) {
        odd_leaf leaf = qsort_leaf;
        qsort_leaf = NULL; // only in the first comparison: its call path is always the same
        leaf();
    }
    return *(const int *)a - *(const int *)b;
}
NAMED void odd_qsort_frame(odd_leaf leaf) {
    int values[16];
    for (int i = 0; i < 16; i++) values[i] = 16 - i;
    qsort_leaf = leaf;
    qsort(values, 16, sizeof *values, odd_qsort_compare);
    KEEP_FRAME();
}
static void case_qsort(bool block) { odd_qsort_frame(block ? odd_qsort_block : odd_qsort_spin); }

LEAVES(bsearch)
static __thread odd_leaf bsearch_leaf;
NAMED int odd_bsearch_compare(const void *key, const void *element) {
    bsearch_leaf();
    KEEP_FRAME();
    return *(const int *)key - *(const int *)element;
}
// Through a pointer: glibc's header would put the search itself into this frame.
static void *(*volatile search)(const void *, const void *, size_t, size_t, __compar_fn_t) = bsearch;
NAMED void odd_bsearch_frame(odd_leaf leaf) {
    int values[1] = {5}, key = 5;
    bsearch_leaf = leaf;
    search(&key, values, 1, sizeof *values, odd_bsearch_compare);
    KEEP_FRAME();
}
static void case_bsearch(bool block) {
    odd_bsearch_frame(block ? odd_bsearch_block : odd_bsearch_spin);
}

// ---- signal handlers: raised by a call, come at any instruction, on a stack of their own ----
static __thread odd_leaf signal_leaf;
static __thread volatile bool signal_done;

LEAVES(raised)
NAMED void odd_raised_handler(int number) {
    (void)number;
    signal_leaf();
    KEEP_FRAME();
}
NAMED void odd_raised_frame(odd_leaf leaf) {
    signal_leaf = leaf;
    pthread_kill(pthread_self(), SIGUSR1);
    KEEP_FRAME();
}
static void case_raised(bool block) { odd_raised_frame(block ? odd_raised_block : odd_raised_spin); }

LEAVES(async)
static __thread timer_t async_timer;
static __thread volatile bool async_inside;
static void async_set_timer(void) {
    struct itimerspec soon = {.it_value.tv_nsec = 300000};
    timer_settime(async_timer, 0, &soon, NULL);
}
NAMED void odd_async_handler(int number) {
    (void)number;
    if (!async_inside) {
        // The thread was preempted before it got there: again.
        async_set_timer();
        return;
    }
    signal_leaf();
    signal_done = true;
}
NAMED void odd_async_interrupted(void) {
    async_inside = true;
    while (!signal_done) {
    }
    async_inside = false;
}
static __thread bool async_ready;
static void case_async(bool block) {
    if (!async_ready) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
        event._sigev_un._tid = (int)syscall(SYS_gettid);
        CHECK(!timer_create(CLOCK_MONOTONIC, &event, &async_timer), "no timer");
        // A stack of its own for this thread's handlers: the frames below it lie elsewhere.
        stack_t other = {.ss_sp = malloc(131072), .ss_size = 131072};
        CHECK(other.ss_sp && !sigaltstack(&other, NULL), "no alternate signal stack");
        async_ready = true;
    }
    signal_leaf = block ? odd_async_block : odd_async_spin;
    signal_done = false;
    async_set_timer();
    odd_async_interrupted();
    KEEP_FRAME();
}

// ---- a library that comes and goes ----
LEAVES(dlopen)
static void case_dlopen(bool block) {
    static __thread void *library, *moved;
    static __thread void (*entry)(odd_leaf);
    static __thread unsigned rounds;
    if (rounds++ % 64 == 0) {
        if (library) dlclose(library);
        // Something in the hole that it leaves: the next time it lies at another address.
        if (moved) munmap(moved, 1 << 20);
        moved = rounds / 64 % 2 ? mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                : NULL;
        char path[512] = "";
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
        CHECK(length > 0, "own path unknown");
        path[length] = 0;
        strcpy(strrchr(path, '/') + 1, "libwallscope-odd.so");
        library = dlopen(path, RTLD_NOW);
        CHECK(library, "%s", dlerror());
        entry = (void (*)(odd_leaf))dlsym(library, "odd_library_entry");
        CHECK(entry, "%s", dlerror());
    }
    entry(block ? odd_dlopen_block : odd_dlopen_spin);
    KEEP_FRAME();
}

// ---- left by longjmp ----
LEAVES(longjmp)
static __thread jmp_buf longjmp_place;
// Through a pointer, for a function known not to return would be laid out differently.
static void (*volatile jump)(struct __jmp_buf_tag *, int) = longjmp;
NAMED void odd_longjmp_descend(int depth, odd_leaf leaf) {
    if (depth == 0) {
        leaf();
        jump(longjmp_place, 1);
    } else {
        odd_longjmp_descend(depth - 1, leaf);
    }
    KEEP_FRAME();
}
NAMED void odd_longjmp_frame(odd_leaf leaf) {
    if (!setjmp(longjmp_place)) odd_longjmp_descend(6, leaf);
    KEEP_FRAME();
}
static void case_longjmp(bool block) {
    odd_longjmp_frame(block ? odd_longjmp_block : odd_longjmp_spin);
}

// ---- coroutines: the bottom of their stacks was written by hand ----
struct coroutine {
    ucontext_t caller, own;
    odd_leaf leaf;
};
static void coroutine_start(struct coroutine *c, void (*body)(void)) {
    CHECK(!getcontext(&c->own), "no context");
    c->own.uc_stack.ss_size = 131072;
    c->own.uc_stack.ss_sp = malloc(c->own.uc_stack.ss_size);
    CHECK(c->own.uc_stack.ss_sp, "no stack for a coroutine");
    c->own.uc_link = NULL;
    makecontext(&c->own, body, 0);
}
static void coroutine_turn(struct coroutine *c, odd_leaf leaf) {
    c->leaf = leaf;
    CHECK(!swapcontext(&c->caller, &c->own), "no switch");
}

LEAVES(context)
static __thread struct coroutine *context;
NAMED void odd_context_body(void) {
    for (;;) {
        context->leaf();
        swapcontext(&context->own, &context->caller);
    }
}
static void case_context(bool block) {
    if (!context) {
        context = calloc(1, sizeof *context);
        coroutine_start(context, odd_context_body);
    }
    coroutine_turn(context, block ? odd_context_block : odd_context_spin);
    KEEP_FRAME();
}

#if defined(__x86_64__)
// ---- one that has no return address at all ----
LEAVES(fiber)
static __thread struct coroutine *fiber;
NAMED void odd_fiber_body(void) {
    for (;;) {
        fiber->leaf();
        swapcontext(&fiber->own, &fiber->caller);
    }
}
static void case_fiber(bool block) {
    if (!fiber) {
        fiber = calloc(1, sizeof *fiber);
        coroutine_start(fiber, odd_fiber_body);
        *(u64 *)fiber->own.uc_mcontext.gregs[REG_RSP] = 0;
    }
    coroutine_turn(fiber, block ? odd_fiber_block : odd_fiber_spin);
    KEEP_FRAME();
}

// ---- a realigned stack: AVX locals, and with alloca the CFA found through memory ----
LEAVES(realign)
__attribute__((target("avx"))) NAMED void odd_realign_frame(size_t bytes, odd_leaf leaf) {
    __attribute__((aligned(64))) volatile char wide[192];
    volatile char *memory = alloca(bytes);
    memory[0] = wide[64] = 1;
    leaf();
    wide[0] = memory[bytes - 1] = 2;
}
__attribute__((target("avx"))) NAMED void odd_realign_many(int a, int b, int c, int d, int e, int f,
                                                           int on_stack, odd_leaf leaf) {
    __attribute__((aligned(32))) volatile int wide[8] = {a, b, c, d, e, f, on_stack};
    odd_realign_frame(128 + (size_t)wide[6], leaf);
    wide[7] = on_stack;
}
static void case_realign(bool block) {
    odd_realign_many(1, 2, 3, 4, 5, 6, 7, block ? odd_realign_block : odd_realign_spin);
    KEEP_FRAME();
}

// ---- a frame that is found by what lies below the stack pointer, as OpenSSL's hashes have it ----
BLOCKING_LEAF(below)
NAMED void odd_below_spin(void) {
    static bool seen;
    if (!__atomic_exchange_n(&seen, true, __ATOMIC_RELAXED)) chain_record("odd_below_spin", "on_cpu");
    u64 frame = (u64)__builtin_dwarf_cfa(), turns = odd_spin_units * 2 + 1, back, at;
    // DW_CFA_def_cfa_expression: what %rsp - 8 points to.
    __asm__ volatile("lea -256(%%rsp), %[at]\n\t"
                     "and $-64, %[at]\n\t"
                     "mov %[frame], -8(%[at])\n\t"
                     "mov %%rsp, %[back]\n\t"
                     ".cfi_remember_state\n\t"
                     "mov %[at], %%rsp\n\t"
                     ".cfi_escape 0x0f, 0x03, 0x77, 0x78, 0x06\n"
                     "1:\tdec %[turns]\n\t"
                     "jnz 1b\n\t"
                     "mov %[back], %%rsp\n\t"
                     ".cfi_restore_state"
                     : [turns] "+r"(turns), [back] "=&r"(back), [at] "=&r"(at)
                     : [frame] "r"(frame)
                     : "cc", "memory");
    KEEP_FRAME();
}
static void case_below(bool block) {
    (block ? odd_below_block : odd_below_spin)();
    KEEP_FRAME();
}

// ---- %rbp as a plain register: nonsense in it, then a lie that looks like a frame ----
LEAVES(rbp)
NAMED void odd_rbp_elsewhere(void) { KEEP_FRAME(); }
NAMED void odd_rbp_liar(odd_leaf leaf) {
    // What a frame-pointer walk would follow to the wrong place and believe.
    volatile u64 false_frames[4];
    false_frames[0] = (u64)&false_frames[2];
    false_frames[1] = (u64)&odd_rbp_elsewhere + 1;
    false_frames[2] = 0;
    false_frames[3] = (u64)&odd_rbp_elsewhere + 1;
    register u64 held __asm__("rbp") = (u64)false_frames;
    __asm__ volatile("" : "+r"(held));
    leaf();
    __asm__ volatile("" : "+r"(held));
    false_frames[0] = held;
}
NAMED void odd_rbp_nonsense(odd_leaf leaf) {
    register u64 held __asm__("rbp") = 0xdeadbeefcafef00dull;
    __asm__ volatile("" : "+r"(held));
    odd_rbp_liar(leaf);
    __asm__ volatile("" : "+r"(held));
}
static void case_rbp(bool block) {
    odd_rbp_nonsense(block ? odd_rbp_block : odd_rbp_spin);
    KEEP_FRAME();
}
#endif

static void case_throw(bool block) { odd_throw_round(block); }

// ---- the threads ----
struct odd_case {
    const char *name, *thread;
    void (*round)(bool block);
};
static const struct odd_case CASES[] = {
    {"deep", "odd-deep", case_deep},          {"abyss", "odd-abyss", case_abyss},          {"alloca", "odd-alloca", case_alloca},
    {"buffer", "odd-buffer", case_buffer},    {"plt", "odd-plt", case_plt},
    {"vdso", "odd-vdso", case_vdso},          {"tail", "odd-tail", case_tail},
    {"qsort", "odd-qsort", case_qsort},       {"bsearch", "odd-bsearch", case_bsearch},
    {"raised", "odd-raised", case_raised},    {"async", "odd-async", case_async},
    {"dlopen", "odd-dlopen", case_dlopen},    {"longjmp", "odd-longjmp", case_longjmp},
    {"throw", "odd-throw", case_throw},       {"context", "odd-context", case_context},
#if defined(__x86_64__)
    {"fiber", "odd-fiber", case_fiber},
    {"realign", "odd-realign", case_realign}, {"rbp", "odd-rbp", case_rbp},
    {"below", "odd-below", case_below},
#endif
};
#define CASE_COUNT (sizeof CASES / sizeof *CASES)

static u64 spin_units, block_ns;

static void odd_round(void (*round)(bool), u64 *random) {
    odd_spin_units = jitter(random, spin_units);
    odd_block_ns = jitter(random, block_ns);
    round(false);
    round(true);
}

static void odd_run(struct worker *self) {
    const struct odd_case *chosen = self->argument;
    while (!stopping()) {
        odd_round(chosen->round, &self->random);
        self->truth->operations++;
    }
}

// A case for the main thread: its stacks have another root.
LEAVES(main)
static void case_main(bool block) {
    (block ? odd_main_block : odd_main_spin)();
    KEEP_FRAME();
}

void program_odd(void) {
    const char *wanted = option_text("case", "all");
    spin_units = (u64)option_long("spin-us", 300) * units_per_us();
    block_ns = (u64)option_long("block-us", 4000) * 1000;
    struct sigaction raised = {.sa_handler = odd_raised_handler};
    struct sigaction async = {.sa_handler = odd_async_handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &raised, NULL);
    sigaction(SIGUSR2, &async, NULL);
    bool all = !strcmp(wanted, "all"), main_wanted = all || !strcmp(wanted, "main");
    bool any = main_wanted;
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (!all && strcmp(wanted, CASES[i].name)) continue;
        worker_start(CASES[i].thread, odd_run, (void *)&CASES[i]);
        any = true;
    }
    // Its row stays unfinished: after its work main prints the truth, which is work too.
    if (main_wanted) thread_truth_new("wallscope-truth");
    CHECK(any, "--case wants all, main, or the name of a case; there is no %s", wanted);
    ready_and_wait(NULL, 0);
    u64 random = 4711;
    while (main_wanted && !stopping()) odd_round(case_main, &random);
    wait_for_end(false);
    workers_settle();
}
