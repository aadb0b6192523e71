package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/goverbs/goverbs/cache/internal/greet"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/lockoffload"
)

// ErrNoShared: the server has no records that clients change directly, or is reached by
// TCP.
var ErrNoShared = errors.New("no shared records")

// Shared is a record that clients change directly, under a lock in the server's memory:
// the server's processor takes no part once the record is found. It is apart from what
// Set stores: it belongs to no key, nothing evicts it, and it does not expire. It lasts
// for one life of the server; the next one begins with empty records. It is safe for any
// number of goroutines.
type Shared struct {
	c    *Client
	name []byte
}

// Shared returns the shared record of a name, which has 1 to 250 bytes. The server has to
// have such records (Shared in the configuration of package server). A record is empty
// until its first change.
func (c *Client) Shared(name []byte) (*Shared, error) {
	if err := checkKey(name); err != nil {
		return nil, opError("find shared record", name, err)
	}
	return &Shared{c, slices.Clone(name)}, nil
}

// Update calls change to make new data from the old, while no other call changes the
// record. change must be quick, must not keep any part of old, and may be called again if
// the connection fails. If it returns an error the record stays as it is. Readers see the
// record before the change or after it; once Update has returned nil they see it after
// the change. After an error that matches [ErrUnknown] the change may or may not have
// been made.
func (r *Shared) Update(ctx context.Context, change func(old []byte) ([]byte, error)) error {
	return r.use(ctx, "update shared record", func(p place) error {
		_, err := p.l.Update(ctx, p.at, func(old []byte) ([]byte, error) {
			data, err := change(old)
			if err != nil {
				err = &changeError{err}
			}
			return data, err
		})
		if err == nil {
			r.c.count.sharedChanges.Add(1)
		}
		return err
	})
}

// changeError is the error of the program's change, whatever it matches.
type changeError struct{ err error }

func (e *changeError) Error() string { return e.err.Error() }

// Read returns the data, in dst if that is long enough. It usually takes one READ, and no
// lock.
func (r *Shared) Read(ctx context.Context, dst []byte) (data []byte, err error) {
	err = r.use(ctx, "read shared record", func(p place) error {
		data, _, err = p.l.Read(ctx, p.at, slices.Grow(dst[:0], p.most)[:p.most])
		if err == nil {
			r.c.count.sharedReads.Add(1)
		}
		return err
	})
	return data, err
}

// Add adds to the number in the record, and returns the sum. The number is eight bytes,
// little endian; an empty record is 0. It overflows as Go's int64 does.
func (r *Shared) Add(ctx context.Context, delta int64) (sum int64, err error) {
	var b [8]byte
	err = r.Update(ctx, func(old []byte) ([]byte, error) {
		n, err := number(old)
		sum = n + delta
		binary.LittleEndian.PutUint64(b[:], uint64(sum))
		return b[:], err
	})
	return sum, err
}

// Number returns the number in the record.
func (r *Shared) Number(ctx context.Context) (int64, error) {
	var room [64]byte
	b, err := r.Read(ctx, room[:0])
	if err != nil {
		return 0, err
	}
	n, err := number(b)
	if err != nil {
		err = opError("read shared record", r.name, err)
	}
	return n, err
}

func number(b []byte) (int64, error) {
	switch len(b) {
	case 0:
		return 0, nil
	case 8:
		return int64(binary.LittleEndian.Uint64(b)), nil
	}
	return 0, ErrNotNumeric
}

// use calls do until a connection lives to the end of it.
func (r *Shared) use(ctx context.Context, op string, do func(place) error) error {
	for {
		s, err := r.c.session(ctx)
		if err != nil {
			return opError(op, r.name, err)
		}
		var p place
		err = s.whole(func() (err error) {
			if p, err = s.place(ctx, r.name); err == nil {
				err = do(p)
			}
			return err
		})
		if err == nil {
			return nil
		}
		if errors.Is(err, lockoffload.ErrOutcomeUnknown) {
			s.drop(p.l, err)
			return opError(op, r.name, fmt.Errorf("%w: %w", ErrUnknown, err))
		}
		var own *changeError
		switch {
		case errors.As(err, &own):
			return opError(op, r.name, own.err)
		case ctx.Err() != nil:
			return opError(op, r.name, ctx.Err())
		case s.ended.Load(), errors.Is(err, errEnded), errors.Is(err, lockoffload.ErrNotAcquired):
		case p.l != nil && (lockoffload.Broken(err) || errors.Is(err, lockoffload.ErrClosed)): // another goroutine's drop
			s.drop(p.l, err)
		default:
			return opError(op, r.name, err)
		}
	}
}

// place is where a shared record is.
type place struct {
	l    *lockoffload.Client
	at   int
	most int // bytes that it may have
}

// places are where a session's server has the shared records that were asked for, and the way to them.
type places struct {
	turn chan struct{} // a lock of the fields that follow: full while it is held
	l    *lockoffload.Client
	at   map[string]place
	over bool
}

// place returns where a record is. It asks the server the first time.
func (s *session) place(ctx context.Context, name []byte) (place, error) {
	if s.by == TCP {
		return place{}, ErrNoShared
	}
	p := &s.places
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return place{}, ctx.Err()
	case <-s.over:
		return place{}, errEnded
	}
	defer func() { <-p.turn }()
	if p.over {
		return place{}, errEnded
	}
	if at, ok := p.at[string(name)]; ok && p.l != nil {
		at.l = p.l
		return at, nil
	}
	a, err := s.call(ctx, &wire.Request{Op: wire.OpShared, Key: name})
	switch {
	case err != nil:
		return place{}, err
	case a.Status == wire.NotStored:
		return place{}, ErrNoShared
	case a.Status != wire.OK:
		return place{}, outcome(a.Status)
	case len(a.Value) != 4:
		return place{}, wire.Malformed
	}
	if p.l == nil {
		if p.l, err = s.dialShared(ctx, int(a.Flags)); err != nil {
			return place{}, err
		}
	}
	at := place{p.l, int(a.Number), int(binary.LittleEndian.Uint32(a.Value))}
	p.at[string(name)] = at
	return at, nil
}

// dialShared connects for shared records.
func (s *session) dialShared(ctx context.Context, port int) (*lockoffload.Client, error) {
	host, _, err := net.SplitHostPort(s.c.address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.live, cancel)()
	s.mu.Lock()
	epoch := s.m.Epoch()
	s.mu.Unlock()
	gid, err := s.gid()
	if err != nil {
		return nil, err
	}
	cfg := lockoffload.DialConfig{Key: greet.SharedKey(s.c.cfg.Key, epoch), GID: gid, Connect: s.c.cfg.Connect, NoAgent: true, Logger: s.c.cfg.Logger}
	if s.c.cfg.Dialer != nil {
		cfg.Dialer = s.c.cfg.Dialer.DialContext
	}
	l, err := lockoffload.Dial(ctx, s.pd(), net.JoinHostPort(host, strconv.Itoa(port)), cfg)
	if errors.Is(err, lockoffload.ErrKey) {
		err = fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return l, err
}

// drop ends a connection for shared records that has failed. There may be another one.
func (s *session) drop(l *lockoffload.Client, cause error) {
	p := &s.places
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.l != l {
		return
	}
	p.l = nil
	s.c.cfg.Logger.Info("cache: connection for shared records has ended", "server", s.c.address, "error", cause)
	if err := l.Close(); err != nil {
		s.c.cfg.Logger.Error("cache: close connection for shared records", "server", s.c.address, "error", err)
	}
}

// closePlaces closes the connection for shared records, and allows no other.
func (s *session) closePlaces() error {
	p := &s.places
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	if p.over = true; p.l == nil {
		return nil
	}
	return p.l.Close()
}
