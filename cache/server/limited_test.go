package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Of a message that comes again and again there is a line a second, which has the number of those left out.
func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := limited(slog.New(slog.NewTextHandler(&out, nil)))
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
