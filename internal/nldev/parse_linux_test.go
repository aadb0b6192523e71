package nldev

import (
	"encoding/hex"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"
)

func encode(t testing.TB, f func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	f(ae)
	b, err := ae.Encode()
	require.NoError(t, err)
	return b
}

func deviceMessage(t testing.TB) []byte {
	return encode(t, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(AttrDevIndex, 7)
		ae.String(AttrDevName, "mlx5_0")
		ae.Uint32(attrPortIndex, 2)
		ae.String(attrFirmware, "22.35.1012")
		ae.Uint64(attrNodeGUID, 0x1122334455667788)
		ae.String(attrProtocol, "roce")
	})
}

func portMessage(t testing.TB) []byte {
	return encode(t, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrPortIndex, 1)
		ae.Uint8(attrPortState, 4)
		ae.Uint32(attrNetdev, 3)
		ae.String(AttrNetdevName, "eth0")
	})
}

func resourceMessage(t testing.TB) []byte {
	return encode(t, func(ae *netlink.AttributeEncoder) {
		ae.Nested(19, func(table *netlink.AttributeEncoder) error {
			table.Nested(20, func(e *netlink.AttributeEncoder) error {
				e.Uint32(attrQPN, 17)
				e.Uint8(attrType, 2)
				e.Uint8(attrState, 3)
				e.Uint32(attrPID, 4711)
				return nil
			})
			table.Nested(20, func(e *netlink.AttributeEncoder) error {
				e.Uint32(attrQPN, 1)
				e.Uint8(attrType, 200)
				e.String(attrKernName, "ib_core")
				return nil
			})
			return nil
		})
	})
}

func charMessage(t testing.TB) []byte {
	return encode(t, func(ae *netlink.AttributeEncoder) {
		ae.String(attrCharName, "uverbs3")
		ae.Uint64(attrCharNumber, 231<<8|195)
		ae.Uint32(attrDriverID, 1)
	})
}

func TestParse(t *testing.T) {
	d, err := parseDevice(deviceMessage(t))
	require.NoError(t, err)
	require.Equal(t, Device{Index: 7, Name: "mlx5_0", Ports: 2, Firmware: "22.35.1012", NodeGUID: 0x1122334455667788, Protocol: "roce"}, d)
	p, err := parsePort(portMessage(t))
	require.NoError(t, err)
	require.Equal(t, Port{Num: 1, State: 4, NetdevIndex: 3, Netdev: "eth0"}, p)
	r, err := parseResources(resourceMessage(t), 19, attrQPN)
	require.NoError(t, err)
	require.Equal(t, []Resource{{Number: 17, Type: "RC", State: "RTS", PID: 4711}, {Number: 1, Type: "200", Kernel: "ib_core"}}, r)
	f, err := parseCharDev(charMessage(t))
	require.NoError(t, err)
	require.Equal(t, CharDev{Name: "uverbs3", Number: 231<<8 | 195, Driver: "mlx5"}, f)
	shared, err := parseShared(encode(t, func(ae *netlink.AttributeEncoder) { ae.Uint8(attrNetnsMode, 0) }))
	require.NoError(t, err)
	require.False(t, shared)
}

// FuzzParse: no reply, however damaged, makes a parser panic.
func FuzzParse(f *testing.F) {
	for _, b := range [][]byte{deviceMessage(f), portMessage(f), resourceMessage(f), charMessage(f), nil} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err1 := parseDevice(b)
		_, err2 := parsePort(b)
		_, err3 := parseCharDev(b)
		_, err4 := parseShared(b)
		for _, k := range kinds {
			_, _ = parseResources(b, k.table, k.number)
		}
		if _, err := netlink.NewAttributeDecoder(b); err != nil && (err1 == nil || err2 == nil || err3 == nil || err4 == nil) {
			t.Fatalf("accepted %s", hex.EncodeToString(b))
		}
	})
}
