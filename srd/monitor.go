package srd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/goverbs/goverbs/internal/accept"
)

// Report is what an endpoint reports at [Config.Monitor].
type Report struct {
	Addr  string
	PID   int
	Stats Stats
	Peers []PeerReport
}

// PeerReport describes a peer.
type PeerReport struct {
	Addr string
	PeerStats
}

// Report returns the counters, and what is known of all peers. It allocates.
func (ep *Endpoint) Report() *Report {
	r := &Report{Addr: ep.addr.String(), PID: os.Getpid(), Stats: ep.Stats()}
	for _, p := range ep.Peers() {
		r.Peers = append(r.Peers, PeerReport{p.Addr.String(), p})
	}
	return r
}

// ReadReport reads the report of the endpoint that has socket as its [Config.Monitor].
func ReadReport(ctx context.Context, socket string) (*Report, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("srd: read report: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })()
	r := new(Report)
	if err := json.NewDecoder(io.LimitReader(c, 1<<30)).Decode(r); err != nil {
		return nil, fmt.Errorf("srd: read report: %w", err)
	}
	return r, nil
}

const monitorTimeout = time.Second // for a client that connects and does not read

// monitor writes a report to each connection to a unix socket, until ctx ends.
func (ep *Endpoint) monitor(ctx context.Context, socket string) error {
	l, err := accept.ListenUnix(ctx, socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	context.AfterFunc(ctx, func() { l.Close() })
	conns := accept.New(l, func(err error) {
		ep.logs.Warn("srd: monitor: no connection can be accepted", "socket", socket, "err", err)
	})
	ep.served.Go(func() {
		for {
			c, err := conns.Next(ctx.Done())
			if err != nil {
				if ctx.Err() == nil {
					ep.logs.Warn("srd: monitor", "socket", socket, "err", err)
				}
				return
			}
			c.SetDeadline(time.Now().Add(monitorTimeout))
			if err := json.NewEncoder(c).Encode(ep.Report()); err != nil {
				ep.logs.Debug("srd: monitor", "err", err)
			}
			c.Close()
		}
	})
	return nil
}
