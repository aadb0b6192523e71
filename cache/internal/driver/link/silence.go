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

// looks is how often there is a look at a stream by which something was sent, and a host is gone that has acknowledged
// nothing from one look to another that are Silence apart, less that.
const looks = Silence / 5

// errSilent is the end of a stream whose other host is gone.
var errSilent = errors.New("the host acknowledges nothing any more")

// acknowledged is what TCP knows of a connection.
type acknowledged struct {
	waits    bool          // something is under way that was not acknowledged, or a probe
	probes   bool          // it is a probe
	lastAck  time.Duration // since one came
	lastSent time.Duration // since data went, for the first time or again
	unsent   bool          // something has not gone yet
}

// unanswered tells whether something was sent since the last acknowledgement. A program that hangs has its host
// acknowledge each probe of a window that is full, the next of which may not go for a long time.
func (a acknowledged) unanswered() bool {
	return a.waits && (a.probes || a.lastAck > a.lastSent)
}

// silence judges whether a host is gone.
type silence struct {
	since time.Time // of the first look from which on it has acknowledged nothing
}

// gone is asked at each look.
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

// because is the error that the connection has ended with.
func (w *watch) because(err error) error {
	if err != nil && w.silent.Load() {
		return errSilent
	}
	return err
}
