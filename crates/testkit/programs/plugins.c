// SPDX-License-Identifier: MIT OR Apache-2.0
// Two libraries by turns, each unloaded before the other is loaded: they lie at the same addresses.
#include "truth.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// What is spent each time: computing, and sleeping.
#define PLUGIN_US 4000
#define PLUGIN_SLEEP_NS 4000000

// Where each of them was last.
static void *plugin_at[2];

static void plugin_spend(void) {
    SPIN(PLUGIN_US * units_per_us());
    sleep_ns(PLUGIN_SLEEP_NS);
}

// Calls the function of library number `index` some times; what it took is that function's.
static void plugin_turn(int index, int times, struct function_truth *truth) {
    static const char *const names[] = {"plugin_one", "plugin_other"};
    char path[512] = "";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    CHECK(length > 0, "own path unknown");
    path[length] = 0;
    sprintf(strrchr(path, '/') + 1, "libwallscope-%s.so", names[index]);
    void *library = dlopen(path, RTLD_NOW);
    CHECK(library, "%s", dlerror());
    void (*call)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, names[index]);
    CHECK(call, "%s", dlerror());
    plugin_at[index] = (void *)call;
    MEASURE(truth, for (int i = 0; i < times; i++) call(plugin_spend));
    CHECK(!dlclose(library), "%s", dlerror());
}

static void plugins_run(struct worker *self) {
    struct function_truth *one = function_truth_new("plugin_one", "timer");
    struct function_truth *other = function_truth_new("plugin_other", "timer");
    while (!stopping()) {
        // The first has three quarters of the time.
        plugin_turn(0, 12, one);
        plugin_turn(1, 4, other);
        self->truth->operations++;
    }
}

void program_plugins(void) {
    worker_start("plugins", plugins_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
    extra_truth_set("same_place", plugin_at[0] && plugin_at[0] == plugin_at[1]);
}
