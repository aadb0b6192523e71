// Package api breaks each of the conventions of exported names once.
package api

import (
	"log/slog"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/internal/pending"
	"github.com/goverbs/goverbs/verbs"
)

type private struct{}

// Config is fine but for its loggers.
type Config struct {
	Log    *slog.Logger // nil: silent
	Logger *slog.Logger // nil is the default one
}

// Peer is a struct with the fields Index and Name.
type Peer = nldev.Device

// OpError is another one.
type OpError struct{ Op string }

// ErrClosed is another value, and ErrInUse the same one.
var (
	ErrClosed = operr.New("close", "it", nil)
	ErrInUse  = verbs.ErrInUse
)

// Found returns what no other module can name, and takes what it can.
func Found(Peer, *Config) (*pending.Conns, map[string][]private) { return nil, nil }

// Table is one in a field.
type Table struct {
	Pending func(*pending.Conns)
	hidden  private
}

func (t *Table) log() { slog.Default().Info("hidden", "value", t.hidden) }
