// SPDX-License-Identifier: MIT OR Apache-2.0
// Locks that are taken before any recording and never released: a deadlock, and every kind of lock that
// stores its owner. Some are waited for with a time limit again and again. Beside them are locks that look
// alike and store no owner, and waits for the end of a process.
#include "truth.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

pthread_mutex_t held_left = PTHREAD_MUTEX_INITIALIZER, held_right = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t held_own = PTHREAD_MUTEX_INITIALIZER, held_plain = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t held_robust, held_pi;
pthread_rwlock_t held_first = PTHREAD_RWLOCK_INITIALIZER, held_second = PTHREAD_RWLOCK_INITIALIZER;
pthread_rwlock_t held_third = PTHREAD_RWLOCK_INITIALIZER;
pthread_mutex_t held_limit_mutex = PTHREAD_MUTEX_INITIALIZER, held_limit_pi;
pthread_rwlock_t held_limit_rw = PTHREAD_RWLOCK_INITIALIZER;
sem_t held_semaphore;
// Memory laid out like a held mutex. It is none: its waiter calls futex directly.
struct { int word, count, owner; unsigned users; int kind, more[8]; } held_alike = {.word = 2, .users = 1};

static int taken, child, child_fd = -1;

static void took(void) { __atomic_add_fetch(&taken, 1, __ATOMIC_RELEASE); }
static void await_taken(int count) {
    while (__atomic_load_n(&taken, __ATOMIC_ACQUIRE) < count) sched_yield();
}

NAMED void held_keep(void) {
    for (;;) {
        pause();
        KEEP_FRAME();
    }
}
static void *keeper(void *argument) {
    (void)argument;
    held_alike.owner = (int)syscall(SYS_gettid);
    pthread_mutex_lock(&held_plain);
    pthread_mutex_lock(&held_robust);
    pthread_mutex_lock(&held_pi);
    pthread_mutex_lock(&held_limit_mutex);
    pthread_mutex_lock(&held_limit_pi);
    pthread_rwlock_wrlock(&held_limit_rw);
    pthread_rwlock_wrlock(&held_first);
    pthread_rwlock_wrlock(&held_second);
    pthread_rwlock_rdlock(&held_third);
    took();
    held_keep();
    return NULL;
}

// Each thread takes its own lock before it waits for the other's.
NAMED void held_cross(pthread_mutex_t *first, pthread_mutex_t *second, bool alone) {
    pthread_mutex_lock(first);
    took();
    await_taken(alone ? 0 : 4);
    pthread_mutex_lock(second);
    KEEP_FRAME();
}
static void *left(void *argument) { held_cross(&held_left, &held_right, false); return argument; }
static void *right(void *argument) { held_cross(&held_right, &held_left, false); return argument; }
static void *self(void *argument) { held_cross(&held_own, &held_own, true); return argument; }

NAMED void held_wait(pthread_mutex_t *lock) { pthread_mutex_lock(lock); KEEP_FRAME(); }
NAMED void held_wait_until(pthread_mutex_t *lock) {
    struct timespec far;
    clock_gettime(CLOCK_REALTIME, &far);
    far.tv_sec += 3600;
    pthread_mutex_timedlock(lock, &far);
    KEEP_FRAME();
}
static void *plain(void *argument) { held_wait_until(&held_plain); return argument; }
static void *robust(void *argument) { held_wait(&held_robust); return argument; }
static void *pi(void *argument) { held_wait(&held_pi); return argument; }
NAMED void held_to_read(pthread_rwlock_t *lock) { pthread_rwlock_rdlock(lock); KEEP_FRAME(); }
NAMED void held_to_write(pthread_rwlock_t *lock) { pthread_rwlock_wrlock(lock); KEEP_FRAME(); }
static void *reader(void *argument) { held_to_read(&held_first); return argument; }
static void *writer(void *argument) { held_to_write(&held_second); return argument; }
static void *behind(void *argument) { held_to_write(&held_third); return argument; }
static struct timespec soon(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += 20000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}
NAMED void held_try(pthread_mutex_t *lock) {
    for (;;) {
        struct timespec limit = soon();
        CHECK(pthread_mutex_timedlock(lock, &limit) == ETIMEDOUT, "the lock is not held");
        KEEP_FRAME();
    }
}
NAMED void held_try_to_read(pthread_rwlock_t *lock) {
    for (;;) {
        struct timespec limit = soon();
        CHECK(pthread_rwlock_timedrdlock(lock, &limit) == ETIMEDOUT, "the lock is not held");
        KEEP_FRAME();
    }
}
static void *again(void *argument) { held_try(&held_limit_mutex); return argument; }
static void *pi_again(void *argument) { held_try(&held_limit_pi); return argument; }
static void *rw_again(void *argument) { held_try_to_read(&held_limit_rw); return argument; }
NAMED void held_count(void) { while (sem_wait(&held_semaphore) && errno == EINTR) {} KEEP_FRAME(); }
static void *counter(void *argument) { held_count(); return argument; }
NAMED void held_trap(void) {
    syscall(SYS_futex, &held_alike, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    KEEP_FRAME();
}
static void *trap(void *argument) { held_trap(); return argument; }

NAMED void held_child(void) { waitpid(child, NULL, 0); KEEP_FRAME(); }
static void *parent(void *argument) { held_child(); return argument; }
NAMED void held_watch(void) {
    struct pollfd end = {.fd = child_fd, .events = POLLIN};
    poll(&end, 1, -1);
    KEEP_FRAME();
}
static void *watcher(void *argument) { held_watch(); return argument; }

struct one { const char *name; void *(*run)(void *); int call; int tid; };
static struct one all[] = {
    {"h-left", left, SYS_futex, 0},       {"h-right", right, SYS_futex, 0},
    {"h-self", self, SYS_futex, 0},       {"h-plain", plain, SYS_futex, 0},
    {"h-robust", robust, SYS_futex, 0},   {"h-pi", pi, SYS_futex, 0},
    {"h-reader", reader, SYS_futex, 0},   {"h-writer", writer, SYS_futex, 0},
    {"h-behind", behind, SYS_futex, 0},   {"h-counter", counter, SYS_futex, 0},
    {"h-again", again, SYS_futex, 0},     {"h-pi-again", pi_again, SYS_futex, 0},
    {"h-rw-again", rw_again, SYS_futex, 0},
    {"h-trap", trap, SYS_futex, 0},       {"h-parent", parent, SYS_wait4, 0},
    {"h-watcher", watcher, SYS_poll, 0},
};

static void *begin(void *argument) {
    struct one *of = argument;
    thread_truth_new(of->name);
    pthread_setname_np(pthread_self(), of->name);
    __atomic_store_n(&of->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
    return of->run(NULL);
}

// Waits until the thread is in the call in which it is to stay.
static void await_call(struct one *of) {
    char path[64], text[256];
    int tid, number;
    while (!(tid = __atomic_load_n(&of->tid, __ATOMIC_ACQUIRE))) sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    for (;;) {
        FILE *file = fopen(path, "r");
        CHECK(file, "the thread %s is gone", of->name);
        bool there = fgets(text, sizeof text, file) && sscanf(text, "%d ", &number) == 1;
        fclose(file);
        if (there && number == of->call) return;
        sched_yield();
    }
}

void program_held(void) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&held_robust, &kind);
    pthread_mutexattr_init(&kind);
    CHECK(!pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT), "no such mutexes");
    pthread_mutex_init(&held_pi, &kind);
    pthread_mutex_init(&held_limit_pi, &kind);
    sem_init(&held_semaphore, 0, 0);
    child = fork();
    CHECK(child >= 0, "fork failed");
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "held-child");
        for (;;) pause();
    }
    child_fd = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK(child_fd >= 0, "no descriptor of a process");
    pthread_t handle;
    CHECK(!pthread_create(&handle, NULL, keeper, NULL), "no thread");
    pthread_setname_np(handle, "h-keeper");
    await_taken(1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(!pthread_create(&handle, NULL, begin, &all[i]), "no thread");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) await_call(&all[i]);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    extra_truth_set("child", child); // it ends with us
}
