package server_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/goverbs/goverbs/cache/server"
)

// A cache of one gibibyte that keeps its records over a restart.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := server.Listen(ctx, "10.77.0.2:7481", server.Config{Memory: 1 << 30, Snapshot: "/var/lib/cache/records"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Serve(ctx); err != nil { // nil once ctx has ended
		log.Print(err)
	}
	n, err := s.Save()
	log.Print(n, " records saved: ", err)
}

// Two tenants at one address, each with a key and memory of its own.
func ExampleListenTenants() {
	ctx := context.Background()
	t, err := server.ListenTenants(ctx, "10.77.0.2:7481", []server.Tenant{
		{Name: "shop", Key: []byte("at least 16 bytes"), Config: server.Config{Memory: 512 << 20}},
		{Name: "search", Key: []byte("another 16 bytes"), Config: server.Config{Memory: 256 << 20}},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	log.Print(t.Serve(ctx))
}
