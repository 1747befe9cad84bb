// SPDX-License-Identifier: MIT OR Apache-2.0
// A server with troubles of its own and without any, and other processes that have none.
#include "trouble.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

static int server_port, server_listener;

static void server_prepare(void) { server_port = trouble_listen(64, &server_listener); }
static void narrow_prepare(void) { server_port = trouble_listen(2, &server_listener); }

// ---- a server: a thread for each connection ----

static double server_sleep_ms, server_compute_us;

NAMED void server_handle(void) {
    if (server_sleep_ms) pause_ms(server_sleep_ms);
    SPIN((u64)server_compute_us * units_per_us());
}
static void *server_connection(void *argument) {
    int fd = (int)(long)argument;
    char byte;
    while (recv(fd, &byte, 1, 0) == 1) {
        server_handle();
        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) break;
    }
    close(fd);
    return NULL;
}
static void server_run(void) {
    for (;;) {
        int fd = accept(server_listener, NULL, NULL);
        pthread_t thread;
        if (fd < 0 || pthread_create(&thread, NULL, server_connection, (void *)(long)fd)) return;
        pthread_setname_np(thread, "connection");
    }
}
static double client_pause_ms;
static void *client_run(void *argument) {
    int fd = trouble_connect(server_port);
    while (!stopping() && trouble_ask(fd)) pause_ms(client_pause_ms);
    return argument;
}
static void clients_4(void) { crew("client", 4, client_run); }

static void sleepy_victim(void) {
    server_sleep_ms = 15;
    server_compute_us = 200;
    server_run();
}
static void quick_clients(void) {
    client_pause_ms = 1;
    clients_4();
}
static void healthy_victim(void) {
    server_compute_us = 500;
    server_run();
}
static void calm_clients(void) {
    client_pause_ms = 100;
    clients_4();
}
static void idle_server_victim(void) { server_run(); }

// ---- one that accepts one at a time, and too slowly ----

// It speaks first: what a caller sends into a full queue is lost, and comes again much later.
NAMED void narrow_handle(int fd) {
    pause_ms(20);
    send(fd, "a", 1, MSG_NOSIGNAL);
    close(fd);
}
static void narrow_victim(void) {
    for (;;) {
        int fd = accept(server_listener, NULL, NULL);
        if (fd >= 0) narrow_handle(fd);
    }
}
static void *caller_run(void *argument) {
    while (!stopping()) {
        int fd = trouble_connect(server_port);
        char byte;
        struct timeval limit = {0, 200000};
        if (fd < 0) {
            pause_ms(5);
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (recv(fd, &byte, 1, 0) < 1) pause_ms(1);
        close(fd);
    }
    return argument;
}
static void callers_outside(void) { crew("caller", 12, caller_run); }

// ---- rest ----

static void ticker_victim(void) {
    for (;;) {
        pause_ms(20);
        SPIN(50 * units_per_us());
    }
}
static void *park_run(void *argument) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&lock);
    for (;;) pthread_cond_wait(&never, &lock);
    return argument;
}
static void parked_victim(void) {
    crew("parked", 20, park_run);
    park_run(NULL);
}
static void loop_victim(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec every = {{0, 20000000}, {0, 20000000}};
    CHECK(fd >= 0 && !timerfd_settime(fd, 0, &every, NULL), "no timerfd");
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = -1}};
    for (;;) {
        u64 count;
        if (poll(fds, 2, 1000) > 0 && read(fd, &count, sizeof count) > 0) SPIN(50 * units_per_us());
    }
}

// ---- workers that are fed, from deep in their code ----

static pthread_mutex_t queue_hand = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_news = PTHREAD_COND_INITIALIZER;
static int queue_jobs;

NAMED void queue_pop(void) {
    pthread_mutex_lock(&queue_hand);
    while (!queue_jobs) pthread_cond_wait(&queue_news, &queue_hand);
    queue_jobs--;
    pthread_mutex_unlock(&queue_hand);
}
NAMED void executor_next(void) { queue_pop(); KEEP_FRAME(); }
NAMED void executor_step(void) { executor_next(); KEEP_FRAME(); }
NAMED void executor_loop(void) { for (;;) { executor_step(); SPIN(300 * units_per_us()); } }
NAMED void executor_main(void) { executor_loop(); KEEP_FRAME(); }
static void *fed_run(void *argument) {
    executor_main();
    return argument;
}
static void fed_victim(void) {
    crew("worker", 4, fed_run);
    for (;;) {
        pause_ms(10);
        pthread_mutex_lock(&queue_hand);
        queue_jobs++;
        pthread_mutex_unlock(&queue_hand);
        pthread_cond_signal(&queue_news);
    }
}

const struct trouble TROUBLE_HEALTHY[] = {
    {"sleepy", server_prepare, sleepy_victim, quick_clients, NULL},
    {"narrow", narrow_prepare, narrow_victim, callers_outside, NULL},
    {"healthy", server_prepare, healthy_victim, calm_clients, NULL},
    {"idle-server", server_prepare, idle_server_victim, NULL, NULL},
    {"ticker", NULL, ticker_victim, NULL, NULL},
    {"parked", NULL, parked_victim, NULL, NULL},
    {"loop", NULL, loop_victim, NULL, NULL},
    {"fed", NULL, fed_victim, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
