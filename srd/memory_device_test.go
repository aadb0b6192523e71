//go:build linux

package srd_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
)

// Sixteen senders of long messages lose none to a receiver that takes them as they come, though
// its memory holds a quarter of what they send at once.
func TestManyLargeMessages(t *testing.T) {
	es := ends(t)
	hub := open(t, es[0], srd.Config{})
	ctx, stop := context.WithCancel(t.Context())
	var receiving, sending sync.WaitGroup
	receiving.Go(func() {
		var ms [8]srd.Message
		for {
			n, err := hub.Receive(ctx, ms[:])
			if err != nil {
				return
			}
			hub.Release(ms[:n]...)
		}
	})
	data, each := make([]byte, 1<<20), 2
	if testing.Short() {
		each = 1
	}
	all := make(chan struct{})
	for range 16 {
		c := open(t, es[1], srd.Config{Paths: 1})
		require.NoError(t, c.Send(ctx, hub.Addr(), []byte("hello")))
		for _, service := range []srd.Service{srd.Reliable, srd.Ordered} {
			sending.Go(func() {
				<-all
				for range each {
					if err := c.Destination(hub.Addr(), service).Send(ctx, data); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	close(all)
	sending.Wait()
	stop()
	receiving.Wait()
}
