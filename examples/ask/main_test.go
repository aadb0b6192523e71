//go:build linux

package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// Each question has its reply, on a wire that loses and doubles, too.
func TestAsk(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	started := make(chan string, 1)
	go func() { served <- serve(serving, ends[1].Addr.String(), func(where string) { started <- where }) }()
	where, own := <-started, ends[0].Addr.String()
	require.NoError(t, ask(ctx, own, where, 1))
	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Duplicate: 0.2, Loss: 0.05})
	}
	require.NoError(t, ask(ctx, own, where, 300))
	stop()
	require.ErrorIs(t, <-served, context.Canceled)
}
