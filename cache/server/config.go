package server

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// logPause is the least time between two log lines with the same message.
const logPause = time.Second

// Config configures a server. The zero value is fine to try it out.
type Config struct {
	// Device is the name of the RDMA device; empty means that of the address to listen
	// on. Clients reach it by the GID of the address that they connect to, and reach the
	// target by the GID of the address to listen on. If the device has no GID of that
	// address, because it belongs to another network, any of its GIDs is used.
	Device string
	// Memory is for records, in bytes, in multiples of 64 KiB; 0 means 64 MiB. The map needs additional memory,
	// which is registered too: 56 to 112 bytes for each record, and half as much again
	// while the map doubles.
	Memory int
	// Pages says whether the memory uses huge pages.
	Pages verbs.PageSize
	// MaxValue is the longest value in bytes, at most 64 MiB. 0 means that the longest record, with its header and
	// the longest key, has 2 MiB, or a quarter of Memory if that is less.
	MaxValue int
	// Lease is how long a client may take to say that it is done with freed memory; after
	// that it is cut off. 0 means five seconds.
	Lease time.Duration
	// Log is how many changes are kept for slow clients. A client that is further behind
	// gets the whole map again. 0 means 65536.
	Log int
	// Snapshot is the file to which [Server.Save] writes the records, and from which
	// Listen loads them; the file is then gone. If Snapshot is empty, every life of the
	// server begins without records.
	Snapshot string
	// Key has at least 16 bytes. Clients have to prove that they have it. With nil any
	// client is admitted.
	Key []byte
	// Names are the server's addresses as its clients write them, such as "cache1:7481",
	// beside the IP address. A client that has written another one is refused, so that none
	// reads and writes here what belongs to another server, to which the name may lead by
	// mistake. Without names a client is refused if it has connected to another address
	// than the one at which its connection arrives, as through a relay.
	Names []string
	// MaxClients is how many clients may be connected, or wait to connect by RDMA; 0 means
	// any number. It applies only if there is a key: without one any client could use up
	// all places.
	MaxClients int
	// DC lets clients without a queue pair here READ, through a dynamically connected
	// target ([github.com/goverbs/goverbs/cache.Config]'s DC).
	DC DCConfig
	// Connect says how connections behave.
	Connect verbs.ConnectConfig
	// PollFor is for how long, after the last request, the server polls for requests
	// before it waits for an event, as in [verbs.CQConfig]: 0 means not at all. It takes
	// the time of an idle CPU.
	PollFor time.Duration
	// Logger is told of clients that end with an error; nil: silent. Of lines with one message there is at
	// most one a second, with the number of those left out before it.
	Logger *slog.Logger
}

// Check returns what is wrong with the configuration on any device; [Listen] refuses it with
// the same error. It does not check the keys of tenants.
func (c Config) Check() error {
	c.defaults()
	switch {
	case c.Memory < memoryUnit:
		return fmt.Errorf("cache: memory of %d bytes: less than %d", c.Memory, memoryUnit)
	case c.MaxValue < 0 || c.MaxValue > wire.MaxValue:
		return fmt.Errorf("cache: values of %d bytes: from 0 to %d", c.MaxValue, wire.MaxValue)
	case c.longest() > c.Memory/memoryUnit*memoryUnit:
		return fmt.Errorf("cache: values of %d bytes: memory of %d has no room for one", c.MaxValue, c.Memory)
	case slices.ContainsFunc(c.Names, func(n string) bool { return n == "" || len(n) > greet.MaxServer }):
		return fmt.Errorf("cache: names of the server: each has 1 to %d bytes", greet.MaxServer)
	case c.Lease < 10*time.Millisecond:
		return fmt.Errorf("cache: lease of %v: shorter than 10 ms", c.Lease)
	}
	if c.Key != nil {
		_, err := checkKey(c.Key)
		return err
	}
	return nil
}

// memoryUnit is what the memory is a multiple of.
const memoryUnit = 64 << 10

// longest returns the length of the longest record.
func (c *Config) longest() int { return wire.RecordSize(wire.MaxKey, c.MaxValue) }

// defaults sets the fields that were left out.
func (c *Config) defaults() {
	if c.Memory == 0 {
		c.Memory = 64 << 20
	}
	if c.MaxValue == 0 {
		c.MaxValue = max(min(2<<20, c.Memory/4)-wire.RecordSize(wire.MaxKey, 0), 0)
	}
	if c.Lease == 0 {
		c.Lease = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// DCConfig configures the target through which clients without a queue pair here READ.
// The zero value has no target: such clients then connect as the others do.
type DCConfig struct {
	// Responders is how many contexts of clients' initiators may READ at a time
	// ([dc.TargetConfig]). The target has that many queue pairs, whatever the number of
	// clients. 0 means that there is no target.
	Responders int
	// Backend is the back end of the target.
	Backend dc.Backend
}

// checkKey returns a copy of a key, or what is wrong with it.
func checkKey(key []byte) ([]byte, error) {
	if len(key) < greet.MinKey {
		return nil, fmt.Errorf("cache: key of %d bytes: shorter than %d", len(key), greet.MinKey)
	}
	return slices.Clone(key), nil
}
