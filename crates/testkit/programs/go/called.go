//go:build cgo && called

// A step in which Go calls C, and C calls Go.

package main

/*
extern int goStep(int);

static __attribute__((noinline)) int called_steps(int turns, int times) {
	int total = 0;
	for (int i = 0; i < times; i++) total += goStep(turns);
	return total;
}
*/
import "C"

func init() { called = goCalled }

//export goStep
func goStep(turns C.int) C.int { return C.int(spin(int(turns))) }

//go:noinline
func goCalled(w *worker) {
	const times = 20
	sink = int(C.called_steps(C.int(w.some(3000)/times), times))
}
