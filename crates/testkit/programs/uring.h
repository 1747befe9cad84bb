// SPDX-License-Identifier: MIT OR Apache-2.0
// A ring of io_uring by plain system calls: no library is needed.
#pragma once
#include "truth.h"

#include <linux/io_uring.h>

// How a ring is made and waited at; fields that are not named are zero.
struct uring {
    unsigned flags;    // of io_uring_setup
    bool registered;   // waits name the ring by its index, not by its descriptor
    int fd, index;
    struct io_uring_params params;
    char *ring;
    struct io_uring_sqe *entries;
};

// Whether the ring could be made: says on standard error why it could not.
bool uring_open(struct uring *ring);
// Hands a request to the ring.
void uring_submit(struct uring *ring, struct io_uring_sqe request);
// Whether a completion has come that was not taken.
bool uring_is_complete(struct uring *ring);
// Waits for a completion and takes one; its result goes to `result`, its user data is returned.
u64 uring_wait(struct uring *ring, int *result);
// Both, always inlined: the caller's name stays on the stack.
static inline __attribute__((always_inline)) int uring_complete(struct uring *ring, struct io_uring_sqe request) {
    int result;
    uring_submit(ring, request);
    uring_wait(ring, &result);
    return result;
}
