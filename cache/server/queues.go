package server

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// sharedClients is how many clients have their messages complete in one queue: a device's queue does
// not hold any number of completions (Soft-RoCE's 32,767, and a client has 16 places in it).
const sharedClients = 1024

// queues holds the completion queues that clients share, as many as it takes. Each grows with its
// clients.
type queues struct {
	make func() (*sharedQueue, error)

	mu     sync.Mutex
	all    []*sharedQueue
	broken []*sharedQueue // they are not polled any more
}

// sharedQueue has a goroutine that polls for all its clients, none of which has one that waits.
//
// SENDs complete in another one: no goroutine waits for them, so their completions have none to wake.
type sharedQueue struct {
	cq      *verbs.CQ
	polls   *verbs.Dispatcher
	sends   *verbs.CQ
	sent    *verbs.Dispatcher
	clients int
}

// take returns a queue for another client.
func (q *queues) take() (*sharedQueue, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.all {
		if s.clients < sharedClients {
			s.clients++
			return s, nil
		}
	}
	s, err := q.make()
	if err != nil {
		return nil, err
	}
	s.clients = 1
	q.all = append(q.all, s)
	return s, nil
}

// give gives back a client's place.
func (q *queues) give(s *sharedQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s.clients--
}

// drop keeps more clients from a queue that is broken: nothing that they send would be taken. The
// clients that it has end by themselves.
func (q *queues) drop(s *sharedQueue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.all, s); i >= 0 {
		q.all = slices.Delete(q.all, i, i+1)
		q.broken = append(q.broken, s)
	}
}

// close closes the queues, when there are no clients any more, and no goroutine polls.
func (q *queues) close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var errs []error
	for _, s := range slices.Concat(q.all, q.broken) {
		errs = append(errs, s.polls.Close(), s.cq.Close(), s.sent.Close(), s.sends.Close())
	}
	q.all, q.broken = nil, nil
	return errors.Join(errs...)
}

// makeQueue makes a queue, and polls it until the server is closed.
func (s *Server) makeQueue() (*sharedQueue, error) {
	cq, polls, err := s.dispatched()
	if err != nil {
		return nil, err
	}
	sends, sent, err := s.dispatched()
	if err != nil {
		return nil, errors.Join(err, polls.Close(), cq.Close())
	}
	q := &sharedQueue{cq: cq, polls: polls, sends: sends, sent: sent}
	s.running.Go(func() {
		var never verbs.Waiter
		if err := polls.Wait(s.stopped, &never); !errors.Is(err, context.Canceled) {
			s.queues.drop(q)
			s.cfg.Logger.Error("cache: completion queue", "error", err)
		}
	})
	return q, nil
}

func (s *Server) dispatched() (*verbs.CQ, *verbs.Dispatcher, error) {
	cq, err := s.dev.CreateCQ(verbs.CQConfig{PollFor: s.cfg.PollFor, Vector: s.dev.NextVector()})
	if err != nil {
		return nil, nil, err
	}
	d, err := cq.Dispatch(onlyPolls{}, 1)
	if err != nil {
		return nil, nil, errors.Join(err, cq.Close())
	}
	return cq, d, nil
}

// reap polls the completions of SENDs that no later SEND has polled: their memory is free then, and
// failed clients are known.
func (q *queues) reap() {
	q.mu.Lock()
	all := slices.Clone(q.all)
	q.mu.Unlock()
	for _, s := range all {
		for n := 1; n > 0; {
			n, _ = s.sent.Poll(0)
		}
	}
}

// onlyPolls is an engine that posts nothing: its dispatcher only polls for waiters.
type onlyPolls struct{}

func (onlyPolls) Completed(uint64, *verbs.WC) {}
func (onlyPolls) Lost(error)                  {}
