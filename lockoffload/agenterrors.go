package lockoffload

import (
	"errors"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

var (
	// ErrBusy says that the target's agent had no room for a chain. Nothing
	// was changed.
	ErrBusy = errors.New("agent is busy")
	// ErrDiffers says that a record did not have the version that a chain
	// compared it with. Nothing was changed.
	ErrDiffers = machine.ErrDiffers
	// ErrMessage says that bytes are no message between a client and an agent.
	ErrMessage = wire.ErrMalformed
)
