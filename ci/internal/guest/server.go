//go:build linux

package guest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/topo"
)

// server runs programs for the launcher, and passes on what programs in this
// guest ask of the launcher.
type server struct {
	job     proto.Job
	ports   map[string]*os.File
	control *proto.Conn
	root    *root

	mu      sync.Mutex
	lastID  uint64
	waiting map[uint64]chan proto.Message // for replies of the launcher
	main    *os.Process
	early   []syscall.Signal // came before the main program was there
}

func (s *server) serve() error {
	l, err := net.Listen("unix", proto.Socket)
	if err != nil {
		return err
	}
	go s.serveLocal(l)
	for {
		m, err := s.control.Receive()
		if err != nil {
			return fmt.Errorf("control port: %w", err)
		}
		switch m.Op {
		case proto.OpExec:
			run := s.exec
			if m.Main {
				run = s.execMain
			}
			go s.answer(m, run)
		case proto.OpProve:
			go s.answer(m, s.prove)
		case proto.OpSignal:
			s.signal(syscall.Signal(m.Signal))
		case proto.OpDone:
			s.mu.Lock()
			ch := s.waiting[m.ID]
			delete(s.waiting, m.ID)
			s.mu.Unlock()
			if ch != nil {
				ch <- m
			}
		}
	}
}

func (s *server) answer(m proto.Message, f func(proto.Message) proto.Message) {
	reply := f(m)
	reply.ID, reply.Op = m.ID, proto.OpDone
	s.control.Send(reply)
}

// prove exchanges datagrams with another host.
func (s *server) prove(m proto.Message) (reply proto.Message) {
	peer, err := netip.ParseAddr(m.Peer)
	if err == nil {
		err = topo.ProvePeer("eth0", peer)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// serveLocal takes requests from programs of this guest: one message, one
// reply.
func (s *server) serveLocal(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			c := proto.NewConn(conn)
			m, err := c.Receive()
			if err != nil {
				return
			}
			ch := make(chan proto.Message, 1)
			s.mu.Lock()
			s.lastID++
			m.ID = s.lastID
			s.waiting[m.ID] = ch
			s.mu.Unlock()
			if err := s.control.Send(m); err != nil {
				return
			}
			c.Send(<-ch)
		}()
	}
}

func (s *server) setMain(p *os.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.main = p
	if p == nil {
		return
	}
	for _, sig := range s.early {
		syscall.Kill(-p.Pid, sig)
	}
	s.early = nil
}

// signal passes a signal on to the main program and what it started.
func (s *server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.main == nil {
		s.early = append(s.early, sig)
		return
	}
	syscall.Kill(-s.main.Pid, sig)
}
