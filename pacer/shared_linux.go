package pacer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// A file, in /dev/shm for instance, has a record for each process that shares a
// threshold: its lease of it, and whether it wants more. Two kinds of locks of the
// open file description (OFD) guard it. Byte 0 is locked while records are read and
// written. A process locks the byte of its record as long as it lives, and the kernel
// unlocks it however the process ends: the lease of a dead process is free at once.
const (
	sharers    = 64
	recordSize = 16 // lease 8, wants 8; of this machine's byte order
	leaseEvery = 2 * time.Millisecond
	ownBytes   = 1 << 20 // offset of the bytes that live processes lock
)

type shared struct {
	p     *Pacer
	file  *os.File
	me    int
	total int64
	stop  chan struct{}
	done  sync.WaitGroup
}

func lockFile(f *os.File, how int, typ int16, at int64) (unix.Flock_t, error) {
	l := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: at, Len: 1}
	for {
		err := unix.FcntlFlock(f.Fd(), how, &l)
		if !errors.Is(err, unix.EINTR) {
			return l, err
		}
	}
}

// ShareThreshold shares a threshold of total bytes with all processes that name the
// same file, until the pacer is closed. Each has an equal part while it has requests, and
// can have one response beyond that, and small ones up to [Config] Reserve. A process
// that dies leaves its part to the others; one that is stopped keeps it. The file is made
// if there is none; all have to name the same total.
func (p *Pacer) ShareThreshold(path string, total int64) error {
	const op = "share threshold by"
	if total <= 0 {
		return opError(op, path, fmt.Errorf("%w: %d bytes", ErrConfig, total))
	}
	if err := p.claimShare(); err != nil {
		return opError(op, path, err)
	}
	s, err := openShared(p, path, total)
	if err == nil {
		if err = s.adjust(); err != nil {
			err = errors.Join(err, s.file.Close())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.closed {
		err = errors.Join(ErrClosed, s.file.Close())
	}
	if err != nil {
		p.shared = false
		p.s.Lease(-1)
		return opError(op, path, err)
	}
	p.onClose = append(p.onClose, s.close)
	s.done.Go(s.keep)
	return nil
}

// claimShare lets only the first call of ShareThreshold share: a second one has no effect.
func (p *Pacer) claimShare() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.shared:
		return verbs.ErrInUse
	}
	p.shared = true
	p.s.Lease(0) // one at a time, until the records say what it has
	return nil
}

// openShared takes a record of the file.
func openShared(p *Pacer, path string, total int64) (*shared, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for i := range sharers {
		if _, err := lockFile(f, unix.F_OFD_SETLK, unix.F_WRLCK, ownBytes+int64(i)); err == nil {
			return &shared{p: p, file: f, total: total, me: i, stop: make(chan struct{})}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%w: %d processes share it", verbs.ErrInUse, sharers), f.Close())
}

func (s *shared) keep() {
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			s.p.reap()
			if s.adjust() != nil {
				s.p.lease(0) // one at a time: that is safe, whatever the others do
			}
		}
	}
}

func (s *shared) close() error {
	close(s.stop)
	s.done.Wait()
	return s.file.Close() // and all its locks with it
}

// lock locks the records, and returns false if another process holds them for long. A stopped
// process only keeps others from changing their leases.
func (s *shared) lock() (ok bool, err error) {
	for range 20 {
		_, err := lockFile(s.file, unix.F_OFD_SETLK, unix.F_WRLCK, 0)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return err == nil, err
		}
		time.Sleep(leaseEvery / 20)
	}
	return false, nil
}

// adjust updates the lease of this process.
func (s *shared) adjust() (err error) {
	if ok, err := s.lock(); !ok {
		return err
	}
	defer func() {
		_, uerr := lockFile(s.file, unix.F_OFD_SETLK, unix.F_UNLCK, 0)
		err = errors.Join(err, uerr)
	}()
	var b [sharers * recordSize]byte
	if _, err := s.file.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var all [sharers]shaper.Holder
	for i := range all {
		r := b[i*recordSize:]
		all[i] = shaper.Holder{Lease: int64(binary.NativeEndian.Uint64(r)), Wants: binary.NativeEndian.Uint64(r[8:]) != 0}
		if i == s.me || all[i].Lease == 0 && !all[i].Wants {
			continue
		}
		l, err := lockFile(s.file, unix.F_OFD_GETLK, unix.F_WRLCK, ownBytes+int64(i))
		if err != nil {
			return err
		}
		all[i].Alive = l.Type != unix.F_UNLCK
	}
	wants, lease := s.p.leased(func(wants bool, outstanding int64) int64 {
		return shaper.Share(s.total, all[:], s.me, wants, outstanding)
	})
	var r [recordSize]byte
	binary.NativeEndian.PutUint64(r[:], uint64(lease))
	if wants {
		r[8] = 1
	}
	_, err = s.file.WriteAt(r[:], int64(s.me*recordSize))
	return err
}

// leased sets the part of a shared threshold that this process may use to the result of decide,
// and returns it.
func (p *Pacer) leased(decide func(wants bool, outstanding int64) int64) (wants bool, lease int64) {
	p.mu.Lock()
	defer p.unlock()
	outstanding := p.s.Outstanding()
	wants = p.s.Held() || outstanding > 0
	lease = decide(wants, outstanding)
	p.s.Lease(lease)
	return wants, lease
}

func (p *Pacer) lease(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.s.Lease(bytes)
}
