package srd

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logs writes log lines. Of the lines with the same message, which is their cause, it writes one
// every logPause, with the number of lines left out since the one before.
type logs struct {
	to   *slog.Logger
	mu   sync.Mutex
	last map[string]*lines
}

type lines struct {
	at   time.Time
	left int
}

const logPause = 10 * time.Second

func (l *logs) log(level slog.Level, message string, args ...any) {
	if !l.to.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	of := l.last[message]
	if of == nil {
		if l.last == nil {
			l.last = make(map[string]*lines)
		}
		of = new(lines)
		l.last[message] = of
	}
	now := time.Now()
	if !of.at.IsZero() && now.Sub(of.at) < logPause {
		of.left++
		l.mu.Unlock()
		return
	}
	if of.left > 0 {
		args = append(args, "left out", of.left)
	}
	of.at, of.left = now, 0
	l.mu.Unlock()
	l.to.Log(context.Background(), level, message, args...)
}
