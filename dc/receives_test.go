//go:build linux && cgo

package dc

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// aReceiver is the number of the queue pair that newTestReceives has receives of.
const aReceiver = 0x4711

// newTestReceives are those of a DCT, which here serves sessions as a responder
// context of the software back end does.
func newTestReceives(t *testing.T) *receives {
	t.Helper()
	t.Cleanup(standin.Record())
	d := driver.WrapDevice("standin", standin.Context(), verbs.DeviceAttr{MaxCQE: 1 << 16})
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	pd, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	target, err := NewTarget(TargetConfig{PD: pd, GID: verbs.GIDEntry{GID: verbs.GID{15: 1}, Port: 1}, Backend: Hardware})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })
	return &target.in
}

// TestReceivesOfEndedSessions: what a session left in the queue is told as its own when
// the queue pair serves another one, in order, however many there are.
func TestReceivesOfEndedSessions(t *testing.T) {
	b := newTestReceives(t)
	reply := &Address{QPN: 5}
	b.begin(aReceiver, origin{session: 1, replyTo: reply})
	const first, second = 70, 10 // more than are polled at once
	for id := range uint64(first) {
		standin.Receive(aReceiver, id, int(id), nil)
	}
	b.collect(aReceiver)
	b.begin(aReceiver, origin{session: 2})
	for id := range uint64(second) {
		standin.Receive(aReceiver, first+id, 0, nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var got []Received
	for rs := make([]Received, 7); len(got) < first+second; {
		n, err := b.take(ctx, rs)
		require.NoError(t, err)
		got = append(got, rs[:n]...)
	}
	for k, r := range got {
		want := Received{ID: uint64(k), Session: 2}
		if k < first {
			want = Received{ID: uint64(k), Session: 1, ReplyTo: reply, Len: k}
		}
		require.Equal(t, want, r)
	}
	n, err := b.poll(make([]Received, 1))
	require.NoError(t, err)
	require.Zero(t, n)
	b.collect(aReceiver)
	standin.Receive(aReceiver, 99, 0, nil)
	rs := make([]Received, 1)
	_, err = b.take(ctx, rs)
	require.NoError(t, err)
	require.Zero(t, rs[0].Session, "of no session")
}

// TestReceivesInHand: a session does not end while a goroutine holds receives of it that
// have not been told their session.
func TestReceivesInHand(t *testing.T) {
	b := newTestReceives(t)
	b.begin(aReceiver, origin{session: 1})
	standin.Receive(aReceiver, 7, 0, nil)
	ctx := context.Background()

	// As take does it, step by step.
	b.mu.Lock()
	inner := b.watch.enter(ctx)
	b.mu.Unlock()
	n, err := b.watch.wait(ctx, inner, b.waiting[:1])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	collected := make(chan bool)
	go func() {
		b.collect(aReceiver)
		b.begin(aReceiver, origin{session: 2})
		close(collected)
	}()
	select {
	case <-collected:
		t.Error("the session has ended")
	case <-time.After(20 * time.Millisecond):
	}
	b.mu.Lock()
	got := b.received(&b.waiting[0])
	b.watch.leave()
	b.mu.Unlock()
	require.Equal(t, Received{ID: 7, Session: 1}, got)
	<-collected
	standin.Receive(aReceiver, 8, 0, nil)
	rs := make([]Received, 1)
	_, err = b.take(ctx, rs)
	require.NoError(t, err)
	require.Equal(t, Received{ID: 8, Session: 2}, rs[0])
}

// TestReceivesWakeWhoWaits: a goroutine that waits for receives gets those that the end of a
// session kept aside, though nothing new comes.
func TestReceivesWakeWhoWaits(t *testing.T) {
	b := newTestReceives(t)
	b.begin(aReceiver, origin{session: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got := make(chan Received, 1)
	b.mu.Lock()
	b.watch.others++ // no goroutine enters
	b.mu.Unlock()
	go func() {
		rs := make([]Received, 1)
		if _, err := b.take(ctx, rs); err != nil {
			t.Error(err)
		}
		got <- rs[0]
	}()
	time.Sleep(5 * time.Millisecond) // it has looked, perhaps
	standin.Receive(aReceiver, 7, 0, nil)
	b.collect(aReceiver)
	b.mu.Lock()
	b.watch.admit()
	b.mu.Unlock()
	require.Equal(t, Received{ID: 7, Session: 1}, <-got)
}
