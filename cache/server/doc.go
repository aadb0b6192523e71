// Package server is the server of the cache: it keeps records in memory that clients
// READ, tells them where, and carries out what changes them.
//
//	s, err := server.Listen(ctx, "10.77.0.2:7481", server.Config{Memory: 1 << 30})
//	...
//	err = s.Serve(ctx) // until ctx ends
//	err = s.Close()
//
// The memory of records and of the map is registered for READs by others and for nothing
// else, in a protection domain that holds no other memory. A client has two queue pairs:
// one in that domain for its READs, which the server's program never sees, and one for
// messages.
//
// Clients with an initiator of package [github.com/goverbs/goverbs/dc] have none here: they READ through a target
// of the server's (DC in [Config]), in the same domain, and their messages come by TCP.
//
// Several tenants can share an address. Each has a key and a server of its own:
//
//	t, err := server.ListenTenants(ctx, "10.77.0.2:7481", []server.Tenant{{Name: "shop", Key: key}}, nil)
//	...
//	err = t.Serve(ctx)
//
// The server itself is a store for [github.com/goverbs/goverbs/cache/gateway].
package server
