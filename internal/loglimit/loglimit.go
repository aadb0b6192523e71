// Package loglimit writes lines that come again and again only now and then, so that what peers do
// cannot fill a disk.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// New returns a logger that writes at most one line of each message in every pause. The next
// line has the number of those left out before it. Loggers that are made of this one count
// together with it.
func New(l *slog.Logger, pause time.Duration) *slog.Logger {
	return slog.New(&handler{l.Handler(), &limiter{pause: pause, lines: map[string]*lines{}}})
}

// limiter counts lines by their message.
type limiter struct {
	pause time.Duration
	mu    sync.Mutex
	lines map[string]*lines
}

type lines struct {
	last time.Time // when one was written
	left int       // left out since then
}

// take reports whether a line is written now, and how many were left out before it.
func (l *limiter) take(message string) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[message]
	if n == nil {
		n = new(lines)
		l.lines[message] = n
	}
	now := time.Now()
	if now.Sub(n.last) < l.pause {
		n.left++
		return 0, false
	}
	left = n.left
	n.last, n.left = now, 0
	return left, true
}

type handler struct {
	slog.Handler
	limiter *limiter
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	left, ok := h.limiter.take(r.Message)
	if !ok {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.Add("left out", left)
	}
	return h.Handler.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limiter}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limiter}
}
