package srd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
)

// open makes an endpoint at an end of the wire.
func open(e lab.Endpoint, cfg srd.Config) (*srd.Endpoint, error) {
	h, err := rig.NewHost(e)
	if err != nil {
		return nil, err
	}
	cfg.PD, cfg.GID = h.PD, h.GID
	return srd.Open(cfg)
}

// pair is endpoints at both ends.
type pair struct{ a, b *srd.Endpoint }

func newPair(cfg srd.Config) (*pair, error) {
	c, s, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	p := new(pair)
	if p.a, err = open(c, cfg); err != nil {
		return nil, err
	}
	if p.b, err = open(s, cfg); err != nil {
		return nil, errors.Join(err, p.a.Close())
	}
	return p, nil
}

func (p *pair) close() error { return errors.Join(p.a.Close(), p.b.Close()) }

// paired runs f with a pair, of which the second end takes what the first one sends.
func paired[T any](ctx context.Context, cfg srd.Config, f func(context.Context, *pair) (T, error)) (v T, err error) {
	p, err := newPair(cfg)
	if err != nil {
		return v, err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- drain(ctx, p.b) }()
	defer func() {
		stop()
		<-done
		err = errors.Join(err, p.close())
	}()
	return f(ctx, p)
}

// drain receives and forgets until ctx ends.
func drain(ctx context.Context, ep *srd.Endpoint) error {
	var ms [64]srd.Message
	for {
		n, err := ep.Receive(ctx, ms[:])
		if err != nil {
			return err
		}
		ep.Release(ms[:n]...)
	}
}

// serve is a role that sends its address to clients that connect by TCP.
func serve(cfg srd.Config, f func(context.Context, *srd.Endpoint) error) rig.Role {
	return func(ctx context.Context, at string) error {
		_, s, err := rig.Endpoints()
		if err != nil {
			return err
		}
		ep, err := open(s, cfg)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		c, err := l.Accept()
		if err != nil {
			return err
		}
		b, err := ep.Addr().MarshalBinary()
		if err == nil {
			_, err = c.Write(b)
		}
		c.Close()
		if err != nil {
			return err
		}
		return f(ctx, ep)
	}
}

// client is a role that prints what f measures.
func client(cfg srd.Config, f func(context.Context, *srd.Endpoint, srd.Addr) (float64, error)) rig.Role {
	return func(ctx context.Context, at string) error {
		conn, err := rig.DialServer(at)
		if err != nil {
			return err
		}
		defer conn.Close()
		b, err := io.ReadAll(conn)
		if err != nil {
			return err
		}
		var to srd.Addr
		if err := to.UnmarshalBinary(b); err != nil {
			return err
		}
		c, _, err := rig.Endpoints()
		if err != nil {
			return err
		}
		ep, err := open(c, cfg)
		if err != nil {
			return err
		}
		v, err := f(ctx, ep, to)
		if err == nil {
			fmt.Println(v)
		}
		return err
	}
}
