package lockoffload

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

var (
	// ErrNotAcquired says that the lock was held by others at each try.
	// Nothing was changed.
	ErrNotAcquired = machine.ErrNotAcquired
	// ErrLost says that a lock was no longer the holder's: its lease ran out,
	// or the lock word carried another tag when it was given back. Others may
	// have accessed the records meanwhile.
	ErrLost = machine.ErrLost
	// ErrOutcomeUnknown says that WRITEs were posted and that no reply came for
	// them: each record has its old or its new data.
	ErrOutcomeUnknown = operr.ErrOutcomeUnknown
	// ErrBroken says that the connection failed. Without ErrOutcomeUnknown
	// beside it, nothing was changed. See [Client.Reconnect].
	ErrBroken = errors.New("connection failed")
	// ErrRecord says that neither copy of a record is valid.
	ErrRecord = memory.ErrRecord
	// ErrConfig says that an argument is out of range.
	ErrConfig = verbs.ErrAttributes
	// ErrDenied says that client and target do not have the same key.
	ErrDenied = operr.ErrDenied
	// ErrRefused says that a target did not give what a client dialed for; the
	// target's reason is beside it.
	ErrRefused = errors.New("refused by the target")
	// ErrNoAgent says that a fair lock or chain has no agent of the target that would
	// serve it: the target has none, or the client does not use it. [ErrBroken] is beside
	// it if the client has lost the agent, and looks for another one.
	ErrNoAgent = errors.New("fair locks and chains need the target's agent")
	// ErrRestarted says that the target is not the one that the client was made for: its
	// memory has been laid out anew, so earlier records, versions and locks are gone.
	// A program that relies on them must begin again with a new client.
	ErrRestarted = errors.New("the target was started anew")
	// ErrStarting says that the target admits no clients yet, see ServerConfig.Grace. Dial
	// and Redial wait for it.
	ErrStarting = errors.New("the target has only just been started")
	// ErrFull says that the region has as many sessions as its layout allows.
	ErrFull = errors.New("no more sessions")
	// ErrBusy says that the target's agent had no room for a chain. Nothing
	// was changed.
	ErrBusy = errors.New("agent is busy")
	// ErrVersionMismatch says that a record did not have the version that a chain
	// compared it with. Nothing was changed.
	ErrVersionMismatch = machine.ErrVersionMismatch
	// ErrMessage says that bytes are no message between a client and an agent.
	ErrMessage = wire.ErrMalformed
	// ErrClosed says that the client, or the server, was closed. It is verbs' error.
	ErrClosed = verbs.ErrClosed
)

// discard is the logger of those that have none.
var discard = slog.New(slog.DiscardHandler)

var errRemoved = fmt.Errorf("the target's device was removed: %w", ErrClosed)

func opErrorf(op string, err error) error { return fmt.Errorf("lockoffload: %s: %w", op, err) }

func opError(op string, slot int, err error) error {
	return fmt.Errorf("lockoffload: %s slot %d: %w", op, slot, err)
}
