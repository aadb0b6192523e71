//go:build linux

package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// The server outlives its clients, and they a wire that loses and doubles.
func TestRead(t *testing.T) {
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	far, farMR := memory(t, ends[1].Device)
	near, nearMR := memory(t, ends[0].Device)
	copy(farMR.Bytes(), "the server's memory")
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- serve(serving, far, farMR) }()
	at := net.JoinHostPort("127.0.0.1", port)
	require.Eventually(t, func() bool { return read(ctx, near, nearMR, at) == nil }, testTime, 50*time.Millisecond)
	if lab.In() {
		lab.ImpairWire(t, lab.Impairment{Duplicate: 0.2, Burst: lab.Burst{Begin: 0.02, End: 0.3}})
	}
	for range 10 {
		clear(nearMR.Bytes())
		require.NoError(t, persist(func() error { return read(ctx, near, nearMR, at) }))
		require.Equal(t, "the server's memory", string(nearMR.Bytes()[:19]))
	}
	stop()
	require.NoError(t, <-served)
}

const testTime = 10 * time.Second

func memory(t *testing.T, name string) (*verbs.PD, *verbs.MR) {
	t.Helper()
	dev, err := verbs.Open(name, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	mr, err := pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mr.Close()) })
	return pd, mr
}
