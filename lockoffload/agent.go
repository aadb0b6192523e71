package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/closing"
	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// Agent executes chains at the target: it examines the lock, performs the
// accesses only when the lock permits, tries again as often and as long as the
// chain says, unlocks, and replies. A chain costs the initiator one round trip,
// whatever it does.
//
// It changes lock words through a loopback queue pair, like any initiator, so
// that it competes with one-sided clients under the device's own atomicity.
// It reads and writes records with the CPU, and only while it holds the lock.
//
// A chain is identified by its client and sequence. The agent remembers its last
// replies to each client: a chain that is issued again, after a lost reply or
// on a new connection, gets the remembered reply and is never executed twice. A new agent
// of a region does not know what the one before executed, nor does one that forgot the
// client ([Agent.Forget]): chains made before then get [ErrOutcomeUnknown].
//
// Clients that take a lock themselves, in [Fair] mode, ask it for their turn. It keeps
// them in a queue for each slot, as long as there are clients that wait.
//
// Its methods are safe for concurrent use.
type Agent struct {
	cfg   AgentConfig
	start time.Time
	free  func() // lets another agent have the region
	cq    *verbs.CQ
	srq   *verbs.SRQ
	loop  *verbs.QP
	made  closing.Stack
	mr    *verbs.MR // receive buffers, then results of lock operations, then replies
	words int       // of results, for each job
	at    struct{ results, turns, replies int }
	stop  context.CancelFunc
	work  sync.WaitGroup
	over  chan struct{} // closed when it serves no more

	mu     sync.Mutex // one turn at a time
	core   *machine.Agent
	links  []agentLink // by peer
	byQP   map[uint32]int32
	batch  *verbs.Batch // to loop
	recvs  *verbs.RecvBatch
	timer  *time.Timer
	rings  time.Duration // when the timer does
	res    []uint64
	under  int // lists of lock commands that the device carries out
	failed error
	closed bool
	// Close waits until the chains inside are over.
	settling, settled bool
	quiet             chan struct{} // closed when they are

	written atomic.Uint64 // for what it does to the order of stores
}

// agentLink is the way to a client.
type agentLink struct {
	qp    *verbs.QP
	batch *verbs.Batch
	conn  uint32
	added int // replies in batch
}

// NewAgent makes an agent of a region, which must have no other one, and begins to serve.
// It first unlocks what an earlier agent, which failed, left locked.
func NewAgent(cfg AgentConfig) (a *Agent, err error) {
	limits, err := cfg.limits()
	if err != nil {
		return nil, err
	}
	free, err := claim(cfg.Region.mr.Bytes(), agentRole)
	if err != nil {
		return nil, opErrorf("make agent", err)
	}
	a = &Agent{cfg: cfg, free: free, start: time.Now(), rings: machine.Never, byQP: make(map[uint32]int32, limits.Peers), links: make([]agentLink, limits.Peers), stop: func() {}, over: make(chan struct{}), quiet: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("lockoffload: make agent: %w", err), a.Close())
			a = nil
		}
	}()
	if err := a.allocate(limits); err != nil {
		return a, err
	}
	if err := a.loopback(limits); err != nil {
		return a, err
	}
	left, err := recoverAgent(cfg.PD, cfg.GID, cfg.Region)
	if err != nil {
		return a, err
	}
	if left > 0 {
		a.cfg.Logger.Warn("lockoffload: an agent before had failed", "recovered", left)
	}
	for j := range limits.Receives {
		a.receive(int32(j))
	}
	if _, err := a.recvs.Post(); err != nil {
		return a, err
	}
	ctx, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.timer = time.AfterFunc(time.Hour, a.alarm)
	a.work.Go(func() { a.serve(ctx) })
	return a, nil
}

// allocate makes memory and queues.
func (a *Agent) allocate(l machine.AgentLimits) (err error) {
	slots := machine.NewAgentSlots(a.cfg.Region.l, a.cfg.Region.mr.Bytes(), uint16(rand.Uint32()))
	a.words = 1 + slots.ReadersSize()/8
	a.res = make([]uint64, a.words)
	a.at.results = l.Receives * l.Message
	a.at.turns = a.at.results + l.Receives*a.words*8
	a.at.replies = a.at.turns + machine.TurnLists*machine.TurnWords*8
	replies := l.Peers * (l.Window + 1) * l.Message
	if a.mr, err = a.cfg.PD.AllocMR(a.at.replies+replies, verbs.MRConfig{}); err != nil {
		return err
	}
	a.made.Add(a.mr)
	a.core = machine.NewAgent(l, slots, a.mr.Bytes()[a.at.replies:], rand.Uint64())
	a.core.Fence = func() { a.written.Add(1) }
	depth := 2*l.Receives + machine.TurnLists + 2*l.Peers*l.MaxSending() // a failed connection's beside the next one's
	if a.cq, err = a.cfg.PD.Device().CreateCQ(verbs.CQConfig{Depth: depth}); err != nil {
		return err
	}
	a.made.Add(a.cq)
	if a.srq, err = a.cfg.PD.CreateSRQ(verbs.SRQConfig{MaxWR: l.Receives}); err != nil {
		return err
	}
	a.made.Add(a.srq)
	a.recvs, err = a.srq.NewRecvBatch(l.Receives)
	return err
}

// loopback connects a queue pair to itself.
func (a *Agent) loopback(l machine.AgentLimits) (err error) {
	if a.loop, err = a.cfg.PD.CreateQP(verbs.QPConfig{SendCQ: a.cq, GID: a.cfg.GID, MaxSendWR: loopDepth(l), MaxRecvWR: 1}); err != nil {
		return err
	}
	a.made.Add(a.loop)
	if err := connectToSelf(a.loop); err != nil {
		return err
	}
	a.batch, err = a.loop.NewBatch(loopDepth(l))
	return err
}

// loopDepth returns the room needed for the lock commands of all jobs and of all turns.
func loopDepth(l machine.AgentLimits) int { return 2*l.Receives + machine.TurnLists*machine.TurnWords }

// QPConfig returns the attributes that a queue pair needs to be attached. More send
// requests and other attributes may be set. Clients reach no memory through it: one that
// the server has fenced could otherwise still write.
func (a *Agent) QPConfig() verbs.QPConfig {
	return verbs.QPConfig{SendCQ: a.cq, SRQ: a.srq, GID: a.cfg.GID, MaxSendWR: a.core.Limits.MaxSending(), Access: verbs.LocalWrite}
}

// Limits returns the limits that callers must use too.
func (a *Agent) Limits() ChainLimits { return a.cfg.Limits }

// Attach serves the client at the other end of a queue pair made with
// [Agent.QPConfig]. Call it before the queue pair is connected: requests of queue
// pairs that are not attached are dropped. client must be one that was never used
// before for another client, random for instance; requests that name a different
// one are dropped too.
//
// Attached again with a new queue pair, the client goes on where it was: the
// replies to it are remembered. The old queue pair goes to [verbs.StateError].
func (a *Agent) Attach(client uint64, qp *verbs.QP) error {
	batch, err := qp.NewBatch(a.core.Limits.MaxSending())
	if err != nil {
		return fmt.Errorf("lockoffload: attach client %#x: %w", client, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.failed != nil {
		return fmt.Errorf("lockoffload: attach client %#x: %w", client, errors.Join(ErrClosed, a.failed))
	}
	if peer, known := a.core.ByID[client]; known {
		a.unlink(peer)
	}
	peer, conn, err := a.core.Attach(client)
	if err != nil {
		return fmt.Errorf("lockoffload: attach client %#x: %w", client, err)
	}
	a.links[peer] = agentLink{qp: qp, batch: batch, conn: conn}
	a.byQP[qp.Num()] = peer
	return nil
}

// Forget ends the service of a client and drops the replies to it. Its queue
// pair goes to [verbs.StateError], so that no late request of it arrives. A client
// that is attached again under the same name gets [ErrOutcomeUnknown] for the chains
// that it issues again.
func (a *Agent) Forget(client uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if peer, known := a.core.ByID[client]; known {
		a.unlink(peer)
		a.core.Forget(client)
		a.turn()
	}
}

func (a *Agent) unlink(peer int32) {
	l := &a.links[peer]
	if l.qp == nil {
		return
	}
	if err := l.qp.ToError(); err != nil && !errors.Is(err, verbs.ErrClosed) {
		a.cfg.Logger.Error("lockoffload: queue pair of a client", "qp", l.qp.Num(), "err", err)
	}
	if a.byQP[l.qp.Num()] == peer {
		delete(a.byQP, l.qp.Num())
	}
	*l = agentLink{}
}

// AgentStats counts since the agent was made.
type AgentStats struct {
	Accepted    uint64 // chains taken in
	Done        uint64 // executed
	Differs     uint64 // ended by a compare
	NotAcquired uint64 // ended by count or deadline
	Damaged     uint64 // met a damaged record
	Lost        uint64 // unlock commands that found another tag
	Busy        uint64 // chains refused for want of room
	Refused     uint64 // chains that make no sense
	Repeated    uint64 // copies of chains that were known already
	Unknown     uint64 // copies of chains too old to be known
	Malformed   uint64 // messages dropped without a reply
	Carried     uint64 // chains executed under the lock of another one
	Tries       uint64 // times that a lock was examined
	Unsent      uint64 // replies that could not be posted, or whose memory was not free yet
	Turns       uint64 // locks that were reserved for clients that take them in turn
	Lapsed      uint64 // those that were not taken in time
}

// Stats returns the counts so far.
func (a *Agent) Stats() AgentStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return AgentStats(a.core.Stats)
}

// Err returns the error that stopped the agent, or nil while it serves: its loopback
// queue pair or its completion queue failed.
func (a *Agent) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// Close waits for the chains at work, which unlock, and frees the agent. Close
// the queue pairs that are attached first; it may be called again.
func (a *Agent) Close() error {
	a.settle()
	a.mu.Lock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	a.stop()
	a.work.Wait()
	if err := a.made.Close(); err != nil {
		return err
	}
	a.free()
	return nil
}

// settle accepts no more chains, takes back reserved locks, and waits for the chains
// inside.
func (a *Agent) settle() {
	a.mu.Lock()
	if a.timer == nil || a.failed != nil || a.closed {
		a.mu.Unlock()
		return
	}
	if !a.settling {
		a.settling = true
		a.core.Limits.Queue = 0
		a.core.Broker.Shut(a.now())
		a.turn()
	}
	a.mu.Unlock()
	select {
	case <-a.quiet:
	case <-a.over:
	}
}
