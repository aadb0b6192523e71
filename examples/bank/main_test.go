//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// The sum stays while connections are cut in the middle of transfers.
func TestBank(t *testing.T) {
	out, d := openFor(t, 10*time.Second)
	require.NotZero(t, d.cut.Load(), out)
}

// And it stays while the wire loses bursts of packets, doubles them, or loses
// acknowledgements: tellers and auditor come back and go on.
func TestBankOnABadWire(t *testing.T) {
	lab.RequireTopology(t, "wire")
	length := 20 * time.Second
	if testing.Short() {
		length = 6 * time.Second
	}
	burst := lab.Impairment{Burst: lab.Burst{Begin: 0.005, End: 0.1}}
	for name, i := range map[string][2]lab.Impairment{
		"bursts":           {burst, burst},
		"duplicates":       {{Duplicate: 0.2}, {Duplicate: 0.2}},
		"acknowledgements": {{}, {Loss: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			for n, e := range lab.Require(t, 2) {
				require.NoError(t, lab.Impair(e.Netdev, i[n]))
				defer func() { require.NoError(t, lab.Clear(e.Netdev)) }()
			}
			openFor(t, length)
		})
	}
}

// openFor keeps a bank open, between two devices, and requires that it balances.
func openFor(t *testing.T, length time.Duration) (string, *day) {
	ends := lab.Require(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second+length)
	defer cancel()
	var pds [2]*verbs.PD
	for i, e := range ends {
		dev, err := verbs.Open(e.Device, verbs.DeviceConfig{})
		require.NoError(t, err)
		pds[i], err = dev.AllocPD()
		require.NoError(t, err)
	}
	target, err := lockoffload.Listen(pds[1], "127.0.0.1:0", lockoffload.ListenConfig{Layout: layout, Key: key})
	require.NoError(t, err)
	var out strings.Builder
	// A host that is too busy for a handshake in the time that it may take does it again.
	dial := func() (c *lockoffload.Client, err error) {
		for again := true; again; again = errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			c, err = lockoffload.Dial(ctx, pds[0], target.Addr().String(), lockoffload.DialConfig{Key: key, NoAgent: true})
		}
		return c, err
	}
	d, err := open(ctx, &out, dial, 4, length)
	t.Log(out.String())
	require.NoError(t, err)
	require.NotZero(t, d.transfers.Load())
	require.NotZero(t, d.audits.Load())
	require.NoError(t, target.Close())
	return out.String(), d
}
