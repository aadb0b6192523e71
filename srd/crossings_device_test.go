//go:build linux

package srd_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
)

// A list of messages is one crossing into C, however many paths it takes. A poll
// crosses too, so that the smallest count of many lists is what a list has.
func TestListIsOneCrossing(t *testing.T) {
	if onEFA {
		t.Skip("EFA's endpoints have one queue pair, and nothing to post by one call")
	}
	a, b := pair(t, srd.Config{}.WithTimes(5*time.Millisecond, 100*time.Millisecond))
	ctx := ctxOf(t)
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	data := [][]byte{make([]byte, 64)}
	list := make([]srd.Request, 32)
	for i := range list {
		list[i] = srd.Request{To: b.Addr(), Data: data}
	}
	fewest, paths := int64(1<<62), 0
	for range 100 {
		if fewest == 1 {
			break
		}
		before := sentBy(a, b.Addr())
		calls := runtime.NumCgoCall()
		n, err := q.Post(list...)
		calls = runtime.NumCgoCall() - calls
		require.NoError(t, err)
		took := 0
		for i, n := range sentBy(a, b.Addr()) {
			if i >= len(before) || n > before[i] {
				took++
			}
		}
		if took >= 4 && calls < fewest {
			fewest, paths = calls, took
		}
		var cs [32]srd.Completion
		for n > 0 {
			k, err := q.Wait(ctx, cs[:])
			require.NoError(t, err)
			n -= k
		}
		var ms [32]srd.Message
		for got := 0; got < len(list); {
			k, err := b.Receive(ctx, ms[:])
			require.NoError(t, err)
			b.Release(ms[:k]...)
			got += k
		}
	}
	t.Logf("%d calls for a list by %d paths", fewest, paths)
	require.EqualValues(t, 1, fewest)
}

// sentBy is how many packets went to a peer by each path.
func sentBy(ep *srd.Endpoint, to srd.Addr) (all []uint64) {
	for _, p := range ep.Peers() {
		if p.Addr != to {
			continue
		}
		for _, x := range p.Paths {
			all = append(all, x.Sent)
		}
	}
	return all
}

// How long the device has packets is learned from the first ones, at either end.
func TestDeviceTimesAreLearned(t *testing.T) {
	if onEFA {
		t.Skip("EFA retransmits by timers of its own, and there are none to learn")
	}
	const least = time.Nanosecond // that any device takes longer
	a, b := pair(t, srd.Config{}.WithTimes(least, 0))
	for range 20 {
		require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("a message")))
		require.NoError(t, b.Send(ctxOf(t), a.Addr(), []byte("another")))
	}
	require.Greater(t, a.AckDelay(), least)
	require.Greater(t, b.AckDelay(), least)
}

// That a packet waited for an address handle, perhaps for the network to find a neighbour, is no
// time of the device.
func TestWaitForAHandleIsNoTimeOfTheDevice(t *testing.T) {
	if onEFA {
		t.Skip("EFA retransmits by timers of its own, and there are none to learn")
	}
	es := ends(t)
	b := open(t, es[1], srd.Config{})
	a := open(t, es[0], srd.Config{PeerTimeout: testTimeout}.WithTimes(time.Second, time.Second)) // nothing is due meanwhile
	time.Sleep(5 * time.Millisecond)                                                              // what the endpoint begins with is done
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	over, err := q.PostHeld(srd.Request{To: b.Addr(), Data: [][]byte{[]byte("a message")}}, 20*time.Millisecond)
	require.NoError(t, err)
	var cs [1]srd.Completion
	_, err = q.Wait(ctxOf(t), cs[:])
	require.NoError(t, err)
	all := a.HandedOver()
	require.NotEmpty(t, all)
	for _, at := range all {
		require.GreaterOrEqual(t, at, over)
	}
}
