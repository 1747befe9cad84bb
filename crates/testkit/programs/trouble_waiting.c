// SPDX-License-Identifier: MIT OR Apache-2.0
// Troubles with waiting.
#include "trouble.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- locks: one long hold, many short ones ----

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

NAMED void table_get(u64 units) {
    pthread_mutex_lock(&table_lock);
    SPIN(units);
    pthread_mutex_unlock(&table_lock);
}
NAMED void table_compact(void) {
    pthread_mutex_lock(&table_lock);
    pause_ms(250);
    pthread_mutex_unlock(&table_lock);
    KEEP_FRAME();
}
static void *table_reader(void *argument) {
    for (;;) {
        table_get(5 * units_per_us());
        pause_ms(1);
    }
    return argument;
}
static void *table_compactor(void *argument) {
    for (;;) {
        table_compact();
        pause_ms(50);
    }
    return argument;
}
static void long_hold_victim(void) {
    crew("reader", 3, table_reader);
    crew("compactor", 1, table_compactor);
    for (;;) pause();
}

NAMED void cache_update(u64 *random) {
    pthread_mutex_lock(&table_lock);
    sleep_ns(jitter(random, 200000));
    pthread_mutex_unlock(&table_lock);
    SPIN(20 * units_per_us());
}
static void *cache_run(void *argument) {
    for (u64 random = 11 + (u64)(long)argument;;) cache_update(&random);
    return argument;
}
static void short_holds_victim(void) {
    crew("cache", 6, cache_run);
    for (;;) pause();
}

// ---- two locks, taken in either order ----

static pthread_mutex_t accounts[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

NAMED void transfer(int from) {
    pthread_mutex_lock(&accounts[from]);
    pause_ms(1);
    pthread_mutex_lock(&accounts[!from]);
    pthread_mutex_unlock(&accounts[!from]);
    pthread_mutex_unlock(&accounts[from]);
}
static void *transfer_run(void *argument) {
    for (;;) transfer((int)(long)argument & 1);
    return argument;
}
static void deadlock_victim(void) {
    crew("teller", 4, transfer_run);
    for (;;) pause();
}

// ---- a pool that is too small ----

static pthread_mutex_t pool_hand = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pool_free = PTHREAD_COND_INITIALIZER;
static int pool_stock[2], pool_count, upstream_port, upstream_listener;

NAMED int pool_acquire(void) {
    pthread_mutex_lock(&pool_hand);
    while (!pool_count) pthread_cond_wait(&pool_free, &pool_hand);
    int fd = pool_stock[--pool_count];
    pthread_mutex_unlock(&pool_hand);
    return fd;
}
NAMED void pool_release(int fd) {
    pthread_mutex_lock(&pool_hand);
    pool_stock[pool_count++] = fd;
    pthread_mutex_unlock(&pool_hand);
    pthread_cond_signal(&pool_free);
}
NAMED void pool_query(int fd) { CHECK(trouble_ask(fd), "the database is gone"); }
static void *pool_run(void *argument) {
    for (;;) {
        int fd = pool_acquire();
        pool_query(fd);
        pool_release(fd);
        SPIN(50 * units_per_us());
    }
    return argument;
}
static void upstream_prepare(void) { upstream_port = trouble_listen(64, &upstream_listener); }
static void upstream_5ms(void) { trouble_serve(upstream_listener, 5000000); }
static void upstream_80ms(void) { trouble_serve(upstream_listener, 80000000); }
static void pool_victim(void) {
    for (; pool_count < 2; pool_count++) {
        pool_stock[pool_count] = trouble_connect(upstream_port);
        CHECK(pool_stock[pool_count] >= 0, "no database");
    }
    crew("web", 8, pool_run);
    for (;;) pause();
}

// ---- a slow upstream: blocking, and with a time limit ----

NAMED void fetch_price(int fd) { CHECK(trouble_ask(fd), "upstream is gone"); }
static void fetch_victim(void) {
    int fd = trouble_connect(upstream_port);
    for (;;) {
        fetch_price(fd);
        SPIN(300 * units_per_us());
    }
}
NAMED void fetch_with_limit(int fd) {
    char byte = 'q';
    struct pollfd one = {.fd = fd, .events = POLLIN};
    CHECK(send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && poll(&one, 1, 5000) == 1 &&
              recv(fd, &byte, 1, 0) == 1,
          "upstream is gone");
}
static void limit_victim(void) {
    int fd = trouble_connect(upstream_port);
    for (;;) fetch_with_limit(fd);
}

// ---- an event loop on a slow upstream ----

static int loop_port, loop_listener;

static void loop_prepare(void) {
    upstream_prepare();
    loop_port = trouble_listen(64, &loop_listener);
}
NAMED int loop_events(int epoll, struct epoll_event *event) {
    int n = epoll_wait(epoll, event, 1, 1000);
    KEEP_FRAME();
    return n;
}
// What comes from the client goes upstream, and back.
static void loop_victim(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), ends[2];
    ends[0] = accept(loop_listener, NULL, NULL);
    ends[1] = trouble_connect(upstream_port);
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, ends[i], &event), "epoll_ctl failed");
    }
    for (;;) {
        struct epoll_event event;
        char byte;
        if (loop_events(epoll, &event) != 1) continue;
        int from = (int)event.data.u32;
        if (recv(ends[from], &byte, 1, 0) != 1 || send(ends[!from], &byte, 1, MSG_NOSIGNAL) != 1)
            return;
    }
}
static void *loop_client(void *argument) {
    int fd = trouble_connect(loop_port);
    while (trouble_ask(fd)) pause_ms(5);
    return argument;
}
static void loop_outside(void) {
    crew("client", 1, loop_client);
    trouble_serve(upstream_listener, 40000000);
}

// ---- a row that its servers hand to each other, by events beside their connections ----

static int row_port, row_listener, row_queue[64], row_first, row_last;
static bool row_taken;
static pthread_mutex_t row_lock = PTHREAD_MUTEX_INITIALIZER;

static void row_prepare(void) { row_port = trouble_listen(64, &row_listener); }
// Waits for its turn as for anything else that may come.
NAMED void row_acquire(int client, int own) {
    pthread_mutex_lock(&row_lock);
    bool wait = row_taken;
    if (wait) row_queue[row_last++ % 64] = own;
    row_taken = true;
    pthread_mutex_unlock(&row_lock);
    struct pollfd both[] = {{.fd = own, .events = POLLIN}, {.fd = client, .events = POLLIN}};
    u64 count;
    while (wait && poll(both, 2, -1) > 0)
        if (both[0].revents) wait = read(own, &count, sizeof count) != sizeof count;
}
NAMED void row_release(void) {
    u64 one = 1;
    pthread_mutex_lock(&row_lock);
    row_taken = row_first != row_last;
    int next = row_taken ? row_queue[row_first++ % 64] : -1;
    pthread_mutex_unlock(&row_lock);
    CHECK(next < 0 || write(next, &one, sizeof one) == sizeof one, "an event is lost");
}
static void *row_server(void *argument) {
    int fd = (int)(long)argument, own = eventfd(0, EFD_CLOEXEC);
    char byte;
    while (own >= 0 && recv(fd, &byte, 1, 0) == 1) {
        row_acquire(fd, own);
        pause_ms(10);
        row_release();
        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) break;
    }
    return NULL;
}
static void row_victim(void) {
    for (;;) {
        int fd = accept(row_listener, NULL, NULL);
        pthread_t thread;
        if (fd < 0 || pthread_create(&thread, NULL, row_server, (void *)(long)fd)) return;
        pthread_setname_np(thread, "server");
    }
}
static void *row_client(void *argument) {
    int fd = trouble_connect(row_port);
    while (!stopping() && trouble_ask(fd)) {
    }
    return argument;
}
static void row_outside(void) { crew("client", 6, row_client); }

// ---- names that resolve slowly: datagrams ----

static int name_server, name_port;

static void names_prepare(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    name_server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(name_server >= 0 && !bind(name_server, (struct sockaddr *)&address, length) &&
              !getsockname(name_server, (struct sockaddr *)&address, &length),
          "no loopback socket");
    name_port = ntohs(address.sin_port);
}
static void names_outside(void) {
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        char text[64];
        ssize_t n = recvfrom(name_server, text, sizeof text, 0, (struct sockaddr *)&from, &length);
        pause_ms(25);
        if (n > 0) sendto(name_server, text, (size_t)n, 0, (struct sockaddr *)&from, length);
    }
}
NAMED void resolve_name(const char *name, bool limited) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)name_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char text[64];
    struct pollfd one = {.fd = fd, .events = POLLIN};
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address) &&
              send(fd, name, strlen(name), 0) > 0 && (!limited || poll(&one, 1, 5000) == 1) &&
              recv(fd, text, sizeof text, 0) > 0,
          "no answer");
    close(fd);
}
static void names_victim(void) {
    for (;;) resolve_name("db.internal", false);
}
static void names_limit_victim(void) {
    for (;;) resolve_name("db.internal", true);
}

// ---- files ----

static int scratch(int flags, size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/wallscope-truth-XXXXXX", option_text("dir", "."));
    int fd = mkostemp(path, flags);
    CHECK(fd >= 0, "no file can be made; choose a folder with --dir");
    unlink(path);
    char *block = aligned_alloc(4096, 1 << 20);
    CHECK(block, "no memory");
    memset(block, 5, 1 << 20);
    for (size_t at = 0; at < bytes; at += 1 << 20)
        CHECK(pwrite(fd, block, 1 << 20, (off_t)at) == 1 << 20, "no room");
    free(block);
    return fd;
}
NAMED void journal_commit(int fd, off_t at) {
    static char entry[4096];
    CHECK(pwrite(fd, entry, sizeof entry, at) == sizeof entry && !fsync(fd), "no commit");
}
static void commit_victim(void) {
    int fd = scratch(0, 4 << 20);
    for (u64 i = 0;; i++) journal_commit(fd, (off_t)(i % 1024 * 4096));
}
NAMED void page_read(int fd, char *block, off_t at) {
    CHECK(pread(fd, block, 65536, at) == 65536, "no page");
}
static void *page_run(void *argument) {
    int fd = scratch(O_DIRECT, 16 << 20);
    char *block = aligned_alloc(4096, 65536);
    for (u64 random = 3;;) page_read(fd, block, (off_t)(random_next(&random) % 256 * 65536));
    return argument;
}
static void reads_victim(void) {
    crew("reader", 2, page_run);
    for (;;) pause();
}

// ---- a log with a slow reader ----

static int log_pipe[2];

static void log_prepare(void) { CHECK(!pipe(log_pipe), "no pipe"); }
static void log_outside(void) {
    static char text[4096];
    while (read(log_pipe[0], text, sizeof text) > 0) pause_ms(4);
}
NAMED void log_line(int request) {
    char line[512];
    memset(line, '.', sizeof line);
    snprintf(line, sizeof line, "request %d served", request);
    CHECK(write(log_pipe[1], line, sizeof line) == sizeof line, "the log is gone");
}
static void *log_run(void *argument) {
    for (int i = 0;; i++) {
        SPIN(40 * units_per_us());
        log_line(i);
    }
    return argument;
}
static void log_victim(void) {
    crew("worker", 3, log_run);
    for (;;) pause();
}

// ---- a download with a slow reader ----

static void *download_reader(void *argument) {
    int fd = trouble_connect(row_port);
    static char part[65536];
    while (recv(fd, part, sizeof part, 0) > 0) pause_ms(20);
    return argument;
}
static void download_outside(void) { crew("reader", 1, download_reader); }
NAMED void send_download(int fd, const char *content, size_t length) {
    for (size_t sent = 0; sent < length;) {
        ssize_t n = send(fd, content + sent, length - sent, MSG_NOSIGNAL);
        CHECK(n > 0, "the reader is gone");
        sent += (size_t)n;
    }
}
static void download_victim(void) {
    static char content[1 << 20];
    int fd = accept(row_listener, NULL, NULL);
    for (;;) send_download(fd, content, sizeof content);
}

// ---- children ----

NAMED void hook_run(void) {
    char *const words[] = {"sleep", "0.05", NULL}, *const nothing[] = {NULL};
    pid_t child;
    CHECK(!posix_spawnp(&child, "sleep", NULL, NULL, words, nothing), "no command sleep");
    CHECK(waitpid(child, NULL, 0) == child, "waitpid failed");
}
static void hook_victim(void) {
    for (;;) {
        SPIN(2000 * units_per_us());
        hook_run();
    }
}

// ---- a world that is stopped ----

static pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t world_changed = PTHREAD_COND_INITIALIZER;
static bool world_stopped;

NAMED void safepoint_wait(void) {
    pthread_mutex_lock(&world);
    while (world_stopped) pthread_cond_wait(&world_changed, &world);
    pthread_mutex_unlock(&world);
}
NAMED void collect_mark(u64 units) { SPIN(units); }
NAMED void mutator_allocate(void) {
    SPIN(100 * units_per_us());
    if (__atomic_load_n(&world_stopped, __ATOMIC_ACQUIRE)) safepoint_wait();
    KEEP_FRAME();
}
NAMED void mutator_build(void) { mutator_allocate(); KEEP_FRAME(); }
NAMED void mutator_request(void) { mutator_build(); KEEP_FRAME(); }
static void *mutator_run(void *argument) {
    for (;;) {
        mutator_request();
        pause_ms(0.05);
    }
    return argument;
}
static void world_set(bool stopped) {
    pthread_mutex_lock(&world);
    __atomic_store_n(&world_stopped, stopped, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&world);
    pthread_cond_broadcast(&world_changed);
}
static void *collector_run(void *argument) {
    for (;;) {
        pause_ms(50);
        world_set(true);
        collect_mark(150000 * units_per_us());
        world_set(false);
    }
    return argument;
}
static void world_victim(void) {
    crew("mutator", 3, mutator_run);
    crew("collector", 1, collector_run);
    for (;;) pause();
}

// ---- one call in a hundred ----

NAMED void fast_path(u64 units) { SPIN(units); }
NAMED void slow_path(int fd) { CHECK(trouble_ask(fd), "the other end is gone"); }
static void outlier_victim(void) {
    int fd = trouble_connect(upstream_port);
    for (u64 i = 1;; i++) {
        fast_path(200 * units_per_us());
        if (i % 100 == 0) slow_path(fd);
    }
}

const struct trouble TROUBLE_WAITING[] = {
    {"long-hold", NULL, long_hold_victim, NULL, NULL},
    {"short-holds", NULL, short_holds_victim, NULL, NULL},
    {"deadlock", NULL, deadlock_victim, NULL, NULL},
    {"pool", upstream_prepare, pool_victim, upstream_5ms, NULL},
    {"fetch", upstream_prepare, fetch_victim, upstream_5ms, NULL},
    {"fetch-limit", upstream_prepare, limit_victim, upstream_5ms, NULL},
    {"row", row_prepare, row_victim, row_outside, NULL},
    {"loop-upstream", loop_prepare, loop_victim, loop_outside, NULL},
    {"names", names_prepare, names_victim, names_outside, NULL},
    {"names-limit", names_prepare, names_limit_victim, names_outside, NULL},
    {"commit", NULL, commit_victim, NULL, NULL},
    {"reads", NULL, reads_victim, NULL, NULL},
    {"log", log_prepare, log_victim, log_outside, NULL},
    {"download", row_prepare, download_victim, download_outside, NULL},
    {"hook", NULL, hook_victim, NULL, NULL},
    {"world", NULL, world_victim, NULL, NULL},
    {"outlier", upstream_prepare, outlier_victim, upstream_80ms, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
