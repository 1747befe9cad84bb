// SPDX-License-Identifier: MIT OR Apache-2.0
// Queues with known arrivals and service: a single-threaded server under Poisson load from another
// process; workers around one lock with a function that can be made faster.
#include "truth.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- queue ----

#define CONNECTIONS 48

static int queue_listener;
static u64 queue_served_ns, queue_requests;

// Natural logarithm of a number in (0, 1): halved into [0.5, 1), then the series of artanh.
static double logarithm(double x) {
    double sum = 0, power, y;
    for (; x < 0.5; x *= 2) sum -= 0.6931471805599453;
    y = (x - 1) / (x + 1);
    power = y;
    for (int n = 1; n < 30; n += 2, power *= y * y) sum += 2 * power / n;
    return sum;
}

static u64 exponential(u64 *state, u64 mean) {
    double unit = ((double)(random_next(state) >> 12) + 0.5) / (double)(1ull << 52);
    return (u64)(-(double)mean * logarithm(unit));
}

NAMED void queue_serve(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

NAMED int queue_wait(int epoll, struct epoll_event *event) {
    int n = epoll_wait(epoll, event, 1, 200);
    KEEP_FRAME();
    return n;
}

static void queue_watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    CHECK(fd >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl failed");
}

// One request after the other, in the order in which epoll has them.
static void queue_run(struct worker *self) {
    u64 service = (u64)option_long("service-us", 3000) * 1000;
    int epoll = epoll_create1(EPOLL_CLOEXEC), open = 0;
    bool any = false;
    queue_watch(epoll, queue_listener);
    while (!any || open) {
        struct epoll_event event;
        if (queue_wait(epoll, &event) != 1) continue;
        if (event.data.fd == queue_listener) {
            queue_watch(epoll, accept(queue_listener, NULL, NULL));
            any = ++open;
            continue;
        }
        char byte;
        if (recv(event.data.fd, &byte, 1, 0) != 1) {
            close(event.data.fd);
            open--;
            continue;
        }
        u64 begun = now_ns();
        queue_serve(exponential(&self->random, service));
        CHECK(send(event.data.fd, &byte, 1, MSG_NOSIGNAL) == 1, "the client is gone");
        queue_served_ns += now_ns() - begun;
        queue_requests++;
        self->truth->operations++;
    }
    close(epoll);
}

// Sends requests at the times of a Poisson process, each on a connection without one in flight.
static void queue_load(const struct sockaddr_in *address, u64 gap, u64 end) {
    struct pollfd fds[CONNECTIONS];
    u64 sent[CONNECTIONS] = {0}, random = 4711, next = now_ns(), response = 0, answers = 0, late = 0;
    int flying = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = (struct pollfd){.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
        CHECK(fds[i].fd >= 0 && !connect(fds[i].fd, (const struct sockaddr *)address, sizeof *address),
              "connect failed");
    }
    while (next < end || flying) {
        u64 now = now_ns();
        while (next < end && next <= now) {
            int free = 0;
            while (free < CONNECTIONS && sent[free]) free++;
            if (free < CONNECTIONS) {
                sent[free] = now_ns();
                CHECK(send(fds[free].fd, "q", 1, MSG_NOSIGNAL) == 1, "the server is gone");
                flying++;
            } else late++;
            next += exponential(&random, gap);
        }
        u64 left = next < end && next > now ? next - now : 100000000;
        struct timespec limit = {.tv_sec = (long)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
        if (ppoll(fds, CONNECTIONS, &limit, NULL) <= 0) continue;
        for (int i = 0; i < CONNECTIONS; i++) {
            char byte;
            if (!(fds[i].revents & POLLIN) || recv(fds[i].fd, &byte, 1, 0) != 1) continue;
            response += now_ns() - sent[i];
            sent[i] = 0;
            answers++;
            flying--;
        }
    }
    extra_truth_set("response_ns", (double)response);
    extra_truth_set("answers", (double)answers);
    extra_truth_set("not_sent", (double)late);
    _exit(0);
}

void program_queue(void) {
    u64 gap = (u64)option_long("gap-us", 5000) * 1000;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    int gate[2];
    queue_listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(queue_listener >= 0 && !bind(queue_listener, (struct sockaddr *)&own, length) &&
              !listen(queue_listener, CONNECTIONS) &&
              !getsockname(queue_listener, (struct sockaddr *)&own, &length) && !pipe(gate),
          "no loopback socket");
    int load = fork();
    CHECK(load >= 0, "fork failed");
    if (!load) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "queue-load");
        u64 end;
        CHECK(read(gate[0], &end, sizeof end) == sizeof end, "not released");
        queue_load(&own, gap, end);
    }
    worker_start("queue-server", queue_run, NULL);
    ready_and_wait(&load, 1);
    u64 begun = now_ns(), end = begun + (u64)(option_double("seconds", 3.0) * 1e9);
    CHECK(write(gate[1], &end, sizeof end) == sizeof end, "the load is gone");
    waitpid(load, NULL, 0);
    wait_for_end(true);
    workers_settle();
    extra_truth_set("span_ns", (double)(end - begun));
    extra_truth_set("requests", (double)queue_requests);
    extra_truth_set("served_ns", (double)queue_served_ns);
}

// ---- whatif ----

static pthread_mutex_t whatif_lock = PTHREAD_MUTEX_INITIALIZER;

NAMED void whatif_prepare(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }
NAMED void whatif_compact(u64 ns) { sleep_ns(ns); KEEP_FRAME(); }

// A request: some work of its own, then a function under a lock that all workers share.
static void whatif_run(struct worker *self) {
    u64 prepare = (u64)option_long("prepare-us", 4000) * 1000;
    u64 compact = (u64)option_long("compact-us", 3000) * 1000;
    while (!stopping()) {
        whatif_prepare(jitter(&self->random, prepare));
        pthread_mutex_lock(&whatif_lock);
        whatif_compact(compact);
        pthread_mutex_unlock(&whatif_lock);
        self->truth->operations++;
    }
}

void program_whatif(void) {
    static const char *NAMES[] = {"whatif-0", "whatif-1", "whatif-2", "whatif-3"};
    for (int i = 0; i < 4; i++) worker_start(NAMES[i], whatif_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}
