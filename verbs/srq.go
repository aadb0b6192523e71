package verbs

import (
	"runtime"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// SRQConfig configures a shared receive queue.
type SRQConfig struct {
	MaxWR  int // receives; 0 means 1024
	MaxSGE int // scatter/gather entries of a receive; 0 means 1
}

// SRQ is a shared receive queue. Whichever of its queue pairs needs a receive takes the
// next one, in order. Its methods are safe for concurrent use.
type SRQ struct {
	life life.Life
	pd   *PD
	srq  cgo.SRQ
	attr cgo.SRQAttr
}

// CreateSRQ makes a shared receive queue, for [QPConfig.SRQ].
func (p *PD) CreateSRQ(cfg SRQConfig) (*SRQ, error) {
	if cfg.MaxWR == 0 {
		cfg.MaxWR = 1024
	}
	if cfg.MaxSGE == 0 {
		cfg.MaxSGE = 1
	}
	if cfg.MaxWR < 0 || cfg.MaxSGE < 0 {
		return nil, opError("create srq on", p.dev.name, ErrAttributes, "negative capacity")
	}
	s := &SRQ{pd: p, attr: cgo.SRQAttr{MaxWR: uint32(cfg.MaxWR), MaxSGE: uint32(cfg.MaxSGE)}}
	if err := s.life.Attach("srq", life.Label("srq"), &p.life); err != nil {
		return nil, err
	}
	var err error
	if s.srq, err = cgo.CreateSRQ(p.pd, &s.attr); err != nil {
		p.life.RemoveChild("srq")
		if isErrno(err, syscall.EINVAL) {
			err = class(ErrAttributes, err)
		}
		return nil, opError("create srq on", p.dev.name, unsupported(err), cfg.MaxWR, " receives of ", cfg.MaxSGE, " entries; the device has ", p.dev.attr.MaxSRQ, " queues")
	}
	watchEvents(p.dev.async, p.dev.async.srqs, uint64(s.srq), s)
	return s, nil
}

// Close destroys the queue; receives in it get no completion. It is refused
// with [ErrInUse] while a queue pair uses it.
func (s *SRQ) Close() error {
	return s.life.Close("srq", nil, func() error {
		async := s.pd.dev.async
		return unwatching(async, async.srqs, uint64(s.srq), func() error { return s.pd.dev.destroyed(cgo.DestroySRQ(s.srq)) })
	})
}

// MaxWR is how many receives the queue holds.
func (s *SRQ) MaxWR() int { return int(s.attr.MaxWR) }

// Arm asks for one [EventSRQLimit] when fewer than limit receives are left.
// Arm again after it.
func (s *SRQ) Arm(limit int) error {
	const maskLimit = 1 << 1
	return s.life.With("arm", func() error {
		a := cgo.SRQAttr{Limit: uint32(limit)}
		err := cgo.ModifySRQ(s.srq, &a, maskLimit)
		if isErrno(err, syscall.EINVAL) {
			err = class(ErrAttributes, err)
		}
		return opError("arm", s.life.Label, unsupported(err), "limit ", limit, " of ", s.attr.MaxWR)
	})
}

// Limit is the limit that is armed, or 0.
func (s *SRQ) Limit() (int, error) {
	var a cgo.SRQAttr
	err := s.life.With("query", func() error { return opError("query", s.life.Label, cgo.QuerySRQ(s.srq, &a)) })
	return int(a.Limit), err
}

// NewRecvBatch makes a batch of up to n receives for the queue. Several batches
// may post to one queue concurrently.
func (s *SRQ) NewRecvBatch(n int) (*RecvBatch, error) {
	if err := s.life.Open("make receive batch for"); err != nil {
		return nil, err
	}
	if n <= 0 || n > int(s.attr.MaxWR) {
		return nil, opError("make receive batch for", s.life.Label, ErrAttributes, n, " receives; the queue holds ", s.attr.MaxWR)
	}
	chain, err := cgo.NewRecvChain(n, max(int(s.attr.MaxSGE), 1))
	if err != nil {
		return nil, opError("make receive batch for", s.life.Label, err)
	}
	b := &RecvBatch{srq: s, chain: chain, wrs: chain.WRs}
	runtime.AddCleanup(b, (*cgo.RecvChain).Free, chain)
	return b, nil
}

func (s *SRQ) postError(err error) error {
	switch {
	case isErrno(err, syscall.ENOMEM), isErrno(err, syscall.EAGAIN):
		err = class(ErrQueueFull, err)
	case isErrno(err, syscall.EINVAL):
		err = class(ErrAttributes, err)
	}
	return opError("post receive to", s.life.Label, err)
}
