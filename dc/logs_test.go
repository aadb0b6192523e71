package dc

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rudeHandler does with the record of each message what that asks for.
type rudeHandler struct {
	slog.Handler
	got   chan string
	locks func()
}

func (h *rudeHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *rudeHandler) Handle(_ context.Context, r slog.Record) error {
	h.got <- r.Message
	switch r.Message {
	case "panic":
		panic("a log handler")
	case "goexit":
		runtime.Goexit()
	case "lock":
		h.locks()
	}
	return nil
}

// TestLogHandlers: records come in order, whatever the handler does with those before, and
// too many of them are not waited for.
func TestLogHandlers(t *testing.T) {
	next := func(h *rudeHandler) string {
		select {
		case m := <-h.got:
			return m
		case <-time.After(time.Minute):
			t.Fatal("no record comes")
			return ""
		}
	}
	h := &rudeHandler{got: make(chan string), locks: func() {}}
	l := logsOf(slog.New(h))
	require.Same(t, l, logsOf(l))
	all := []string{"1", "panic", "2", "goexit", "goexit", "panic", "3", "lock", "4"}
	for _, m := range all {
		l.Info(m)
	}
	for _, m := range all {
		require.Equal(t, m, next(h))
	}
	l.Info("first")
	require.Equal(t, "first", next(h))
	for n := range 2 * logsKept {
		l.Info(strconv.Itoa(n)) // without a reader
	}
	for n := range logsKept {
		require.Equal(t, strconv.Itoa(n), next(h))
	}
	require.Eventually(t, func() bool { l.Info("last"); return next(h) == "last" }, time.Minute, time.Millisecond)
}
