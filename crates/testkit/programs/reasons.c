// SPDX-License-Identifier: MIT OR Apache-2.0
// One thread for each thing to wait for that the system call alone does not tell: each wait in a
// function of its own, so that the reason of all its blocked time is known.
#include "uring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_NS 3000000

// A file of the given size with no name left, on the disk that holds --dir.
static int nameless_file(size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/wallscope-truth-XXXXXX", option_text("dir", "."));
    int fd = mkstemp(path);
    CHECK(fd >= 0, "no file can be made at %s; choose another folder with --dir", path);
    unlink(path);
    char *block = calloc(1, bytes);
    CHECK(block && write(fd, block, bytes) == (ssize_t)bytes && !fsync(fd), "no room for %s", path);
    free(block);
    return fd;
}

// ---- a lock of the kernel: the address space, held while pages are made ----

#define POPULATED (64u << 20)

NAMED void reason_kernel_lock(char *page) {
    CHECK(!mprotect(page, 4096, PROT_READ) && !mprotect(page, 4096, PROT_READ | PROT_WRITE),
          "mprotect failed");
}

// In a process of its own, so that nobody else meets that lock.
static bool *enough; // seen by all processes

static bool not_yet(void) { return !__atomic_load_n(enough, __ATOMIC_ACQUIRE); }

static void *populate(void *argument) {
    (void)argument;
    pthread_setname_np(pthread_self(), "r-populate");
    struct thread_truth *row = thread_truth_new("r-populate");
    struct mark since = mark_now();
    while (not_yet()) {
        char *memory = mmap(NULL, POPULATED, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        CHECK(memory != MAP_FAILED, "no memory");
        munmap(memory, POPULATED);
        sleep_ns(PAUSE_NS);
    }
    thread_truth_end(row, &since);
    return NULL;
}

static void kernel_lock_process(int gate) {
    char byte;
    pthread_setname_np(pthread_self(), "r-klock");
    struct thread_truth *row = thread_truth_new("r-klock");
    struct function_truth *truth = function_truth_new("reason_kernel_lock", "kernel_lock");
    if (read(gate, &byte, 1) != 1) _exit(0);
    struct mark since = mark_now();
    pthread_t other;
    char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && !pthread_create(&other, NULL, populate, NULL), "no memory");
    while (not_yet()) {
        MEASURE(truth, reason_kernel_lock(page + 4096));
        sleep_ns(PAUSE_NS / 3);
        row->operations++;
    }
    pthread_join(other, NULL);
    thread_truth_end(row, &since);
    _exit(0);
}

// ---- a unix socket: this machine, not the network ----

static int pair[2];

NAMED bool reason_unix_socket(int fd) {
    char byte;
    return recv(fd, &byte, 1, 0) == 1;
}

static void unix_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_unix_socket", "pipe");
    bool open = true;
    while (open) {
        MEASURE(truth, open = reason_unix_socket(pair[0]));
        self->truth->operations++;
    }
}

static void unix_peer_run(struct worker *self) {
    while (!stopping()) {
        sleep_ns(jitter(&self->random, PAUSE_NS));
        CHECK(send(pair[1], "x", 1, 0) == 1, "the socket is gone");
    }
    shutdown(pair[1], SHUT_RDWR);
}

// ---- a timer behind a descriptor ----

NAMED void reason_timerfd(int fd) {
    u64 count;
    CHECK(read(fd, &count, sizeof count) == sizeof count, "timerfd read failed");
}

static void timerfd_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_timerfd", "timer");
    struct itimerspec every = {{0, PAUSE_NS}, {0, PAUSE_NS}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    CHECK(fd >= 0 && !timerfd_settime(fd, 0, &every, NULL), "no timerfd");
    while (!stopping()) {
        MEASURE(truth, reason_timerfd(fd));
        self->truth->operations++;
    }
}

// ---- poll ----

NAMED void reason_poll(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    CHECK(poll(&one, 1, PAUSE_NS / 1000000) == 0, "poll failed");
}

static void poll_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_poll", "poll");
    int ends[2];
    CHECK(!pipe(ends), "no pipe");
    while (!stopping()) {
        MEASURE(truth, reason_poll(ends[0]));
        self->truth->operations++;
    }
}

// ---- a lock on a file, through two open files ----

static char lock_path[64];

static int lock_file_open(void) {
    int fd = open(lock_path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, "the lock file cannot be opened");
    return fd;
}
static void lock_file_set(int fd, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    CHECK(!fcntl(fd, F_OFD_SETLKW, &lock), "fcntl lock failed");
}

NAMED void reason_file_lock(int fd) { lock_file_set(fd, F_WRLCK); KEEP_FRAME(); }

static void file_lock_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_file_lock", "lock");
    int fd = lock_file_open();
    while (!stopping()) {
        MEASURE(truth, reason_file_lock(fd));
        lock_file_set(fd, F_UNLCK);
        sleep_ns(jitter(&self->random, PAUSE_NS / 3));
        self->truth->operations++;
    }
}

static void file_holder_run(struct worker *self) {
    int fd = lock_file_open();
    while (!stopping()) {
        lock_file_set(fd, F_WRLCK);
        sleep_ns(jitter(&self->random, PAUSE_NS));
        lock_file_set(fd, F_UNLCK);
        sleep_ns(jitter(&self->random, PAUSE_NS / 3));
    }
}

// ---- a child that borrowed the address space ----

NAMED int reason_vfork(void) {
    int child = vfork();
    if (!child) {
        struct timespec pause = {0, PAUSE_NS};
        prctl(PR_SET_NAME, "r-vforked"); // its own time is not the parent's
        nanosleep(&pause, NULL);
        _exit(0);
    }
    return child;
}

static void vfork_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_vfork", "child");
    int child = 0;
    while (!stopping()) {
        MEASURE(truth, child = reason_vfork());
        CHECK(child > 0 && waitpid(child, NULL, 0) == child, "vfork failed");
        self->truth->operations++;
    }
}

// ---- a fault on the way through a system call ----

#define COLD (16u << 20)

NAMED void reason_copy_fault(int sink, const char *cold, u64 *random) {
    for (int i = 0; i < 32; i++)
        CHECK(pwrite(sink, cold + random_next(random) % (COLD / 4096) * 4096, 4096, 0) == 4096,
              "pwrite failed");
}

static void copy_fault_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_copy_fault", "page_fault");
    int fd = nameless_file(COLD), sink = memfd_create("sink", MFD_CLOEXEC);
    CHECK(sink >= 0, "no memfd");
    while (!stopping()) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        const char *cold = mmap(NULL, COLD, PROT_READ, MAP_SHARED, fd, 0);
        CHECK(cold != MAP_FAILED, "the file cannot be mapped");
        madvise((void *)cold, COLD, MADV_RANDOM);
        MEASURE(truth, reason_copy_fault(sink, cold, &self->random));
        munmap((void *)cold, COLD);
        self->truth->operations++;
    }
}

// ---- a stop signal, in a process of its own; and the wait for it ----

static int stopped_pid;

NAMED void reason_stopped(void) { raise(SIGSTOP); KEEP_FRAME(); }

static void stopped_process(void) {
    struct thread_truth *row = thread_truth_new("r-stopped");
    pthread_setname_np(pthread_self(), "r-stopped");
    struct function_truth *truth = function_truth_new("reason_stopped", "stopped");
    raise(SIGSTOP); // before READY, so not told
    struct mark since = mark_now();
    while (not_yet()) {
        MEASURE(truth, reason_stopped());
        row->operations++;
    }
    thread_truth_end(row, &since);
    _exit(0);
}

NAMED bool reason_wait(int pid) {
    int status;
    return waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
}

static void stopper_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_wait", "child");
    bool alive = true;
    kill(stopped_pid, SIGCONT);
    while (alive) {
        MEASURE(truth, alive = reason_wait(stopped_pid));
        sleep_ns(jitter(&self->random, PAUSE_NS));
        if (stopping()) __atomic_store_n(enough, true, __ATOMIC_RELEASE);
        if (alive) kill(stopped_pid, SIGCONT);
        self->truth->operations++;
    }
}

// ---- the other end of a FIFO, known by its path alone ----

static char fifo_path[64];
static bool fifo_done;

NAMED int reason_fifo(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    KEEP_FRAME();
    return fd;
}

static void fifo_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_fifo", "pipe");
    int fd = -1;
    while (!stopping()) {
        MEASURE(truth, fd = reason_fifo(fifo_path));
        CHECK(fd >= 0 && !close(fd), "the FIFO cannot be opened");
        self->truth->operations++;
    }
    __atomic_store_n(&fifo_done, true, __ATOMIC_RELEASE);
}

static void fifo_peer_run(struct worker *self) {
    while (!__atomic_load_n(&fifo_done, __ATOMIC_ACQUIRE)) {
        sleep_ns(jitter(&self->random, PAUSE_NS));
        // Refused where nobody waits for it.
        int fd = open(fifo_path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0) close(fd);
    }
}

// ---- a datagram ----

static int udp[2];
static bool udp_done;

static void udp_open(void) {
    struct sockaddr_in at[2];
    socklen_t length = sizeof at[0];
    for (int i = 0; i < 2; i++) {
        at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        udp[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        CHECK(udp[i] >= 0 && !bind(udp[i], (struct sockaddr *)&at[i], length) &&
                  !getsockname(udp[i], (struct sockaddr *)&at[i], &length),
              "no datagram socket on loopback");
    }
    for (int i = 0; i < 2; i++)
        CHECK(!connect(udp[i], (struct sockaddr *)&at[!i], length), "connect failed");
    extra_truth_set("udp_fd", udp[0]);
    extra_truth_set("udp_peer_port", ntohs(at[1].sin_port));
}

NAMED void reason_udp(int fd) {
    char byte;
    CHECK(recv(fd, &byte, 1, 0) == 1, "no datagram");
}

static void udp_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_udp", "network");
    while (!stopping()) {
        MEASURE(truth, reason_udp(udp[0]));
        self->truth->operations++;
    }
    __atomic_store_n(&udp_done, true, __ATOMIC_RELEASE);
}

static void udp_peer_run(struct worker *self) {
    while (!__atomic_load_n(&udp_done, __ATOMIC_ACQUIRE)) {
        sleep_ns(jitter(&self->random, PAUSE_NS));
        CHECK(send(udp[1], "x", 1, 0) == 1, "no datagram can be sent");
    }
}

// ---- a completion of io_uring ----

static struct uring uring;
static int uring_file, uring_told;

NAMED void reason_uring(u64 ns) {
    struct __kernel_timespec pause = {.tv_nsec = (long long)ns};
    uring_complete(&uring, (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .addr = (u64)&pause, .len = 1});
    KEEP_FRAME();
}

// Done by a thread that the kernel makes for it in this process.
NAMED void reason_uring_sync(int fd) {
    uring_complete(&uring, (struct io_uring_sqe){.opcode = IORING_OP_FSYNC, .fd = fd});
    KEEP_FRAME();
}

// Waits for the eventfd that the kernel writes to when a request is complete.
NAMED void reason_uring_eventfd(u64 ns) {
    struct __kernel_timespec pause = {.tv_nsec = (long long)ns};
    u64 count;
    int result;
    uring_submit(&uring, (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .addr = (u64)&pause, .len = 1});
    while (!uring_is_complete(&uring))
        CHECK(read(uring_told, &count, sizeof count) > 0 || errno == EINTR, "no eventfd");
    uring_wait(&uring, &result);
    KEEP_FRAME();
}

static void uring_run(struct worker *self) {
    struct function_truth *truth = function_truth_new("reason_uring", "timer");
    struct function_truth *sync = function_truth_new("reason_uring_sync", "disk");
    struct function_truth *told = function_truth_new("reason_uring_eventfd", "timer");
    extra_truth_set("uring", 1);
    uring_told = eventfd(0, EFD_CLOEXEC);
    CHECK(!syscall(SYS_io_uring_register, uring.fd, IORING_REGISTER_EVENTFD, &uring_told, 1), "no eventfd");
    while (!stopping()) {
        MEASURE(truth, reason_uring(jitter(&self->random, PAUSE_NS)));
        CHECK(pwrite(uring_file, &self->random, sizeof self->random, 0) > 0, "no room on the disk");
        MEASURE(sync, reason_uring_sync(uring_file));
        MEASURE(told, reason_uring_eventfd(jitter(&self->random, PAUSE_NS)));
        self->truth->operations++;
    }
}

// ---- a cgroup that is frozen, with a process of its own in it ----

static char frozen_folder[128];
static const char *freeze_file, *freeze_word, *thaw_word;

static bool frozen_write(const char *name, const char *text) {
    char path[192];
    snprintf(path, sizeof path, "%s/%s", frozen_folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return written;
}

// In the first version of cgroups and in the second.
static bool frozen_folder_make(void) {
    static const char *const WAYS[][4] = {
        {"/sys/fs/cgroup", "cgroup.freeze", "1", "0"},
        {"/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"},
        {"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"},
    };
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        snprintf(frozen_folder, sizeof frozen_folder, "%s/wallscope-frozen-%d", WAYS[i][0], getpid());
        if (mkdir(frozen_folder, 0755)) continue;
        freeze_file = WAYS[i][1], freeze_word = WAYS[i][2], thaw_word = WAYS[i][3];
        if (frozen_write(freeze_file, thaw_word)) return true;
        rmdir(frozen_folder);
    }
    return false;
}

static void frozen_folder_remove(void) {
    for (int i = 0; i < 100 && rmdir(frozen_folder) && errno == EBUSY; i++) sleep_ns(10000000);
}

NAMED void reason_frozen(u64 units) { SPIN(units); }

static void frozen_process(int gate) {
    char byte, number[16];
    snprintf(number, sizeof number, "%d", getpid());
    CHECK(frozen_write("cgroup.procs", number), "the cgroup cannot be entered");
    pthread_setname_np(pthread_self(), "r-frozen");
    struct thread_truth *row = thread_truth_new("r-frozen");
    struct function_truth *truth = function_truth_new("reason_frozen", "stopped");
    u64 units = 50 * units_per_us();
    if (read(gate, &byte, 1) != 1) _exit(0);
    struct mark since = mark_now();
    while (not_yet()) {
        MEASURE(truth, reason_frozen(units));
        row->operations++;
    }
    thread_truth_end(row, &since);
    _exit(0);
}

static volatile sig_atomic_t freezer_orphaned;
static void freezer_told(int number) { freezer_orphaned = number; }

// A process of its own: whatever becomes of the others, none stays frozen.
static void freezer_process(int frozen) {
    struct sigaction told = {.sa_handler = freezer_told};
    u64 random = 11;
    sigaction(SIGTERM, &told, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    while (not_yet() && !freezer_orphaned && getppid() != 1) {
        frozen_write(freeze_file, freeze_word);
        sleep_ns(jitter(&random, 2 * PAUSE_NS));
        frozen_write(freeze_file, thaw_word);
        sleep_ns(PAUSE_NS / 3);
    }
    if (not_yet()) {
        kill(frozen, SIGKILL);
        frozen_folder_remove();
    }
    _exit(0);
}

void program_reasons(void) {
    int file = memfd_create("lock", 0);
    CHECK(file >= 0 && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "no memfd or no socket pair");
    snprintf(lock_path, sizeof lock_path, "/proc/self/fd/%d", file);
    enough = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(enough != MAP_FAILED, "no memory");
    stopped_pid = fork();
    CHECK(stopped_pid >= 0, "fork failed");
    if (!stopped_pid) stopped_process();
    CHECK(reason_wait(stopped_pid), "the child did not stop");
    int gate[2], others[3] = {stopped_pid, 0, 0}, count = 2;
    CHECK(!pipe(gate), "no pipe");
    others[1] = fork();
    CHECK(others[1] >= 0, "fork failed");
    if (!others[1]) {
        close(gate[1]);
        kernel_lock_process(gate[0]);
    }
    int freezer = 0;
    if (frozen_folder_make()) {
        int frozen = others[count++] = fork();
        CHECK(frozen >= 0, "fork failed");
        if (!frozen) {
            close(gate[1]);
            frozen_process(gate[0]);
        }
        freezer = fork();
        CHECK(freezer >= 0, "fork failed");
        if (!freezer) freezer_process(frozen);
    } else {
        fputs("wallscope-truth: left out the freezer: no cgroup can be made\n", stderr);
    }
    snprintf(fifo_path, sizeof fifo_path, "/tmp/wallscope-fifo-%d", getpid());
    CHECK(!mkfifo(fifo_path, 0600), "no FIFO can be made at %s", fifo_path);
    udp_open();
    char path[4096];
    snprintf(path, sizeof path, "%s/wallscope-uring-%d", option_text("dir", "."), getpid());
    uring_file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    unlink(path);
    CHECK(uring_file >= 0, "no file can be made in %s; choose another with --dir", option_text("dir", "."));
    if (uring_open(&uring)) worker_start("r-uring", uring_run, NULL);
    worker_start("r-fifo", fifo_run, NULL);
    worker_start("r-fifopeer", fifo_peer_run, NULL);
    worker_start("r-udp", udp_run, NULL);
    worker_start("r-udp-peer", udp_peer_run, NULL);
    worker_start("r-unix", unix_run, NULL);
    worker_start("r-unix-peer", unix_peer_run, NULL);
    worker_start("r-timerfd", timerfd_run, NULL);
    worker_start("r-poll", poll_run, NULL);
    worker_start("r-filelock", file_lock_run, NULL);
    worker_start("r-fileholder", file_holder_run, NULL);
    worker_start("r-vfork", vfork_run, NULL);
    worker_start("r-copyfault", copy_fault_run, NULL);
    worker_start("r-stopper", stopper_run, NULL);
    ready_and_wait(others, count);
    CHECK(write(gate[1], "gg", (size_t)count - 1) == count - 1, "the children are gone");
    wait_for_end(false);
    workers_settle();
    unlink(fifo_path);
    for (int i = 1; i < count; i++) waitpid(others[i], NULL, 0);
    if (freezer) {
        waitpid(freezer, NULL, 0);
        frozen_folder_remove();
    }
}
