// SPDX-License-Identifier: MIT OR Apache-2.0
// Pages that a thread of the program itself brings in, by userfaultfd. The memory right above that thread's
// stack is such pages, and only that thread can bring them in. A profiler that reads beyond the stack in the
// context of that thread therefore waits for ever.
#include "truth.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 16384ul
#define STACK (64ul << 10)

static int faults = -1;
static char *stack, *lazy;
static bool touched_all;
static ucontext_t outside, inside;

NAMED void userfault_touch(volatile char *page) { *page = 1; }
NAMED void userfault_delay(void) { sleep_ns(4000000); KEEP_FRAME(); }

static void touch_run(struct worker *self) {
    struct function_truth *touch = function_truth_new("userfault_touch", "page_fault");
    // The first page, which lies next to the stack, stays as it is.
    for (u64 i = 1; i < PAGES && !stopping(); i++) {
        MEASURE(touch, userfault_touch(lazy + i * PAGE));
        self->truth->operations++;
    }
    __atomic_store_n(&touched_all, true, __ATOMIC_RELEASE);
}

static void serve(void) {
    static char page[PAGE];
    while (!__atomic_load_n(&touched_all, __ATOMIC_ACQUIRE)) {
        struct pollfd asked = {.fd = faults, .events = POLLIN};
        struct uffd_msg message;
        if (poll(&asked, 1, 20) <= 0) continue;
        if (read(faults, &message, sizeof message) != sizeof message) continue;
        userfault_delay();
        struct uffdio_copy copy = {
            .dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (u64)page, .len = PAGE};
        CHECK(!ioctl(faults, UFFDIO_COPY, &copy), "a page cannot be brought in");
    }
}

static void serve_run(struct worker *self) {
    (void)self;
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = STACK;
    inside.uc_link = &outside;
    makecontext(&inside, serve, 0);
    swapcontext(&outside, &inside);
}

void program_userfault(void) {
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API};
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) refuse("userfaultfd is not allowed here");
    stack = mmap(NULL, STACK + PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED, "no memory");
    lazy = stack + STACK;
    struct uffdio_register those = {
        .range = {(u64)lazy, PAGES * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(faults, UFFDIO_REGISTER, &those)) refuse("userfaultfd cannot be used here");
    worker_start("uf-serve", serve_run, NULL);
    worker_start("uf-touch", touch_run, NULL);
    ready_and_wait(NULL, 0);
    wait_for_end(false);
    workers_settle();
}
