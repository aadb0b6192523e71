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

// A page that changes only if nobody else changed it.
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
