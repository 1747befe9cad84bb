// SPDX-License-Identifier: MIT OR Apache-2.0
// A library that another one of the same size takes the place of; built twice, with PLUGIN as its function's name.
#include "truth.h"

NAMED void PLUGIN(void (*spend)(void)) {
    spend();
    KEEP_FRAME();
}
