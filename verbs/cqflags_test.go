//go:build linux && cgo

package verbs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// 0x7f are the fields that a plain queue has too.
func TestCQFlags(t *testing.T) {
	d, p, _, _ := driverRig(t)
	for _, c := range []struct {
		cfg  CQConfig
		want string
	}{
		{CQConfig{SingleThreaded: true}, `
		ibv_create_cq_ex fields=0x7f mask=0x1 flags=0x1`},
		{CQConfig{IgnoreOverrun: true, Fields: FieldTimestamp}, `
		ibv_create_cq_ex fields=0xff mask=0x1 flags=0x2`},
		{CQConfig{SingleThreaded: true, IgnoreOverrun: true}, `
		ibv_create_cq_ex fields=0x7f mask=0x1 flags=0x3`},
		{CQConfig{Fields: FieldsStandard}, `
		ibv_create_cq_ex fields=0x7f mask=0 flags=0`},
	} {
		c.cfg.PollOnly = true
		q, err := d.CreateCQ(c.cfg)
		require.NoError(t, err)
		recorded(t, c.want)
		require.NoError(t, q.Close())
	}

	c, err := d.CreateCQ(CQConfig{SingleThreaded: true, PollOnly: true})
	require.NoError(t, err)
	q := connectedRC(t, p, c)
	standin.Receive(q.Num(), 7, 64, nil)
	var wcs [4]WC
	n, err := c.Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.EqualValues(t, 7, wcs[0].ID())
	require.NoError(t, q.Close())

	standin.Refuse("ibv_create_cq_ex", syscall.EOPNOTSUPP)
	_, err = d.CreateCQ(CQConfig{IgnoreOverrun: true, PollOnly: true})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "flags 0x2")
}

// TestSenderOfDatagram: a server on EFA replies to an unknown sender, and knows it
// again.
func TestSenderOfDatagram(t *testing.T) {
	d, p, _, _ := driverRig(t)
	c, err := d.CreateCQ(CQConfig{Fields: fieldSender, PollOnly: true})
	require.NoError(t, err)
	recorded(t, `
		efadv_query_device
		efadv_create_cq fields=0x7f mask=0 flags=0 efa=0x1`)
	q, err := p.CreateQP(QPConfig{Type: SRD, SendCQ: c, GID: standinGID})
	require.NoError(t, err)
	require.NoError(t, q.Activate())
	standin.Recorded()

	const unknown = 0xffff
	standin.ReceiveFrom(q.Num(), 1, unknown, standinPeer)
	standin.ReceiveFrom(q.Num(), 2, uint16(standinPeer[15]), GID{1, 2, 3})
	standin.Complete(q.Num(), 3, 0)
	var wcs [4]WCEx
	n, err := c.PollEx(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, standinPeer, wcs[0].from())
	require.Zero(t, wcs[1].from(), "there is a handle to it")
	require.Zero(t, wcs[2].from(), "a send")
	require.Empty(t, standin.Recorded())

	ah, err := p.createAHFromWCEx(&wcs[0], nil, 1)
	require.NoError(t, err)
	recorded(t, `
		create_ah global=1 gid=..a1 index=0 hops=64 port=1 dlid=0`)
	number, err := ah.number()
	require.NoError(t, err)
	require.Equal(t, wcs[1].SLID(), number)
	_, err = p.createAHFromWCEx(&wcs[1], nil, 1)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "AHNumber")
	_, err = p.createAHFromWCEx(&wcs[2], nil, 1)
	require.ErrorIs(t, err, ErrAttributes)
	_, err = p.createAHFromWCEx(nil, nil, 1)
	require.ErrorIs(t, err, ErrAttributes)
	require.NoError(t, ah.Close())
	require.NoError(t, q.Close())
	require.NoError(t, c.Close())
}
