// SPDX-License-Identifier: MIT OR Apache-2.0
// A function that an exception leaves now and then, through a frame that does not know of it.
#include "truth.h"

#include <stdexcept>

extern "C" NAMED void calls_throwing(int round) {
    if (round % 3 == 0) throw std::runtime_error("thrown on purpose");
    KEEP_FRAME();
}

extern "C" NAMED void calls_passing(int round) {
    calls_throwing(round);
    KEEP_FRAME();
}

extern "C" NAMED int calls_catching(int round) {
    try {
        calls_passing(round);
    } catch (const std::exception &) {
        return 1;
    }
    return 0;
}

extern "C" int calls_thrown(int round, struct function_truth *inner, struct function_truth *outer) {
    inner->calls++;
    outer->calls++;
    return calls_catching(round);
}
