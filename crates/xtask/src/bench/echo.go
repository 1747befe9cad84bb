// SPDX-License-Identifier: MIT OR Apache-2.0
// Answers each piece that it reads with the same piece: a goroutine for each connection.
package main

import (
	"fmt"
	"net"
)

func echo(connection net.Conn) {
	defer connection.Close()
	piece := make([]byte, 4096)
	for {
		n, err := connection.Read(piece)
		if err != nil {
			return
		}
		if _, err := connection.Write(piece[:n]); err != nil {
			return
		}
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go echo(connection)
	}
}
