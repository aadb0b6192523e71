package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// The verbs themselves: objects made one by one, work requests posted in a batch,
// completions waited for by the completion queue's events.
func ExampleCQ_Wait() {
	ctx := context.Background()
	from, to, done := twoQueuePairs(verbs.QPConfig{})
	defer done()
	src, err := from.PD().AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	dst, err := to.PD().AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteWrite | verbs.RemoteRead})
	if err != nil {
		log.Fatal(err)
	}
	defer dst.Close()
	copy(src.Bytes(), "by hand")

	batch, err := from.NewBatch(8)
	if err != nil {
		log.Fatal(err)
	}
	peer := dst.Region()
	batch.Write(1, 0, peer.At(0), src.SGE(0, 7)) // no completion of its own, unless it fails
	batch.Read(2, verbs.Signaled, peer.At(0), src.SGE(100, 7))
	if _, err := batch.Post(); err != nil {
		log.Fatal(err)
	}
	wcs := make([]verbs.WC, 8)
	n, err := from.SendCQ().Wait(ctx, wcs) // the goroutine sleeps, no thread does
	if err != nil {
		log.Fatal(err)
	}
	for i := range wcs[:n] {
		if err := wcs[i].Err(); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("request %d: %s\n", wcs[i].ID(), src.Bytes()[100:107])
	}
	// Prints: request 2: by hand
}

// A memory window gives a peer a part of a region for a while: here bytes 64 to
// 127, which the peer READs, until the key is taken back.
func ExampleWindowBinding() {
	ctx := context.Background()
	owner, peer, done := twoQueuePairs(verbs.QPConfig{Ops: verbs.OpBindWindow | verbs.OpLocalInvalidate})
	defer done()
	mr, err := owner.PD().AllocMR(4096, verbs.MRConfig{Access: verbs.BindWindow})
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	copy(mr.Bytes()[64:], "a window")
	w, err := owner.PD().AllocWindow(verbs.Window2)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	into, err := peer.PD().AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer into.Close()
	own, err := verbs.NewRequester(owner, verbs.RequesterConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer own.Close()
	theirs, err := verbs.NewRequester(peer, verbs.RequesterConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer theirs.Close()

	err = own.Do(ctx, verbs.WR{Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Offset: 64, Length: 64, Access: verbs.RemoteRead}})
	if err != nil {
		log.Fatal(err)
	}
	window := w.Region() // for the peer
	if err := theirs.Read(ctx, window.At(0), into.SGE(0, 8)); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", into.Bytes()[:8])

	err = own.Do(ctx, verbs.WR{Op: verbs.WRLocalInvalidate, Remote: verbs.Remote{RKey: window.RKey}})
	if err != nil {
		log.Fatal(err)
	}
	err = theirs.Read(ctx, window.At(0), into.SGE(0, 8))
	fmt.Println(errors.Is(err, verbs.WCRemoteAccess))
	// Prints: a window
	// true
}

// The end of a queue pair is observable: here its peer has gone.
func ExampleQP_Done() {
	qp, peer, done := twoQueuePairs(verbs.QPConfig{})
	defer done()
	mr, err := qp.PD().AllocMR(4096, verbs.MRConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	r, err := verbs.NewRequester(qp, verbs.RequesterConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	go func() {
		<-qp.Done()
		log.Print(qp.Err()) // with the peer's address
	}()
	if err := peer.Close(); err != nil {
		log.Fatal(err)
	}
	// Whatever is under way fails, within a second or so.
	err = r.Send(context.Background(), mr.SGE(0, 8))
	fmt.Println(errors.Is(err, verbs.WCRetryExceeded), errors.Is(qp.Err(), verbs.WCRetryExceeded))
	// Prints: true true
}

// Events of the device itself: a port that goes down, a queue that fails.
func ExampleDevice_Events() {
	dev, err := verbs.OpenDefault(verbs.DeviceConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for ev := range dev.Events(ctx) {
		log.Printf("%v: %v, port %d", dev.Name(), ev.Type, ev.Port)
	}
}

// twoQueuePairs connects two queue pairs of one device with each other. Programs
// on two hosts exchange their endpoints instead: see [verbs.DialLink].
func twoQueuePairs(cfg verbs.QPConfig) (a, b *verbs.QP, closeAll func()) {
	dev, err := verbs.OpenDefault(verbs.DeviceConfig{})
	if err != nil {
		log.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	cfg.GID, err = dev.FindGID(verbs.GIDQuery{})
	if err != nil {
		log.Fatal(err)
	}
	var qps [2]*verbs.QP
	var ends [2]verbs.Endpoint
	var cqs [2]*verbs.CQ
	for i := range qps {
		if cqs[i], err = dev.CreateCQ(verbs.CQConfig{}); err != nil {
			log.Fatal(err)
		}
		cfg.SendCQ = cqs[i]
		if qps[i], err = pd.CreateQP(cfg); err != nil {
			log.Fatal(err)
		}
		if ends[i], err = qps[i].Endpoint(); err != nil {
			log.Fatal(err)
		}
	}
	for i := range qps {
		if err := qps[i].Connect(ends[1-i], verbs.ConnectConfig{}); err != nil {
			log.Fatal(err)
		}
	}
	return qps[0], qps[1], func() {
		err := errors.Join(qps[0].Close(), qps[1].Close(), cqs[0].Close(), cqs[1].Close(), pd.Close(), dev.Close())
		if err != nil {
			log.Fatal(err)
		}
	}
}
