// SPDX-License-Identifier: MIT OR Apache-2.0
// What the C, the C++ and the dlopened part of the odd stacks share.
#pragma once
#include "truth.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*odd_leaf)(void);

extern __thread u64 odd_spin_units, odd_block_ns; // this round's work of the leaves

// The two deepest functions of one case: one computes, one blocks. Each writes down its own stack
// once, by glibc's backtrace(), before it does the same thing for the rest of the run.
#define LEAVES(name)                                                                               \
    NAMED void odd_##name##_spin(void) {                                                           \
        static bool seen;                                                                          \
        if (!__atomic_exchange_n(&seen, true, __ATOMIC_RELAXED))                                   \
            chain_record("odd_" #name "_spin", "on_cpu");                                          \
        SPIN(odd_spin_units);                                                                      \
    }                                                                                              \
    BLOCKING_LEAF(name)

#define BLOCKING_LEAF(name)                                                                        \
    NAMED void odd_##name##_block(void) {                                                          \
        static bool seen;                                                                          \
        if (!__atomic_exchange_n(&seen, true, __ATOMIC_RELAXED))                                   \
            chain_record("odd_" #name "_block", "blocked");                                        \
        sleep_ns(odd_block_ns);                                                                    \
        KEEP_FRAME();                                                                              \
    }

void odd_throw_outer(odd_leaf before, odd_leaf in_destructor, odd_leaf in_catch);
void odd_throw_round(bool block);

#ifdef __cplusplus
}
#endif
