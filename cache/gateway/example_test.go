package gateway_test

import (
	"log"
	"net"

	"github.com/goverbs/goverbs/cache/gateway"
)

// Memcached's protocol at port 11211, in front of a store. With a Server of package
// [github.com/goverbs/goverbs/cache/server], clients of both protocols see the same records.
func Example() {
	var store gateway.Store
	g, err := gateway.New(gateway.Config{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	l, err := net.Listen("tcp", ":11211")
	if err != nil {
		log.Fatal(err)
	}
	log.Print(g.Serve(l)) // until Shutdown or Close
}
