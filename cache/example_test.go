package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/cache"
)

// A value that is computed once an hour, and otherwise READ from the server's memory.
func Example() {
	ctx := context.Background()
	c, err := cache.Dial(ctx, "10.77.0.2:7481", cache.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	it, err := c.Get(ctx, []byte("colour"))
	if errors.Is(err, cache.ErrNotFound) {
		it = cache.Item{Value: []byte("blue")}
		err = c.Set(ctx, []byte("colour"), it, time.Hour)
	}
	fmt.Printf("%s %v\n", it.Value, err)
}

// A page that changes only if no other client changed it.
func ExampleClient_CompareAndSwap() {
	var c *cache.Client
	ctx, key := context.Background(), []byte("page")
	for {
		it, err := c.Get(ctx, key)
		if err != nil {
			log.Fatal(err)
		}
		it.Value = append(it.Value, " and more"...)
		if err = c.CompareAndSwap(ctx, key, it, 0); !errors.Is(err, cache.ErrChanged) {
			break
		}
	}
}

// Two servers, each with its share of the keys. While one is down the keys of the other
// are there.
func ExampleDialCluster() {
	ctx := context.Background()
	servers := []string{"10.77.0.2:7481", "10.77.0.3:7481"} // the same list everywhere
	c, err := cache.DialCluster(ctx, servers, cache.ClusterConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, r := range c.GetMulti(ctx, [][]byte{[]byte("colour"), []byte("shape")}, nil) {
		switch {
		case errors.Is(r.Err, cache.ErrUnavailable):
			fmt.Println("its server is down:", r.Err)
		case r.Err == nil:
			fmt.Printf("%s\n", r.Value)
		}
	}
	for _, s := range c.Stats() {
		fmt.Println(s.Address, s.Connected, s.Hits, s.Err)
	}
}

// Many records at once, each with an outcome of its own.
func ExampleClient_SetMulti() {
	var c *cache.Client
	puts := []cache.Entry{
		{Key: []byte("colour"), Item: cache.Item{Value: []byte("blue")}},
		{Key: []byte("shape"), Item: cache.Item{Value: []byte("round")}, TTL: time.Minute},
	}
	for i, err := range c.SetMulti(context.Background(), puts, nil) {
		if err != nil {
			log.Printf("%s: %v", puts[i].Key, err)
		}
	}
}

// A page that is made once for all callers that want it while it is missing.
func ExampleLoader_Load() {
	var c cache.Cache // a Client or a Cluster
	l := cache.NewLoader(c, cache.LoaderConfig{ErrorTTL: time.Second})
	render := func(ctx context.Context) (cache.Item, error) {
		return cache.Item{Value: []byte("<html>")}, nil
	}
	it, err := l.Load(context.Background(), []byte("page"), time.Hour, render)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", it.Value)
}

// A client that keeps 64 MiB of what it READ, and may answer what was changed up to half a
// second ago.
func ExampleConfig_near() {
	c, err := cache.Dial(context.Background(), "10.77.0.2:7481", cache.Config{
		NearBytes: 64 << 20,
		NearStale: 500 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.Stats().NearHits)
}
