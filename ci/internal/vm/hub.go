package vm

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Hub joins the network cards of several guests: each frame that one sends
// reaches all the others. Frames come from QEMU's stream netdev with their
// length, 32 bits big endian, in front.
//
// A guest that reads slowly slows down its senders, and loses nothing. One
// that does not read at all, because it boots, hangs or has its card switched
// off, loses frames instead of holding up the other hosts.
type Hub struct {
	mu     sync.Mutex
	ports  map[*port]bool
	closed bool
}

const maxFrame = 1 << 17

func NewHub() *Hub { return &Hub{ports: make(map[*port]bool)} }

// Add plugs in a card, until its connection ends.
func (h *Hub) Add(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		conn.Close()
		return
	}
	p := &port{conn: conn, queue: make(chan []byte, queued), ended: make(chan struct{})}
	h.ports[p] = true
	go p.drain()
	go h.serve(p)
}

// Close unplugs everything.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for p := range h.ports {
		p.conn.Close()
	}
}

func (h *Hub) serve(from *port) {
	defer func() {
		h.mu.Lock()
		delete(h.ports, from)
		h.mu.Unlock()
		close(from.ended)
		from.conn.Close()
	}()
	r := bufio.NewReaderSize(from.conn, maxFrame)
	for {
		frame, err := readFrame(r)
		if err != nil {
			return
		}
		for _, to := range h.others(from) {
			to.send(frame)
		}
	}
}

func (h *Hub) others(from *port) []*port {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*port, 0, len(h.ports))
	for p := range h.ports {
		if p != from {
			list = append(list, p)
		}
	}
	return list
}

// queued is how many frames wait for a card, besides those in its socket.
const queued = 64

// deafAfter is how long a card may read nothing until it counts as deaf: much
// longer than an emulated guest is busy, and shorter than what a queue pair
// between other hosts takes for a dead peer.
const deafAfter = 250 * time.Millisecond

// port is one card.
type port struct {
	conn  net.Conn
	queue chan []byte
	ended chan struct{}

	deaf atomic.Bool // until there is room in its queue again
}

// send queues a frame, and waits for room unless the card is deaf.
func (p *port) send(frame []byte) {
	select {
	case p.queue <- frame:
		p.deaf.Store(false)
		return
	default:
	}
	if p.deaf.Load() {
		return
	}
	limit := time.NewTimer(deafAfter)
	defer limit.Stop()
	select {
	case p.queue <- frame:
	case <-p.ended:
	case <-limit.C:
		p.deaf.Store(true)
	}
}

// drain writes what is queued; a port that fails is ended by its reader.
func (p *port) drain() {
	for {
		select {
		case frame := <-p.queue:
			if _, err := p.conn.Write(frame); err != nil {
				return
			}
		case <-p.ended:
			return
		}
	}
}

// readFrame returns a frame with its length in front.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, io.ErrShortBuffer
	}
	frame := make([]byte, 4+n)
	copy(frame, head[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
