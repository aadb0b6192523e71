package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/internal/driver/link"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// linked is a client that is connected by RDMA. It has a goroutine, with a stack of several kilobytes,
// only while messages from it are handled or messages to it are sent.
type linked struct {
	s        *Server
	conn     *admitted
	gone     func()       // is called when the client has ended
	messages *sharedQueue // where its messages complete
	reads    *verbs.Link  // of its READs, which closes with link
	link     *verbs.Link
	conns    *link.Messages
	inbox    *inbox
	id       uint64
	c        *client
	ctx      context.Context
	cut      context.CancelCauseFunc
}

// serveLinks serves the clients that connect by RDMA, until ctx ends.
func (s *Server) serveLinks(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { _ = s.links.Close() })()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := s.links.Accept()
		if err != nil {
			return
		}
		clients.Add(1)
		k := &linked{s: s, conn: conn.(*admitted), gone: clients.Done}
		go func() {
			if err := k.connect(ctx); err != nil {
				if ctx.Err() == nil {
					s.ended(conn.RemoteAddr(), err)
				}
				k.gone()
			}
		}()
	}
}

// connect makes a client's link, and starts to serve it until it ends.
func (k *linked) connect(serving context.Context) (err error) {
	s := k.s
	if k.messages, err = s.queues.take(); err != nil {
		return errors.Join(err, k.conn.Close())
	}
	k.inbox = newInbox(&s.workers, k.take)
	making, made := context.WithTimeout(serving, verbs.ExchangeTimeout)
	k.link, err = verbs.AcceptLink(making, k.conn, k.config())
	made()
	if err != nil {
		s.queues.give(k.messages)
		return err
	}
	k.ctx, k.cut = context.WithCancelCause(serving)
	if k.id, k.c = s.attach(k.cut, true); k.c == nil {
		err = ErrClosed
	} else {
		err = k.join()
	}
	if err != nil {
		k.cut(nil)
		return k.close(serving, err)
	}
	k.conn.connects.over()
	s.connected(k.ctx, k.conns, k.c)
	driver.OnEnd(k.link.QP(), k.cut)
	context.AfterFunc(k.ctx, func() { k.end(serving) })
	k.inbox.open()
	return nil
}

// join connects the queue pair of the READs; after that the client can READ.
func (k *linked) join() error {
	hello, err := link.Join(k.link, k.reads, k.s.cfg.Connect, k.conn.seal)
	if err == nil {
		k.s.mu.Lock()
		k.c.beats, k.c.replied, k.c.room = hello.Beats, true, k.inbox.came
		k.s.mu.Unlock()
		k.s.comesFrom(k.c, k.conn)
		k.conns, err = k.s.windows.Messages(k.link, hello, receives, k.s.maxRequest())
	}
	if err == nil {
		k.c.hear = k.conns.Hear
	}
	return err
}

// config returns that of the link for messages. No queue pair of the client's can connect before the
// other one was made.
func (k *linked) config() verbs.LinkConfig {
	s := k.s
	cfg := link.Config(verbs.LinkConfig{PD: s.calls, Connect: s.cfg.Connect, Setup: k.setup, QP: verbs.QPConfig{SendCQ: k.messages.sends, RecvCQ: k.messages.cq}}, receives)
	cfg.Receive.Size, cfg.Receive.Arrived = frame, k.inbox.arrived
	return cfg
}

func (k *linked) setup(l *verbs.Link) (offer verbs.Offer, err error) {
	s := k.s
	cfg := verbs.LinkConfig{PD: s.records, QP: verbs.QPConfig{SendCQ: s.nothing, SRQ: s.none, MaxSendWR: 1, Access: verbs.RemoteRead}}
	k.reads, offer, err = link.Prepare(l, cfg, wire.Hello{Epoch: s.epoch, Frames: receives}, s.offer, k.conn.seal)
	return offer, err
}

// lastWords is how long a server that closes waits for a client to have its last replies.
const lastWords = time.Second

// take handles the messages that are there.
func (k *linked) take() {
	err := k.ctx.Err()
	if err == nil {
		err = k.s.read(k.ctx, k.conns.Try, k.id, k.c)
	}
	if err != nil {
		k.cut(err)
	}
}

// end ends a client after its context has ended.
func (k *linked) end(serving context.Context) {
	k.inbox.close()
	_ = k.s.disconnected(k.c) // if that is an error it is the cause, or something else was before
	if serving.Err() != nil { // the client has not hung up: it is to receive the last replies
		k.conns.Settle(lastWords)
	}
	err := k.close(serving, context.Cause(k.ctx))
	if serving.Err() == nil && err != nil && !hungUp(err) {
		k.s.ended(k.conn.RemoteAddr(), err)
	}
	k.gone()
}

// close frees what there is of it. The client is forgotten after its queue pairs are destroyed: what it
// could READ is quarantined until then.
func (k *linked) close(serving context.Context, cause error) error {
	err := k.s.destroy(serving, k.link)
	if k.c != nil && err == nil {
		k.s.detach(k.id)
	}
	k.s.queues.give(k.messages)
	return errors.Join(cause, err)
}

// inbox runs take on a worker while messages arrive. What arrives before open waits for it.
type inbox struct {
	take    func()   // all that is there
	workers *workers // of which one worker runs take
	run     func()
	came    chan struct{} // has a token when something has arrived, for a worker that waits

	mu      sync.Mutex
	busy    bool // a worker takes, or it is not open yet
	news    bool // something came since that began
	over    bool
	running sync.WaitGroup
}

func newInbox(c *workers, take func()) *inbox {
	b := &inbox{take: take, workers: c, busy: true, came: make(chan struct{}, 1)}
	b.run = b.takeAll // a method value for each run would allocate
	return b
}

// arrived is called when there is something. It does not wait.
func (b *inbox) arrived() {
	signal(b.came)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news = true
	if !b.busy && !b.over {
		b.busy = true
		b.begin()
	}
}

// open starts to take what came before, and what comes.
func (b *inbox) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.begin()
	}
}

// begin starts a worker. b.mu must be held.
func (b *inbox) begin() {
	b.running.Add(1)
	b.workers.run(b.run)
}

func (b *inbox) takeAll() {
	defer b.running.Done()
	for b.more() {
		b.take()
	}
}

// more reports whether there is more to take. If not, the caller must not take any more.
func (b *inbox) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = b.news && !b.over
	b.news = false
	return b.busy
}

// close stops the inbox, and returns when no worker takes anything any more.
func (b *inbox) close() {
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	b.running.Wait()
}
