//go:build simhca && linux && cgo

package lockoffload_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/pending"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

// The device tests run on simulated devices of mlx5 as well: those execute READs late,
// and READs and WRITEs by cache lines, as Soft-RoCE does not.
func init() {
	if strings.Contains(os.Getenv("SIMHCA"), "mlx5") {
		wire, simulated = [2]string{"mlx5_0", "mlx5_1"}, true
	}
}

// manyLines is the size of records that reach over several cache lines.
const manyLines = 120

// filled is a record full of one number.
func filled(v uint64) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, v), manyLines/8)
}

// numberOf is the number that records are full of; they have the same, all of them.
func numberOf(records ...[]byte) (uint64, error) {
	v := number(records[0])
	for _, r := range records {
		if len(r) > 0 && !bytes.Equal(r, filled(v)) || len(r) == 0 && v != 0 {
			return 0, fmt.Errorf("records are in pieces: %x", records)
		}
	}
	return v, nil
}

// isolated is a goroutine of a client, which notes what it does to a slot whose two
// records always have the same number, and to the private copies (the second register).
type isolated struct {
	c   *lockoffload.Client
	id  int
	rec *recorder
}

func (w *isolated) note(e lockoffload.Event, err error) {
	if err != nil && !errors.Is(err, lockoffload.ErrOutcomeUnknown) {
		return // nothing was changed
	}
	e.Client, e.Return, e.Unknown = w.id, time.Since(w.rec.start), err != nil
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	w.rec.events = append(w.rec.events, e)
}

func (w *isolated) do(ctx context.Context, form string) (err error) {
	e := lockoffload.Event{Call: time.Since(w.rec.start)}
	one := make([]byte, manyLines)
	switch form {
	case "read":
		if one, _, err = w.c.Read(ctx, 0, one); err == nil {
			e.Old, err = numberOf(one)
		}
	case "records", "read chain":
		ch := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(1, manyLines), readOf(0, manyLines)}}
		if form == "read chain" {
			ch.Tries = 1 << 30
		}
		if _, err = w.c.Do(ctx, &ch); err == nil {
			e.Old, err = numberOf(ch.Accesses[0].Data, ch.Accesses[1].Data)
		}
	case "agent":
		e.Update, e.New = true, w.rec.values.Add(1)
		next := string(filled(e.New))
		ch := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(0, manyLines), readOf(1, manyLines), writeOf(0, next), writeOf(1, next)}}
		var res lockoffload.Result
		if res, err = w.c.Do(ctx, &ch); err == nil {
			e.Old, err = numberOf(ch.Accesses[0].Data, ch.Accesses[1].Data)
		}
		if err == nil && res.Protocol != lockoffload.ProtocolAgent {
			err = fmt.Errorf("carried out as %v", res.Protocol)
		}
	case "update":
		e.Update, e.New = true, w.rec.values.Add(1)
		ch := lockoffload.Chain{Accesses: []lockoffload.Access{readOf(0, 0), readOf(1, 0), writeOf(0, ""), writeOf(1, "")}}
		ch.Change = func(a []lockoffload.Access) (err error) {
			e.Old, err = numberOf(a[0].Data, a[1].Data)
			a[2].Data, a[3].Data = filled(e.New), filled(e.New)
			return err
		}
		_, err = w.c.Do(ctx, &ch)
	case "exclusive", "fair":
		return w.hold(ctx, map[string]lockoffload.Mode{"exclusive": lockoffload.Exclusive, "fair": lockoffload.Fair}[form])
	case "shared":
		e.Old, err = w.share(ctx)
	case "swap read", "swap":
		e.Record = 1
		var res lockoffload.Result
		if one, res, err = w.c.SwapRead(ctx, 0, one); err != nil {
			return err
		}
		if e.Old, err = numberOf(one); err != nil || form == "swap read" {
			break
		}
		e.Update, e.New = true, w.rec.values.Add(1)
		if _, err = w.c.SwapWrite(ctx, 0, res.Version, filled(e.New)); errors.Is(err, lockoffload.ErrVersionMismatch) {
			return nil
		}
	}
	w.note(e, err)
	if err != nil {
		return fmt.Errorf("%s: %w", form, err)
	}
	return nil
}

// hold writes under a lock data that no reader may see, commits, and writes again.
func (w *isolated) hold(ctx context.Context, mode lockoffload.Mode) error {
	h, _, err := w.c.Lock(ctx, 0, lockoffload.LockOptions{Mode: mode})
	if err != nil {
		return err
	}
	var before uint64
	for end, last := range []func(context.Context) error{h.Commit, h.Unlock} {
		e := lockoffload.Event{Update: true, Old: before, New: w.rec.values.Add(1), Call: time.Since(w.rec.start)}
		for r := range 2 {
			data, _, rerr := h.Read(ctx, r, make([]byte, manyLines))
			v, verr := numberOf(data)
			if end == 0 && r == 0 {
				e.Old = v
			} else if v != e.Old {
				verr = fmt.Errorf("%d, and then %d under the lock", e.Old, v)
			}
			_, werr := h.Write(ctx, r, filled(1<<60+e.New))
			err = errors.Join(err, rerr, verr, werr)
		}
		for r := range 2 {
			_, werr := h.Write(ctx, r, filled(e.New))
			err = errors.Join(err, werr)
		}
		if err != nil {
			return errors.Join(err, h.Unlock(ctx))
		}
		err = last(ctx)
		w.note(e, err)
		if err != nil {
			return errors.Join(err, h.Unlock(ctx))
		}
		before = e.New
	}
	return nil
}

func (w *isolated) share(ctx context.Context) (uint64, error) {
	h, _, err := w.c.Lock(ctx, 0, lockoffload.LockOptions{Mode: lockoffload.Shared})
	if err != nil {
		return 0, err
	}
	one, _, err := h.Read(ctx, 0, make([]byte, manyLines))
	two, _, err2 := h.Read(ctx, 1, make([]byte, manyLines))
	if err = errors.Join(err, err2); err != nil {
		return 0, err
	}
	v, err := numberOf(one, two)
	return v, errors.Join(err, h.Unlock(ctx))
}

// Whatever the order in which a device carries out READs and moves their bytes, what
// clients read is whole, and what one read is what all others' changes make of it.
func TestSimulatedIsolation(t *testing.T) {
	if !simulated {
		t.Skip("needs SIMHCA=mlx5:latereads:torn,mlx5:latereads:torn")
	}
	every := []string{"read", "read chain", "records", "update", "exclusive", "shared", "swap", "swap read"}
	reads, chains := []string{"read", "records", "update"}, []string{"read chain", "read chain", "update"}
	helped := []string{"agent", "agent", "fair", "update", "exclusive", "read", "read chain", "records", "shared"}
	t.Run("all", func(t *testing.T) { isolation(t, 150, false, every, every) })
	t.Run("agent", func(t *testing.T) { isolation(t, 80, true, helped, helped) })
	t.Run("reads", func(t *testing.T) { isolation(t, 150, false, reads, reads) })
	t.Run("chains", func(t *testing.T) { isolation(t, 150, false, chains, chains) })
	t.Run("swaps", func(t *testing.T) { isolation(t, 2000, false, []string{"swap"}, []string{"swap read"}) })
}

// isolation has half of the clients carry out some forms, and half of them others; with an
// agent that carries out their chains and hands locks on, or without.
func isolation(t *testing.T, each int, agent bool, forms ...[]string) {
	const clients, goroutines = 4, 2
	seed := testseed.New(t)
	ctx := within(t, stuck)
	layout := lockoffload.Layout{Slots: 1, Size: manyLines, Records: 2, Swap: 2 * clients}
	var cs []*lockoffload.Client
	if agent {
		r := newAgentRig(t, layout, nil)
		for range clients {
			cs = append(cs, r.inTurn())
		}
	} else {
		cs = newRig(t, layout, long).clients(clients, lockoffload.Retry{})
	}
	rec := newRecorder()
	torn := func() (n uint64) {
		for _, c := range cs {
			n += c.Stats().Torn
		}
		return n
	}
	tears := strings.Contains(os.Getenv("SIMHCA"), "torn")
	var all sync.WaitGroup
	for i := range clients * goroutines {
		w, rng, mine := isolated{cs[i%clients], i, rec}, rand.New(rand.NewPCG(seed, uint64(i))), forms[i%2]
		all.Go(func() {
			for n := 0; n < each || tears && torn() == 0 && n < 20*each; n++ {
				if err := w.do(ctx, mine[rng.IntN(len(mine))]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d events in %v, %d READs met a WRITE", len(rec.events), time.Since(rec.start).Round(time.Millisecond), torn())
	if tears {
		require.NotZero(t, torn(), "or the test shows nothing")
	}
	require.NoError(t, lockoffload.CheckEvents(rec.events))
}

// Where connections break in the midst of it, with requests under way of which a device
// has carried out some and told of none: what is said to have changed nothing has not,
// and whatever else happened is what one order of all makes of it.
func TestSimulatedBreaks(t *testing.T) {
	if !simulated {
		t.Skip("needs SIMHCA=mlx5:latereads:torn,mlx5:latereads:torn")
	}
	const clients, goroutines, breaks = 3, 2, 40
	seed := testseed.New(t)
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: manyLines, Records: 2, Swap: 2 * clients}, long)
	rec := newRecorder()
	forms := []string{"read", "read chain", "records", "update", "update", "exclusive", "shared", "swap", "swap read"}
	type client struct {
		*lockoffload.Client
		qp    *verbs.QP
		place *lockoffload.Session
	}
	var all sync.WaitGroup
	var cs []*client
	stop := make(chan struct{})
	for i := range clients {
		qp, cq, place, in := r.admit()
		c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		cs = append(cs, &client{c, qp, place})
		for k := range goroutines {
			w, rng := isolated{c, i*goroutines + k, rec}, rand.New(rand.NewPCG(seed, uint64(i*goroutines+k)))
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					err := w.do(ctx, forms[rng.IntN(len(forms))])
					if anyOf(err, lockoffload.ErrBroken, lockoffload.ErrLost) {
						time.Sleep(time.Millisecond) // it will be connected again
					} else if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	for range breaks {
		time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
		c := cs[rng.IntN(clients)]
		require.NoError(t, simhca.Break(wire[0], c.qp.Num()))
		<-c.Lost()
		require.NoError(t, c.place.Evict()) // as when its lease is over
		qp, cq, place, in := r.admit()
		require.NoError(t, c.Reconnect(ctx, qp, cq, in))
		c.qp, c.place = qp, place
	}
	close(stop)
	all.Wait()
	unknown := 0
	for _, e := range rec.events {
		if e.Unknown {
			unknown++
		}
	}
	t.Logf("%d events, of %d nobody knows whether they happened", len(rec.events), unknown)
	require.NoError(t, lockoffload.CheckEvents(rec.events))
}

// Whichever request fails: what is said to have changed nothing has not, and what is said
// to be done is.
func TestSimulatedFailures(t *testing.T) {
	if !simulated {
		t.Skip("needs SIMHCA=mlx5,mlx5")
	}
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 8, Swap: 128}, long)
	sees, _ := r.client(lockoffload.Retry{})
	for form, change := range map[string]func(c *lockoffload.Client) error{
		"update": func(c *lockoffload.Client) error { return upOnce(ctx, c) },
		"held": func(c *lockoffload.Client) error {
			h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
			if err != nil {
				return err
			}
			old, _, err := h.Read(ctx, 0, make([]byte, 8))
			if err == nil {
				_, err = h.Write(ctx, 0, up(old))
			}
			return errors.Join(err, h.Unlock(ctx))
		},
		"do": func(c *lockoffload.Client) error {
			old, _, err := c.Read(ctx, 0, make([]byte, 8))
			if err == nil {
				_, err = c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, string(up(old)))}})
			}
			return err
		},
		"swap": func(c *lockoffload.Client) error {
			old, res, err := c.SwapRead(ctx, 0, make([]byte, 8))
			if err == nil {
				_, err = c.SwapWrite(ctx, 0, res.Version, up(old))
			}
			return err
		},
	} {
		failures, changes := 0, map[string]int{"swap": 2}[form]
		for after := 0; ; after++ {
			qp, cq, s, in := r.admit()
			c, err := lockoffload.NewClient(lockoffload.Config{PD: r.a.pd, QP: qp, CQ: cq, Session: in})
			require.NoError(t, err)
			_, _, err = c.Read(ctx, 0, make([]byte, 8)) // the first heartbeat is over
			require.NoError(t, err)
			before := values(ctx, t, sees)
			require.NoError(t, simhca.Fail(wire[0], qp.Num(), after, uint32(verbs.WCRetryExceeded)))
			err = change(c)
			require.NoError(t, s.Evict())
			_ = c.Close()
			now := values(ctx, t, sees)
			switch {
			case err == nil:
				require.Equal(t, before[changes]+1, now[changes], form)
			case !errors.Is(err, lockoffload.ErrOutcomeUnknown):
				failures++
				require.Equal(t, before, now, "%s, request %d: %v", form, after, err)
			default:
				failures++
			}
			if err == nil {
				break
			}
		}
		t.Logf("%s: %d requests", form, failures)
		require.Greater(t, failures, 1)
	}
}

// values are the numbers in two slots, and in the private copies of the first.
func values(ctx context.Context, t *testing.T, c *lockoffload.Client) (v []uint64) {
	for slot := range 2 {
		data, _, err := c.Read(ctx, slot, make([]byte, 8))
		require.NoError(t, err)
		v = append(v, number(data))
	}
	data, _, err := c.SwapRead(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	return append(v, number(data))
}

// A READ that took long may have seen what was there before a recovery, and what came after
// it: it does not count.
func TestSimulatedLateRead(t *testing.T) {
	if !simulated {
		t.Skip("needs SIMHCA=mlx5,mlx5")
	}
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, _, qp := r.clientOn(lockoffload.Retry{})
	for c.Stats().Torn == 0 { // once, unless the test itself is late
		require.NoError(t, simhca.Hold(wire[0], qp.Num(), 200*time.Millisecond))
		_, res, err := c.Read(ctx, 0, make([]byte, 8))
		require.NoError(t, err)
		require.EqualValues(t, 1+c.Stats().Torn, res.Tries)
	}
}

// A Commit whose context ended is still under way: the next change is made behind it, and
// not in its memory.
func TestSimulatedCommitThatIsGivenUp(t *testing.T) {
	if !simulated {
		t.Skip("needs SIMHCA=mlx5,mlx5")
	}
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, _, qp := r.clientOn(lockoffload.Retry{})
	h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	for givenUp := false; !givenUp; { // once, unless the test itself is late
		first, err := h.Write(ctx, 0, []byte("first"))
		require.NoError(t, err)
		brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		require.NoError(t, simhca.Hold(wire[0], qp.Num(), 200*time.Millisecond))
		err = h.Commit(brief)
		cancel()
		givenUp = errors.Is(err, lockoffload.ErrOutcomeUnknown)
		second, err := h.Write(ctx, 0, []byte("second"))
		require.NoError(t, err)
		if givenUp {
			require.Equal(t, first.Version+1, second.Version)
		}
	}
	require.NoError(t, h.Unlock(ctx))
	data, _, err := c.Read(ctx, 0, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, "second", string(data))
}

// An Unlock that goes on in the background behind a Commit leaves its outcome to the next one.
func TestSimulatedUnlockThatIsGivenUp(t *testing.T) {
	if !simulated {
		t.Skip("needs SIMHCA=mlx5,mlx5")
	}
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	c, _, qp := r.clientOn(lockoffload.Retry{})
	for givenUp := false; !givenUp; { // once, unless the test itself is late
		h, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
		require.NoError(t, err)
		_, err = h.Write(ctx, 0, []byte("first"))
		require.NoError(t, err)
		brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		require.NoError(t, simhca.Hold(wire[0], qp.Num(), 200*time.Millisecond))
		err = h.Commit(brief)
		if err == nil {
			require.NoError(t, h.Unlock(ctx))
			cancel()
			continue
		}
		givenUp = true
		require.ErrorIs(t, h.Unlock(brief), context.DeadlineExceeded)
		cancel()
		time.Sleep(10 * time.Millisecond)       // until it waits for the Commit, in front of what follows
		require.NoError(t, r.reg.LeftLocked(0)) // another holder has the lock
		require.ErrorIs(t, h.Unlock(ctx), lockoffload.ErrLost)
		_ = c.Flush(ctx) // returns it as well, since the Unlock that began it did not
	}
}

// A swap with an unknown outcome may have made a private copy the current one. The
// next one leaves that alone.
func TestSimulatedSwapBehindAnUnknown(t *testing.T) {
	if !simulated {
		t.Skip("needs SIMHCA=mlx5,mlx5")
	}
	ctx := within(t, stuck)
	r := newRig(t, lockoffload.Layout{Slots: 1, Size: 8, Clients: 2, Swap: 4}, long)
	other, _ := r.client(lockoffload.Retry{})
	c, _, qp := r.clientOn(lockoffload.Retry{})
	for unknown := false; !unknown; { // once, unless the test itself is late
		old, res, err := c.SwapRead(ctx, 0, make([]byte, 8))
		require.NoError(t, err)
		next := up(old)
		brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		require.NoError(t, simhca.Hold(wire[0], qp.Num(), 200*time.Millisecond))
		_, err = c.SwapWrite(brief, 0, res.Version, next)
		cancel()
		unknown = errors.Is(err, lockoffload.ErrOutcomeUnknown)
		_, err = c.SwapWrite(ctx, 0, res.Version, up(up(next)))
		require.ErrorIs(t, err, lockoffload.ErrVersionMismatch)
		data, _, err := other.SwapRead(ctx, 0, make([]byte, 8))
		require.NoError(t, err)
		require.Equal(t, next, data)
	}
}

// When the device of a client or of the target is removed, all that was under way on it
// ends, locks are lost, and everything on it can be closed.
func TestSimulatedRemoval(t *testing.T) {
	ways := map[string]func(*testing.T){"client": removedClient, "server": removedServer, "listener": removedListener}
	if which := os.Getenv("SIMHCA_REMOVE"); which != "" {
		ways[which](t)
		return
	}
	if !simulated {
		t.Skip("needs SIMHCA=mlx5,mlx5")
	}
	for which := range ways {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSimulatedRemoval$", "-test.v", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), "SIMHCA_REMOVE="+which)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", which, out)
		require.Contains(t, string(out), "--- PASS: TestSimulatedRemoval", which)
	}
}

func removedClient(t *testing.T) {
	ctx := within(t, 40*time.Second)
	patient := newRig(t, lockoffload.Layout{Slots: 1, Size: 8}, long)
	idle, _ := patient.client(lockoffload.Retry{})
	r := newRig(t, lockoffload.Layout{Slots: 2, Size: 16}, short)
	cs := r.clients(2, lockoffload.Retry{})
	h, _, err := cs[0].Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	_, err = h.Write(ctx, 0, []byte("never"))
	require.NoError(t, err)
	waits := make(chan error)
	go func() {
		_, _, err := cs[1].Lock(ctx, 0, lockoffload.LockOptions{})
		waits <- err
	}()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, simhca.Remove(wire[0]))
	isSoon(t, "close, long before the lease is over", idle.Close)
	require.ErrorIs(t, <-waits, lockoffload.ErrBroken)
	<-h.Lost()
	require.ErrorIs(t, h.Unlock(ctx), lockoffload.ErrBroken)
	_, _, err = cs[1].Read(ctx, 1, make([]byte, 16))
	require.ErrorIs(t, err, lockoffload.ErrBroken)
}

// Sessions are over, by themselves, those whose queue pairs are the program's too; the
// server says what is wrong; and the rig closes all of it without an error.
func removedServer(t *testing.T) {
	ctx := within(t, 40*time.Second)
	r := newAgentRig(t, lockoffload.Layout{Slots: 2, Size: 16}, nil)
	r.lease = long
	c, s := r.client(lockoffload.Retry{})
	_, _, err := c.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)
	mine, _ := r.b.qp(t)
	own, err := r.srv.Admit(mine)
	require.NoError(t, err)
	require.NoError(t, r.srv.Err())

	require.NoError(t, simhca.Remove(wire[1]))
	require.NoError(t, own.Close(), "nothing is left to be fenced")
	<-own.Done()
	require.ErrorContains(t, r.srv.Err(), "removed")
	_, err = r.srv.Admit(nil)
	require.ErrorIs(t, err, lockoffload.ErrClosed)
	require.NoError(t, r.agent.Close())
	require.NoError(t, r.srv.Close())
	<-s.Done()
}

func removedListener(t *testing.T) {
	ctx := within(t, 40*time.Second)
	lis, dial := listen(t, lockoffload.Layout{Slots: 2, Size: 16}, long)
	c, err := dial(ctx)
	require.NoError(t, err)
	require.NoError(t, upOnce(ctx, c))
	_, err = c.Do(ctx, &lockoffload.Chain{Slot: 1, Accesses: []lockoffload.Access{writeOf(0, "by agent")}})
	require.NoError(t, err)
	own, err := lis.Local(lockoffload.Retry{})
	require.NoError(t, err)
	_, _, err = own.Lock(ctx, 0, lockoffload.LockOptions{})
	require.NoError(t, err)

	require.NoError(t, simhca.Remove(wire[1]))
	require.Eventually(t, func() bool { return lis.Err() != nil }, stuck, time.Millisecond)
	isSoon(t, "close of the target's own client", own.Close)
	isSoon(t, "close of a client", func() error { _ = c.Close(); return nil }) // its target is gone
	isSoon(t, "close of the target", lis.Close)
}

// lines are those of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A thousand connections of one address that say nothing keep no client out: the oldest
// ones make room. Nothing is made for them.
func TestSimulatedSilentConnections(t *testing.T) {
	requireWire(t)
	ctx := within(t, stuck)
	near, far := open(t, wire[0]), open(t, wire[1])
	const flood, places = 1000, 256
	told := make(lines, 2*flood)
	lis, err := lockoffload.Listen(far.pd, "127.0.0.1:0", lockoffload.ListenConfig{Layout: lockoffload.Layout{Slots: 1, Size: 8},
		Key: testKey, Lease: long, Grace: -1, GID: far.gid, Logger: slog.New(slog.NewTextHandler(told, nil))})
	require.NoError(t, err)
	for range flood {
		conn, err := net.Dial("tcp", lis.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
	}
	for range flood - places {
		require.Contains(t, <-told, pending.ErrCrowded.Error())
	}
	require.Zero(t, lis.Stats().Admitted)
	c, err := lockoffload.Dial(ctx, near.pd, lis.Addr().String(), lockoffload.DialConfig{Key: testKey, GID: near.gid})
	require.NoError(t, err)
	require.NoError(t, upOnce(ctx, c))
	require.Contains(t, <-told, pending.ErrCrowded.Error(), "the oldest makes room for the client")
	require.NoError(t, c.Close())
	isSoon(t, "close of the target", lis.Close)
}
