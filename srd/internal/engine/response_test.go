package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ackDelay = 100 * time.Microsecond // of simple

// warmEngines know each other, and have nothing to do.
func warmEngines(t *testing.T) (a, b *Engine, buf []byte, now time.Duration) {
	a, _ = direct(simple(1), 0)
	b, _ = direct(simple(1), 1)
	buf, now = make([]byte, 2048), time.Millisecond
	for range 3 {
		for _, d := range [2][2]*Engine{{a, b}, {b, a}} {
			for _, s := range []uint8{Reliable, Ordered} {
				_, err := d[0].Send(d[1].cfg.Addr, Message{Len: 64, Service: s})
				require.NoError(t, err)
			}
		}
		for range 4 {
			carry(a, b, now, buf)
			now += ackDelay
		}
	}
	return a, b, buf, now
}

// move brings what one engine has to send to the other.
func move(from, to *Engine, now time.Duration, buf []byte) (packets int) {
	var o Out
	from.Advance(now)
	to.Advance(now)
	for from.Next(buf, &o) {
		packets++
		to.Receive(Source{GID: from.cfg.Addr.GID, QPN: from.cfg.Addr.QPN}, buf[:o.Headers+o.Length])
	}
	return packets
}

// A response that went with a packet is no reason to look at its peer: a question and an
// answer later nothing is due for longer than a response may wait.
func TestRespondedIsNotLookedAt(t *testing.T) {
	a, b, buf, now := warmEngines(t)
	_, err := a.Send(b.cfg.Addr, Message{Len: 64})
	require.NoError(t, err)
	require.Equal(t, 1, move(a, b, now, buf))
	require.Equal(t, ackDelay, b.Wait())
	_, err = b.Send(a.cfg.Addr, Message{Len: 64})
	require.NoError(t, err)
	require.Equal(t, 1, move(b, a, now, buf))
	require.Greater(t, b.Wait(), 2*ackDelay)
	for range 10 { // timers of what was sent still end
		now += 4 * time.Millisecond
		b.Advance(now)
	}
	require.Positive(t, b.Stats.Timeouts)
}

// The response of one service may go with a packet while that of another one waits: that
// goes when it is due.
func TestOtherResponseIsDue(t *testing.T) {
	a, b, buf, now := warmEngines(t)
	for _, s := range []uint8{Reliable, Ordered} {
		_, err := a.Send(b.cfg.Addr, Message{Len: 64, Service: s})
		require.NoError(t, err)
	}
	move(a, b, now, buf)
	_, err := b.Send(a.cfg.Addr, Message{Len: 64})
	require.NoError(t, err)
	require.Equal(t, 1, move(b, a, now, buf))
	require.Equal(t, ackDelay, b.Wait())
	require.Equal(t, 1, move(b, a, now+ackDelay, buf))
}
