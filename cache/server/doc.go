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
//
// # Guarantees
//
// Those of package [github.com/goverbs/goverbs/cache], and:
//
//   - [Listen] reserves the address, checks the configuration, registers the memory and loads the
//     snapshot. Its ctx is for this only. Clients that connect wait until Serve is called.
//   - [Server.Serve] returns when its ctx ends or the listener fails, after all clients were cut off.
//   - An orderly end has this order: Drain of a cluster's Member, Shutdown of a gateway, the end of
//     Serve's ctx, [Server.Save] if there is a snapshot, Close of the Member, [Server.Close]. After a
//     Close alone the records are gone.
//   - No client is admitted, and no RDMA object made for it, before it has proved the key, if there
//     is one.
//   - A client that does not release freed memory within the lease is cut off by destroying the
//     queue pair, or the target, by which it READs. Memory is never reused earlier.
//   - A client can change records only by messages, which the server checks. A malformed one ends
//     that client's connection.
//
// # Costs
//
// [Config.Memory] is registered at once, and the map besides: 56 to 112 bytes for each record. A
// client costs some 60 KiB, one descriptor, and no goroutine while it is quiet. One lock guards the
// store, so changes are executed one after the other; READs involve no CPU of the server. Each
// change is sent to each client that has a map, in 20 bytes.
package server
