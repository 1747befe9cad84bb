// SPDX-License-Identifier: MIT OR Apache-2.0
// Waiting for work, waiting for an answer, and going round in circles: an event loop on a slow
// upstream beside a pool of parked workers; threads that spin.
#include "truth.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int listen_on(struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)address, length) && !listen(fd, 4) &&
              !getsockname(fd, (struct sockaddr *)address, &length),
          "no loopback socket");
    return fd;
}

static int connect_to(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !connect(fd, (const struct sockaddr *)address, sizeof *address),
          "connect failed");
    return fd;
}

// ---- upstream ----

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_work = PTHREAD_COND_INITIALIZER;
static int pool_jobs;
static bool pool_closed;

NAMED bool pool_take(void) {
    pthread_mutex_lock(&pool_lock);
    while (!pool_jobs && !pool_closed) pthread_cond_wait(&pool_work, &pool_lock);
    bool job = pool_jobs > 0;
    if (job) pool_jobs--;
    pthread_mutex_unlock(&pool_lock);
    return job;
}

static void pool_run(struct worker *self) {
    while (pool_take()) {
        SPIN(20 * units_per_us());
        self->truth->operations++;
    }
}

static void pool_give(bool close_it) {
    pthread_mutex_lock(&pool_lock);
    if (close_it) pool_closed = true;
    else pool_jobs++;
    pthread_mutex_unlock(&pool_lock);
    if (close_it) pthread_cond_broadcast(&pool_work);
    else pthread_cond_signal(&pool_work);
}

static int loop_listener, loop_upstream;
static u64 loop_owed, loop_awaited;

NAMED void loop_ask_upstream(int fd) { CHECK(send(fd, "q", 1, 0) == 1, "upstream is gone"); }
NAMED int loop_wait(int epoll, struct epoll_event *event) {
    int n = epoll_wait(epoll, event, 1, 200);
    KEEP_FRAME();
    return n;
}

// One client, one upstream, one epoll: from its request to its answer all waiting is for upstream.
static void loop_run(struct worker *self) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int client = accept(loop_listener, NULL, NULL);
    CHECK(epoll >= 0 && client >= 0, "no client");
    int fds[2] = {client, loop_upstream};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event), "epoll_ctl failed");
    }
    u64 received = 0, asked = 0;
    for (;;) {
        struct epoll_event event;
        if (loop_wait(epoll, &event) != 1) {
            if (stopping() && !received) break;
            continue;
        }
        char byte;
        if (recv(event.data.fd, &byte, 1, 0) != 1) break;
        if (event.data.fd == client) {
            received = now_ns();
            loop_ask_upstream(loop_upstream);
            asked = now_ns();
            pool_give(false);
        } else {
            loop_awaited += now_ns() - asked;
            CHECK(send(client, &byte, 1, MSG_NOSIGNAL) == 1, "the client is gone");
            loop_owed += now_ns() - received;
            received = 0;
            self->truth->operations++;
            if (stopping()) break;
        }
    }
    close(client);
    close(loop_upstream);
    pool_give(true);
}

static void upstream_serve(int fd, u64 delay) {
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) {
        sleep_ns(delay);
        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) break;
    }
    _exit(0);
}

static void client_ask(const struct sockaddr_in *address, u64 pause) {
    int fd = connect_to(address);
    char byte = 'c';
    while (send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1) sleep_ns(pause);
    _exit(0);
}

void program_upstream(void) {
    u64 delay = (u64)option_long("upstream-us", 60000) * 1000;
    u64 pause = (u64)option_long("pause-us", 60000) * 1000;
    struct sockaddr_in up, own;
    int listener = listen_on(&up), children[2];
    loop_listener = listen_on(&own);
    children[0] = fork();
    CHECK(children[0] >= 0, "fork failed");
    if (!children[0]) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "truth-upstream");
        upstream_serve(accept(listener, NULL, NULL), delay);
    }
    loop_upstream = connect_to(&up);
    struct worker *loop = worker_start("loop", loop_run, NULL);
    static const char *NAMES[] = {"pool-0", "pool-1", "pool-2", "pool-3"};
    for (int i = 0; i < 4; i++) worker_start(NAMES[i], pool_run, NULL);
    ready_and_wait(NULL, 0);
    children[1] = fork();
    CHECK(children[1] >= 0, "fork failed");
    if (!children[1]) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        client_ask(&own, pause);
    }
    wait_for_end(false);
    workers_settle();
    for (int i = 0; i < 2; i++) waitpid(children[i], NULL, 0);
    extra_truth_set("requests", (double)loop->truth->operations);
    extra_truth_set("owed_ns", (double)loop_owed);
    extra_truth_set("awaited_ns", (double)loop_awaited);
    extra_truth_set("upstream_pid", children[0]);
    extra_truth_set("upstream_port", ntohs(up.sin_port));
}

// ---- long-ago ----

static int asked_before;

// Looks for an answer that never comes.
static void asker_run(struct worker *self) {
    struct pollfd wait = {.fd = asked_before, .events = POLLIN};
    while (!stopping()) {
        CHECK(!poll(&wait, 1, 50), "an answer");
        self->truth->operations++;
    }
    pool_give(true);
}

static struct sockaddr_un unix_up;
static socklen_t unix_length = sizeof unix_up;
static int unix_tids[2];

// Asks before READY, and hangs: whether a unix socket was asked last nobody tells.
static void *hung_thread(void *argument) {
    static const char *NAMES[] = {"hung-reader", "hung-poller"};
    int which = argument != NULL, fd = socket(AF_UNIX, SOCK_STREAM, 0);
    pthread_setname_np(pthread_self(), NAMES[which]);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&unix_up, unix_length) && send(fd, "q", 1, 0) == 1,
          "nobody to ask");
    int tid = thread_truth_new(NAMES[which])->tid;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    char byte;
    __atomic_store_n(&unix_tids[which], tid, __ATOMIC_RELEASE);
    if (which) poll(&wait, 1, -1);
    recv(fd, &byte, 1, 0);
    return NULL;
}

void program_long_ago(void) {
    struct sockaddr_in up;
    int listener = listen_on(&up), unix_listener = socket(AF_UNIX, SOCK_STREAM, 0);
    // The kernel chooses its name.
    unix_up.sun_family = AF_UNIX;
    CHECK(unix_listener >= 0 && !bind(unix_listener, (struct sockaddr *)&unix_up, sizeof unix_up.sun_family) &&
              !listen(unix_listener, 4) &&
              !getsockname(unix_listener, (struct sockaddr *)&unix_up, &unix_length),
          "no unix socket");
    int child = fork();
    CHECK(child >= 0, "fork failed");
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = accept(listener, NULL, NULL);
        char byte;
        for (int i = 0; i < 2; i++) accept(unix_listener, NULL, NULL);
        while (recv(fd, &byte, 1, 0) == 1) {}
        _exit(0);
    }
    asked_before = connect_to(&up);
    CHECK(send(asked_before, "q", 1, 0) == 1, "nobody to ask");
    worker_start("asker", asker_run, NULL);
    static const char *NAMES[] = {"pool-0", "pool-1"};
    for (int i = 0; i < 2; i++) {
        worker_start(NAMES[i], pool_run, NULL);
        pthread_t hung;
        CHECK(!pthread_create(&hung, NULL, hung_thread, i ? "polls" : NULL), "no thread");
        while (!__atomic_load_n(&unix_tids[i], __ATOMIC_ACQUIRE)) sleep_ns(100000);
        wait_until_blocked(getpid(), unix_tids[i]);
    }
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    close(asked_before);
    waitpid(child, NULL, 0);
}

// ---- aside ----

enum { BY_LOOP, BY_READ, UNASKED, ENDED, SERVED };
static int aside[SERVED];
static sem_t aside_answers;

// It asks on two connections, and others wait for the answers.
static void aside_ask(struct worker *self) {
    while (!stopping()) {
        for (int i = BY_LOOP; i <= BY_READ; i++)
            CHECK(send(aside[i], "q", 1, 0) == 1, "upstream is gone");
        for (int i = BY_LOOP; i <= BY_READ; i++)
            while (sem_wait(&aside_answers)) {}
        self->truth->operations++;
    }
    for (int i = BY_LOOP; i <= UNASKED; i++) shutdown(aside[i], SHUT_RDWR);
}

static void aside_loop(struct worker *self) {
    int fd = aside[self->argument ? UNASKED : BY_LOOP], epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl failed");
    char byte;
    do {
        while (loop_wait(epoll, &event) != 1) {}
        if (recv(fd, &byte, 1, 0) != 1) break;
        sem_post(&aside_answers);
    } while (true);
}

static void aside_read(struct worker *self) {
    char byte;
    while (recv(aside[BY_READ], &byte, 1, 0) == 1) {
        sem_post(&aside_answers);
        self->truth->operations++;
    }
}

// An answer is read when nothing is left of the connection that it came on.
static void aside_late_answer(int fd) {
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};
    struct tcp_info state = {0};
    socklen_t length = sizeof state;
    char byte;
    CHECK(send(fd, "q", 1, 0) == 1 && poll(&end, 1, -1) == 1 && !shutdown(fd, SHUT_WR), "no end");
    while (state.tcpi_state != TCP_CLOSE) {
        sleep_ns(1000000);
        CHECK(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &length), "no state");
    }
    CHECK(recv(fd, &byte, 1, 0) == 1, "no answer");
}

void program_aside(void) {
    int children[SERVED];
    sem_init(&aside_answers, 0, 0);
    for (int i = 0; i < SERVED; i++) {
        struct sockaddr_in up;
        int listener = listen_on(&up);
        children[i] = fork();
        CHECK(children[i] >= 0, "fork failed");
        if (!children[i]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            int fd = accept(listener, NULL, NULL);
            char byte;
            if (i != ENDED) upstream_serve(fd, 60000000);
            if (recv(fd, &byte, 1, 0) == 1) CHECK(send(fd, &byte, 1, 0) == 1, "nobody asks");
            _exit(0);
        }
        aside[i] = connect_to(&up);
        close(listener);
    }
    worker_start("asker", aside_ask, NULL);
    worker_start("loop", aside_loop, NULL);
    worker_start("reader", aside_read, NULL);
    worker_start("other-loop", aside_loop, "other");
    ready_and_wait(NULL, 0);
    aside_late_answer(aside[ENDED]);
    wait_for_end(false);
    workers_settle();
    for (int i = 0; i < SERVED; i++) close(aside[i]);
    for (int i = 0; i < SERVED; i++) waitpid(children[i], NULL, 0);
}

// ---- spin ----

static pthread_spinlock_t spin_lock;

NAMED void spin_hold(u64 units) { SPIN(units); }
NAMED void spin_yield(void) { for (int i = 0; i < 200; i++) sched_yield(); KEEP_FRAME(); }

static void spin_run(struct worker *self) {
    bool yields = self->argument != NULL;
    while (!stopping()) {
        if (yields) {
            spin_yield();
        } else {
            pthread_spin_lock(&spin_lock);
            spin_hold(200 * units_per_us());
            pthread_spin_unlock(&spin_lock);
        }
        self->truth->operations++;
    }
}

void program_spin(void) {
    pthread_spin_init(&spin_lock, PTHREAD_PROCESS_PRIVATE);
    worker_start("spin-lock-0", spin_run, NULL);
    worker_start("spin-lock-1", spin_run, NULL);
    worker_start("spin-yield", spin_run, "yield");
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}
