//go:build cgo && called

// Steps in which Go calls C, and C computes, waits, or calls Go.

package main

/*
#include <time.h>

extern int goStep(int);

static __attribute__((noinline)) int called_steps(int turns, int times) {
	int total = 0;
	for (int i = 0; i < times; i++) total += goStep(turns);
	return total;
}

static __attribute__((noinline)) unsigned c_spin(unsigned turns) {
	unsigned total = 0;
	for (unsigned i = 0; i < turns; i++) {
		total = total * 31 + i;
		__asm__ volatile("" : "+r"(total));
	}
	return total;
}

static __attribute__((noinline)) void c_nap(int us) {
	struct timespec t = {0, us * 1000};
	while (nanosleep(&t, &t)) continue;
}
*/
import "C"

func init() {
	called = []step{
		{"goCalled", "", goCalled},
		{"goWorkInC", "", goWorkInC},
		{"goWaitInC", "timer", goWaitInC},
	}
}

//export goStep
func goStep(turns C.int) C.int { return C.int(spin(int(turns))) }

//go:noinline
func goCalled(w *worker) {
	const times = 20
	sink = int(C.called_steps(C.int(w.some(3000)/times), times))
}

//go:noinline
func goWorkInC(w *worker) { sink = int(C.c_spin(C.uint(w.some(2000)))) }

//go:noinline
func goWaitInC(w *worker) { C.c_nap(C.int(1000 + w.random.Intn(1000))) }
