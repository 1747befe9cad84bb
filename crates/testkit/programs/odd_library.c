// SPDX-License-Identifier: MIT OR Apache-2.0
// The library that the odd stacks load in the middle of a run.
#include "odd.h"

NAMED void odd_library_inner(odd_leaf leaf) {
    volatile char buffer[512];
    buffer[0] = 1;
    leaf();
    buffer[511] = buffer[0];
}

NAMED void odd_library_entry(odd_leaf leaf) {
    odd_library_inner(leaf);
    KEEP_FRAME();
}
