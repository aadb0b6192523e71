package lockoffload

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// ChainLimits are the limits of an agent and its callers. Both sides must use the
// same ones.
type ChainLimits struct {
	// Window is how many chains a client may have without a reply; the agent
	// remembers so many replies to each. 0 means 8, at most 256.
	Window int
	// Message is the length of a request or a reply in bytes, at most; 0 means
	// enough for four records of the layout.
	Message int
}

func (l ChainLimits) withDefaults(layout Layout) ChainLimits {
	l.Window = cmp.Or(l.Window, 8)
	l.Message = cmp.Or(l.Message, wire.ChainRequestHead+4*(wire.AccessHead+wire.Pad8(layout.Size)))
	return l
}

func (l ChainLimits) check() error {
	if l.Window < 1 || l.Window > 256 || l.Message < wire.ChainRequestHead+wire.AccessHead || l.Message > 1<<24 || l.Message%8 != 0 {
		return fmt.Errorf("lockoffload: limits %+v: %w", l, ErrConfig)
	}
	return nil
}

// AgentConfig says how to make an agent. PD and Region must be set.
type AgentConfig struct {
	PD     *verbs.PD // of the region
	Region *Region
	// GID is the local address; the zero value means what an empty
	// [verbs.GIDQuery] finds.
	GID    verbs.GIDEntry
	Limits ChainLimits
	// Clients is how many clients may be attached at a time; 0 means as many as the
	// layout has.
	Clients int
	// Queue is how many chains may be waiting or at work; 0 means 128. Chains
	// beyond get the reply busy.
	Queue int
	// MaxWait bounds the deadline of every chain; 0 means 1 s.
	MaxWait time.Duration
	Logger  *slog.Logger // nil: silent
}

func (cfg *AgentConfig) limits() (machine.AgentLimits, error) {
	if cfg.PD == nil || cfg.Region == nil {
		return machine.AgentLimits{}, fmt.Errorf("lockoffload: make agent: PD and region are needed: %w", ErrConfig)
	}
	layout := cfg.Region.Layout
	cfg.Limits = cfg.Limits.withDefaults(layout)
	cfg.Clients = cmp.Or(cfg.Clients, layout.Clients)
	cfg.Queue = cmp.Or(cfg.Queue, 128)
	cfg.MaxWait = cmp.Or(max(cfg.MaxWait, 0), time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, discard)
	if cfg.Clients < 0 || cfg.Queue < 0 || cfg.Queue > 1<<14 {
		return machine.AgentLimits{}, fmt.Errorf("lockoffload: make agent: %d clients, queue of %d: %w", cfg.Clients, cfg.Queue, ErrConfig)
	}
	return machine.AgentLimits{
		Peers: cfg.Clients, Window: cfg.Limits.Window, Queue: cfg.Queue, Receives: cfg.Queue + 32, Message: cfg.Limits.Message,
		// A chain's first tries come without a pause. The runtime's timers make 1 ms of any shorter one.
		MaxWait: cfg.MaxWait, Eager: 100 * time.Microsecond, MinPause: 100 * time.Microsecond, MaxPause: 5 * time.Millisecond, Keep: true,
	}, cfg.Limits.check()
}
