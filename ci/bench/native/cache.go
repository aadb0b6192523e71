package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/dc"
)

// keys of GetMulti.
const keys = 32

func cacheRows() []row {
	list := []row{
		besideReads("cache_get_64B", measure.AtMostOver(400), func(o *opened, es [2]end) (operations, error) { return cacheGet(o, es, read) }),
		besideReads("cache_get_rc_64B", measure.AtMostOver(400), cacheGetByRC),
		memberGet(),
		longGet(),
		multiGet("multiget32", (*opened).cacheByDC),
		multiGet("multiget32_rc", func(o *opened, _ [2]end) (*cacheServer, error) { return o.cacheByRC(0) }),
		{name: "cache_set", target: measure.AtMost(4000), few: 40, open: func(o *opened) (operations, operations, error) { return cacheSet(o, 0) }},
		{name: "cache_set_polled", target: measure.AtMost(4000), few: 40, open: func(o *opened) (operations, operations, error) { return cacheSet(o, polled) }},
	}
	return append(list, rates("cache_get", func(o *opened) (func() (user, error), error) {
		es, err := o.ends()
		if err != nil {
			return nil, err
		}
		s, err := o.cacheByDC(es)
		if err != nil {
			return nil, err
		}
		return func() (user, error) {
			c, err := s.dial(o)
			if err != nil {
				return nil, err
			}
			return func(k int) func(context.Context) error { return getter(c, key(k), read) }, s.fill(c, 2*keys, read)
		}, nil
	})...)
}

func key(k int) []byte { return fmt.Appendf(nil, "key-%012d", k) }

// cacheServer is a server, and how clients reach it.
type cacheServer struct {
	*server.Server
	client cache.Config
	by     cache.Transport
}

// cacheByDC returns a server whose clients READ through an initiator, and change records by calls by TCP.
func (o *opened) cacheByDC(es [2]end) (*cacheServer, error) {
	s, err := o.cacheServer(server.Config{DC: server.DCConfig{Responders: 1, Backend: dc.Hardware}})
	if err != nil {
		return nil, err
	}
	i, err := o.initiator(es[0])
	return &cacheServer{s, cache.Config{DC: i, MapBytes: math.MaxInt}, cache.DC}, err
}

// cacheByRC returns a server whose clients have queue pairs of their own to it. Both ends poll for so long before
// they wait for an event.
func (o *opened) cacheByRC(pollFor time.Duration) (*cacheServer, error) {
	s, err := o.cacheServer(server.Config{PollFor: pollFor})
	if err != nil {
		return nil, err
	}
	e, err := o.end(devices[0])
	return &cacheServer{s, cache.Config{PD: e.pd, RequireRDMA: true, PollFor: pollFor, MapBytes: math.MaxInt}, cache.RDMA}, err
}

// memberGet is a GET from a member of a cluster, which the client believes only until the server's deadline, beside one
// from a single server.
func memberGet() row {
	return row{name: "cache_get_member_64B", target: measure.AtMost(1.02), baseline: "GET from a single server", open: func(o *opened) (ours, base operations, err error) {
		one, err := o.cacheByRC(0)
		if err != nil {
			return nil, nil, err
		}
		member, err := o.cacheByRC(0)
		if err != nil {
			return nil, nil, err
		}
		if err := o.join(member.Server); err != nil {
			return nil, nil, err
		}
		if ours, err = member.get(o, read); err != nil {
			return nil, nil, err
		}
		base, err = one.get(o, read)
		return ours, base, err
	}}
}

// join makes a server one that owns all shards of a cluster without etcd.
func (o *opened) join(s *server.Server) error {
	if err := s.JoinCluster(nil); err != nil {
		return err
	}
	for i := range 1024 {
		s.SetShard(i, server.ShardOwned)
	}
	const ttl = 3 * time.Second
	s.SetDeadline(time.Now().Add(ttl))
	beat := time.NewTicker(ttl / 6)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-beat.C:
				s.SetDeadline(time.Now().Add(ttl))
			case <-stop:
				return
			}
		}
	}()
	o.add(closer(func() error {
		beat.Stop()
		close(stop)
		<-stopped
		return nil
	}))
	return nil
}

func (o *opened) cacheServer(cfg server.Config) (*server.Server, error) {
	cfg.Device, cfg.Memory = devices[1], 16<<20
	s, err := server.Listen(context.Background(), "127.0.0.1:0", cfg)
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	o.add(closer(func() error {
		err := s.Close()
		if e := <-served; !errors.Is(e, server.ErrClosed) {
			err = errors.Join(err, e)
		}
		return err
	}))
	return s, nil
}

type closer func() error

func (c closer) Close() error { return c() }

func (s *cacheServer) dial(o *opened) (*cache.Client, error) {
	c, err := cache.Dial(context.Background(), s.Addr().String(), s.client)
	if err == nil {
		o.add(c)
	}
	return c, err
}

// fill sets n keys and waits until the client's map has them.
func (s *cacheServer) fill(c *cache.Client, n, size int) error {
	for k := range n {
		if err := c.Set(context.Background(), key(k), cache.Item{Value: make([]byte, size)}, 0); err != nil {
			return err
		}
	}
	for range 1000 {
		if st := c.Stats(); st.Whole && st.Entries == n && st.Transport == s.by {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the map has not come: %+v", c.Stats())
}

// getter gets a key, which must be a hit.
func getter(c *cache.Client, k []byte, size int) func(context.Context) error {
	dst := make([]byte, size)
	return func(ctx context.Context) error {
		_, err := c.GetInto(ctx, k, dst)
		return err
	}
}

func cacheGet(o *opened, es [2]end, size int) (operations, error) {
	s, err := o.cacheByDC(es)
	if err != nil {
		return nil, err
	}
	return s.get(o, size)
}

func cacheGetByRC(o *opened, _ [2]end) (operations, error) {
	s, err := o.cacheByRC(0)
	if err != nil {
		return nil, err
	}
	return s.get(o, read)
}

// get is a GET of one key.
func (s *cacheServer) get(o *opened, size int) (operations, error) {
	c, err := s.dial(o)
	if err != nil {
		return nil, err
	}
	return byREADs(c, 1, each(getter(c, key(0), size))), s.fill(c, 1, size)
}

// byREADs checks that each operation was so many hits by as many READs.
func byREADs(c *cache.Client, hits int, ops operations) operations {
	return func(ctx context.Context, n int) (time.Duration, error) {
		before := c.Stats()
		took, err := ops(ctx, n)
		after := c.Stats()
		if got := [2]uint64{after.Hits - before.Hits, after.Reads - before.Reads}; err == nil && got != [2]uint64{uint64(n * hits), uint64(n * hits)} {
			err = fmt.Errorf("%d operations were %d hits by %d READs", n, got[0], got[1])
		}
		return took, err
	}
}

// polled is for how long both ends of cache_set_polled poll.
const polled = 100 * time.Microsecond

// cacheSet is a SET by messages over RDMA.
func cacheSet(o *opened, pollFor time.Duration) (ours, base operations, err error) {
	s, err := o.cacheByRC(pollFor)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.dial(o)
	if err != nil {
		return nil, nil, err
	}
	k, it := key(0), cache.Item{Value: make([]byte, read)}
	return each(func(ctx context.Context) error { return c.Set(ctx, k, it, 0) }), nil, s.fill(c, 1, read)
}

// longGet is a GET of 16 KiB beside a READ in C, a checksum and a copy.
func longGet() row {
	const size = 16 << 10
	return row{name: "cache_get_16KiB", target: measure.AtMost(1.3), baseline: "READ in C, one xxh3 pass, one copy", open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		if ours, err = cacheGet(o, es, size); err != nil {
			return nil, nil, err
		}
		loop, err := reads(o, es, size, 1)
		from, to, sum := es[0].mr.Bytes()[:size], make([]byte, size), uint64(0)
		use := each(func(context.Context) error {
			sum += xxh3.Hash(from)
			copy(to, from)
			return nil
		})
		return ours, func(ctx context.Context, n int) (time.Duration, error) {
			a, err := loop(ctx, n)
			if err != nil {
				return 0, err
			}
			b, err := use(ctx, n)
			return a + b, err
		}, err
	}}
}

// multiGet is GetMulti of 32 keys beside lists of as many READs in C, for each key.
func multiGet(name string, serve func(o *opened, es [2]end) (*cacheServer, error)) row {
	return row{name: name, target: measure.AtMostOver(150), baseline: "list of 32 READs in C", per: keys, few: 10, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		s, err := serve(o, es)
		if err != nil {
			return nil, nil, err
		}
		c, err := s.dial(o)
		if err != nil {
			return nil, nil, err
		}
		if err := s.fill(c, keys, read); err != nil {
			return nil, nil, err
		}
		var ks [][]byte
		for k := range keys {
			ks = append(ks, key(k))
		}
		into := make([]cache.Result, keys)
		ours = byREADs(c, keys, each(func(ctx context.Context) error {
			into = c.GetMulti(ctx, ks, into)
			for i := range into {
				if into[i].Err != nil {
					return into[i].Err
				}
			}
			return nil
		}))
		base, err = reads(o, es, read, keys)
		return ours, base, err
	}}
}
