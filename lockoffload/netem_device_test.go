//go:build linux

package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// recorder writes a history: which operation when, and what it saw.
type recorder struct {
	start  time.Time
	values atomic.Uint64

	mu     sync.Mutex
	events []lockoffload.Event
	count  map[string]int
	failed map[string]int // nothing was changed, or it is not known
}

func newRecorder() *recorder {
	return &recorder{start: time.Now(), count: map[string]int{}, failed: map[string]int{}}
}

// do carries one operation out and notes it. An error is one that must not be.
func (r *recorder) do(ctx context.Context, id int, a *actor, form string, slot int) error {
	e := lockoffload.Event{Client: id, Record: 2 * slot, Update: true, Call: time.Since(r.start)}
	a.value = func() uint64 { e.New = r.values.Add(1); return e.New }
	var got outcome
	var err error
	switch form {
	case "read":
		e.Update = false
		e.Old, err = a.count(ctx, slot, false)
		got = became(err)
	case "shared":
		e.Update = false
		got, e.Old, err = a.sharedRead(ctx, slot)
	case "swap read":
		e.Update, e.Record = false, 2*slot+1
		e.Old, err = a.count(ctx, slot, true)
		got = became(err)
	case "chain": // reads and writes whatever there is, so that twice is seen
		ch := lockoffload.Chain{Slot: slot, Accesses: []lockoffload.Access{readOf(0, a.size), writeOf(0, string(a.next(nil)))}}
		_, err = a.agent.Do(ctx, &ch)
		got, e.Old = became(err), number(ch.Accesses[0].Data)
		e.Blind = got == unknown
	case "swap":
		e.Record++
		fallthrough
	default:
		got, e.Old, err = a.add(ctx, form, slot)
	}
	e.Return, e.Unknown = time.Since(r.start), got == unknown
	r.mu.Lock()
	defer r.mu.Unlock()
	if got == nothing || !e.Update && err != nil {
		r.failed[form]++
	} else {
		r.count[form]++
		r.events = append(r.events, e)
	}
	if anyOf(err, lockoffload.ErrBusy, lockoffload.ErrOutcomeUnknown, lockoffload.ErrNotAcquired) {
		return nil
	}
	return err
}

// sharedRead reads twice under the shared lock.
func (a *actor) sharedRead(ctx context.Context, slot int) (outcome, uint64, error) {
	h, _, err := a.c.Lock(ctx, slot, lockoffload.LockOptions{Mode: lockoffload.Shared})
	if err != nil {
		return nothing, 0, err
	}
	one, first, err := h.Read(ctx, 0, make([]byte, a.size))
	if err == nil {
		var second lockoffload.Result
		if _, second, err = h.Read(ctx, 0, make([]byte, a.size)); err == nil && second.Version != first.Version {
			err = fmt.Errorf("version %d, then %d under the shared lock", first.Version, second.Version)
		}
	}
	return changed, number(one), errors.Join(err, h.Unlock(ctx))
}

var historyForms = append([]string{"read", "read", "shared", "swap read", "chain"}, addForms...)

// bad is a wire that loses, repeats and overtakes.
var bad = lab.Impairment{Loss: 0.05, Duplicate: 0.05, Delay: time.Millisecond, Reorder: 0.2}

// Histories of all forms together over a bad wire are linearizable. Callers of
// the agent lose their connection now and then and issue their chains again
// under the same keys; the agent has few places, and sends many away.
func TestHistoriesOnABadWire(t *testing.T) {
	lasts := 4 * time.Second
	if !testing.Short() {
		lasts = 2 * time.Minute
	}
	seed := testseed.New(t)
	ctx := within(t, lasts+2*stuck)
	r := newLeasedAgentRig(t, lockoffload.Layout{Slots: 3, Size: 16, Swap: 16}, short, func(cfg *lockoffload.AgentConfig) { cfg.Queue = 3 })
	const clients, goroutines = 3, 3
	var mu sync.Mutex
	near := map[int]*verbs.QP{}
	connects := 0
	var actors []*actor
	var places livePlaces
	for i := range clients {
		side, place := r.client(lockoffload.Retry{})
		places.add(side, place)
		actors = append(actors, &actor{c: side, size: 16, agent: r.caller(func(cfg *lockoffload.CallerConfig) {
			connect := cfg.Connect
			cfg.Connect = func(ctx context.Context) (*verbs.QP, *verbs.CQ, error) {
				qp, cq, err := connect(ctx)
				mu.Lock()
				defer mu.Unlock()
				near[i], connects = qp, connects+1
				return qp, cq, err
			}
		})})
		side.UseAgent(actors[i].agent)
	}
	lab.ImpairWire(t, bad)
	rec := newRecorder()
	stop := make(chan struct{})
	stopped := (<-chan struct{})(stop)
	var wg sync.WaitGroup
	for i := range clients * goroutines {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		a := *actors[i%clients]
		wg.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
				}
				form := historyForms[rng.IntN(len(historyForms))]
				err := rec.do(ctx, i, &a, form, rng.IntN(r.layout.Slots-1))
				if anyOf(err, lockoffload.ErrBroken, lockoffload.ErrLost) {
					time.Sleep(50 * time.Millisecond) // it will be connected again
				} else if err != nil {
					t.Errorf("%s: %v", form, err)
					return
				}
			}
		})
	}
	// showed reports whether all events have occurred that are required below.
	showed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		rec.mu.Lock()
		defer rec.mu.Unlock()
		for _, form := range historyForms {
			if rec.count[form] == 0 {
				return false
			}
		}
		n := r.agent.Stats()
		return connects > clients && n.Repeated > 0 && n.Busy > 0
	}
	over := make(chan struct{})
	for k, ended := 1, false; !ended; k++ {
		select {
		case <-over:
			ended = true
		case <-time.After(50 * time.Millisecond):
		}
		if stop != nil && time.Since(rec.start) > lasts && (showed() || time.Since(rec.start) > lasts+stuck) {
			close(stop)
			stop = nil
			go func() { wg.Wait(); close(over) }()
		}
		if k%8 == 0 && stop != nil {
			mu.Lock()
			require.NoError(t, near[k/8%clients].ToError())
			mu.Unlock()
		}
		places.renew(ctx, &r.rig)
	}
	mu.Lock() // a caller may still connect anew
	connected := connects
	mu.Unlock()
	t.Logf("%v, in vain %v, %d connections, %d of callers, agent %+v", rec.count, rec.failed, places.renewed, connected, r.agent.Stats())
	require.True(t, showed(), "each form came through, callers connected again, chains came more than once or were sent away")
	require.NoError(t, lockoffload.CheckEvents(rec.events))
}

// The same check finds out a client that writes without the lock.
func TestHistoryShowsBlindWrites(t *testing.T) {
	ctx := within(t, stuck)
	cs := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long).clients(3, lockoffload.Retry{})
	rec := newRecorder()
	var wg, both sync.WaitGroup
	both.Add(2)
	for i, c := range cs {
		a := &actor{c: c, size: 8}
		meet := sync.OnceFunc(func() { both.Done(); both.Wait() }) // each has read, and none has written
		wg.Go(func() {
			for range 150 {
				e := lockoffload.Event{Client: i, Update: true, Call: time.Since(rec.start)}
				err := c.BlindUpdate(ctx, 0, func(old []byte) ([]byte, error) {
					if i < 2 {
						meet()
					}
					e.Old, e.New = number(old), rec.values.Add(1)
					return binary.LittleEndian.AppendUint64(nil, e.New), nil
				})
				if err == nil {
					e.Return = time.Since(rec.start)
					rec.mu.Lock()
					rec.events = append(rec.events, e)
					rec.mu.Unlock()
				}
				_ = rec.do(ctx, i, a, "read", 0)
			}
		})
	}
	wg.Wait()
	require.ErrorContains(t, lockoffload.CheckEvents(rec.events), "not linearizable")
}

// A WRITE is on the wire when its client's lease runs out, and arrives when
// another client has the lock and has written. It is not executed. One that
// is not fenced, posted behind it, is.
func TestWriteThatArrivesLate(t *testing.T) {
	ctx := within(t, stuck)
	lease, late := short, 12*time.Second
	if testing.Short() {
		lease, late = short/3, 4*time.Second
	}
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, lease)
	c, s := r.client(lockoffload.Retry{})

	// The other client is at the target's own device, where nothing is late.
	qp, cq := r.b.qp(t)
	ea, err := qp.Endpoint()
	require.NoError(t, err)
	place, err := r.srv.Admit(nil)
	require.NoError(t, err)
	eb, err := place.Endpoint()
	require.NoError(t, err)
	require.NoError(t, errors.Join(place.Connect(ea), qp.Connect(eb, verbs.ConnectConfig{})))
	other, err := lockoffload.NewClient(lockoffload.Config{PD: r.b.pd, QP: qp, CQ: cq, Session: place.Info()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })

	// A connection that no server watches shows when such packets arrive.
	free, _ := r.a.qp(t)
	far, _ := r.b.qp(t)
	from, err := r.a.pd.AllocMR(8, verbs.MRConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, from.Close()) })
	to, err := r.b.pd.AllocMR(8, verbs.MRConfig{Access: verbs.RemoteWrite})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, to.Close()) })
	ea, err = free.Endpoint()
	require.NoError(t, err)
	eb, err = far.Endpoint()
	require.NoError(t, err)
	require.NoError(t, errors.Join(far.Connect(ea, verbs.ConnectConfig{}), free.Connect(eb, verbs.ConnectConfig{})))
	b, err := free.NewBatch(1)
	require.NoError(t, err)
	arrived := func() bool {
		v, err := to.Load64(0)
		require.NoError(t, err)
		return v != 0
	}

	began := time.Now()
	res, err := updateAsync(ctx, c, 0, func([]byte) ([]byte, error) {
		lab.ImpairWire(t, lab.Impairment{Delay: late})
		return []byte("late"), nil
	})
	require.NoError(t, err, "posted")
	from.Bytes()[0] = 1
	b.Write(0, verbs.Signaled, to.Region().At(0), from.SGE(0, 8))
	_, err = b.Post()
	require.NoError(t, err)

	_, err = updateAsync(ctx, other, 0, func(old []byte) ([]byte, error) {
		select {
		case <-s.Done():
		default:
			t.Error("the lock was given away before the session had ended")
		}
		require.Empty(t, old)
		return []byte("fresh"), nil
	})
	require.NoError(t, err)
	require.NoError(t, other.Flush(ctx))
	require.False(t, arrived(), "so the late WRITE is still on the wire")
	require.Less(t, time.Since(began), late)
	require.ErrorIs(t, res.Commit.Wait(ctx), lockoffload.ErrOutcomeUnknown)
	require.Eventually(t, arrived, stuck, 50*time.Millisecond)
	data, got, err := other.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, "fresh", string(data))
	require.EqualValues(t, 1, got.Version)
}
