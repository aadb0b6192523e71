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

	"github.com/goverbs/goverbs/internal/loglimit"
)

// A cause has one line in a while, which says how many were left out; another cause has its own.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := loglimit.New(slog.New(slog.NewTextHandler(&out, nil)), logPause)
		for i := range 100 {
			l.Warn("one", "err", errors.New("of many"), "path", i)
			l.Debug("nobody listens")
		}
		l.Info("other")
		require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
		time.Sleep(logPause)
		out.Reset()
		l.Warn("one")
		require.Contains(t, out.String(), `"left out"=99`)
	})
}
