package stream_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// A server replies to a client, as it would over TCP.
func ExampleListen() {
	cm, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer cm.Close()
	listener, err := stream.Listen(cm, "10.77.0.2:7472", stream.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	conn, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	n, err := io.Copy(conn, conn)
	fmt.Println(n, err)
	// Prints: 5 <nil>
}

// A client of the server in the example of Listen.
func ExampleDial() {
	cm, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer cm.Close()
	conn, err := stream.Dial(context.Background(), cm, "10.77.0.2:7472", stream.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		log.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		log.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	fmt.Printf("%s %v\n", answer, err)
	// Prints: hello <nil>
}
