package srd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/loglimit"
	"github.com/goverbs/goverbs/verbs"
	verbsdriver "github.com/goverbs/goverbs/verbs/driver"
)

// logPause is the least time between two log lines with the same message, which is their cause.
const logPause = 10 * time.Second

// Open creates an endpoint. It uses SRD queue pairs on a device that has them, which is EFA,
// and UD queue pairs on any other.
func Open(cfg Config) (*Endpoint, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("srd: open: %w", err)
	}
	ep := &Endpoint{cfg: cfg, logs: loglimit.New(cfg.Logger, logPause), gid: cfg.GID, start: time.Now(), queues: make(map[*SendQueue]bool)}
	ep.pool.budget, ep.pool.grace = cfg.Buffers, cfg.PeerTimeout/8
	ep.requests.unused = none
	ep.polls.nudged, ep.polls.always = make(chan struct{}, 1), cfg.OnMessage != nil
	ep.polls.grace = cfg.ackDelay
	ep.handles.init(ep)
	if err := ep.newBackend(); err != nil {
		return nil, errors.Join(fmt.Errorf("srd: open: %w", err), ep.closeDriver())
	}
	ep.handles.gid, ep.polls.d = ep.gid, ep.d
	ep.main = ep.newQueue(QueueConfig{})
	ctx, stop := context.WithCancel(context.Background())
	ep.stop = stop
	ep.polls.alarm.Init(ep.due, 20*time.Microsecond)
	changes := verbsdriver.FollowGID(ctx, cfg.PD.Device(), ep.gid, ep.handles.doubt)
	if err := ep.driver.begin(); err != nil {
		stop()
		return nil, errors.Join(fmt.Errorf("srd: open: %w", err), ep.closeDriver())
	}
	if cfg.Monitor != "" {
		if err := ep.monitor(ctx, cfg.Monitor); err != nil {
			stop()
			return nil, errors.Join(fmt.Errorf("srd: open: %w", err), ep.closeDriver())
		}
	}
	ep.served.Add(2)
	go ep.serve(ctx)
	go ep.handles.resolve(ctx)
	ep.served.Go(func() { ep.handles.follow(changes) })
	return ep, nil
}

// newBackend sets the endpoint's address, and the machine and driver for its device. It sets
// the driver also when it fails.
func (ep *Endpoint) newBackend() error {
	dev := ep.cfg.PD.Device()
	if ep.gid == (verbs.GIDEntry{}) {
		gid, err := dev.FindGID(verbs.GIDQuery{})
		if err != nil {
			return err
		}
		ep.gid = gid
	}
	efa, err := dev.EFA()
	switch {
	case err == nil:
		return newHardware(ep, efa)
	case errors.Is(err, verbs.ErrUnsupported):
		return newLinks(ep)
	}
	return err
}
