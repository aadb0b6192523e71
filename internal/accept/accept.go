// Package accept takes connections from a listener for as long as it is there.
package accept

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// Between attempts while there is no room for a connection.
const (
	shortPause = 5 * time.Millisecond
	longPause  = time.Second
)

// Next accepts a connection from l. On EMFILE, ENFILE, ENOBUFS and ENOMEM it retries with
// backoff until over is closed: a flood of connections, to whatever port, must not end the
// service. Any other error is the end of l.
func Next(l net.Listener, over <-chan struct{}) (net.Conn, error) {
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		conn, err := l.Accept()
		if err == nil || !scarce(err) {
			return conn, err
		}
		select {
		case <-time.After(pause):
		case <-over:
			return nil, err
		}
	}
}

func scarce(err error) bool {
	for _, e := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
