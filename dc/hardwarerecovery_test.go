//go:build linux && cgo

package dc_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// TestHardwareRecovery: a failure flushes the requests of other targets in the
// same DCI too; when all have completed the DCI goes through RESET and works.
func TestHardwareRecovery(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Streams: -1})
	a, b := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 2, 0xb)
	post(t, i, a, 1, 2)
	post(t, i, b, 3)
	standin.Recorded()
	complete(0, 0, verbs.WCRemoteAccess)
	cs := ended(t, i)
	require.Len(t, cs, 1)
	require.ErrorIs(t, cs[0].Err, verbs.WCRemoteAccess)
	require.NotErrorIs(t, cs[0].Err, dc.ErrSession)
	recorded(t, toError)
	post(t, i, b, 4) // waits
	recorded(t, "")
	complete(0, 1, verbs.WCFlushed)
	require.ErrorIs(t, ended(t, i)[0].Err, dc.ErrSession)
	recorded(t, "")
	complete(0, 2, verbs.WCFlushed)
	cs = ended(t, i)
	require.EqualValues(t, 3, cs[0].ID)
	require.ErrorIs(t, cs[0].Err, dc.ErrSession)
	recorded(t, backToWork+`
		start
		write id=0x3 flags=0x2 rkey=0x5 addr=0x1000
		  dc ah=0x2 dctn=0xb key=0xff11
		  sge lkey=0x9 addr=0x5000 length=64
		complete`)
	complete(0, 3, verbs.WCSuccess)
	cs = ended(t, i)
	require.EqualValues(t, 4, cs[0].ID)
	require.NoError(t, cs[0].Err)
	require.EqualValues(t, 1, i.Stats().Failures)
}

// TestHardwareRetriesExceeded: the host of a target that does not acknowledge may have
// another link-layer address now, so the next request goes by an address handle that is
// new, also that of another target there. The old one is closed with its last peer.
func TestHardwareRetriesExceeded(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Streams: -1})
	a, b := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 1, 0xb)
	post(t, i, a, 1)
	post(t, i, b, 2)
	complete(0, 0, verbs.WCSuccess)
	complete(0, 1, verbs.WCRetryExceeded)
	require.ErrorIs(t, ended(t, i)[1].Err, dc.ErrSession)
	standin.Recorded()
	for n, p := range []*dc.Peer{a, b} {
		post(t, i, p, 3)
		r := standin.Recorded()
		require.Equal(t, n == 0, strings.Contains(r, "create_ah"), r)
		require.Equal(t, n == 1, strings.Contains(r, "destroy_ah"), r)
	}
}

// TestHardwareAvoidsErrors: a target goes to a DCI that works, though it has more
// to do.
func TestHardwareAvoidsErrors(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 2, Streams: -1})
	a, b, c := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 2, 0xb), resolveDCT(t, i, 3, 0xc)
	post(t, i, a, 1, 2)
	post(t, i, b, 3, 4, 5)
	complete(0, 0, verbs.WCRetryExceeded)
	require.Len(t, ended(t, i), 1)
	standin.Recorded()
	post(t, i, c, 6)
	require.Equal(t, []string{"1.3 to c"}, posts())
}

// TestHardwareLost: a DCI that does not come back is used no more, what waited
// for it goes to another, and with the last of them everything is refused.
func TestHardwareLost(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 2, Streams: -1})
	a, b := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 2, 0xb)
	post(t, i, a, 1, 2)
	post(t, i, b, 3)
	complete(0, 0, verbs.WCRetryExceeded)
	require.Len(t, ended(t, i), 1)
	post(t, i, a, 4)
	require.Equal(t, []string{"0.0 to a", "0.1 to a", "1.0 to b"}, posts())
	standin.Refuse("modify", syscall.EIO)
	complete(0, 1, verbs.WCFlushed)
	require.Len(t, ended(t, i), 1)
	require.Equal(t, []string{"1.1 to a"}, posts())

	complete(1, 0, verbs.WCRetryExceeded)
	require.Len(t, ended(t, i), 1)
	post(t, i, a, 5)
	standin.Refuse("modify", syscall.EIO)
	complete(1, 1, verbs.WCFlushed)
	require.Len(t, ended(t, i), 1)
	cs := ended(t, i)
	require.Len(t, cs, 1)
	require.EqualValues(t, 5, cs[0].ID)
	require.ErrorIs(t, cs[0].Err, syscall.EIO)
	_, err := i.Post(a, writeOf(6))
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "no DCI is left")
	require.Empty(t, posts())
	require.Zero(t, i.Stats().Live)
}

// TestHardwareStreamRecovery: an error of one stream leaves the others alone if
// the DCI still works; the stream is reset when it is empty.
func TestHardwareStreamRecovery(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Streams: 4})
	a, b := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 2, 0xb)
	post(t, i, a, 1, 2)
	post(t, i, b, 3)
	standin.Recorded()
	complete(0, 0, verbs.WCRetryExceeded)
	require.Len(t, ended(t, i), 1)
	recorded(t, "query")
	post(t, i, a, 4) // waits for its stream
	require.Empty(t, posts())
	post(t, i, b, 5)
	require.Equal(t, []string{"0.3 to b stream 2"}, posts())
	complete(0, 1, verbs.WCFlushed)
	require.ErrorIs(t, ended(t, i)[0].Err, dc.ErrSession)
	// All of a has completed: it need not wait.
	recorded(t, `
		mlx5dv_dci_stream_id_reset stream=1
		start
		write id=0x4 flags=0x2 rkey=0x5 addr=0x1000
		  dc ah=0x1 dctn=0xa key=0xff11 stream=3
		  sge lkey=0x9 addr=0x5000 length=64
		complete`)
	complete(0, 2, verbs.WCSuccess)
	complete(0, 3, verbs.WCSuccess)
	complete(0, 4, verbs.WCSuccess)
	for _, c := range ended(t, i) {
		require.NoError(t, c.Err)
	}
	post(t, i, a, 6)
	require.Equal(t, []string{"0.5 to a stream 1"}, posts())
}

// TestHardwareErroredStreams: the device may give up the whole DCI, or refuse to
// reset a stream; then all of it goes through RESET.
func TestHardwareErroredStreams(t *testing.T) {
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Streams: 4})
	a, b := resolveDCT(t, i, 1, 0xa), resolveDCT(t, i, 2, 0xb)
	post(t, i, a, 1)
	post(t, i, b, 2)
	standin.Recorded()
	standin.SetState(firstQP, uint32(verbs.StateError))
	complete(0, 0, verbs.WCRetryExceeded)
	require.Len(t, ended(t, i), 1)
	recorded(t, "query"+toError)
	complete(0, 1, verbs.WCFlushed)
	require.Len(t, ended(t, i), 1)
	recorded(t, backToWork)

	post(t, i, a, 3)
	post(t, i, b, 4)
	standin.Recorded()
	standin.Refuse("mlx5dv_dci_stream_id_reset", syscall.EOPNOTSUPP)
	complete(0, 2, verbs.WCRetryExceeded)
	require.Len(t, ended(t, i), 1)
	recorded(t, `
		query
		mlx5dv_dci_stream_id_reset stream=1`+toError)
	complete(0, 3, verbs.WCFlushed)
	require.Len(t, ended(t, i), 1)
	recorded(t, backToWork)
	post(t, i, a, 5)
	require.Equal(t, []string{"0.4 to a stream 1"}, posts())
}

// TestHardwareConcurrent: several goroutines post, one polls; every request ends
// once, those of one target in order.
func TestHardwareConcurrent(t *testing.T) {
	const posters, each = 4, 200
	i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 8, Quota: 3, Streams: 2})
	var all sync.WaitGroup
	var taken atomic.Uint64
	next := make(map[*dc.Peer]uint64)
	for host := range byte(posters) {
		p := resolveDCT(t, i, host, 0xa)
		next[p] = 0
		all.Go(func() {
			for id := range uint64(each) {
				if _, err := i.Post(p, writeOf(id)); err != nil {
					t.Error(err)
				}
				taken.Add(1)
			}
		})
	}
	for place := uint64(0); place < posters*each; {
		if place >= taken.Load() {
			time.Sleep(10 * time.Microsecond)
			continue
		}
		complete(0, place, verbs.WCSuccess)
		place++
		cs := ended(t, i)
		require.Len(t, cs, 1)
		require.NoError(t, cs[0].Err)
		require.Equal(t, next[cs[0].Peer], cs[0].ID)
		next[cs[0].Peer]++
	}
	all.Wait()
	require.Zero(t, i.Stats().Live)
}

// TestWhatIsNotKnown: what this end finds wrong when a part of the request may have been
// carried out already, or all of it, is no proof that it was not.
func TestWhatIsNotKnown(t *testing.T) {
	large := writeOf(1)
	large.Local.Length = 4096
	read := writeOf(1)
	read.Op = dc.Read
	add := writeOf(1)
	add.Op, add.Local.Length = dc.FetchAdd, 8
	for _, c := range []struct {
		r      dc.Request
		status verbs.WCStatus
		known  bool
	}{
		{writeOf(1), verbs.WCLocalProtection, true},
		{read, verbs.WCLocalProtection, true},
		{large, verbs.WCLocalProtection, false},
		{large, verbs.WCRemoteAccess, true},
		{add, verbs.WCLocalProtection, false},
		{add, verbs.WCLocalLength, false},
		{add, verbs.WCLocalAccess, false},
		{add, verbs.WCLocalQPOperation, false},
		{add, verbs.WCRemoteAccess, true},
		{add, verbs.WCRemoteInvalid, true},
		{writeOf(1), verbs.WCRemoteOperation, false},
		{writeOf(1), verbs.WCBadResponse, false},
	} {
		t.Run(fmt.Sprintf("%v %d %v", c.r.Op, c.r.Local.Length, c.status), func(t *testing.T) {
			i := standinInitiator(t, dc.InitiatorConfig{Contexts: 1})
			p := resolveDCT(t, i, 1, 0xa)
			_, err := i.Post(p, c.r)
			require.NoError(t, err)
			complete(0, 0, c.status)
			cs := ended(t, i)
			require.Len(t, cs, 1)
			require.ErrorIs(t, cs[0].Err, c.status)
			require.Equal(t, !c.known, errors.Is(cs[0].Err, dc.ErrSession), "%v", cs[0].Err)
		})
	}
}
