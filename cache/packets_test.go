//go:build linux

package cache_test

import (
	"encoding/binary"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// Opcodes of RC in the base transport header (InfiniBand specification, volume 1,
// section 9.2.1).
const (
	sendLast     = 0x05 // SENDs of all kinds are 0x00 to 0x05, and 0x16, 0x17
	readRequest  = 0x0c
	readResponse = 0x10 // of a READ of one packet
	acknowledge  = 0x11
)

// packets are those that pass the server's interface: how many there are of each opcode,
// from the client and from the server. What is sent again counts once.
type packets struct {
	file *os.File
	done chan struct{}
	mu   sync.Mutex
	seen map[packet]bool
}

type packet struct {
	opcode     byte
	fromServer bool
	qp, psn    uint32
}

// watch begins to look at the server's interface.
func watch(t *testing.T) *packets {
	t.Helper()
	ends := lab.Require(t, 2)
	link, err := net.InterfaceByName(ends[1].Netdev)
	require.NoError(t, err)
	const all = 0x0300 // ETH_P_ALL in network byte order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, all)
	require.NoError(t, err)
	p := &packets{file: os.NewFile(uintptr(fd), "packets"), done: make(chan struct{}), seen: map[packet]bool{}}
	// Room for all that comes before it is looked at: the usual 208 KiB are some 100 packets.
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 8<<20))
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}))
	server := ends[1].Addr.As4()
	go func() {
		defer close(p.done)
		b := make([]byte, 8192)
		for {
			n, err := p.file.Read(b)
			if err != nil {
				return
			}
			p.add(b[:n], server)
		}
	}()
	t.Cleanup(func() { _ = p.file.Close(); <-p.done })
	return p
}

func (p *packets) add(b []byte, server [4]byte) {
	const udp, port, bth = 17, 4791, 28
	if len(b) < bth+12 || b[0] != 0x45 || b[9] != udp || binary.BigEndian.Uint16(b[22:]) != port {
		return
	}
	be := binary.BigEndian
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[packet{b[bth], [4]byte(b[12:16]) == server, be.Uint32(b[bth+4:]) & 0xffffff, be.Uint32(b[bth+8:]) & 0xffffff}] = true
}

// take returns what was seen since the last time, when nothing has come for a while.
func (p *packets) take() map[[2]byte]int {
	for before := -1; ; {
		time.Sleep(50 * time.Millisecond)
		p.mu.Lock()
		if len(p.seen) == before {
			break // with the mutex
		}
		before = len(p.seen)
		p.mu.Unlock()
	}
	defer p.mu.Unlock()
	out := map[[2]byte]int{}
	for k := range p.seen {
		from := byte(0)
		if k.fromServer {
			from = 1
		}
		out[[2]byte{k.opcode, from}]++
	}
	p.seen = map[packet]bool{}
	return out
}

func sends(seen map[[2]byte]int) (n int) {
	for k, v := range seen {
		if k[0] <= sendLast || k[0] == 0x16 || k[0] == 0x17 {
			n += v
		}
	}
	return n
}
