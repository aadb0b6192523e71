package loglimit

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Of a message that comes again and again there is one line in a pause, which has the number of those left out.
func TestNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil)), time.Second)
		for range 250 {
			l.Info("refused", "address", "a")
			time.Sleep(10 * time.Millisecond)
		}
		l.Info("other")
		l.Debug("refused")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 4)
		require.NotContains(t, lines[0], "left out")
		require.Contains(t, lines[1], `address=a "left out"=99`)
		require.Contains(t, lines[2], `"left out"=99`)
		require.NotContains(t, lines[3], "left out")
	})
}

// Loggers with more attributes, or a group, share the count.
func TestDerived(t *testing.T) {
	var out bytes.Buffer
	l := New(slog.New(slog.NewTextHandler(&out, nil)), time.Hour)
	l.Info("refused")
	l.With("tenant", "a").Info("refused")
	l.WithGroup("g").Info("refused", "x", 1)
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
}
