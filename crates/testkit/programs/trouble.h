// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Processes with one trouble each, and healthy ones, to test verdicts. The victim is a separate process,
// so that the other parties (a server, a neighbour, a slow reader) can stay outside the measurement.
#pragma once
#include "truth.h"

#include <sys/socket.h>
#include <time.h>

struct trouble {
    const char *name;
    void (*prepare)(void); // before the fork; may be NULL
    void (*victim)(void);  // in the victim, to its end
    void (*outside)(void); // in a thread outside, to the end; may be NULL
    void (*place)(int pid); // puts the victim where it belongs; may be NULL
};

extern const struct trouble TROUBLE_COMPUTING[], TROUBLE_WAITING[], TROUBLE_HOLDING[], TROUBLE_HEALTHY[],
    TROUBLE_SERVING[];

// Starts `count` threads that run `run` with their number, named `name`.
void crew(const char *name, int count, void *(*run)(void *));
// Listens on the loopback; returns the port.
int trouble_listen(int backlog, int *fd);
int trouble_connect(int port);
// Answers each byte with one byte after `ns`, in a separate process for each connection.
void trouble_serve(int listener, u64 ns);
// Sends one byte and waits for the answer; false at the end. Inlined into its caller.
static inline __attribute__((always_inline)) bool trouble_ask(int fd) {
    char byte = 'q';
    return send(fd, &byte, 1, MSG_NOSIGNAL) == 1 && recv(fd, &byte, 1, 0) == 1;
}
// Sleeps. Inlined into its caller.
static inline __attribute__((always_inline)) void pause_ms(double ms) {
    struct timespec left = {(time_t)(ms / 1e3), (long)((u64)(ms * 1e6) % 1000000000ull)};
    while (nanosleep(&left, &left)) {
    }
}
