package rig

import (
	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// RC is a queue pair, connected with another one of this process at the other end
// of the wire.
type RC struct {
	QP    *verbs.QP
	CQ    *verbs.CQ
	MR    *verbs.MR
	Peer  *verbs.MR // the other end's, which MR's requests may access
	Batch *verbs.Batch
}

// ReadSize is what the latency rows of this process read and write, in bytes.
const ReadSize = 64

// NewRC makes a polled queue pair and 4 KiB of memory at each end.
func NewRC() (*RC, error) {
	return NewRCWith(4096, verbs.CQConfig{PollOnly: true}, verbs.ConnectConfig{})
}

// NewRCWith makes a queue pair with size bytes of memory at each end.
func NewRCWith(size int, cc verbs.CQConfig, cfg verbs.ConnectConfig) (*RC, error) {
	c, s, err := Endpoints()
	if err != nil {
		return nil, err
	}
	var qps [2]*verbs.QP
	var cqs [2]*verbs.CQ
	var mrs [2]*verbs.MR
	for i, name := range []string{c.Device, s.Device} {
		dev, err := verbs.Open(name, verbs.DeviceConfig{})
		if err != nil {
			return nil, err
		}
		pd, err := dev.AllocPD()
		if err != nil {
			return nil, err
		}
		if cqs[i], err = dev.CreateCQ(cc); err != nil {
			return nil, err
		}
		if qps[i], err = pd.CreateQP(verbs.QPConfig{SendCQ: cqs[i], MaxSendWR: 32}); err != nil {
			return nil, err
		}
		if mrs[i], err = pd.AllocMR(size, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}); err != nil {
			return nil, err
		}
	}
	if err := ConnectWith(qps[0], qps[1], cfg); err != nil {
		return nil, err
	}
	batch, err := qps[0].NewBatch(1)
	return &RC{qps[0], cqs[0], mrs[0], mrs[1], batch}, err
}

// Do posts the batch of one signaled request and polls until it has completed.
func (r *RC) Do(wcs *[1]verbs.WC) error {
	_, n, err := r.Batch.PostPoll(r.CQ, wcs[:], 1000)
	for n == 0 && err == nil {
		n, err = r.CQ.PollSpin(wcs[:], 1000)
	}
	if err != nil {
		return err
	}
	return wcs[0].Err()
}

// GoReads returns the median of n READs in microseconds, one at a time.
func (r *RC) GoReads(n int) (float64, error) {
	var wcs [1]verbs.WC
	local, at := r.MR.SGE(0, ReadSize), r.Peer.Region().At(0)
	return Timed(n, func() error {
		r.Batch.Read(1, verbs.Signaled, at, local)
		return r.Do(&wcs)
	})
}

// CReads returns the same by a loop in C, with extra turns of an empty loop in each
// READ.
func (r *RC) CReads(n, extra int) (float64, error) {
	ns := make([]int64, n)
	at := r.Peer.Region()
	if err := standin.ReadLoop(driver.RawQP(r.QP), driver.RawCQ(r.CQ), r.MR.SGE(0, ReadSize), at.Addr, at.RKey, extra, ns); err != nil {
		return 0, err
	}
	return MedianMicros(ns), nil
}
