package accept

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script is a listener that returns errors, and a connection for each nil.
type script struct {
	net.Listener
	errs []error
	a    *Acceptor
	seen []bool // whether there was a shortage when it was asked
}

func (s *script) Accept() (net.Conn, error) {
	s.seen = append(s.seen, s.a.Short())
	err := s.errs[0]
	s.errs = s.errs[1:]
	if err != nil {
		return nil, err
	}
	return &net.TCPConn{}, nil
}

// A shortage is told of and counted once, although connections come in meanwhile.
func TestShortages(t *testing.T) {
	const none = syscall.EMFILE
	l := &script{errs: []error{none, none, nil, syscall.ENFILE, nil, nil, none, nil}}
	var told []error
	l.a = New(l, func(err error) { told = append(told, err) })
	next := func() {
		_, err := l.a.Next(nil)
		require.NoError(t, err)
		require.False(t, l.a.Short())
	}
	before := Shortages()
	next()
	next()
	require.Equal(t, []error{none}, told)
	l.a.last = time.Now().Add(-2 * calm)
	next()
	require.Equal(t, []error{none}, told)
	next()
	require.Equal(t, []error{none, none}, told)
	require.Equal(t, before+2, Shortages())
	require.Equal(t, []bool{false, true, true, false, true, false, false, true}, l.seen)
}
