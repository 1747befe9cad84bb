// SPDX-License-Identifier: MIT OR Apache-2.0
// The course of a process with a trouble; see trouble.h.
#include "trouble.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void crew(const char *name, int count, void *(*run)(void *)) {
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        char own[32];
        CHECK(!pthread_create(&thread, NULL, run, (void *)i), "a thread cannot be started");
        snprintf(own, sizeof own, "%.10s-%ld", name, i);
        own[15] = 0;
        pthread_setname_np(thread, own);
    }
}

int trouble_listen(int backlog, int *fd) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(*fd >= 0 && !bind(*fd, (struct sockaddr *)&address, length) && !listen(*fd, backlog) &&
              !getsockname(*fd, (struct sockaddr *)&address, &length),
          "no loopback socket");
    return ntohs(address.sin_port);
}

int trouble_connect(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        if (fd >= 0) close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

struct connection {
    int fd;
    u64 ns;
};

static void *serve_one(void *argument) {
    struct connection own = *(struct connection *)argument;
    char byte;
    while (recv(own.fd, &byte, 1, 0) == 1) {
        sleep_ns(own.ns);
        if (send(own.fd, &byte, 1, MSG_NOSIGNAL) != 1) break;
    }
    close(own.fd);
    return NULL;
}

void trouble_serve(int listener, u64 ns) {
    static struct connection all[256];
    for (int i = 0; i < 256; i++) {
        all[i] = (struct connection){accept(listener, NULL, NULL), ns};
        pthread_t thread;
        if (all[i].fd < 0 || pthread_create(&thread, NULL, serve_one, &all[i])) return;
    }
}

static const struct trouble *chosen;

static const struct trouble *find(const char *name) {
    const struct trouble *const tables[] = {TROUBLE_COMPUTING, TROUBLE_WAITING, TROUBLE_HOLDING, TROUBLE_HEALTHY,
                                            TROUBLE_SERVING};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct trouble *t = tables[i]; t->name; t++)
            if (!strcmp(t->name, name)) return t;
    fail("--case: no trouble %s", name);
}

static int victim;

// Runs at exit, so that the victim lives until the measurement is over.
static void victim_ends(void) {
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
}

static void *outside_main(void *argument) {
    chosen->outside();
    return argument;
}

void program_trouble(void) {
    chosen = find(option_text("case", "flat"));
    if (chosen->prepare) chosen->prepare();
    int go[2];
    CHECK(!pipe(go), "no pipe");
    victim = fork();
    CHECK(victim >= 0, "fork failed");
    if (!victim) {
        char byte;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "trouble");
        close(go[1]);
        if (read(go[0], &byte, 1) == 1) chosen->victim();
        _exit(0);
    }
    atexit(victim_ends);
    if (chosen->place) chosen->place(victim);
    ready_and_wait(&victim, 1);
    pthread_t thread;
    if (chosen->outside)
        CHECK(!pthread_create(&thread, NULL, outside_main, NULL), "a thread cannot be started");
    CHECK(write(go[1], "g", 1) == 1, "the victim is gone");
    wait_for_end(false);
}
