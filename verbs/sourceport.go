package verbs

import (
	"fmt"

	"github.com/goverbs/goverbs/cgo"
)

// Routers and switches with several equal paths choose one by the headers of a
// packet. All packets of RoCE v2 have the same addresses and the same
// destination port, so that the UDP source port alone spreads them.

const (
	firstSourcePort  = 0xc000 // RoCE v2 uses the dynamic ports, 49152 to 65535
	sourcePortBits   = 14
	flowLabelBits    = 20
	reasonOnlyOfMlx5 = "only mlx5 sets it by itself; elsewhere ConnectConfig.FlowLabel chooses the source port"
)

// UDPSourcePort returns the source port that the kernel and mlx5 derive from a flow label
// (ibv_flow_label_to_udp_sport). With label 0, which means none, the device chooses the
// port.
func UDPSourcePort(flowLabel uint32) uint16 {
	low, high := flowLabel&(1<<sourcePortBits-1), flowLabel&(1<<flowLabelBits-1)>>sourcePortBits
	return uint16(firstSourcePort | low ^ high)
}

// FlowLabelFor returns a flow label for [ConnectConfig] and [AHAttr] that gives RoCE v2
// packets the UDP source port, from 49152 to 65535. Of any other port it uses the low 14
// bits. rxe ignores flow labels.
func FlowLabelFor(port uint16) uint32 {
	label := uint32(port) & (1<<sourcePortBits - 1)
	if label == 0 { // that would be none
		label = 1<<sourcePortBits | 1
	}
	return label
}

// setUDPSourcePort is [experimental.SetUDPSourcePort].
func (q *QP) setUDPSourcePort(port uint16) error {
	const op = "set UDP source port of"
	return q.life.With(op, func() error {
		switch {
		case q.typ != RC && q.typ != UC:
			return opError(op, q.life.Label, ErrUnsupported, "only RC and UC have one of their own; an address handle has a flow label")
		case port < firstSourcePort:
			return opError(op, q.life.Label, ErrAttributes, "port ", port, ": RoCE v2 uses those from ", firstSourcePort, " on")
		}
		return q.onMlx5(op, reasonOnlyOfMlx5, func() error {
			return opError(op, q.life.Label, unsupported(cgo.Mlx5SetUDPSourcePort(q.qp, port)), "port ", port, ": the firmware may lack rts2rts_qp_udp_sport, the process access to DEVX")
		})
	})
}

// setLAGPort is [experimental.SetLAGPort].
func (q *QP) setLAGPort(port int) error {
	const op = "set LAG port of"
	return q.life.With(op, func() error {
		if port < 1 || port > 255 {
			return opError(op, q.life.Label, ErrAttributes, "port ", port)
		}
		if q.typ == DCT || q.typ == SRD {
			return opError(op, q.life.Label, ErrUnsupported, q.typ, " has none")
		}
		return q.onMlx5(op, "only mlx5 has LAG ports", func() error {
			return opError(op, q.life.Label, unsupported(cgo.Mlx5SetLAGPort(q.qp, uint8(port))), "port ", port, ": are the ports bonded?")
		})
	})
}

// lagPort is [experimental.LAGPort].
func (q *QP) lagPort() (port, active int, err error) {
	const op = "query LAG port of"
	err = q.life.With(op, func() error {
		return q.onMlx5(op, "only mlx5 has LAG ports", func() error {
			p, a, err := cgo.Mlx5LAGPort(q.qp)
			port, active = int(p), int(a)
			return opError(op, q.life.Label, unsupported(err), "are the ports bonded?")
		})
	})
	return port, active, err
}

// onMlx5 does what takes a queue pair of mlx5 in [StateRTS], or says why not:
// libmlx5 must not see another provider's, and knows one errno for both.
func (q *QP) onMlx5(op, reason string, f func() error) error {
	if !cgo.Mlx5Supported(q.pd.dev.ctx) {
		return opError(op, q.life.Label, ErrUnsupported, reason)
	}
	q.modify.Lock()
	defer q.modify.Unlock()
	if s := q.State(); s != StateRTS {
		return opError(op, q.life.Label, ErrState, fmt.Sprintf("%v; it takes %v", s, StateRTS))
	}
	return f()
}
