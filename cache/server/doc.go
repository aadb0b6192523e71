// Package server is the server of the cache. It keeps records in memory that clients READ,
// tells clients where the records are, and carries out their changes.
//
//	s, err := server.Listen(ctx, "10.77.0.2:7481", server.Config{Memory: 1 << 30})
//	...
//	err = s.Serve(ctx) // until ctx ends
//	err = s.Close()
//
// The memory of records and of the map is registered for remote READs only, in a protection
// domain that holds no other memory. A client has two queue pairs: one in that domain for
// its READs, which the server's program never sees, and one for messages.
//
// Clients with an initiator of package [github.com/goverbs/goverbs/dc] have no queue pairs
// here. They READ through a target of the server (DC in [Config]) in the same domain, and
// send their messages by TCP.
//
// Several tenants can share an address. Each has a key and a server of its own:
//
//	t, err := server.ListenTenants(ctx, "10.77.0.2:7481", []server.Tenant{{Name: "shop", Key: key}}, nil)
//	...
//	err = t.Serve(ctx)
//
// A [Server] is also a store for [github.com/goverbs/goverbs/cache/gateway].
package server
