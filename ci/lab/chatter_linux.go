package lab

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Chatter has a small broadcast leave through each interface every millisecond until the
// test ends. The bursts of an [Impairment] last for a number of packets; on a wire that is
// otherwise silent one may last for as long as no host has much to send, which is for ever
// if all that try wait for it to end: an address is asked for once a second, a connection
// every few seconds.
func Chatter(t testing.TB, devs ...string) {
	t.Helper()
	for _, dev := range devs {
		bind := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if failed := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), dev) }); failed != nil {
				return failed
			}
			return err
		}}
		conn, err := bind.ListenPacket(t.Context(), "udp4", ":0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			to := &net.UDPAddr{IP: net.IPv4bcast, Port: 9} // discard
			for {
				if _, err := conn.WriteTo([]byte{0}, to); errors.Is(err, net.ErrClosed) {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		t.Cleanup(func() {
			conn.Close()
			<-done
		})
	}
}
