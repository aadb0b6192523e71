package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// ErrNoRegion: the server has no memory that this client may WRITE, or is reached by TCP, or READ through an
// initiator.
var ErrNoRegion = errors.New("no memory for WRITEs of clients")

// regionBytes is how much is written or read by one request.
const regionBytes = 1 << 20

// WriteAt writes b at an offset in bytes into the memory that the server has for WRITEs of its
// clients (Writable in the configuration of package server), by RDMA WRITE: the server's
// processor has no part in it, and is told nothing. When WriteAt returns nil, all of b is there
// for READs that begin later. Nothing else is promised: others may READ a part of it earlier, and
// what two clients WRITE to one place at a time is in any order, byte by byte.
//
// A range that is not within the memory is refused with [verbs.ErrRange]. An error that matches
// [ErrUnknown] leaves open what was written. The memory of another life of the server begins
// with zeros.
func (c *Client) WriteAt(ctx context.Context, b []byte, off int64) error {
	err := c.region(ctx, "write", b, off, func(s *session, w *buffer, b []byte, off uint64) error {
		copy(w.bytes(len(b)), b)
		return s.read.Write(ctx, s.writable.At(off), w.mr.SGE(w.off, len(b)))
	})
	if errors.Is(err, errEnded) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", err, ErrUnknown)
	}
	return err
}

// ReadAt fills b from an offset in bytes of that memory, by RDMA READ. It is not one look at all
// of it: what is WRITTEN meanwhile may be there in parts.
func (c *Client) ReadAt(ctx context.Context, b []byte, off int64) error {
	for {
		err := c.region(ctx, "read", b, off, func(s *session, w *buffer, b []byte, off uint64) error {
			err := s.readInto(ctx, w, len(b), s.writable, off)
			if err == nil {
				copy(b, w.bytes(len(b)))
			}
			return err
		})
		if !errors.Is(err, errEnded) {
			return err
		}
	}
}

// region has a request made for each part of b, with registered memory for that part.
func (c *Client) region(ctx context.Context, op string, b []byte, off int64, request func(*session, *buffer, []byte, uint64) error) error {
	s, err := c.session(ctx)
	switch {
	case err != nil:
		return opError(op, nil, err)
	case s.through != nil:
		return opError(op, nil, fmt.Errorf("%w: this client READs through an initiator", ErrNoRegion))
	case s.writable.Length == 0:
		return opError(op, nil, ErrNoRegion)
	case off < 0 || uint64(off) > s.writable.Length || uint64(len(b)) > s.writable.Length-uint64(off):
		return opError(op, nil, fmt.Errorf("%w: %d bytes at %d, of %d", verbs.ErrRange, len(b), off, s.writable.Length))
	}
	for len(b) > 0 {
		n := min(len(b), regionBytes)
		if err := s.piece(ctx, b[:n], uint64(off), request); err != nil {
			return opError(op, nil, err)
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// piece has one request made.
func (s *session) piece(ctx context.Context, b []byte, off uint64, request func(*session, *buffer, []byte, uint64) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, ok := s.enter()
	if !ok {
		return errEnded
	}
	defer func() { s.leave(sec) }()
	w, err := s.buffer(len(b))
	if err != nil {
		return err
	}
	s.mu.Unlock()
	err = request(s, w, b, off)
	if err != nil {
		err = s.failed(ctx, err)
	}
	s.mu.Lock()
	s.release(w)
	return err
}
