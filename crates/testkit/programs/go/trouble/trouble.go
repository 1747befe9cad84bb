// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A Go service with a trouble: `mutex`, handlers that queue for one lock; `garbage`, a heap that is collected most of
// the time; `channel`, tasks that send to a slow receiver. And a healthy one: `web PORT` answers at once.
package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

type shared struct {
	lock   sync.Mutex
	values map[int]int
}

//go:noinline
func (s *shared) Get(key int) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	for end := time.Now().Add(500 * time.Microsecond); time.Now().Before(end); {
		key = key*31 + 7
	}
	return s.values[key&1023]
}

func handlers() {
	s := &shared{values: map[int]int{}}
	for n := 0; n < 12; n++ {
		go func(key int) {
			for {
				key = s.Get(key)
				time.Sleep(200 * time.Microsecond)
			}
		}(n)
	}
	select {}
}

type node struct {
	left, right *node
	value       [4]int
}

//go:noinline
func grow(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: grow(depth - 1), right: grow(depth - 1)}
}

var kept *node

func garbage() {
	debug.SetGCPercent(5)
	kept = grow(20)
	for {
		kept.left.left = grow(14)
	}
}

//go:noinline
func produce(rows chan<- int) {
	for n := 0; ; n++ {
		rows <- n
	}
}

//go:noinline
func store(row int) {
	time.Sleep(3 * time.Millisecond)
}

func channel() {
	rows := make(chan int)
	for n := 0; n < 4; n++ {
		go produce(rows)
	}
	for row := range rows {
		store(row)
	}
}

func answer(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "ok")
}

func main() {
	switch os.Args[1] {
	case "web":
		http.HandleFunc("/", answer)
		panic(http.ListenAndServe("127.0.0.1:"+os.Args[2], nil))
	case "garbage":
		garbage()
	case "channel":
		channel()
	default:
		handlers()
	}
}
