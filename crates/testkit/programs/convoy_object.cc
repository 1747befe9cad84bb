// SPDX-License-Identifier: MIT OR Apache-2.0
// The convoy's mutex: in an object on the heap, as most locks of programs are.
#include <pthread.h>

namespace {

class ConvoyQueue {
public:
    virtual ~ConvoyQueue() = default;
    long entries[4] = {};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};

} // namespace

extern "C" pthread_mutex_t *convoy_mutex_new() { return &(new ConvoyQueue)->mutex; }
