// SPDX-License-Identifier: MIT OR Apache-2.0
// wallscope-truth NAME [--flag value]…: the table of programs and their flags.
#include "truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void course_begin(void);

struct program {
    const char *name, *flags, *summary;
    void (*run)(void);
};

static const struct program PROGRAMS[] = {
    {"mix", "threads cpu-us sleep-us nap-us", "computing and sleeping in known shares", program_mix},
    {"turns", "threads", "two waits of fixed lengths in turn, in very many threads", program_turns},
    {"shares", "threads chunk-us", "four functions with 50/30/15/5 % of the CPU time", program_shares},
    {"instep", "hz", "two halves of a round that is as long as samples at --hz are apart",
     program_instep},
    {"bursts", "short-us cpu", "short, middle and long stretches on the CPU between waits",
     program_bursts},
    {"cover", "chunk-us", "twenty functions with uneven shares of the CPU time", program_cover},
    {"inject", "in kind delay-us", "three steps, one of them delayed by sleep, cpu or lock",
     program_inject},
    {"convoy", "threads hold-us sleep-us", "threads queueing for one mutex", program_convoy},
    {"disk", "dir", "fdatasync and O_DIRECT writes to a file in --dir", program_disk},
    {"faults", "dir megabytes cpu", "minor page fault storms and major faults from a file",
     program_faults},
    {"reasons", "dir", "a thread for each kind of wait that the system call does not tell",
     program_reasons},
    {"reclaim", "dir", "memory that has to be taken from written pages first, under a limit",
     program_reclaim},
    {"chain", "sleep-us compute-us", "a lock; its holder waits for another process",
     program_chain},
    {"hands", "", "a lock that passes through many hands while others wait for it", program_hands},
    {"held", "", "locks that nobody gives up, and others that only look alike", program_held},
    {"rpc", "backend-us compute-us", "a client waiting for a slow server over loopback",
     program_rpc},
    {"crowd", "threads cpu", "more busy threads than their one CPU can carry", program_crowd},
    {"throttled", "quota-us period-us rival", "a busy thread in a cgroup with a CPU quota",
     program_throttled},
    {"migrate", "sleep-us", "blocks that begin on one CPU and end on another", program_migrate},
    {"fixed", "units piece", "a fixed amount of computing; prints its time", program_fixed},
    {"micro", "count", "very many short blocks against one as long as all of them", program_micro},
    {"brief", "dir", "waits of a tenth of a millisecond for three things, and long ones", program_brief},
    {"span", "", "blocks that begin before, or end after, any recording", program_span},
    {"pingpong", "rounds piece cpu", "two threads on one CPU passing a byte through pipes",
     program_pingpong},
    {"short", "parallel compute-us sleep-us count", "threads that live a millisecond", program_short},
    {"rename", "", "a thread that changes its name half-way", program_rename},
    {"veil", "", "a process that other users may not look into from half-way on", program_veil},
    {"parked", "threads wake-ms", "very many threads that do nothing, or wake now and then", program_parked},
    {"execs", "rounds", "fork and exec chains, exec by a non-leader, vfork", program_execs},
    {"starts", "parallel compute-us", "processes that live some milliseconds, one after the other", program_starts},
    {"queue", "gap-us service-us", "a single-threaded server under Poisson load", program_queue},
    {"whatif", "prepare-us compact-us", "workers around a lock, and a function that may be faster",
     program_whatif},
    {"upstream", "upstream-us pause-us", "an event loop on a slow upstream beside parked workers",
     program_upstream},
    {"long-ago", "", "requests from before the recording, waiters for their answers, and parked workers",
     program_long_ago},
    {"aside", "", "a thread that asks, others that wait for the answers, and one with nobody to ask",
     program_aside},
    {"spin", "", "threads that spin on a lock, and one that yields all the time", program_spin},
    {"trouble", "case dir", "a process with one trouble, or none", program_trouble},
    {"lengths", "", "waits of known lengths, many short ones and few long ones", program_lengths},
    {"events", "", "page faults and writes in known numbers", program_events},
    {"plugins", "", "two libraries that take each other's place", program_plugins},
    {"calls", "hot forking", "functions entered and left in every way, with their lengths", program_calls},
    {"jit", "form phase-us link-to", "code made at run time, at one address, under many names", program_jit},
    {"userfault", "", "pages that a thread of the program itself brings in", program_userfault},
    {"uring", "dir", "waits in io_uring_enter for a disk, the network and a timer", program_uring},
    {"odd", "case spin-us block-us", "deep and odd stacks, computing and blocked", program_odd},
};
#define PROGRAM_COUNT (sizeof PROGRAMS / sizeof *PROGRAMS)
static const char COMMON[] = "seconds hold until-line linger moved";

static int option_count;
static char **options;

static const char *find_option(const char *name, bool *present) {
    *present = false;
    for (int i = 0; i < option_count; i++) {
        if (strncmp(options[i], "--", 2) || strcmp(options[i] + 2, name)) continue;
        *present = true;
        return i + 1 < option_count && strncmp(options[i + 1], "--", 2) ? options[i + 1] : NULL;
    }
    return NULL;
}

bool option_flag(const char *name) {
    bool present;
    find_option(name, &present);
    return present;
}

const char *option_text(const char *name, const char *otherwise) {
    bool present;
    const char *value = find_option(name, &present);
    return value ? value : otherwise;
}

double option_double(const char *name, double otherwise) {
    const char *value = option_text(name, NULL);
    if (!value) return otherwise;
    char *end;
    double number = strtod(value, &end);
    if (*end || number < 0) {
        fprintf(stderr, "wallscope-truth: --%s wants a number, not %s\n", name, value);
        exit(2);
    }
    return number;
}

long option_long(const char *name, long otherwise) {
    return (long)option_double(name, (double)otherwise);
}

static bool in_words(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length) {
        bool starts = at == words || at[-1] == ' ';
        if (starts && (at[length] == 0 || at[length] == ' ')) return true;
    }
    return false;
}

static void list(FILE *to) {
    fprintf(to, "usage: wallscope-truth NAME [--seconds S] [--hold] [--until-line] [--linger] [--moved TO] [flags]\n\n"
                "  --hold        after READY, wait for a line on stdin before the work begins\n"
                "  --until-line  work until a line on stdin instead of for --seconds\n"
                "  --linger      after the truth is printed, stay until stdin ends\n"
                "  --moved       first move the code to anonymous or shared memory\n\n");
    for (size_t i = 0; i < PROGRAM_COUNT; i++)
        fprintf(to, "  %-10s %s%s%s%s\n", PROGRAMS[i].name, PROGRAMS[i].summary,
                *PROGRAMS[i].flags ? " [" : "", PROGRAMS[i].flags, *PROGRAMS[i].flags ? "]" : "");
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--exec-child")) return execs_child(argc, argv);
    if (argc > 1 && !strcmp(argv[1], "--start-child")) return starts_child(argc, argv);
    if (argc < 2 || !strcmp(argv[1], "--help")) {
        list(argc < 2 ? stderr : stdout);
        return argc < 2 ? 2 : 0;
    }
    if (!strcmp(argv[1], "list")) {
        list(stdout);
        return 0;
    }
    for (size_t i = 0; i < PROGRAM_COUNT; i++) {
        const struct program *program = &PROGRAMS[i];
        if (strcmp(program->name, argv[1])) continue;
        option_count = argc - 2;
        options = argv + 2;
        for (int j = 0; j < option_count; j++) {
            const char *word = options[j];
            if (strncmp(word, "--", 2)) continue;
            if (in_words(COMMON, word + 2) || in_words(program->flags, word + 2)) continue;
            fprintf(stderr, "wallscope-truth: %s has no flag %s; see: wallscope-truth list\n",
                    program->name, word);
            return 2;
        }
        if (option_flag("moved")) move_own_code(option_text("moved", ""));
        course_begin();
        program->run();
        print_truth(program->name);
        return 0;
    }
    fprintf(stderr, "wallscope-truth: no program %s; see: wallscope-truth list\n", argv[1]);
    return 2;
}
