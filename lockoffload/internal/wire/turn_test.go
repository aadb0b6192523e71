package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTurns(t *testing.T) {
	b := AppendTurn([]byte("before"), 7, 9, 3, 5, 0)
	require.Equal(t, "before", string(b[:6]))
	r, err := DecodeRequest(b[6:])
	require.NoError(t, err)
	require.Equal(t, ChainRequest{Client: 7, Seq: 9, Slot: 3, Turn: TurnAsk, Agent: 5, Ops: Accesses{raw: []byte{}}}, r)
	b = AppendTurn(make([]byte, 0, 256), 7, 10, 3, 0, 9)
	require.Equal(t, 256, cap(b), "in place, where there is room")
	r, err = DecodeRequest(b)
	require.NoError(t, err)
	require.Equal(t, TurnEnd, r.Turn)
	require.Equal(t, 1, r.Ops.N)
	require.EqualValues(t, 9, r.Ops.Next().Version)
}
