// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What every truth program is built from: the table in which a program writes down what it did
// (shared memory, so that forked and exec'd children write into the same one), worker threads
// that wait at a gate until the measurement is live, clocks around named functions, and the one
// JSON line at the end. Nothing here depends on wallscope: the truth is told by the program alone.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t u64;

// A function that must be found under its own name: never inlined, cloned or merged.
#if defined(__clang__)
#define NAMED __attribute__((noinline, used))
#else
#define NAMED __attribute__((noipa, used))
#endif
// After a call: keeps the caller's frame, where the compiler would make it a tail call.
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")
// Fixed work without a call and without a clock; a macro so that it has no name of its own.
#define SPIN(units)                                                                                \
    do {                                                                                           \
        u64 spin_x_ = 88172645463325252ull;                                                        \
        for (u64 spin_i_ = (units); spin_i_ != 0; spin_i_--) {                                     \
            spin_x_ ^= spin_x_ << 13;                                                              \
            spin_x_ ^= spin_x_ >> 7;                                                               \
            __asm__ volatile("" : "+r"(spin_x_));                                                  \
        }                                                                                          \
    } while (0)

#define MAX_THREADS 20480
#define MAX_FUNCTIONS 8192
#define MAX_CHAINS 96
#define MAX_FRAMES 1400
#define MAX_EXTRAS 32

// One thread's truth. Times are ns; `start`, `end` on CLOCK_MONOTONIC.
struct thread_truth {
    int pid, tid;
    char name[16];
    u64 start, end; // of the thread's life as seen from inside it; end 0: it outlives the truth
    u64 work_wall;  // from the gate to the end of its work
    // The kernel's own counts. Of a worker: between two moments at which it was blocked, the one
    // at the gate and the one after its work. Of other threads: over their work.
    u64 on_cpu, run_delay, switches_voluntary, switches_involuntary;
    u64 operations;
    bool finished;
};

// One named function's truth in one thread (tid 0: in whichever threads called it).
struct function_truth {
    int pid, tid;
    char name[48];
    char reason[16]; // what it blocks for, by the contract's names; empty: it does not block
    u64 calls, wall, on_cpu, run_delay;
};

struct frame_truth {
    char name[56];   // empty: the dynamic symbol table does not tell
    char module[40]; // file name without its folder
    u64 offset;      // return address minus the module's base
};

// The stack at one deepest point, by glibc's backtrace(), innermost frame first.
struct chain_truth {
    int pid, tid;
    char leaf[48];
    char state[12];
    int count;
    struct frame_truth frames[MAX_FRAMES];
};

struct extra_truth {
    char name[40];
    double value;
};

struct mark {
    u64 wall, cpu, delay;
};

struct worker {
    const char *name;
    void (*run)(struct worker *);
    void *argument;
    int index;
    size_t stack_size;
    struct thread_truth *truth;
    u64 random;
    pthread_t handle;
    bool done; // its work is; it stays, blocked, until the process ends
};

// ---- options (set up by main) ----
long option_long(const char *name, long otherwise);
double option_double(const char *name, double otherwise);
const char *option_text(const char *name, const char *otherwise);
bool option_flag(const char *name);

// ---- clocks ----
u64 now_ns(void);
u64 thread_cpu_ns(void);
u64 run_delay_ns(void);
void run_delay_close(void); // for threads that end before the process does
u64 units_per_us(void); // SPIN units that take about 1 µs here
void sleep_ns(u64 ns);
u64 random_next(u64 *state);
u64 jitter(u64 *state, u64 around); // uniform in [0.5, 1.5) × around

// ---- truth ----
struct thread_truth *thread_truth_new(const char *name);
// Until a thread sleeps.
void wait_until_blocked(int pid, int tid);
void thread_truth_end(struct thread_truth *row, const struct mark *since);
struct function_truth *function_truth_new(const char *name, const char *reason);
struct function_truth *function_truth_shared(const char *name, const char *reason);
struct function_truth *function_truth_find(const char *name); // of whichever process
struct mark mark_now(void);
void mark_add(struct function_truth *function, const struct mark *since);
void extra_truth_set(const char *name, double value);
void piece_done(void); // a piece of work that is like all others has ended now
void chain_record(const char *leaf, const char *state);
int truth_table_fd(void);
void truth_table_adopt(int fd);

// Runs a statement and adds its time to a function's truth.
#define MEASURE(function, ...)                                                                     \
    do {                                                                                           \
        struct mark mark_ = mark_now();                                                            \
        __VA_ARGS__;                                                                               \
        mark_add((function), &mark_);                                                              \
    } while (0)

// ---- course of a program ----
struct worker *worker_start(const char *name, void (*run)(struct worker *), void *argument);
struct worker *worker_start_sized(const char *name, void (*run)(struct worker *), void *argument,
                                  size_t stack_size);
void ready_and_wait(const int *other_pids, int count); // prints READY, waits to be released
bool stopping(void);                                   // the duration is over, or told to stop
void wait_for_end(bool workers_finish_alone);          // returns when it is, or all have finished
void workers_settle(void);                             // waits for the workers' last counts
void print_truth(const char *program);
void move_own_code(const char *to); // to "anonymous" or "shared" memory, at its own addresses
void refuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); // exit 77
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));   // exit 1
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) fail(__VA_ARGS__);                                                       \
    } while (0)
void pin_to_cpu(int cpu);
void pin_if_asked(void); // to the CPU that --cpu names
int cpu_count(void);

// ---- a memory limit ----
// Makes a cgroup with a limit; 0 < `high` < `limit`: from there on, where cgroups know that, its
// processes are slowed down. Refuses where it cannot. It is removed when the caller exits.
void memory_limit_make(long limit, long high);
void memory_limit_place(int pid); // moves a process there
// A group with a CPU quota, µs in each period; it goes when the program ends.
void cpu_quota_make(long quota, long period);
void cpu_quota_place(int pid); // moves a process there

// ---- the programs ----
void program_mix(void);
void program_turns(void);
void program_shares(void);
void program_instep(void);
void program_bursts(void);
void program_cover(void);
void program_inject(void);
void program_convoy(void);
void program_disk(void);
void program_faults(void);
void program_rpc(void);
void program_reasons(void);
void program_reclaim(void);
void program_chain(void);
void program_hands(void);
void program_held(void);
void program_queue(void);
void program_whatif(void);
void program_crowd(void);
void program_throttled(void);
void program_migrate(void);
void program_fixed(void);
void program_micro(void);
void program_span(void);
void program_pingpong(void);
void program_brief(void);
void program_short(void);
void program_rename(void);
void program_veil(void);
void program_parked(void);
void program_execs(void);
void program_starts(void);
void program_userfault(void);
void program_uring(void);
void program_odd(void);
void program_lengths(void);
void program_plugins(void);
void program_events(void);
void program_upstream(void);
void program_long_ago(void);
void program_aside(void);
void program_spin(void);
void program_calls(void);
void program_jit(void);
void program_trouble(void);
int execs_child(int argc, char **argv);
int starts_child(int argc, char **argv);

#ifdef __cplusplus
}
#endif
