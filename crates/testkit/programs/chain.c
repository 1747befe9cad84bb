// SPDX-License-Identifier: MIT OR Apache-2.0
// A chain of waits over two hops and two processes: the front waits for a lock, its holder for a
// reply, and the server sleeps and computes before it gives one.
#include "truth.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

pthread_mutex_t chain_mutex = PTHREAD_MUTEX_INITIALIZER;
static int chain_pair[2];

NAMED void front_get(void) { pthread_mutex_lock(&chain_mutex); KEEP_FRAME(); }

static void front_run(struct worker *self) {
    struct function_truth *get = function_truth_new("front_get", "lock");
    while (!stopping()) {
        MEASURE(get, front_get());
        pthread_mutex_unlock(&chain_mutex);
        sleep_ns(jitter(&self->random, 200000));
        self->truth->operations++;
    }
}

NAMED void middle_call(void) {
    char byte = 'q';
    CHECK(send(chain_pair[0], &byte, 1, 0) == 1 && recv(chain_pair[0], &byte, 1, 0) == 1,
          "the server is gone");
}
NAMED void middle_hold(struct function_truth *call) {
    pthread_mutex_lock(&chain_mutex);
    MEASURE(call, middle_call());
    pthread_mutex_unlock(&chain_mutex);
    KEEP_FRAME();
}

static void middle_run(struct worker *self) {
    struct function_truth *call = function_truth_new("middle_call", "pipe");
    while (!stopping()) {
        middle_hold(call);
        sleep_ns(jitter(&self->random, 500000));
        self->truth->operations++;
    }
    shutdown(chain_pair[0], SHUT_RDWR);
}

NAMED void back_compute(u64 units) { SPIN(units); }
NAMED void back_sleep(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

static void back_process(void) {
    struct thread_truth *row = thread_truth_new("back");
    pthread_setname_np(pthread_self(), "back");
    struct function_truth *compute = function_truth_new("back_compute", "");
    struct function_truth *pause = function_truth_new("back_sleep", "timer");
    u64 random = 5, units = (u64)option_long("compute-us", 1500) * units_per_us();
    u64 length = (u64)option_long("sleep-us", 3000) * 1000;
    struct mark since = mark_now();
    char byte;
    while (recv(chain_pair[1], &byte, 1, 0) == 1) {
        MEASURE(pause, back_sleep(jitter(&random, length)));
        MEASURE(compute, back_compute(jitter(&random, units)));
        if (send(chain_pair[1], &byte, 1, MSG_NOSIGNAL) != 1) break;
        row->operations++;
    }
    thread_truth_end(row, &since);
    _exit(0);
}

void program_chain(void) {
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, chain_pair), "no socket pair");
    int back = fork();
    CHECK(back >= 0, "fork failed");
    if (!back) {
        close(chain_pair[0]);
        back_process();
    }
    close(chain_pair[1]);
    worker_start("middle", middle_run, NULL);
    worker_start("front", front_run, NULL);
    ready_and_wait(&back, 1);
    wait_for_end(false);
    workers_settle();
    waitpid(back, NULL, 0);
}
