//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// Every line is echoed whatever the wire does: the client reconnects where it
// must.
func TestStreamOnABadWire(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	lab.Chatter(t, ends[0].Netdev, ends[1].Netdev)
	length := 20 * time.Second
	if testing.Short() {
		length = 3 * time.Second
	}
	burst := lab.Impairment{Burst: lab.Burst{Begin: 0.005, End: 0.05}}
	for name, i := range map[string][2]lab.Impairment{
		"good":             {},
		"bursts":           {burst, burst},
		"duplicates":       {{Duplicate: 0.2}, {Duplicate: 0.2}},
		"acknowledgements": {{}, {Loss: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second+length)
			defer cancel()
			cm, err := rdmacm.Open(rdmacm.Config{})
			require.NoError(t, err)
			defer func() { require.NoError(t, cm.Close()) }()
			l, err := stream.Listen(cm, netip.AddrPortFrom(ends[1].Addr, 0).String(), stream.Config{})
			require.NoError(t, err)
			serving, stop := context.WithCancel(ctx)
			served := make(chan error, 1)
			go func() { served <- serve(serving, l) }()

			c := &client{cm: cm, address: l.Addr().String(), patience: 2 * time.Second}
			c.cfg.Dial.Local = netip.AddrPortFrom(ends[0].Addr, 0)
			require.NoError(t, c.ask(ctx, "before"))
			if name != "good" {
				for n, e := range ends {
					require.NoError(t, lab.Impair(e.Netdev, i[n]))
					defer func() { require.NoError(t, lab.Clear(e.Netdev)) }()
				}
			}
			lines := 0
			for end := time.Now().Add(length); time.Now().Before(end); lines++ {
				line := fmt.Sprintf("line %d %s", lines, strings.Repeat("x", lines*37%9000))
				require.NoError(t, c.ask(ctx, line), "line %d", lines)
			}
			t.Logf("%d lines over %d connections", lines, c.dials)
			require.NotZero(t, lines)
			if name == "good" {
				require.Equal(t, 1, c.dials)
			}
			require.NoError(t, c.conn.Close())
			stop()
			require.NoError(t, <-served)
		})
	}
}
