package link

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Silence is how long a host may leave what a stream sent unacknowledged, until it is taken for gone.
const Silence = 10 * time.Second

// looks is the interval between looks at a stream on which something was sent. A host is gone if it
// has acknowledged nothing between two looks that are Silence-looks apart.
const looks = Silence / 5

// errSilent is the error of a stream after its other host has gone.
var errSilent = errors.New("the host acknowledges nothing any more")

// acknowledged is what TCP knows of a connection.
type acknowledged struct {
	waits    bool          // something is under way that was not acknowledged, or a probe
	probes   bool          // it is a probe
	lastAck  time.Duration // since one came
	lastSent time.Duration // since data went, for the first time or again
	unsent   bool          // something has not gone yet
}

// unanswered reports whether something was sent since the last acknowledgement. The host of a hung
// program acknowledges each probe of a full window, and the next probe may follow much later.
func (a acknowledged) unanswered() bool {
	return a.waits && (a.probes || a.lastAck > a.lastSent)
}

// silence judges whether a host is gone.
type silence struct {
	since time.Time // of the first look from which on it has acknowledged nothing
}

// gone reports at each look whether the host is gone.
func (s *silence) gone(now time.Time, a acknowledged) bool {
	switch {
	case !a.unanswered():
		s.since = time.Time{}
	case s.since.IsZero() || a.lastAck < now.Sub(s.since):
		s.since = now
	}
	return !s.since.IsZero() && now.Sub(s.since) >= Silence-looks
}

// watch looks at a connection while something is under way there, and closes it when the host is gone. While nothing
// is, TCP's probes do so, of which the first goes after a quarter of a minute. TCP's own limit
// (TCP_USER_TIMEOUT) would end that of a program that hangs, too, once it has filled its window.
type watch struct {
	conn    net.Conn
	armed   atomic.Bool
	timer   *time.Timer
	mu      sync.Mutex // of silence
	silence silence
	silent  atomic.Bool
}

func newWatch(conn net.Conn) *watch {
	w := &watch{conn: conn}
	w.timer = time.AfterFunc(time.Hour, w.look)
	w.timer.Stop()
	keepAlive(conn, looks, int(Silence/looks))
	return w
}

// sent is called when something was written.
func (w *watch) sent() {
	if w.armed.CompareAndSwap(false, true) {
		w.timer.Reset(looks)
	}
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := acknowledgedOf(w.conn)
	switch {
	case !ok: // it was closed
	case w.silence.gone(time.Now(), a):
		w.silent.Store(true)
		abandon(w.conn)
		_ = w.conn.Close()
	default:
		w.armed.Store(false)
		if a, _ = acknowledgedOf(w.conn); a.waits || a.unsent { // that may have been written between
			w.sent()
		}
	}
}

// because returns the error that the connection has ended with.
func (w *watch) because(err error) error {
	if err != nil && w.silent.Load() {
		return errSilent
	}
	return err
}
