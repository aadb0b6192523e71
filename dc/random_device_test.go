//go:build linux

package dc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// randomPosts is a program of SENDs from a few initiators to a few targets. What
// it does follows from the seed; what the network does to it, not.
type randomPosts struct {
	a, b    *host
	targets []*dc.Target
	senders []*randomSender

	mu       sync.Mutex
	err      error
	got      map[sent]int      // how often it was delivered
	last     map[[2]int]uint32 // by sender and target
	sessions map[uint64]int    // the sender of each
}

// sent is a SEND, which carries all of this.
type sent struct {
	sender, target int
	seq            uint32
}

type randomSender struct {
	number    int
	initiator *dc.Initiator
	peers     []*dc.Peer
	steps     []randomStep
	results   map[sent]error
	sent      int
	seq       []uint32 // of the last completion of each target
}

// randomStep is so many SENDs to a target, and then a pause.
type randomStep struct {
	target, n int
	pause     time.Duration
}

const (
	sentBytes     = 12
	randomLease   = 800 * time.Millisecond
	randomRecv    = 32 // receives of each target
	randomSenders = 3
	randomDelay   = 2 * time.Millisecond // more or less as much
)

func newRandomPosts(t *testing.T, a, b *host, seed uint64, sessions policy) *randomPosts {
	rng := rand.New(rand.NewPCG(seed, 2))
	r := &randomPosts{a: a, b: b, got: map[sent]int{}, last: map[[2]int]uint32{}, sessions: map[uint64]int{}}
	for range 4 {
		r.targets = append(r.targets, b.target(t, dc.TargetConfig{Responders: 1 + rng.IntN(2), Lease: randomLease, Retry: 20 * time.Millisecond}))
	}
	for n := range randomSenders {
		s := &randomSender{number: n, results: map[sent]error{}, seq: make([]uint32, len(r.targets))}
		s.initiator = a.initiator(t, dc.InitiatorConfig{Contexts: 2, Depth: 16, Quota: 1 + rng.IntN(16), Hold: 5 * time.Millisecond,
			AckTimeout: 16 * time.Millisecond, ConnectTimeout: testTimeout, CloseSessions: sessions == closed})
		sessions.set(s.initiator)
		for _, target := range r.targets {
			s.peers = append(s.peers, resolve(t, s.initiator, target, 0))
		}
		for range 40 {
			step := randomStep{target: rng.IntN(len(r.targets)), n: 1 + rng.IntN(6)}
			switch rng.IntN(20) {
			case 0:
				step.pause = randomLease + 400*time.Millisecond // sessions that are kept expire
			case 1, 2, 3:
				step.pause = time.Duration(rng.Int64N(int64(100 * time.Millisecond)))
			}
			s.steps = append(s.steps, step)
		}
		r.senders = append(r.senders, s)
	}
	return r
}

func (r *randomPosts) wrong(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// send does the steps of one sender, and waits for all completions.
func (r *randomPosts) send(ctx context.Context, s *randomSender) error {
	outstanding := 0
	take := func() error {
		var cs [8]dc.Completion
		n, err := s.initiator.Wait(ctx, cs[:])
		for _, c := range cs[:n] {
			key := sent{s.number, int(c.ID >> 32), uint32(c.ID)}
			if c.Peer != s.peers[key.target] || key.seq != s.seq[key.target]+1 {
				r.wrong("sender %d, target %d: completion of %d after %d", s.number, key.target, key.seq, s.seq[key.target])
			}
			s.seq[key.target] = key.seq
			s.results[key] = c.Err
			if c.Err != nil && !errors.Is(c.Err, dc.ErrSession) {
				r.wrong("%+v: %w", key, c.Err)
			}
		}
		outstanding -= n
		return err
	}
	seq := make([]uint32, len(r.targets))
	for _, step := range s.steps {
		var rs []dc.Request
		for range step.n {
			seq[step.target]++
			off := (s.number*1000 + s.sent) * sentBytes
			s.sent++
			b := r.a.mr.Bytes()[off:]
			binary.BigEndian.PutUint32(b, uint32(s.number))
			binary.BigEndian.PutUint32(b[4:], uint32(step.target))
			binary.BigEndian.PutUint32(b[8:], seq[step.target])
			rs = append(rs, dc.Request{ID: uint64(step.target)<<32 | uint64(seq[step.target]), Op: dc.Send, Local: r.a.mr.SGE(off, sentBytes)})
		}
		if n, err := s.initiator.Post(s.peers[step.target], rs...); err != nil || n < len(rs) {
			return fmt.Errorf("%d of %d posted: %w", n, len(rs), err)
		}
		outstanding += step.n
		for outstanding > 24 || step.pause > 0 && outstanding > 0 {
			if err := take(); err != nil {
				return err
			}
		}
		time.Sleep(step.pause)
	}
	for outstanding > 0 {
		if err := take(); err != nil {
			return fmt.Errorf("%d outstanding: %w", outstanding, err)
		}
	}
	return nil
}

// receive takes what comes to one target until ctx ends.
func (r *randomPosts) receive(ctx context.Context, target int) error {
	batch, err := r.targets[target].NewRecvBatch(randomRecv)
	if err != nil {
		return err
	}
	at := func(id uint64) int { return (target*randomRecv + int(id)) * 64 }
	for id := range uint64(randomRecv) {
		batch.Recv(id, r.b.mr.SGE(at(id), sentBytes))
	}
	if _, err := batch.Post(); err != nil {
		return err
	}
	for {
		var rs [8]dc.Received
		n, err := r.targets[target].Wait(ctx, rs[:])
		for _, m := range rs[:n] {
			r.delivered(target, &m, r.b.mr.Bytes()[at(m.ID):][:sentBytes])
			batch.Recv(m.ID, r.b.mr.SGE(at(m.ID), sentBytes))
		}
		if n > 0 {
			if _, err := batch.Post(); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // the end
		}
	}
}

// delivered checks one SEND that has arrived.
func (r *randomPosts) delivered(target int, m *dc.Received, b []byte) {
	if errors.Is(m.Err, verbs.WCFlushed) {
		return // a session ended with a packet of it half done
	}
	key := sent{int(binary.BigEndian.Uint32(b)), int(binary.BigEndian.Uint32(b[4:])), binary.BigEndian.Uint32(b[8:])}
	if m.Err != nil || m.Len != sentBytes || key.target != target || key.sender >= len(r.senders) {
		r.wrong("target %d: %+v: %+v", target, key, *m)
		return
	}
	owns, known := r.senders[key.sender].initiator.Owns(r.targets[target], m.Session)
	if known && !owns {
		r.wrong("%+v came under the session of another sender", key)
	}
	r.mu.Lock()
	owner, met := r.sessions[m.Session]
	r.sessions[m.Session] = key.sender
	r.got[key]++
	times := r.got[key]
	way := [2]int{key.sender, target}
	before := r.last[way]
	r.last[way] = key.seq
	r.mu.Unlock()
	if met && owner != key.sender {
		r.wrong("session %x carries SENDs of the senders %d and %d", m.Session, owner, key.sender)
	}
	if times > 1 {
		r.wrong("%+v was delivered %d times", key, times)
	}
	if key.seq <= before {
		r.wrong("%+v came after %d", key, before)
	}
}

// run does the whole program and returns the number of SENDs that failed, and of all.
func (r *randomPosts) run(t *testing.T) (failed, all int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout)
	defer cancel()
	recvCtx, stop := context.WithCancel(ctx)
	defer stop()
	var sending, receiving sync.WaitGroup
	for n := range r.targets {
		receiving.Go(func() {
			if err := r.receive(recvCtx, n); err != nil {
				r.wrong("target %d: %w", n, err)
			}
		})
	}
	for _, s := range r.senders {
		sending.Go(func() {
			if err := r.send(ctx, s); err != nil {
				r.wrong("sender %d: %w; %+v", s.number, err, s.initiator.Stats())
			}
		})
	}
	sending.Wait()
	missing := func() (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.senders {
			for key, err := range s.results {
				if err == nil && r.got[key] == 0 {
					n++
				}
			}
		}
		return n
	}
	for begin := time.Now(); missing() > 0 && time.Since(begin) < 2*time.Second; {
		time.Sleep(10 * time.Millisecond)
	}
	if n := missing(); n > 0 {
		r.wrong("%d SENDs that succeeded did not arrive", n)
	}
	time.Sleep(50 * time.Millisecond) // for what should not come
	stop()
	receiving.Wait()
	require.NoError(t, r.err)
	for _, s := range r.senders {
		require.Len(t, s.results, s.sent)
		for _, err := range s.results {
			all++
			if err != nil {
				failed++
			}
		}
	}
	return failed, all
}

// TestRandomPosts: each SEND is delivered once, in order, under a session of its
// sender. A seed is repeated by -run TestRandomPosts/kept/3. Sessions that are
// taken up again whatever may be late need a network that loses nothing and keeps the
// order.
func TestRandomPosts(t *testing.T) {
	a, b := newHosts(t)
	bad := lab.Impairment{Delay: randomDelay, Jitter: randomDelay, Loss: 0.1, Duplicate: 0.1, Reorder: 0.25}
	t.Run("closed", func(t *testing.T) {
		lab.ImpairWire(t, bad)
		sum := allRandomPosts(t, a, b, closed)
		require.Zero(t, sum.resumes)
	})
	t.Run("default", func(t *testing.T) {
		lab.ImpairWire(t, bad)
		allRandomPosts(t, a, b, kept)
	})
	t.Run("kept", func(t *testing.T) {
		lab.ImpairWire(t, lab.Impairment{Delay: randomDelay})
		sum := allRandomPosts(t, a, b, keptFreely)
		require.NotZero(t, sum.resumes)
		require.NotZero(t, sum.expired)
	})
}

type randomSum struct {
	failed, all               int
	resumes, recalls, expired uint64
}

func allRandomPosts(t *testing.T, a, b *host, sessions policy) (sum randomSum) {
	seeds := 10
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRandomPosts(t, a, b, uint64(seed), sessions)
			failed, all := r.run(t)
			sum.failed, sum.all = sum.failed+failed, sum.all+all
			for _, s := range r.senders {
				sum.resumes += s.initiator.Stats().Resumes
			}
			for _, target := range r.targets {
				sum.recalls += target.Stats().Recalls
				sum.expired += target.Stats().Expired
			}
		})
	}
	t.Logf("%+v", sum)
	if sum.all == 0 {
		t.SkipNow() // by -run
	}
	require.NotZero(t, sum.recalls)
	require.Less(t, sum.failed, sum.all/10)
	return sum
}
