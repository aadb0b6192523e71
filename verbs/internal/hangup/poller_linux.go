package hangup

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller is a goroutine and an epoll instance of their own, which are there while any connection is
// watched: Go's poller wakes goroutines, and nothing else.
type poller struct {
	mu   sync.Mutex
	all  map[uint64]*Watch // by what epoll says of them; a descriptor may be another one's soon
	last uint64
	file *os.File // nil: there is none
	fd   int
}

var shared = poller{all: map[uint64]*Watch{}}

func (p *poller) add(w *Watch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		if err := p.open(); err != nil {
			return err
		}
	}
	p.last++
	w.id = p.last
	p.all[w.id] = w
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(w.id), Pad: int32(w.id >> 32)}
	err := w.control(unix.EPOLL_CTL_ADD, p.fd, &ev)
	if err != nil {
		p.forget(w)
	}
	return err
}

// control changes what epoll knows of a connection.
func (w *Watch) control(op, epoll int, ev *unix.EpollEvent) (err error) {
	return errors.Join(w.raw.Control(func(fd uintptr) { err = unix.EpollCtl(epoll, op, int(fd), ev) }), err)
}

// open makes the instance and its goroutine. mu must be held.
func (p *poller) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // then it is waited for in Go's poller
		return errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "epoll")
	conn, err := file.SyscallConn()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	p.file, p.fd = file, fd
	go p.run(conn)
	return nil
}

// forget ends a watch, and the goroutine with the last one, and reports whether there was that watch.
// mu must be held.
func (p *poller) forget(w *Watch) bool {
	if p.all[w.id] != w {
		return false
	}
	delete(p.all, w.id)
	_ = w.control(unix.EPOLL_CTL_DEL, p.fd, nil) // it may be closed, which is as good
	if len(p.all) == 0 {
		_ = p.file.Close()
		p.file = nil
	}
	return true
}

func (p *poller) remove(w *Watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(w)
}

func (p *poller) run(conn syscall.RawConn) {
	events, junk := make([]unix.EpollEvent, 64), make([]byte, 512)
	for {
		n := 0
		err := conn.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || err != nil
		})
		if err != nil { // it is closed
			return
		}
		for _, ev := range events[:max(n, 0)] {
			p.mu.Lock()
			w := p.all[uint64(uint32(ev.Fd))|uint64(uint32(ev.Pad))<<32]
			p.mu.Unlock()
			if w != nil {
				p.look(w, junk)
			}
		}
	}
}

// look reads once: if there is more epoll says so again, and others are not kept waiting.
func (p *poller) look(w *Watch, junk []byte) {
	var n int
	var err error
	if w.raw.Control(func(fd uintptr) { n, err = unix.Read(int(fd), junk) }) != nil {
		return // it is being closed
	}
	switch {
	case n > 0 || err == unix.EAGAIN || err == unix.EINTR:
		return
	case err == nil:
		err = io.EOF
	default:
		err = os.NewSyscallError("read", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forget(w) {
		w.running.Go(func() { w.ended(err) })
	}
}
