package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// Ids of a caller's work requests: the kind, connection 24 bits, and the place
// or the receive buffer.
const (
	callReceive = 1 << 56
	callSend    = 2 << 56
)

func callID(kind uint64, conn uint32, index int) uint64 {
	return kind | uint64(conn&0xffffff)<<32 | uint64(index)
}

// connect gets a queue pair and posts all receives to it.
func (c *Caller) connect(ctx context.Context) error {
	qp, cq, err := c.cfg.Connect(ctx)
	if err != nil {
		return fmt.Errorf("lockoffload: connect to agent: %w", err)
	}
	window := c.cfg.Limits.Window
	l := callerLink{qp: qp, cq: cq, conn: c.link.conn + 1}
	if l.sends, err = qp.NewBatch(window); err != nil {
		return err
	}
	if l.recvs, err = qp.NewRecvBatch(2 * window); err != nil {
		return err
	}
	for i := range 2 * window {
		c.receive(&l, i)
	}
	if _, err := l.recvs.Post(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link, c.agent = l, 0 // another one may be at the other end, or one that has forgotten this client
	for i := range c.places {
		p := &c.places[i]
		p.sending = 0 // the old queue pair sends nothing any more
		switch {
		case p.state == placeAbandoned || p.state == placeEnds:
			c.vacate(p)
		case p.state == placeWaits && p.renew:
			c.add(p)
		case p.state == placeWaits:
			c.unknown(p)
		}
	}
	_, err = l.sends.Post()
	return err
}

// unknown ends a chain that must not be issued again: it was issued before any reply
// named the agent, and the agent at the other end may be another one now. mu must be
// held.
func (c *Caller) unknown(p *callPlace) {
	r := wire.ChainReply{Client: c.cfg.Client, Seq: p.seq, Status: wire.ChainUnknown}
	p.state, p.reply = placeReplied, wire.SealMessage(r.AppendTo(p.reply[:0]), 0)
	p.ready <- struct{}{}
}

func (c *Caller) receive(l *callerLink, i int) {
	n := c.cfg.Limits.Message
	l.recvs.Recv(callID(callReceive, l.conn, i), c.mr.SGE((c.cfg.Limits.Window+i)*n, n))
}

// add adds a place's request to the batch. mu must be held.
func (c *Caller) add(p *callPlace) {
	p.sending++
	c.link.sends.Send(callID(callSend, c.link.conn, p.index), verbs.Signaled, c.mr.SGE(p.index*c.cfg.Limits.Message, p.length))
}

// issue gives a request the next sequence of its place and sends it.
func (c *Caller) issue(p *callPlace, r callRequest, deadline uint32) (seq uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return 0, c.err
	}
	agent := c.agent
	if r.again() {
		agent = 0
	}
	c.stage(p, r, deadline, agent)
	p.renew = agent != 0 || r.again() // another agent than the one named refuses it
	p.state = placeWaits
	c.send(p)
	return p.seq, nil
}

// tell sends a request that has no reply. Its place is free when it is sent.
func (c *Caller) tell(p *callPlace, r callRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return
	}
	c.stage(p, r, 0, c.agent)
	p.state = placeEnds
	c.send(p)
	c.vacate(p) // if it could not be posted
}

// stage writes a request into the memory of its place. mu must be held.
func (c *Caller) stage(p *callPlace, r callRequest, deadline, agent uint32) {
	window, message := c.cfg.Limits.Window, c.cfg.Limits.Message
	p.seq += uint64(window)
	p.length = r.request(c.mr.Bytes()[p.index*message:][:message:message], c.cfg.Client, p.seq, deadline, agent)
}

// reissue sends a chain once more, unless the last copy is still being sent.
func (c *Caller) reissue(p *callPlace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.state == placeWaits && p.sending == 0 && !c.gone() { // else its memory may be gone too
		c.send(p)
	}
}

// send posts a place's request. It returns no error: a queue pair that fails here fails
// for serve too, which connects again and sends open requests. mu must be held.
func (c *Caller) send(p *callPlace) {
	c.add(p)
	if n, _ := c.link.sends.Post(); n == 0 {
		p.sending--
	}
}

// release makes a place free for the next chain, once the device no longer
// needs its request.
func (c *Caller) release(p *callPlace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.state = placeEnds
	c.vacate(p)
}

// abandon stops waiting for a chain and returns its error. The chain's place is free
// when its reply, or the next connection, comes.
func (c *Caller) abandon(p *callPlace, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.state == placeWaits {
		p.state = placeAbandoned
	} else { // the reply came at the same moment
		<-p.ready
		p.state = placeEnds
		c.vacate(p)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause)
}

// vacate frees a place for which no call waits, unless the device needs it: that could
// read the next request in the middle of sending this one. mu must be held.
func (c *Caller) vacate(p *callPlace) {
	if p.sending == 0 {
		p.state = placeFree
		c.free <- p
	}
}

// serve takes completions, and connects again when the queue pair fails.
func (c *Caller) serve(ctx context.Context) {
	var wcs [32]verbs.WC
	for {
		n, err := c.link.cq.Wait(ctx, wcs[:])
		for i := range wcs[:n] {
			if werr := c.completed(&wcs[i]); werr != nil && err == nil {
				err = werr
			}
		}
		if err == nil {
			_, err = c.link.recvs.Post()
		}
		if err == nil {
			// A goroutine with a reply runs before this one polls, and yields the CPU to
			// the device's work in between: it may have the next request.
			runtime.Gosched()
			continue
		}
		if terr := c.link.qp.ToError(); terr != nil && !errors.Is(terr, verbs.ErrClosed) {
			err = errors.Join(err, terr)
		}
		if ctx.Err() != nil {
			c.end(ErrClosed)
			return
		}
		if cerr := c.connect(ctx); cerr != nil {
			c.end(fmt.Errorf("%w: %w", ErrBroken, errors.Join(cerr, err)))
			return
		}
	}
}

func (c *Caller) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	close(c.done)
}

// completed processes a completion. It returns an error if the connection failed.
func (c *Caller) completed(wc *verbs.WC) error {
	id := wc.ID()
	if uint32(id>>32)&0xffffff != c.link.conn&0xffffff {
		return nil // of an earlier connection
	}
	if err := wc.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(uint32(id))
	if id&workMask == callSend {
		p := &c.places[i]
		if p.sending--; p.state == placeEnds {
			c.vacate(p)
		}
		return nil
	}
	message := c.cfg.Limits.Message
	body := c.mr.Bytes()[(c.cfg.Limits.Window+i)*message:][:wc.Len()]
	if r, err := wire.DecodeReply(body); err == nil && r.Client == c.cfg.Client {
		c.agent = r.Agent
		p := &c.places[r.Seq%uint64(len(c.places))]
		switch {
		case p.seq != r.Seq:
		case p.state == placeWaits:
			p.state, p.reply = placeReplied, append(p.reply[:0], body...)
			p.ready <- struct{}{}
		case p.state == placeAbandoned:
			p.state = placeEnds
			c.vacate(p)
		}
	}
	c.receive(&c.link, i)
	return nil
}
