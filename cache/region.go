package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// ErrNoRegion: the server has no memory that this client may WRITE, or is reached by TCP.
var ErrNoRegion = errors.New("no memory for WRITEs of clients")

// regionBytes is how much is written or read by one request.
const regionBytes = 1 << 20

// WriteAt writes b by RDMA WRITE, at an offset in bytes, into the memory that the server
// has for that (Writable in the configuration of package server). The server's processor
// takes no part, and is not told. When WriteAt returns nil, READs that begin later see
// all of b. Nothing else is promised: others may READ a part of b earlier, and if two
// clients WRITE to one place at the same time, each byte may be of either.
//
// A range that is not within the memory is refused with [verbs.ErrRange]. After an error
// that matches [ErrUnknown] any part of b may have been written, or, if ctx has ended, may
// be written later. The memory begins with zeros in each life of the server.
func (c *Client) WriteAt(ctx context.Context, b []byte, off int64) error {
	return c.region(ctx, "write", b, off, func(s *session, w *buffer, b []byte, off uint64) error {
		copy(w.bytes(len(b)), b)
		return s.writeOne(ctx, s.writable.At(off), w.mr.SGE(w.off, len(b)))
	}, func(err error) error { return fmt.Errorf("%w: %w", err, ErrUnknown) })
}

// ReadAt fills b from an offset in bytes of that memory, by RDMA READ. It is not atomic:
// it may see parts of concurrent WRITEs.
func (c *Client) ReadAt(ctx context.Context, b []byte, off int64) error {
	for {
		err := c.region(ctx, "read", b, off, func(s *session, w *buffer, b []byte, off uint64) error {
			err := s.readInto(ctx, w, len(b), s.writable, off)
			if err == nil {
				copy(b, w.bytes(len(b)))
			}
			return err
		}, func(err error) error { return err })
		if !errors.Is(err, errEnded) && !errors.Is(err, errPassage) {
			return err
		}
	}
}

// region calls request for each part of b, with registered memory for that part. Once a request was begun, an error
// goes through failed.
func (c *Client) region(ctx context.Context, op string, b []byte, off int64, request func(*session, *buffer, []byte, uint64) error, failed func(error) error) error {
	for {
		s, err := c.session(ctx)
		switch {
		case err != nil:
			return opError(op, nil, err)
		case s.writable.Length == 0:
			return opError(op, nil, ErrNoRegion)
		case off < 0 || uint64(off) > s.writable.Length || uint64(len(b)) > s.writable.Length-uint64(off):
			return opError(op, nil, fmt.Errorf("%w: %d bytes at %d, of %d", verbs.ErrRange, len(b), off, s.writable.Length))
		}
		err = s.whole(func() error {
			for done := 0; done < len(b); {
				part := b[done:min(len(b), done+regionBytes)]
				begun, err := s.piece(ctx, part, uint64(off)+uint64(done), request)
				switch {
				case err == nil:
				case begun, done > 0:
					return opError(op, nil, failed(err))
				case err == errNotSent:
					return err
				default:
					return opError(op, nil, err)
				}
				done += len(part)
			}
			return nil
		})
		if err != errNotSent {
			return err
		}
	}
}

// errPassage: a request through an initiator has failed, and the next one may not.
var errPassage = errors.New("through the server's target")

// piece makes one request, and reports whether it was begun.
func (s *session) piece(ctx context.Context, b []byte, off uint64, request func(*session, *buffer, []byte, uint64) error) (begun bool, err error) {
	if err := s.passable(ctx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, ok := s.enter()
	if !ok {
		return false, errNotSent
	}
	w, err := s.buffer(ctx, len(b))
	if err != nil {
		s.leave(sec)
		return false, err
	}
	s.mu.Unlock()
	err = request(s, w, b, off)
	defer func(err error) {
		s.releaseAfter(err, w)
		s.leaveAfter(err, sec)
	}(err)
	if err != nil {
		if cause := s.failed(ctx, err); cause != nil {
			err = cause
		} else {
			err = fmt.Errorf("%w: %w", errPassage, err)
		}
	}
	s.mu.Lock()
	return true, err
}
