package srd

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A cause has one line in a while, which says how many were left out; another cause has its own.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := logs{to: slog.New(slog.NewTextHandler(&out, nil))}
		for i := range 100 {
			l.log(slog.LevelWarn, "one", "err", errors.New("of many"), "path", i)
			l.log(slog.LevelDebug, "nobody listens")
		}
		l.log(slog.LevelInfo, "other")
		require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
		time.Sleep(logPause)
		out.Reset()
		l.log(slog.LevelWarn, "one")
		require.Contains(t, out.String(), `"left out"=99`)
	})
}
