//go:build linux && cgo

package verbs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/cgo/standin"
)

const standinQP = 0x4711 // the first one

var (
	wordAt  = Remote{Addr: 0x1000, RKey: 5}
	wordSGE = SGE{Addr: 0x5000, Length: 8, LKey: 9}
)

// connected makes a queue pair of the stand-in that can send, and a batch of n.
// What its requests need beside themselves is added by toPeer.
func connected(t *testing.T, cfg QPConfig, n int) (q *QP, b *Batch, cq *CQ, toPeer func()) {
	t.Helper()
	_, p, c, _ := driverRig(t)
	cfg.SendCQ, cfg.GID = c, standinGID
	q, err := p.CreateQP(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	toPeer = func() {}
	if cfg.Type.unconnected() || cfg.Type == UD || cfg.Type == RawPacket {
		require.NoError(t, q.Activate())
	} else {
		e := Endpoint{Type: cfg.Type, QPN: 0x99, PSN: 1, GID: standinPeer, MTU: MTU4096}
		if e.Type == 0 {
			e.Type = RC
		}
		require.NoError(t, q.Connect(e, ConnectConfig{}))
	}
	if cfg.Type.unconnected() {
		ah := driverAH(t, p, 0xa1)
		stream := min(cfg.Streams, 1)
		toPeer = func() { b.SetTarget(Target{AH: ah, QPN: 0x77, QKey: 1, DCKey: 2, Stream: stream}) }
	}
	b, err = q.NewBatch(n)
	require.NoError(t, err)
	standin.Recorded()
	return q, b, c, toPeer
}

// counted are the kinds of queue pairs with counted requests.
var counted = map[string]QPConfig{
	"RC":           {Extended: true},
	"UC":           {Type: UC, Extended: true},
	"raw entries":  {Ops: OpMasked},
	"DCI":          {Type: DCI},
	"DCI, streams": {Type: DCI, Streams: 4},
	"SRD":          {Type: SRD},
}

// TestFullQueue: "post until ErrQueueFull, poll, retry" never begins a request on
// a full queue, where libmlx5 would write over the newest one under way.
func TestFullQueue(t *testing.T) {
	for name, cfg := range counted {
		t.Run(name, func(t *testing.T) {
			cfg.MaxSendWR = 6 // no power of two
			q, b, cq, toPeer := connected(t, cfg, 4)
			add := func(id uint64, n int) (int, error) {
				toPeer()
				for range n {
					b.Send(id, Signaled, wordSGE)
					id++
				}
				return b.Post()
			}
			var wcs [4]WC
			for round := range uint64(20) {
				id := round * 10
				_, err := add(id, 4)
				require.NoError(t, err)
				n, err := add(id+4, 3)
				require.ErrorIs(t, err, ErrQueueFull, "all or nothing")
				require.Zero(t, n)
				_, err = add(id+4, 2)
				require.NoError(t, err)
				for range 3 {
					_, err = add(id+6, 1)
					require.ErrorIs(t, err, ErrQueueFull)
				}
				for i := range uint64(6) {
					standin.Complete(standinQP, id+i, uint32(WCSuccess))
					n, err = cq.Poll(wcs[:])
					require.NoError(t, err)
					require.Equal(t, 1, n)
					require.Equal(t, id+i, wcs[0].ID())
				}
				require.Zero(t, cgo.Outstanding(q.path))
			}
			require.NotContains(t, standin.Recorded(), "OVERWRITES")
		})
	}
}

// TestUnsignaledCredits: the places of unsignaled requests come back with the
// completion behind them, across the end of the ring.
func TestUnsignaledCredits(t *testing.T) {
	for name, cfg := range counted {
		if cfg.Type == SRD {
			continue // has none
		}
		t.Run(name, func(t *testing.T) {
			cfg.MaxSendWR = 5
			q, b, cq, toPeer := connected(t, cfg, 5)
			var wcs [4]WC
			for round := range uint64(9) {
				toPeer()
				b.Send(round*10+1, 0, wordSGE)
				b.Send(round*10+2, 0, wordSGE)
				b.Send(round*10+3, Signaled, wordSGE)
				b.Send(round*10+4, 0, wordSGE)
				_, err := b.Post()
				require.NoError(t, err, "one of the round before is still there")
				toPeer()
				b.Send(9, 0, wordSGE)
				b.Send(9, 0, wordSGE)
				_, err = b.Post()
				require.ErrorIs(t, err, ErrQueueFull)
				standin.Complete(standinQP, round*10+3, uint32(WCSuccess))
				_, err = cq.Poll(wcs[:])
				require.NoError(t, err)
				require.Equal(t, 1, cgo.Outstanding(q.path))
			}
			require.NotContains(t, standin.Recorded(), "OVERWRITES")
		})
	}
}

// TestSameNumber: a completion gives back the places before it although all have
// one number; only what asks for a completion can have it.
func TestSameNumber(t *testing.T) {
	for name, cfg := range counted {
		if cfg.Type == SRD {
			continue
		}
		t.Run(name, func(t *testing.T) {
			q, b, cq, toPeer := connected(t, cfg, 4)
			toPeer()
			for _, flags := range []SendFlags{0, 0, Signaled, 0} {
				b.Send(7, flags, wordSGE)
			}
			_, err := b.Post()
			require.NoError(t, err)
			standin.Complete(standinQP, 7, uint32(WCSuccess))
			var wcs [1]WC
			_, err = cq.Poll(wcs[:])
			require.NoError(t, err)
			require.Equal(t, 1, cgo.Outstanding(q.path))
		})
	}
}

// TestReceivesDoNotCredit: a receive may have the number of a send.
func TestReceivesDoNotCredit(t *testing.T) {
	q, b, cq, _ := connected(t, QPConfig{Extended: true}, 4)
	b.Send(7, Signaled, wordSGE)
	_, err := b.Post()
	require.NoError(t, err)
	standin.Receive(standinQP, 7, 8, nil)
	var wcs [1]WC
	n, err := cq.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, cgo.Outstanding(q.path))
}

// TestStreamsSameNumber: with streams it is not known which of several requests
// with one number has completed: no place comes back too early.
func TestStreamsSameNumber(t *testing.T) {
	q, b, cq, _ := connected(t, QPConfig{Type: DCI, Streams: 4}, 4)
	ah := driverAH(t, q.pd, 0xa1)
	for i, flags := range []SendFlags{0, Signaled, Signaled} {
		b.SetTarget(Target{AH: ah, QPN: 0x77, Stream: 1 + i%2})
		b.Send(7, flags, wordSGE)
	}
	_, err := b.Post()
	require.NoError(t, err)
	standin.Complete(standinQP, 7, uint32(WCSuccess)) // the second, or the first and the third
	var wcs [1]WC
	_, err = cq.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 3, cgo.Outstanding(q.path))
}

// TestRawCredits: the completion of a raw entry is no receive, although its
// opcode has that bit.
func TestRawCredits(t *testing.T) {
	q, b, cq, _ := connected(t, QPConfig{Ops: OpMasked}, 2)
	b.Add(WR{ID: 6, Op: WRMaskedFetchAdd, Remote: wordAt, Value: 1, Local: []SGE{wordSGE}})
	b.Add(WR{ID: 6, Flags: Signaled, Op: WRMaskedFetchAdd, Remote: wordAt, Value: 1, Local: []SGE{wordSGE}})
	_, err := b.Post()
	require.NoError(t, err)
	standin.CompleteAs(standinQP, 6, uint32(WCRaw))
	var wcs [1]WC
	_, err = cq.Poll(wcs[:])
	require.NoError(t, err)
	require.Zero(t, cgo.Outstanding(q.path))
}

// TestFailedCredits: requests that fail complete without being signaled, and give
// back one place each.
func TestFailedCredits(t *testing.T) {
	q, b, cq, _ := connected(t, QPConfig{Extended: true, MaxSendWR: 4}, 4)
	for i := range uint64(4) {
		b.Send(i, 0, wordSGE)
	}
	_, err := b.Post()
	require.NoError(t, err)
	var wcs [4]WC
	for i := range uint64(4) {
		standin.Complete(standinQP, i, uint32(WCFlushed))
		_, err = cq.Poll(wcs[:])
		require.NoError(t, err)
		require.Equal(t, 3-int(i), cgo.Outstanding(q.path))
	}
}

// TestResetCredits: RESET empties a queue, without completions.
func TestResetCredits(t *testing.T) {
	for name, cfg := range counted {
		t.Run(name, func(t *testing.T) {
			cfg.MaxSendWR = 2
			q, b, _, toPeer := connected(t, cfg, 2)
			fill := func() error {
				toPeer()
				b.Send(1, Signaled, wordSGE)
				b.Send(2, Signaled, wordSGE)
				_, err := b.Post()
				return err
			}
			require.NoError(t, fill())
			require.ErrorIs(t, fill(), ErrQueueFull)
			require.NoError(t, q.modifyBySteps(resetStep(), q.initStep()))
			q.state.Store(uint32(StateReset)) // and once more by itself
			require.NoError(t, q.ToReset())
			require.NoError(t, q.Init())
			require.NoError(t, q.getReady())
			require.NoError(t, fill())
			require.ErrorIs(t, fill(), ErrQueueFull)
			require.NotContains(t, standin.Recorded(), "OVERWRITES")
		})
	}
}

// TestStreamsAnyOrder: requests of different streams end in any order. libmlx5
// takes all up to the last completion to have ended, and none behind it.
func TestStreamsAnyOrder(t *testing.T) {
	q, b, cq, _ := connected(t, QPConfig{Type: DCI, Streams: 4, MaxSendWR: 4}, 4)
	ah := driverAH(t, q.pd, 0xa1)
	var wcs [1]WC
	for round := range uint64(8) {
		for i := range uint64(4) {
			b.SetTarget(Target{AH: ah, QPN: 0x77, Stream: 1 + int(i)})
			b.Send(round*10+i, Signaled, wordSGE)
		}
		_, err := b.Post()
		require.NoError(t, err)
		for _, i := range []uint64{3, 1, 2, 0} { // the oldest last
			standin.Complete(standinQP, round*10+i, uint32(WCSuccess))
			_, err = cq.Poll(wcs[:])
			require.NoError(t, err)
			b.SetTarget(Target{AH: ah, QPN: 0x77, Stream: 1})
			b.Send(99, Signaled, wordSGE)
			if i != 0 {
				_, err = b.Post()
				require.ErrorIs(t, err, ErrQueueFull, "a ring is free from its oldest entry on")
			}
			b.Reset()
		}
	}
	require.NotContains(t, standin.Recorded(), "OVERWRITES")
}

// TestSRDAnyOrder: EFA counts, so that a late request is not in the way of others.
func TestSRDAnyOrder(t *testing.T) {
	_, b, cq, toPeer := connected(t, QPConfig{Type: SRD, MaxSendWR: 4}, 4)
	toPeer()
	for i := range uint64(4) {
		b.Send(i, Signaled, wordSGE)
	}
	_, err := b.Post()
	require.NoError(t, err)
	var wcs [1]WC
	for i := range uint64(100) { // number 0 is late
		standin.Complete(standinQP, i+1, uint32(WCSuccess))
		_, err = cq.Poll(wcs[:])
		require.NoError(t, err)
		for want := range 2 {
			toPeer()
			b.Send(i+4+uint64(want), Signaled, wordSGE)
			_, err = b.Post()
			require.Equal(t, want == 1, err != nil, "%v", err)
		}
	}
}

// getReady brings a queue pair from INIT to where it sends.
func (q *QP) getReady() error {
	if q.typ.unconnected() {
		return q.Activate()
	}
	return q.Connect(Endpoint{Type: q.typ, QPN: 0x99, PSN: 1, GID: standinPeer, MTU: MTU4096}, ConnectConfig{})
}

// TestRefusedPostGivesBack: a post that the provider refuses takes no room.
func TestRefusedPostGivesBack(t *testing.T) {
	for name, cfg := range counted {
		t.Run(name, func(t *testing.T) {
			cfg.MaxSendWR = 3
			q, b, _, toPeer := connected(t, cfg, 3)
			for range 5 {
				toPeer()
				b.Send(1, Signaled, wordSGE)
				b.Send(2, Signaled, wordSGE)
				standin.Refuse("complete", syscall.EIO)
				_, err := b.Post()
				require.ErrorIs(t, err, syscall.EIO)
				require.Zero(t, cgo.Outstanding(q.path))
			}
		})
	}
}

// TestSlotUsedAgain: what a request leaves in its slot does not lead the next one
// elsewhere. A binding lies where the target of a DCI does.
func TestSlotUsedAgain(t *testing.T) {
	q, b, _, _ := connected(t, QPConfig{Ops: OpMasked | OpBindWindow}, 1)
	w := b.next(1, opBindMW, Signaled, Remote{}, nil)
	w.SetBind(0x7000, 3, 0x8000, 0x1000, 64, uint32(RemoteRead))
	_, err := b.Post()
	require.NoError(t, err)
	require.Contains(t, standin.Recorded(), "bind_mw id=0x1")
	b.Write(2, Signaled, wordAt, wordSGE)
	_, err = b.Post()
	require.NoError(t, err)
	recorded(t, `
		start
		write id=0x2 flags=0x2 rkey=0x5 addr=0x1000
		  sge lkey=0x9 addr=0x5000 length=8
		complete`)
	require.Equal(t, OpMasked|OpBindWindow, q.ops)
}
