// SPDX-License-Identifier: MIT OR Apache-2.0

// A Go program that measures its own functions by the clock, in the way of the C programs.
//
//	truth mix [--seconds S]      goroutines that keep their thread: they compute, allocate, copy, ask
//	                             for the time, recurse, and sleep in the kernel
//	truth park [--seconds S]     goroutines that wait for each other: channel, mutex, select, timer,
//	                             network
//	truth collect [--seconds S]  goroutines that make garbage; tells the runtime's own figures of its
//	                             collections, by runtime/debug
//	truth fixed [--units N]      a fixed amount of computing; tells its time
//	truth fixed --piece N        pieces of N units until a line comes; tells when each ended
//
// Says READY and its process, waits for a line, works, tells its truth, stays until stdin ends.
// Written for Go 1.18 and later, without any package beyond the standard library.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

type threadTruth struct {
	Pid         int    `json:"pid"`
	Tid         int    `json:"tid"`
	Name        string `json:"name"`
	StartNs     int64  `json:"start_ns"`
	EndNs       int64  `json:"end_ns"`
	WorkWallNs  int64  `json:"work_wall_ns"`
	OnCPUNs     int64  `json:"on_cpu_ns"`
	RunDelayNs  int64  `json:"run_delay_ns"`
	Voluntary   int64  `json:"voluntary_switches"`
	Involuntary int64  `json:"involuntary_switches"`
	Operations  int64  `json:"operations"`
	Finished    bool   `json:"finished"`
}

type functionTruth struct {
	Pid        int    `json:"pid"`
	Tid        int    `json:"tid"`
	Name       string `json:"name"`
	Reason     string `json:"reason"`
	Calls      int64  `json:"calls"`
	WallNs     int64  `json:"wall_ns"`
	OnCPUNs    int64  `json:"on_cpu_ns"`
	RunDelayNs int64  `json:"run_delay_ns"`
}

type frameTruth struct {
	Name   string `json:"name"`
	Module string `json:"module"`
	Offset int64  `json:"offset"`
}

type chainTruth struct {
	Pid    int          `json:"pid"`
	Tid    int          `json:"tid"`
	Leaf   string       `json:"leaf"`
	State  string       `json:"state"`
	Frames []frameTruth `json:"frames"`
}

type truth struct {
	Program    string             `json:"program"`
	Executable string             `json:"executable"`
	Pid        int                `json:"pid"`
	ReleasedNs int64              `json:"released_ns"`
	EndedNs    int64              `json:"ended_ns"`
	Threads    []threadTruth      `json:"threads"`
	Functions  []functionTruth    `json:"functions"`
	Chains     []chainTruth       `json:"chains"`
	Extra      map[string]float64 `json:"extra"`
	PieceEnds  []int64            `json:"piece_ends"`
}

const (
	monotonic = 1
	threadCPU = 3
)

// clock asks the kernel itself, and without giving up the right to run Go code meanwhile.
func clock(which uintptr) int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, which, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func option(name string, otherwise float64) float64 {
	for i, argument := range os.Args {
		if argument == "--"+name && i+1 < len(os.Args) {
			if value, err := strconv.ParseFloat(os.Args[i+1], 64); err == nil {
				return value
			}
		}
	}
	return otherwise
}

// worker is a goroutine with a thread of its own, and what it measured.
type worker struct {
	thread    threadTruth
	functions map[string]*functionTruth
	chains    map[string]chainTruth
	random    *rand.Rand
	books     int
	gate      [2]int
	done      chan bool
	buffer    []byte
	objects   [][]byte
}

func newWorker(name string) *worker {
	w := &worker{
		functions: map[string]*functionTruth{},
		chains:    map[string]chainTruth{},
		random:    rand.New(rand.NewSource(int64(len(name)))),
		done:      make(chan bool),
		buffer:    make([]byte, 1<<20),
	}
	if err := syscall.Pipe(w.gate[:]); err != nil {
		panic(err)
	}
	ready := make(chan bool)
	go w.run(name, ready)
	<-ready
	return w
}

func (w *worker) run(name string, ready chan bool) {
	runtime.LockOSThread()
	w.thread.Name, w.thread.Pid, w.thread.Tid = name, os.Getpid(), syscall.Gettid()
	task := fmt.Sprintf("/proc/self/task/%d/", w.thread.Tid)
	if err := os.WriteFile(task+"comm", []byte(name), 0); err != nil {
		panic(err)
	}
	var err error
	if w.books, err = syscall.Open(task+"schedstat", syscall.O_RDONLY, 0); err != nil {
		panic(err)
	}
	w.thread.StartNs = clock(monotonic)
	ready <- true
	w.wait()
	began := clock(monotonic)
	onCPU, delay := w.schedstat()
	for clock(monotonic) < end {
		w.mixed()
		w.thread.Operations++
	}
	afterCPU, afterDelay := w.schedstat()
	w.thread.OnCPUNs, w.thread.RunDelayNs = afterCPU-onCPU, afterDelay-delay
	w.thread.WorkWallNs = clock(monotonic) - began
	w.thread.Finished = true
	w.done <- true
	w.wait()
}

// wait blocks the thread itself until something comes through its gate.
func (w *worker) wait() {
	var one [1]byte
	for {
		if _, err := syscall.Read(w.gate[0], one[:]); err != syscall.EINTR {
			return
		}
	}
}

func (w *worker) schedstat() (int64, int64) {
	var text [100]byte
	n, _, _ := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(w.books),
		uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), 0, 0, 0)
	var onCPU, delay int64
	fields := strings.Fields(string(text[:n]))
	if len(fields) == 3 {
		onCPU, _ = strconv.ParseInt(fields[0], 10, 64)
		delay, _ = strconv.ParseInt(fields[1], 10, 64)
	}
	return onCPU, delay
}

func (w *worker) measure(name, reason string, function func(*worker)) {
	of := w.functions[name]
	if of == nil {
		of = &functionTruth{Pid: w.thread.Pid, Tid: w.thread.Tid, Name: "main." + name, Reason: reason}
		w.functions[name] = of
	}
	_, delay := w.schedstat()
	// Wall time innermost: each of the other clocks is a system call.
	cpu := clock(threadCPU)
	wall := clock(monotonic)
	function(w)
	wall = clock(monotonic) - wall
	cpu = clock(threadCPU) - cpu
	_, after := w.schedstat()
	of.Calls++
	of.WallNs += wall
	of.OnCPUNs += cpu
	of.RunDelayNs += after - delay
}

// chain records the caller's stack, once for each function.
func (w *worker) chain(state string) {
	var addresses [256]uintptr
	n := runtime.Callers(2, addresses[:])
	frames := runtime.CallersFrames(addresses[:n])
	var names []frameTruth
	for {
		frame, more := frames.Next()
		names = append(names, frameTruth{Name: frame.Function, Module: "truth"})
		if !more {
			break
		}
	}
	leaf := names[0].Name
	if _, known := w.chains[leaf]; !known {
		w.chains[leaf] = chainTruth{w.thread.Pid, w.thread.Tid, leaf, state, names}
	}
}

// turn is small enough to be inlined wherever it is called.
func turn(total, i int) int {
	return total*31 + i*i ^ total>>3
}

//go:noinline
func spin(turns int) int {
	total := 0
	for i := 0; i < turns; i++ {
		total = turn(total, i)
	}
	return total
}

// some is about `us` of computing, never the same.
func (w *worker) some(us float64) int {
	return int(us * (0.5 + w.random.Float64()) * turns)
}

//go:noinline
func goHeavy(w *worker) {
	total := 0
	for i, n := 0, w.some(6000); i < n; i++ {
		total = turn(total, i)
	}
	sink = total
}

//go:noinline
func goLight(w *worker) {
	sink = spin(w.some(2000))
}

// goCopy spends its time in assembly that makes no frame.
//
//go:noinline
func goCopy(w *worker) {
	for i, n := 0, 20+w.random.Intn(40); i < n; i++ {
		copy(w.buffer[:1<<19], w.buffer[1<<19:])
	}
}

// goAllocate spends much of its time on the thread's own stack, where the runtime finds memory.
//
//go:noinline
func goAllocate(w *worker) {
	w.objects = w.objects[:0]
	for i, n := 0, 100+w.random.Intn(100); i < n; i++ {
		w.objects = append(w.objects, make([]byte, 16<<10))
	}
}

// goClock spends its time in the vDSO, on the thread's own stack.
//
//go:noinline
func goClock(w *worker) {
	for i, n := 0, 10000+w.random.Intn(20000); i < n; i++ {
		sink += int(time.Now().UnixNano())
	}
}

// key is called by assembly-free code of another package.
//
//go:noinline
func goKey(w *worker) bool {
	w.chain("on_cpu")
	sink = spin(w.some(100))
	return false
}

//go:noinline
func goCallback(w *worker) {
	for i := 0; i < 15; i++ {
		strings.IndexFunc("x", func(rune) bool { return goKey(w) })
	}
}

//go:noinline
func goNap(w *worker) {
	nap(2000 + w.random.Intn(4000))
}

func nap(us int) {
	t := syscall.NsecToTimespec(int64(us) * 1000)
	for syscall.Nanosleep(&t, &t) == syscall.EINTR {
	}
}

//go:noinline
func goBottom(w *worker) {
	w.chain("blocked")
	nap(1000 + w.random.Intn(2000))
}

// goDive outgrows the first stack of a goroutine.
//
//go:noinline
func goDive(w *worker, depth int) int {
	var room [64]int
	room[depth&63] = depth
	if depth == 0 {
		goBottom(w)
	} else {
		room[0] = goDive(w, depth-1)
	}
	return room[depth&63]
}

// step is what a worker does in turn: its function, and what that waits for.
type step struct {
	name, reason string
	run          func(*worker)
}

// called are steps that call C, in builds that have them.
var called []step

func (w *worker) mixed() {
	for _, s := range called {
		w.measure(s.name, s.reason, s.run)
	}
	w.measure("goHeavy", "", goHeavy)
	w.measure("goLight", "", goLight)
	w.measure("goCopy", "", goCopy)
	w.measure("goAllocate", "", goAllocate)
	w.measure("goClock", "", goClock)
	w.measure("goCallback", "", goCallback)
	w.measure("goNap", "timer", goNap)
	w.measure("goDive", "timer", func(w *worker) { goDive(w, 40) })
	if w.thread.Operations%30 == 29 {
		w.objects = nil
		runtime.GC()
	}
}

// parker is a goroutine without a thread of its own: it waits where the runtime knows.
type parker struct {
	name, reason    string
	waited, existed int64
	calls           int64
}

func (p *parker) run(wait func()) {
	began := clock(monotonic)
	for clock(monotonic) < end {
		before := clock(monotonic)
		wait()
		p.waited += clock(monotonic) - before
		p.calls++
		sink = spin(int(20 * turns))
	}
	p.existed = clock(monotonic) - began
}

//go:noinline
func parkReceive(from chan int) { <-from }

//go:noinline
func parkSend(to chan int) { to <- 1 }

//go:noinline
func parkSelect(a, b chan int) {
	select {
	case <-a:
	case <-b:
	}
}

//go:noinline
func parkLock(lock *sync.Mutex) {
	lock.Lock()
	lock.Unlock()
}

//go:noinline
func parkSleep() { time.Sleep(3 * time.Millisecond) }

//go:noinline
func parkRead(c net.Conn) {
	var one [1]byte
	c.Read(one[:])
}

// park makes one goroutine for each kind of wait, and those that end the waits.
func park() []*parker {
	var all []*parker
	var done sync.WaitGroup
	start := func(name, reason string, wait func()) {
		p := &parker{name: "main." + name, reason: reason}
		all = append(all, p)
		done.Add(1)
		go pprof.Do(context.Background(), pprof.Labels("what", name), func(context.Context) {
			p.run(wait)
			done.Done()
		})
	}
	stop := make(chan bool)
	every := func(d time.Duration, act func()) {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				time.Sleep(d)
				act()
			}
		}()
	}
	received, sent := make(chan int), make(chan int)
	chosen, never := make(chan int), make(chan int)
	var lock sync.Mutex
	here, there := net.Pipe()
	if listener, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		there, _ = net.Dial("tcp", listener.Addr().String())
		here, _ = listener.Accept()
	}
	start("parkReceive", "channel", func() { parkReceive(received) })
	every(4*time.Millisecond, func() { trySend(received) })
	start("parkSend", "channel", func() { parkSend(sent) })
	every(4*time.Millisecond, func() { tryReceive(sent) })
	start("parkSelect", "select", func() { parkSelect(chosen, never) })
	every(4*time.Millisecond, func() { trySend(chosen) })
	start("parkLock", "mutex", func() { parkLock(&lock) })
	every(time.Millisecond, func() {
		lock.Lock()
		time.Sleep(5 * time.Millisecond)
		lock.Unlock()
	})
	start("parkSleep", "timer", parkSleep)
	start("parkRead", "network", func() { parkRead(here) })
	every(4*time.Millisecond, func() { there.Write([]byte{1}) })
	done.Wait()
	close(stop)
	return all
}

func trySend(to chan int) {
	select {
	case to <- 1:
	case <-time.After(50 * time.Millisecond):
	}
}

func tryReceive(from chan int) {
	select {
	case <-from:
	case <-time.After(50 * time.Millisecond):
	}
}

// collect makes garbage, asks for some collections, and tells their number and the time that they stopped the
// world, as far as they ended in this time.
func collect(extra map[string]float64) {
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	var done sync.WaitGroup
	for i := 0; i < 4; i++ {
		done.Add(1)
		go func() {
			var kept [64][]*[64]byte
			for n := 0; clock(monotonic) < end; n++ {
				list := make([]*[64]byte, 1000)
				for j := range list {
					list[j] = new([64]byte)
				}
				kept[n%len(kept)] = list
			}
			runtime.KeepAlive(&kept)
			done.Done()
		}()
	}
	done.Wait()
	// It returns when none is under way, and none follows: each one that a recorder can see is counted.
	debug.SetGCPercent(-1)
	debug.ReadGCStats(&after)
	extra["pauses"] = float64(after.NumGC - before.NumGC)
	extra["paused_ns"] = float64(after.PauseTotal - before.PauseTotal)
}

// onOneCPU starts the program again where the kernel's count of queueing is right: of threads that
// are moved in their sleep, it takes a part of that for waiting for a CPU.
func onOneCPU() {
	if os.Getenv("TRUTH_PINNED") != "" {
		return
	}
	var all [128]uint64
	size, _, failed := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(all),
		uintptr(unsafe.Pointer(&all)))
	for i := range all[:size/8] {
		if all[i] == 0 || failed != 0 {
			continue
		}
		var one [128]uint64
		one[i] = all[i] & -all[i]
		runtime.LockOSThread()
		syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(one),
			uintptr(unsafe.Pointer(&one)))
		syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), "TRUTH_PINNED=1"))
		return
	}
}

func calibrate() float64 {
	best := int64(1 << 62)
	for i := 0; i < 5; i++ {
		began := clock(threadCPU)
		sink = spin(200000)
		if took := clock(threadCPU) - began; took < best {
			best = took
		}
	}
	return 200000 / (float64(best) / 1000)
}

var (
	end   int64
	turns float64
	sink  int
)

// pieces works in pieces of n units until the channel is closed, and tells when each ended.
func pieces(n int, closed chan struct{}) []int64 {
	var ends []int64
	for {
		select {
		case <-closed:
			return ends
		default:
		}
		for i := 0; i < n; i++ {
			sink += spin(200000)
		}
		ends = append(ends, clock(monotonic))
	}
}

func main() {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	var workers []*worker
	switch mode {
	case "mix":
		onOneCPU()
		// As many as there are goroutines: none waits for the right to run Go code.
		runtime.GOMAXPROCS(8)
		debug.SetGCPercent(-1)
		turns = calibrate()
		for _, name := range []string{"go-mix-0", "go-mix-1"} {
			workers = append(workers, newWorker(name))
		}
	case "park", "fixed":
		turns = calibrate()
	case "collect":
		// The first collections are those of the start.
		runtime.GC()
	default:
		fmt.Fprintln(os.Stderr, "usage: truth mix|park|collect|fixed [--seconds S] [--units N]")
		os.Exit(2)
	}
	stdin := bufio.NewReader(os.Stdin)
	fmt.Println("READY", os.Getpid())
	stdin.ReadString('\n')
	told := truth{
		Program:    "go",
		Executable: filepath.Base(os.Args[0]),
		Pid:        os.Getpid(),
		ReleasedNs: clock(monotonic),
		Threads:    []threadTruth{},
		Functions:  []functionTruth{},
		Chains:     []chainTruth{},
		Extra:      map[string]float64{},
		PieceEnds:  []int64{},
	}
	end = told.ReleasedNs + int64(option("seconds", 3)*1e9)
	switch mode {
	case "mix":
		for _, w := range workers {
			syscall.Write(w.gate[1], []byte("g"))
		}
		for _, w := range workers {
			<-w.done
			told.Threads = append(told.Threads, w.thread)
			for _, f := range w.functions {
				told.Functions = append(told.Functions, *f)
			}
			for _, c := range w.chains {
				told.Chains = append(told.Chains, c)
			}
		}
	case "park":
		for _, p := range park() {
			told.Extra[p.name+" waited"] = float64(p.waited)
			told.Extra[p.name+" existed"] = float64(p.existed)
		}
	case "collect":
		collect(told.Extra)
	case "fixed":
		runtime.LockOSThread()
		if piece := int(option("piece", 0)); piece > 0 {
			line := make(chan struct{})
			go func() {
				stdin.ReadString('\n')
				close(line)
			}()
			told.PieceEnds = pieces(piece, line)
			break
		}
		cpu := clock(threadCPU)
		for i := 0; i < int(option("units", 1000)); i++ {
			sink += spin(200000)
		}
		told.Extra["cpu_ns"] = float64(clock(threadCPU) - cpu)
		told.Extra["wall_ns"] = float64(clock(monotonic) - told.ReleasedNs)
	}
	told.EndedNs = clock(monotonic)
	line, _ := json.Marshal(told)
	fmt.Println(string(line))
	// Until nobody is interested any more.
	for {
		if _, err := stdin.ReadByte(); err != nil {
			return
		}
	}
}
