package verbs

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// The barrier behind which both ends of a link can be used, and the probe of the path's
// MTU. The probe goes by the TCP connection, which takes the route of the queue pairs'
// packets, in one packet that is as long as theirs. A switch or a tunnel on the way that
// carries less drops both without a word, while the short packets of the handshake arrive.

// What a side says at the barrier: the probe, if the connection takes that route, and when
// the peer's has arrived, whether the side is ready.
const (
	linkProbe  = 'P' // behind it: length 2, big endian, and as many bytes
	linkReady  = 'R'
	linkFailed = 'F'
)

// probeHeaders is how much longer than the MTU the probe is. With the headers of TCP it is
// as long as the longest packet that starts a message, and fits into the netdev's MTU, which
// leaves room for more headers ([RoCEMTU]).
const probeHeaders = 20

// probeTimeout is how long a probe is under way before it counts as lost. By then TCP has
// sent it again.
const probeTimeout = 500 * time.Millisecond

// barrier waits until the peer is ready, or not, and tells it whether this side is. probe is
// the path MTU in bytes, or 0 for no probe.
func (l *Link) barrier(ctx context.Context, conn net.Conn, ok bool, probe int) error {
	defer interruptible(ctx, conn)()
	word := linkFailed
	if ok {
		word = linkReady
	}
	sent, probed := make(chan error, 1), make(chan struct{}) // a pipe has no buffer
	begun := time.Now()
	go func() {
		err := sendProbe(conn, probe)
		if probe > 0 {
			<-probed
		}
		if err == nil {
			_, err = conn.Write([]byte{byte(word)})
		}
		sent <- err
	}()
	theirs, head, err := readBarrier(conn, probed)
	if err != nil {
		conn.SetDeadline(longAgo)
	}
	err = errors.Join(err, <-sent)
	silent := ctx.Err() != nil || errors.Is(err, syscall.ETIMEDOUT) // the connection did not end
	missed := !head.IsZero() && time.Since(head) >= probeTimeout
	unheard := probe > 0 && time.Since(begun) >= probeTimeout && unacknowledged(conn) >= probe
	switch {
	case err != nil && silent && (missed || unheard):
		return opError("link with", conn.RemoteAddr().String(), class(ErrPathMTU, cmp.Or(ctx.Err(), err)), "set ConnectConfig.MTU, or the MTU of the route")
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && theirs != linkReady:
		err = class(ErrUnreachable, errors.New("the peer could not connect"))
	}
	return opError("link with", conn.RemoteAddr().String(), err)
}

// sendProbe sends a packet as long as those of a path MTU, if that is not 0.
func sendProbe(conn net.Conn, mtu int) error {
	if mtu == 0 {
		return nil
	}
	n := mtu + probeHeaders
	head := binary.BigEndian.AppendUint16([]byte{linkProbe}, uint16(n))
	if _, err := conn.Write(head); err != nil { // by itself: the peer then knows what it misses
		return err
	}
	_, err := conn.Write(make([]byte, n))
	return err
}

// readBarrier reads the peer's probe and its word. It closes probed when the probe has
// arrived, or none does. If the probe does not arrive, head is when it was announced.
func readBarrier(conn net.Conn, probed chan<- struct{}) (word byte, head time.Time, err error) {
	var b [3]byte
	_, err = io.ReadFull(conn, b[:1])
	if err == nil && b[0] == linkProbe {
		if _, err = io.ReadFull(conn, b[1:]); err == nil {
			now := time.Now()
			if _, err = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint16(b[1:]))); err != nil {
				head = now
			}
		}
		close(probed)
		if err == nil {
			_, err = io.ReadFull(conn, b[:1])
		}
		return b[0], head, err
	}
	close(probed)
	return b[0], head, err
}

// sameRoute reports whether packets from a GID take the route of a TCP connection: the GID
// is of the connection's own address.
func sameRoute(conn net.Conn, gid GIDEntry) bool {
	_, ok := conn.(syscall.Conn)
	return ok && gid.Type == GIDRoCEv2 && gid.GID.Addr() == addrOf(conn.LocalAddr()).WithZone("")
}

// routeMTU returns the MTU that the route of a TCP connection carries, if packets from the
// GID take it; else the largest.
func routeMTU(conn net.Conn, gid GIDEntry) MTU {
	if sameRoute(conn, gid) {
		if m := roceMTU(socketMTU(conn.(syscall.Conn))); m != 0 {
			return m
		}
	}
	return MTU4096
}

// unacknowledged returns how many bytes were written that the peer's host has not
// acknowledged, 0 if that is not known.
func unacknowledged(conn net.Conn) int {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	return socketUnacknowledged(s)
}
