package srd

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/goverbs/goverbs/srd/internal/handles"
	"github.com/goverbs/goverbs/verbs"
)

type (
	way    = handles.Way
	handle = handles.Handle[*verbs.AH]
)

// addressHandles are the address handles of peers, made when they are first needed, by a
// goroutine of their own. The endpoint's lock guards them.
type addressHandles struct {
	handles.Cache[*verbs.AH]
	ep    *Endpoint
	asked chan way

	gid   verbs.GIDEntry // where the endpoint's GID was last
	gone  bool           // it is nowhere now
	doubt chan struct{}  // has a token when the GID is to be looked up

	failed map[verbs.GID]error // why no handle to these could be made lately
}

const (
	maxParked = 64
	maxFailed = 1024
)

func (h *addressHandles) init(ep *Endpoint) {
	h.ep, h.asked, h.doubt = ep, make(chan way, handles.MaxMaking), make(chan struct{}, 1)
	h.failed = make(map[verbs.GID]error)
	h.Now, h.Parked, h.Help = ep.now, maxParked, h.help
	h.Ask = func(to way) { h.asked <- to } // has room
}

// resolve makes handles until ctx ends.
func (h *addressHandles) resolve(ctx context.Context) {
	defer h.ep.served.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case to := <-h.asked:
			h.make(to)
		}
	}
}

// help has other goroutines make the handles that wait behind handles that take long.
func (h *addressHandles) help() {
	for {
		select {
		case to := <-h.asked:
			h.ep.served.Go(func() { h.make(to) })
		default: // resolve takes some of them, too
			return
		}
	}
}

// make makes a handle, and sends the packets that wait for it.
func (h *addressHandles) make(to way) {
	ep := h.ep
	ep.mu.Lock()
	ah, err := h.create(to)
	unauthenticated := h.Made(to, ah, err == nil)
	unused := h.Unused()
	h.note(to.To, err)
	switch {
	case ep.closed.Load(): // no others are made
	case err != nil:
		h.doubts()
		ep.driver.lost(to)
		ep.pump()
		level := slog.LevelWarn
		if unauthenticated {
			level = slog.LevelDebug
		}
		ep.logs.Log(context.Background(), level, "srd: no way to peer", "gid", verbs.GID(to.To).Addr(), "err", err)
	default:
		ep.driver.resume()
		ep.pump()
	}
	ep.mu.Unlock()
	for _, ah := range unused {
		if err := ah.Close(); err != nil {
			ep.logs.Warn("srd: address handle", "err", err)
		}
	}
}

// note keeps the error of making a handle to a port, and forgets it when one was made.
func (h *addressHandles) note(to verbs.GID, err error) {
	if err == nil {
		delete(h.failed, to)
		return
	}
	if len(h.failed) >= maxFailed {
		clear(h.failed)
	}
	h.failed[to] = err
}

// create creates an address handle for the place of the endpoint's GID, and another one if that
// changes meanwhile. ep.mu must be held; create releases it meanwhile.
func (h *addressHandles) create(to way) (ah *verbs.AH, err error) {
	ep := h.ep
	for {
		from, life := h.gid, h.Life()
		if h.gone {
			return nil, fmt.Errorf("%w: the address %v is gone", verbs.ErrNoGID, from.GID.Addr())
		}
		ep.mu.Unlock()
		ah, err = ep.cfg.PD.CreateAH(verbs.AHAttr{GID: to.To, FlowLabel: to.Label, SGIDIndex: from.Index, Port: from.Port})
		ep.mu.Lock()
		if life == h.Life() || ep.closed.Load() {
			return ah, err
		}
		if err == nil {
			h.Discard(ah)
		}
	}
}

func (h *addressHandles) close() (errs []error) {
	h.All(func(_ way, ah *verbs.AH) { errs = append(errs, ah.Close()) })
	return errs
}
