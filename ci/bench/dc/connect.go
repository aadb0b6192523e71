package dc

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Connections beside attaches. A program that has to connect often, and has no
// package dc, makes its queue pairs ahead and keeps a TCP connection to each peer
// open, over which two messages connect a queue pair: RTR and RTS at the server
// when the client's address is there, at the client when the server's is.
var connectRoles = map[string]rig.Role{
	"dc-open-server": serveOpen,
	"dc-open":        connectOpen,
	"dc-cm-server": func(_ context.Context, at string) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return err
		}
		return standin.ConnectServer(to)
	},
	"dc-cm": func(_ context.Context, at string) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil {
			return err
		}
		ns := make([]int64, connections)
		if err := standin.ConnectLoop(to, attachPause, ns); err != nil {
			return err
		}
		fmt.Println(rig.MedianMicros(ns))
		return nil
	},
}

// made is a queue pair in state INIT, and the message with its address.
type made struct {
	qp      *verbs.QP
	message []byte
}

func makeAhead(e lab.Endpoint) ([]made, error) {
	h, err := rig.NewHost(e)
	if err != nil {
		return nil, err
	}
	cq, err := h.PD.Device().CreateCQ(verbs.CQConfig{PollOnly: true})
	if err != nil {
		return nil, err
	}
	out := make([]made, connections)
	for i := range out {
		if out[i].qp, err = h.PD.CreateQP(verbs.QPConfig{SendCQ: cq, GID: h.GID, MaxSendWR: 16, MaxRecvWR: 16}); err != nil {
			return nil, err
		}
		local, err := out[i].qp.Endpoint()
		if err != nil {
			return nil, err
		}
		if out[i].message, err = local.AppendBinary(nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// connect connects to the endpoint in the peer's next message, which is as long
// as ours.
func (m *made) connect(peer io.Reader) error {
	b := make([]byte, len(m.message))
	if _, err := io.ReadFull(peer, b); err != nil {
		return err
	}
	var remote verbs.Endpoint
	if err := remote.UnmarshalBinary(b); err != nil {
		return err
	}
	return m.qp.Connect(remote, verbs.ConnectConfig{})
}

// serveOpen serves one client: each message of it connects a queue pair.
func serveOpen(_ context.Context, at string) error {
	_, e, err := rig.Endpoints()
	if err != nil {
		return err
	}
	ready, err := makeAhead(e)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	for i := range ready {
		if err := ready[i].connect(conn); err != nil {
			return err
		}
		if _, err := conn.Write(ready[i].message); err != nil {
			return err
		}
	}
	_, err = conn.Read(make([]byte, 1)) // until the client is done
	return err
}

// connectOpen prints the median time of a connection in microseconds.
func connectOpen(_ context.Context, at string) error {
	conn, err := rig.DialServer(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	e, _, err := rig.Endpoints()
	if err != nil {
		return err
	}
	ready, err := makeAhead(e)
	if err != nil {
		return err
	}
	ns := make([]int64, len(ready))
	for i := range ready {
		time.Sleep(attachPause)
		start := time.Now()
		if _, err := conn.Write(ready[i].message); err != nil {
			return err
		}
		if err := ready[i].connect(conn); err != nil {
			return err
		}
		ns[i] = int64(time.Since(start))
	}
	fmt.Println(rig.MedianMicros(ns))
	return nil
}
