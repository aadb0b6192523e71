//go:build linux && cgo

package verbs

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/internal/testseed"
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

// TestNotMadeFor: what a queue pair was not made for is refused by name, before
// anything of the batch is begun. The pointers of these operations are NULL.
func TestNotMadeFor(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  QPConfig
		add  func(*Batch)
		want string
	}{
		{"SEND_WITH_INV on RC", QPConfig{Extended: true}, func(b *Batch) {
			b.Add(WR{ID: 2, Flags: Signaled, Op: WRSendInvalidate, Remote: Remote{RKey: 7}, Local: []SGE{wordSGE}})
		}, "SEND_WITH_INV"},
		{"LOCAL_INV on RC", QPConfig{Extended: true}, func(b *Batch) { b.Add(WR{ID: 2, Flags: Signaled, Op: WRLocalInvalidate, Remote: Remote{RKey: 7}}) }, "LOCAL_INV"},
		{"LOCAL_INV beside SEND_WITH_INV", QPConfig{Ops: OpSendInvalidate}, func(b *Batch) { b.Add(WR{ID: 2, Flags: Signaled, Op: WRLocalInvalidate, Remote: Remote{RKey: 7}}) }, "LOCAL_INV"},
		{"READ on UC", QPConfig{Type: UC, Extended: true}, func(b *Batch) { b.Read(2, Signaled, wordAt, wordSGE) }, "READ"},
		{"FETCH_ADD on SRD", QPConfig{Type: SRD}, func(b *Batch) { b.FetchAdd(2, Signaled, wordAt, 1, wordSGE) }, "FETCH_ADD"},
		{"CMP_SWAP on SRD", QPConfig{Type: SRD}, func(b *Batch) { b.CmpSwap(2, Signaled, wordAt, 1, 2, wordSGE) }, "CMP_SWAP"},
		{"WRITE on SRD of a device that only reads", QPConfig{Type: SRD}, func(b *Batch) { b.Write(2, Signaled, wordAt, wordSGE) }, "WRITE"},
		{"SEND_WITH_INV on a DCI", QPConfig{Type: DCI}, func(b *Batch) {
			b.Add(WR{ID: 2, Flags: Signaled, Op: WRSendInvalidate, Remote: Remote{RKey: 7}, Local: []SGE{wordSGE}})
		}, "SEND_WITH_INV"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, b, _, toPeer := connected(t, c.cfg, 2)
			toPeer()
			b.Send(1, Signaled, wordSGE)
			c.add(b)
			n, err := b.Post()
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, q.life.Label)
			require.ErrorContains(t, err, c.want+": this")
			require.Zero(t, n)
			recorded(t, "")
			toPeer()
			b.Send(1, Signaled, wordSGE)
			_, err = b.Post()
			require.NoError(t, err)
		})
	}
}

// TestMadeFor: what was asked for can be called.
func TestMadeFor(t *testing.T) {
	_, b, _, _ := connected(t, QPConfig{Ops: OpSendInvalidate | OpLocalInvalidate}, 2)
	b.Add(WR{ID: 1, Flags: Signaled, Op: WRSendInvalidate, Remote: Remote{RKey: 7}, Local: []SGE{wordSGE}})
	b.Add(WR{ID: 2, Flags: Signaled, Op: WRLocalInvalidate, Remote: Remote{RKey: 8}})
	_, err := b.Post()
	require.NoError(t, err)
	recorded(t, `
		start
		send_inv id=0x1 flags=0x2 rkey=0x7
		  sge lkey=0x9 addr=0x5000 length=8
		local_inv id=0x2 flags=0x2 rkey=0x8
		complete`)
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

// TestCreditsModel: random programs against a list of what was posted. A post is
// taken if, and only if, there is room, and the provider's queue never overflows.
func TestCreditsModel(t *testing.T) {
	type posted struct {
		id             uint64
		stream         int
		signaled, done bool
	}
	seed := testseed.New(t)
	for name, cfg := range counted {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(len(name))))
			cfg.MaxSendWR, cfg.Streams = 1+r.IntN(12), 2*cfg.Streams
			q, b, cq, _ := connected(t, cfg, cfg.MaxSendWR)
			var ah *AH
			if cfg.Type.unconnected() {
				ah = driverAH(t, q.pd, 0xa1)
			}
			var queue []posted // of which the first has not completed
			id := uint64(0)
			var wcs [1]WC
			for range 3000 {
				used := len(queue)
				if cfg.Type == SRD {
					used = 0
					for _, p := range queue {
						if !p.done {
							used++
						}
					}
				}
				if n := 1 + r.IntN(b.Cap()); r.IntN(2) == 0 {
					var batch []posted
					for range n {
						id++
						p := posted{id: id, signaled: cfg.Type == SRD || r.IntN(3) == 0 || used+len(batch) == b.Cap()-1}
						if cfg.Streams > 0 {
							p.stream = 1 + r.IntN(cfg.Streams)
						}
						if ah != nil {
							b.SetTarget(Target{AH: ah, QPN: 0x77, Stream: p.stream})
						}
						flags := SendFlags(0)
						if p.signaled {
							flags = Signaled
						}
						b.Send(id, flags, wordSGE)
						batch = append(batch, p)
					}
					_, err := b.Post()
					require.Equal(t, used+n > cfg.MaxSendWR, err != nil, "%d used of %d, %d more: %v", used, cfg.MaxSendWR, n, err)
					if err == nil {
						queue = append(queue, batch...)
					} else {
						require.ErrorIs(t, err, ErrQueueFull)
					}
				} else {
					// One that completes, of those that can.
					var can []int
					first := map[int]bool{}
					for i, p := range queue {
						if !p.done && p.signaled && (cfg.Type == SRD || !first[p.stream]) {
							can, first[p.stream] = append(can, i), true
						}
					}
					if len(can) == 0 {
						if len(queue) > 0 && r.IntN(4) == 0 { // all unsignaled: RESET
							require.NoError(t, q.ToReset())
							require.NoError(t, q.Init())
							require.NoError(t, q.getReady())
							queue = nil
						}
						continue
					}
					i := can[r.IntN(len(can))]
					standin.Complete(standinQP, queue[i].id, uint32(WCSuccess))
					n, err := cq.Poll(wcs[:])
					require.NoError(t, err)
					require.Equal(t, 1, n)
					queue[i].done = true
					for j := range queue[:i] {
						if cfg.Type != SRD && queue[j].stream == queue[i].stream {
							queue[j].done = true
						}
					}
					for len(queue) > 0 && queue[0].done {
						queue = queue[1:]
					}
				}
				require.NotContains(t, standin.Recorded(), "OVERWRITES")
			}
		})
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

// TestInlineTooLong: too much inline is no full queue, which polling would empty.
func TestInlineTooLong(t *testing.T) {
	long, half := SGE{Addr: 0x5000, Length: 33}, SGE{Addr: 0x5000, Length: 17}
	for name, add := range map[string]func(*Batch){
		"one piece":       func(b *Batch) { b.Send(1, Inline, long) },
		"in sum":          func(b *Batch) { b.Write(1, Inline, wordAt, half, half) },
		"beyond 32 bits":  func(b *Batch) { b.Send(1, Inline, SGE{Length: maxSGELength}, SGE{Length: maxSGELength}) },
		"READ":            func(b *Batch) { b.Read(1, Inline, wordAt, wordSGE) },
		"FETCH_ADD":       func(b *Batch) { b.FetchAdd(1, Inline, wordAt, 1, wordSGE) },
		"with a datagram": func(b *Batch) { b.SendTo(1, Inline, Destination{}, long) },
		"with an old key": func(b *Batch) {
			b.Add(WR{ID: 1, Flags: Inline, Op: WRSendInvalidate, Remote: Remote{RKey: 3}, Local: []SGE{long}})
		},
		"with a immediate": func(b *Batch) { b.WriteImm(1, Inline, 3, wordAt, half, half) },
	} {
		t.Run(name, func(t *testing.T) {
			_, b, _, _ := connected(t, QPConfig{Extended: true, MaxInline: 32, MaxSendSGE: 2}, 1)
			add(b)
			_, err := b.Post()
			require.ErrorIs(t, err, ErrAttributes)
			require.ErrorContains(t, err, "inline")
			recorded(t, "")
		})
	}
	_, b, _, _ := connected(t, QPConfig{Extended: true, MaxInline: 32, MaxSendSGE: 2}, 2)
	b.SendInline(1, Signaled, make([]byte, 32))
	b.Send(2, Signaled|Inline, SGE{}, SGE{})
	_, err := b.Post()
	require.NoError(t, err)
}

// TestSignalAllMasked: the provider signals all requests but raw entries.
func TestSignalAllMasked(t *testing.T) {
	_, b, _, _ := connected(t, QPConfig{Ops: OpMasked, SignalAll: true}, 2)
	b.Add(WR{ID: 6, Op: WRMaskedFetchAdd, Remote: wordAt, Value: 1, Mask: 0x80, Local: []SGE{wordSGE}})
	entry := make([]byte, 16)
	entry[7] = 1
	b.Raw(7, 0, entry)
	_, err := b.Post()
	require.NoError(t, err)
	lines := strings.Split(standin.Recorded(), "\n")
	require.Len(t, lines, 4)
	for _, l := range lines[1:3] {
		bytes := l[strings.LastIndex(l, " ")+1:]
		require.Equal(t, fmt.Sprintf("%02x", wqeSignaled), bytes[22:24], l)
	}
}

// TestSRDFlags: EFA signals everything and knows no other flag but Inline.
func TestSRDFlags(t *testing.T) {
	for flag, ok := range map[SendFlags]bool{0: true, Signaled: true, Inline: true, Fence: false, Solicited: false, Signaled | Fence: false} {
		t.Run(flag.String(), func(t *testing.T) {
			_, b, _, toPeer := connected(t, QPConfig{Type: SRD, MaxInline: 32}, 2)
			toPeer()
			b.Send(1, 0, wordSGE)
			if flag&Inline != 0 {
				b.SendInline(2, 0, []byte("hello"))
			} else {
				b.Send(2, flag, wordSGE)
			}
			_, err := b.Post()
			if ok {
				require.NoError(t, err)
				require.Contains(t, standin.Recorded(), "complete")
				return
			}
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, (flag &^ Signaled).String())
			recorded(t, "")
		})
	}
}

// TestMaskedTypes: raw entries are for queue pairs that mlx5dv makes.
func TestMaskedTypes(t *testing.T) {
	_, p, c, _ := driverRig(t)
	for _, typ := range []QPType{UC, UD, SRD} {
		_, err := p.CreateQP(QPConfig{Type: typ, SendCQ: c, GID: standinGID, Ops: OpMasked})
		require.ErrorIs(t, err, ErrUnsupported, "%v", typ)
	}
}
