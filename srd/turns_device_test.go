//go:build linux

package srd_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
)

// A program that receives now and then, by several goroutines and in vain, and then makes
// no call: its endpoint responds all the same, whichever goroutine polled last and however.
func TestIdleProgramIsAnsweredFor(t *testing.T) {
	a, b := pair(t, srd.Config{PeerTimeout: 2 * time.Second})
	rounds := 1500
	if testing.Short() {
		rounds = 150
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	late, lateBeside := 0, 0
	send := func(text string, late *int) {
		start := time.Now()
		require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte(text)))
		if time.Since(start) > 100*time.Millisecond {
			*late++
		}
	}
	for range rounds {
		var calls sync.WaitGroup
		for range rng.IntN(4) {
			timeout := time.Duration(rng.IntN(1200)) * time.Microsecond
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				var ms [4]srd.Message
				for {
					n, err := b.Receive(ctx, ms[:])
					b.Release(ms[:n]...)
					if err != nil {
						return
					}
				}
			})
		}
		if rng.IntN(2) == 0 {
			send("beside the calls", &lateBeside)
		}
		calls.Wait()
		time.Sleep(time.Duration(rng.IntN(700)) * time.Microsecond)
		send("after them", &late)
	}
	// Those beside the calls, half as many, show what a busy host is late by.
	require.Less(t, late, rounds/10+2*lateBeside, "answers took a tenth of a second; %d of those beside calls did", lateBeside)
}

// A program that has handed messages over and makes no other call: they are sent, and
// sent again until they arrive.
func TestIdleProgramIsSentFor(t *testing.T) {
	a, b := pair(t, srd.Config{})
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	const n = 600 // more than what may be under way
	data := [][]byte{make([]byte, 1000)}
	for range n {
		_, err := q.Post(srd.Request{To: b.Addr(), Data: data})
		require.NoError(t, err)
	}
	var ms [16]srd.Message
	for got := 0; got < n; {
		k, err := b.Receive(ctxOf(t), ms[:])
		require.NoError(t, err, "%d of %d came", got, n)
		b.Release(ms[:k]...)
		got += k
	}
}

// A goroutine that was woken and leaves does not hold up what becomes due after that: a message
// of many packets, and the responses to it, go on while others send and receive beside it.
func TestWokenForSomethingElse(t *testing.T) {
	const ackDelay = 2 * time.Second // what wakes no goroutine waits as long
	a, b := pair(t, srd.Config{Paths: 1, Receives: 32, PeerTimeout: testTimeout}.WithTimes(ackDelay, 3*time.Second))
	ctx, stop := context.WithCancel(ctxOf(t))
	var draining sync.WaitGroup
	defer draining.Wait()
	defer stop()
	receive := func(ep *srd.Endpoint) error {
		var ms [1]srd.Message
		n, err := ep.Receive(ctx, ms[:])
		ep.Release(ms[:n]...)
		return err
	}
	draining.Go(func() {
		for receive(b) == nil {
		}
	})
	long, short := make([]byte, 200_000), []byte("short")
	require.NoError(t, a.Send(ctx, b.Addr(), short))
	require.NoError(t, b.Send(ctx, a.Addr(), short))
	took := make([]time.Duration, 11)
	for i := range took {
		beside := make(chan error, 1)
		go func() {
			err := receive(a)
			if err == nil {
				err = b.Send(ctx, a.Addr(), short)
			}
			beside <- err
		}()
		start := time.Now()
		require.NoError(t, a.Send(ctx, b.Addr(), long))
		took[i] = time.Since(start)
		require.NoError(t, <-beside)
	}
	slices.Sort(took)
	t.Logf("%v", took)
	require.Less(t, took[len(took)/2], ackDelay/2)
	if len(simulated) > 0 { // where nothing else loses packets
		require.Zero(t, a.Stats().Retransmitted, "a response was sent before there were receives for what it asks for")
	}
}

// A program that posts a list for longer than grace is not taken for one that went away: the
// endpoint's goroutine, which would poll then, and stand aside when the program waits, costs
// more than the list.
func TestPostingIsNotAbsence(t *testing.T) {
	if len(simulated) > 0 {
		t.Skip("a list takes less than grace there")
	}
	a, b := pair(t, srd.Config{}.WithTimes(100*time.Microsecond, 0))
	ctx := ctxOf(t)
	var draining sync.WaitGroup
	defer draining.Wait()
	end, stop := context.WithCancel(ctx)
	defer stop()
	draining.Go(func() {
		var ms [64]srd.Message
		for {
			n, err := b.Receive(end, ms[:])
			if err != nil {
				return
			}
			b.Release(ms[:n]...)
		}
	})
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	list := make([]srd.Request, 200)
	for i := range list {
		list[i] = srd.Request{To: b.Addr(), Data: [][]byte{make([]byte, a.MaxPacket())}}
	}
	long, stayed := 0, 0
	for range 200 {
		if stayed > 0 {
			break
		}
		start := time.Now()
		n, err := q.Post(list...)
		took := time.Since(start)
		stays, grace := a.Stays()
		require.NoError(t, err)
		if took > grace*3/2 {
			long++
			if stays {
				stayed++
			}
		}
		var cs [64]srd.Completion
		for n > 0 {
			k, err := q.Wait(ctx, cs[:])
			require.NoError(t, err)
			n -= k
		}
	}
	if long == 0 {
		t.Skip("no list took longer than grace")
	}
	require.NotZero(t, stayed, "of %d lists that took longer than grace", long)
}
