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
	listener net.Listener

	mu    sync.Mutex // also keeps frames whole
	ports map[net.Conn]bool
}

const maxFrame = 1 << 17

// NewHub listens on a unix socket.
func NewHub(socket string) (*Hub, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	h := &Hub{listener: l, ports: make(map[net.Conn]bool)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.ports[conn] = true
			h.mu.Unlock()
			go h.serve(conn)
		}
	}()
	return h, nil
}

// Close unplugs everything.
func (h *Hub) Close() {
	h.listener.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
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
