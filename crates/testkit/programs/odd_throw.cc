// SPDX-License-Identifier: MIT OR Apache-2.0
// Work below a frame that is about to be unwound by a C++ exception, in a destructor that the
// unwinding runs, and in the handler.
#include "odd.h"

#include <stdexcept>

extern "C" {
LEAVES(throw_before)
LEAVES(throw_destructor)
LEAVES(throw_catch)
}

namespace {
struct Guard {
    odd_leaf leaf;
    NAMED ~Guard() {
        leaf();
        KEEP_FRAME();
    }
};
} // namespace

extern "C" NAMED void odd_throw_inner(odd_leaf before, odd_leaf in_destructor) {
    Guard guard{in_destructor};
    before();
    throw std::runtime_error("thrown on purpose");
}

extern "C" NAMED void odd_throw_outer(odd_leaf before, odd_leaf in_destructor, odd_leaf in_catch) {
    try {
        odd_throw_inner(before, in_destructor);
    } catch (const std::exception &) {
        in_catch();
    }
    KEEP_FRAME();
}

extern "C" void odd_throw_round(bool block) {
    if (block)
        odd_throw_outer(odd_throw_before_block, odd_throw_destructor_block, odd_throw_catch_block);
    else
        odd_throw_outer(odd_throw_before_spin, odd_throw_destructor_spin, odd_throw_catch_spin);
    KEEP_FRAME();
}
