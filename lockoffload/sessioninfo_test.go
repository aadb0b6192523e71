package lockoffload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func aSessionInfo() SessionInfo {
	l := Layout{Slots: 3, Size: 100, Records: 2, Clients: 8, Swap: 1}
	return SessionInfo{Generation: 1<<63 + 3, Owner: 8, Epoch: 7, Lease: time.Second, Layout: l, Region: verbs.Region{Addr: 1 << 40, Length: uint64(l.Bytes()), RKey: 5}}
}

func TestSessionInfo(t *testing.T) {
	in := aSessionInfo()
	b, err := in.AppendBinary([]byte("before"))
	require.NoError(t, err)
	var out SessionInfo
	require.NoError(t, out.UnmarshalBinary(b[6:]))
	require.Equal(t, in, out)
	for name, spoil := range map[string]func(*SessionInfo){
		"no owner":      func(i *SessionInfo) { i.Owner = 0 },
		"owner":         func(i *SessionInfo) { i.Owner = 9 },
		"lease":         func(i *SessionInfo) { i.Lease = -1 },
		"shorter lease": func(i *SessionInfo) { i.Lease = 2 }, // none of its heartbeats would come in time
		"short region":  func(i *SessionInfo) { i.Region.Length-- },
		"too many":      func(i *SessionInfo) { i.Layout.Slots = 2 << 30 },
		"without slots": func(i *SessionInfo) { i.Layout = Layout{} },
	} {
		bad := in
		spoil(&bad)
		_, err := bad.AppendBinary(nil)
		require.ErrorIs(t, err, ErrConfig, name)
	}
}

func FuzzSessionInfo(f *testing.F) {
	b, _ := aSessionInfo().AppendBinary(nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var in SessionInfo
		if in.UnmarshalBinary(b) != nil {
			require.Zero(t, in)
			return
		}
		again, err := in.AppendBinary(nil)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}
