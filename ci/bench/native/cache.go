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
		longGet(),
		multiGet(),
	}
	return append(list, rates("cache_get", func(o *opened) (func() (user, error), error) {
		es, err := o.ends()
		if err != nil {
			return nil, err
		}
		s, err := o.cacheServer(es)
		if err != nil {
			return nil, err
		}
		return func() (user, error) {
			c, err := s.client(o)
			if err != nil {
				return nil, err
			}
			return func(k int) func(context.Context) error { return getter(c, key(k), read) }, s.fill(c, 2*keys, read)
		}, nil
	})...)
}

func key(k int) []byte { return fmt.Appendf(nil, "key-%012d", k) }

// cacheServer is one whose clients READ through an initiator: the kernel finds no simulated device
// by the address of a connection. Changes are calls by TCP.
type cacheServer struct {
	*server.Server
	i *dc.Initiator
}

func (o *opened) cacheServer(es [2]end) (*cacheServer, error) {
	s, err := server.Listen(context.Background(), "127.0.0.1:0", server.Config{Device: devices[1], Memory: 16 << 20, DC: server.DCConfig{Responders: 1, Backend: dc.Hardware}})
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
	i, err := o.initiator(es[0])
	return &cacheServer{s, i}, err
}

type closer func() error

func (c closer) Close() error { return c() }

func (s *cacheServer) client(o *opened) (*cache.Client, error) {
	c, err := cache.Dial(context.Background(), s.Addr().String(), cache.Config{DC: s.i, MapBytes: math.MaxInt})
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
		if st := c.Stats(); st.Whole && st.Entries == n && st.Transport == cache.DC {
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
	s, err := o.cacheServer(es)
	if err != nil {
		return nil, err
	}
	c, err := s.client(o)
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
func multiGet() row {
	return row{name: "multiget32", target: measure.AtMostOver(150), baseline: "list of 32 READs in C", per: keys, few: 10, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		s, err := o.cacheServer(es)
		if err != nil {
			return nil, nil, err
		}
		c, err := s.client(o)
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
