// SPDX-License-Identifier: MIT OR Apache-2.0
// Moves the program's own code to memory without a file, at its own addresses, as programs do that want their code
// on large pages.
#define _GNU_SOURCE
#include "truth.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// The mapping that holds this very function.
static size_t find_own_code(char **start) {
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) fail("/proc/self/maps: %s", strerror(errno));
    char line[512];
    uintptr_t here = (uintptr_t)find_own_code, from, to;
    size_t bytes = 0;
    while (!bytes && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= here && here < to) bytes = to - from;
    fclose(maps);
    if (!bytes) fail("own code is not mapped");
    *start = (char *)from;
    return bytes;
}

void move_own_code(const char *to) {
    char *code;
    size_t bytes = find_own_code(&code);
    void *moved = MAP_FAILED;
    if (!strcmp(to, "anonymous")) {
        char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED) fail("mmap: %s", strerror(errno));
        memcpy(copy, code, bytes);
        if (mprotect(copy, bytes, PROT_READ | PROT_EXEC)) fail("mprotect: %s", strerror(errno));
        moved = mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, code);
    } else if (!strcmp(to, "shared")) {
        int memory = memfd_create("code", MFD_CLOEXEC);
        if (memory < 0) refuse("memfd_create: %s", strerror(errno));
        if (write(memory, code, bytes) != (ssize_t)bytes) fail("write: %s", strerror(errno));
        moved = mmap(code, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, memory, 0);
        close(memory);
    } else {
        fail("--moved wants anonymous or shared, not %s", to);
    }
    if (moved != code) fail("moving the code: %s", strerror(errno));
}
