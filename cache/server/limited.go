package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logEvery is the least time between two lines with the same message.
const logEvery = time.Second

// limited returns a logger that writes at most one line a second of each message, so that
// strangers cannot fill a disk. The next line has the number of those left out before it.
func limited(l *slog.Logger) *slog.Logger {
	return slog.New(&limiter{Handler: l.Handler(), seen: map[string]*repeats{}})
}

// limiter is the handler of such a logger.
type limiter struct {
	slog.Handler
	mu   sync.Mutex
	seen map[string]*repeats // by message
}

type repeats struct {
	last time.Time
	left int // left out since then
}

// Handle implements [slog.Handler].
func (h *limiter) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	n := h.seen[r.Message]
	if n == nil {
		n = &repeats{}
		h.seen[r.Message] = n
	}
	if time.Since(n.last) < logEvery {
		n.left++
		h.mu.Unlock()
		return nil
	}
	left := n.left
	n.last, n.left = time.Now(), 0
	h.mu.Unlock()
	if left > 0 {
		r = r.Clone()
		r.Add("left out", left)
	}
	return h.Handler.Handle(ctx, r)
}
