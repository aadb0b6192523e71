package vm

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// Hub joins the network cards of several guests: each frame that one sends
// reaches all the others. Frames come from QEMU's stream netdev with their
// length, 32 bits big endian, in front.
type Hub struct {
	mu     sync.Mutex // also keeps frames whole
	ports  map[net.Conn]bool
	closed bool
}

const maxFrame = 1 << 17

func NewHub() *Hub { return &Hub{ports: make(map[net.Conn]bool)} }

// Add plugs in a card, until its connection ends.
func (h *Hub) Add(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		conn.Close()
		return
	}
	h.ports[conn] = true
	go h.serve(conn)
}

// Close unplugs everything.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for c := range h.ports {
		c.Close()
	}
}

func (h *Hub) serve(from net.Conn) {
	defer func() {
		h.mu.Lock()
		delete(h.ports, from)
		h.mu.Unlock()
		from.Close()
	}()
	r := bufio.NewReaderSize(from, maxFrame)
	for {
		frame, err := readFrame(r)
		if err != nil {
			return
		}
		h.mu.Lock()
		for to := range h.ports {
			if to != from {
				to.Write(frame) // a port that fails ends by itself
			}
		}
		h.mu.Unlock()
	}
}

// readFrame answers a frame with its length in front.
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
