// SPDX-License-Identifier: MIT OR Apache-2.0
// Services with waits that are easily misread: requests that go from thread to thread, connections without
// answers, answers that are held back, work that another process brings.
#include "trouble.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <unistd.h>

static int port, listener;

static void listen_64(void) { port = trouble_listen(64, &listener); }

// Four clients, each with a connection of its own, ask every `ms`.
static double asks_after_ms;
static void *asker_run(void *argument) {
    int fd = trouble_connect(port);
    while (!stopping() && trouble_ask(fd)) pause_ms(asks_after_ms);
    return argument;
}
static void askers(double ms) {
    asks_after_ms = ms;
    crew("asker", 4, asker_run);
}
static void askers_outside(void) { askers(25); }

static int watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

// ---- a reactor takes the requests, workers answer at once: nothing is wrong ----

static pthread_mutex_t jobs_hand = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_news = PTHREAD_COND_INITIALIZER;
static int jobs[64], jobs_first, jobs_end;

NAMED void worker_answer(int fd) {
    SPIN(200 * units_per_us());
    send(fd, "a", 1, MSG_NOSIGNAL);
}
static void *worker_run(void *argument) {
    for (;;) {
        pthread_mutex_lock(&jobs_hand);
        while (jobs_first == jobs_end) pthread_cond_wait(&jobs_news, &jobs_hand);
        int fd = jobs[jobs_first++ % 64];
        pthread_mutex_unlock(&jobs_hand);
        worker_answer(fd);
    }
    return argument;
}
static void job_give(int fd) {
    pthread_mutex_lock(&jobs_hand);
    jobs[jobs_end++ % 64] = fd;
    pthread_mutex_unlock(&jobs_hand);
    pthread_cond_signal(&jobs_news);
}
NAMED void reactor_loop(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0 && !watch(epoll, listener), "no epoll");
    for (;;) {
        struct epoll_event event;
        char byte;
        if (epoll_wait(epoll, &event, 1, -1) < 1) continue;
        if (event.data.fd == listener)
            watch(epoll, accept(listener, NULL, NULL));
        else if (recv(event.data.fd, &byte, 1, 0) == 1)
            job_give(event.data.fd);
        else
            close(event.data.fd);
    }
}
static void reactor_victim(void) {
    crew("worker", 3, worker_run);
    reactor_loop();
}

// ---- an event loop that answers 15 ms later, and does nothing meanwhile ----

NAMED void delayed_loop(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), held[64], count = 0;
    CHECK(epoll >= 0 && !watch(epoll, listener), "no epoll");
    u64 due = 0;
    for (;;) {
        struct epoll_event event;
        char byte;
        u64 now = now_ns();
        int left = !count ? -1 : due > now ? (int)((due - now) / 1000000) + 1 : 0;
        int n = epoll_wait(epoll, &event, 1, left);
        if (n == 1 && event.data.fd == listener) {
            watch(epoll, accept(listener, NULL, NULL));
        } else if (n == 1 && recv(event.data.fd, &byte, 1, 0) == 1 && count < 64) {
            if (!count) due = now_ns() + 15000000;
            held[count++] = event.data.fd;
        } else if (n == 1) {
            close(event.data.fd);
        }
        if (count && now_ns() >= due)
            while (count) send(held[--count], "a", 1, MSG_NOSIGNAL);
    }
}
static void delayed_victim(void) { delayed_loop(); }
static void eager_outside(void) { askers(0.5); }

// ---- a server of subscribers: asked once each, it has nothing to tell them ----

static void silent_victim(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    CHECK(epoll >= 0 && !watch(epoll, listener), "no epoll");
    for (;;) {
        struct epoll_event event;
        char byte;
        if (epoll_wait(epoll, &event, 1, 50) < 1) {
            SPIN(100 * units_per_us());
            continue;
        }
        if (event.data.fd == listener)
            watch(epoll, accept(listener, NULL, NULL));
        else if (recv(event.data.fd, &byte, 1, 0) < 1)
            close(event.data.fd);
    }
}

// ---- a log is sent over a connection, and never answered ----

static void *swallow_run(void *argument) {
    char bytes[4096];
    int fd = accept(listener, NULL, NULL);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    return argument;
}
static void swallow_outside(void) { crew("swallow", 1, swallow_run); }
static void ship_victim(void) {
    int fd = trouble_connect(port);
    for (;;) {
        send(fd, "a line of a log", 15, MSG_NOSIGNAL);
        pause_ms(20);
    }
}

// ---- a request in two pieces: the second waits until the first is acknowledged ----

static void *piece_run(void *argument) {
    int fd = accept(listener, NULL, NULL);
    for (char bytes[2]; recv(fd, bytes, 2, MSG_WAITALL) == 2;)
        if (send(fd, "a", 1, MSG_NOSIGNAL) != 1) break;
    return argument;
}
static void pieces_outside(void) { crew("server", 1, piece_run); }
NAMED void ask_in_pieces(int fd) {
    char byte;
    CHECK(send(fd, "h", 1, MSG_NOSIGNAL) == 1 && send(fd, "b", 1, MSG_NOSIGNAL) == 1 &&
              recv(fd, &byte, 1, 0) == 1,
          "the server is gone");
}
static void pieces_victim(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    // With the system's own ways, unlike the others.
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address), "no connection");
    for (;;) ask_in_pieces(fd);
}

// ---- somebody's accept queue is full ----

static void full_prepare(void) {
    port = trouble_listen(0, &listener);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        CHECK(fd >= 0, "no socket");
        if (connect(fd, (struct sockaddr *)&address, sizeof address)) errno = 0;
    }
}
static void full_victim(void) {
    close(listener);
    for (;;) close(trouble_connect(port));
}

// ---- a thread has another one do something, by events, and that one sleeps ----

static int codec_asks, codec_tells;

static void *codec_run(void *argument) {
    u64 count;
    while (read(codec_asks, &count, sizeof count) == sizeof count) {
        pause_ms(15);
        count = 1;
        if (write(codec_tells, &count, sizeof count) < 0) break;
    }
    return argument;
}
NAMED void frame_encode(void) {
    u64 count = 1;
    CHECK(write(codec_asks, &count, sizeof count) > 0 && read(codec_tells, &count, sizeof count) > 0,
          "the codec is gone");
}
static void codec_victim(void) {
    codec_asks = eventfd(0, EFD_CLOEXEC);
    codec_tells = eventfd(0, EFD_CLOEXEC);
    crew("codec", 1, codec_run);
    for (;;) {
        frame_encode();
        SPIN(200 * units_per_us());
    }
}

// ---- a process is fed by another through a semaphore of System V ----

static int fed_by = -1;

static void feed_prepare(void) {
    fed_by = semget(IPC_PRIVATE, 1, 0600);
    CHECK(fed_by >= 0, "no semaphore");
}
static void *feeder_run(void *argument) {
    while (!stopping()) {
        struct sembuf give = {0, 1, 0};
        semop(fed_by, &give, 1);
        pause_ms(20);
    }
    semctl(fed_by, 0, IPC_RMID);
    return argument;
}
static void feeder_outside(void) { crew("feeder", 1, feeder_run); }
NAMED bool order_next(void) {
    struct sembuf one = {0, -1, 0};
    return !semop(fed_by, &one, 1);
}
static void orders_victim(void) {
    while (order_next()) SPIN(300 * units_per_us());
    // The feeder removes the semaphore when it ends.
    for (;;) pause();
}

const struct trouble TROUBLE_SERVING[] = {
    {"reactor", listen_64, reactor_victim, askers_outside, NULL},
    {"delayed", listen_64, delayed_victim, eager_outside, NULL},
    {"silent", listen_64, silent_victim, askers_outside, NULL},
    {"ship", listen_64, ship_victim, swallow_outside, NULL},
    {"pieces", listen_64, pieces_victim, pieces_outside, NULL},
    {"full", full_prepare, full_victim, NULL, NULL},
    {"codec", NULL, codec_victim, NULL, NULL},
    {"orders", feed_prepare, orders_victim, feeder_outside, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
