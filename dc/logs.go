package dc

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
)

// logsKept is how many log records may wait for a handler. More are dropped.
const logsKept = 256

// logsOf returns a logger that passes records to the handler of l in order, in a goroutine
// of their own: records are made while locks are held, and a handler may panic, end its
// goroutine, block, or call the object that it hears of. A nil l is silent.
func logsOf(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	if _, ok := l.Handler().(*logHandler); ok || l.Handler() == slog.DiscardHandler {
		return l
	}
	return slog.New(&logHandler{to: l.Handler(), logs: &logs{queue: make(chan func(), logsKept)}})
}

type logHandler struct {
	to slog.Handler
	*logs
}

func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	h.add(func() {
		if ctx := context.Background(); h.to.Enabled(ctx, r.Level) {
			h.to.Handle(ctx, r)
		}
	})
	return nil
}

func (h *logHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return &logHandler{h.to.WithAttrs(as), h.logs}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.to.WithGroup(name), h.logs}
}

// logs are records that wait for their handlers.
type logs struct {
	queue   chan func()
	running atomic.Bool // a goroutine hands them out
}

func (l *logs) add(f func()) {
	select {
	case l.queue <- f:
		l.start()
	default:
	}
}

func (l *logs) start() {
	if l.running.CompareAndSwap(false, true) {
		go l.run()
	}
}

// run hands out records until none is left. If a handler ends it, another goroutine goes on.
func (l *logs) run() {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "dc: a log handler panicked: %v\n%s", r, debug.Stack())
		}
		l.running.Store(false)
		if len(l.queue) > 0 {
			l.start()
		}
	}()
	for {
		select {
		case f := <-l.queue:
			f()
		default:
			return
		}
	}
}
