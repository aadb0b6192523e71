package engine

import (
	"testing"
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// BenchmarkMessage is what both engines do for a message of 64 bytes between peers that
// know each other, and for the response to it.
func BenchmarkMessage(b *testing.B) {
	sender, _ := direct(simple(2), 0)
	receiver, _ := direct(simple(2), 1)
	benchmarkMessages(b, func(int) (*Engine, *Engine) { return sender, receiver })
}

// BenchmarkFirstMessage is the same for the first message to a peer that has the
// deployment's key, and has talked to others before.
func BenchmarkFirstMessage(b *testing.B) {
	const n = 1000
	cfg := simple(2)
	cfg.Key, cfg.EvictAge = &wire.Key{1, 2}, time.Hour
	buf := make([]byte, 2048)
	var sender *Engine
	receivers := make([]*Engine, n)
	other, _ := direct(cfg, 2*n)
	benchmarkMessages(b, func(i int) (*Engine, *Engine) {
		if i%n == 0 {
			b.StopTimer()
			sender, _ = direct(cfg, 0)
			for k := range receivers {
				receivers[k], _ = direct(cfg, k+1)
				if _, err := receivers[k].Send(other.cfg.Addr, Message{Len: 64, Now: true}); err != nil {
					b.Fatal(err)
				}
				carry(receivers[k], other, time.Millisecond, buf)
			}
			b.StartTimer()
		}
		return sender, receivers[i%n]
	})
}

func benchmarkMessages(b *testing.B, ends func(i int) (*Engine, *Engine)) {
	buf := make([]byte, 2048)
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		sender, receiver := ends(i)
		if _, err := sender.Send(receiver.cfg.Addr, Message{Len: 64, Now: true}); err != nil {
			b.Fatal(err)
		}
		carry(sender, receiver, time.Duration(i+2)*time.Millisecond, buf)
	}
}

// BenchmarkPingPong measures what both engines do for a message to a peer that replies at once, so
// that responses go with messages, on eight paths of 200 us.
func BenchmarkPingPong(b *testing.B) {
	const delay = 200 * time.Microsecond
	from, _ := direct(simple(8), 0)
	to, _ := direct(simple(8), 1)
	buf := make([]byte, 2048)
	now := time.Millisecond
	if _, err := from.Send(to.cfg.Addr, Message{Len: 64, Now: true}); err != nil {
		b.Fatal(err)
	}
	carry(from, to, now, buf)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := from.Send(to.cfg.Addr, Message{Len: 64}); err != nil {
			b.Fatal(err)
		}
		now += delay
		to.Advance(now)
		var o Out
		for from.Next(buf, &o) {
			to.Receive(Source{GID: from.cfg.Addr.GID, QPN: from.cfg.Addr.QPN}, buf[:o.Headers+o.Length])
		}
		from, to = to, from
	}
}
