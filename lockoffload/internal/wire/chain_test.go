package wire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func exampleRequest(b []byte) []byte {
	r := ChainRequest{Client: 0x1122334455667788, Seq: 9, Slot: 3, Tries: 5, Deadline: 2000, Agent: 0x21}
	b = AppendAccess(r.AppendTo(b), Access{Kind: AccessCompare, Record: 1, Version: 41})
	b = AppendAccess(b, Access{Kind: AccessRead, Record: 0})
	b = AppendAccess(b, Access{Kind: AccessWrite, Record: 1, Data: []byte("hello")})
	return SealMessage(b, 3)
}

func exampleReply(b []byte) []byte {
	r := ChainReply{Client: 0x1122334455667788, Seq: 9, Status: ChainDone, Tries: 2, Agent: 0x21}
	b = AppendAccess(r.AppendTo(b), Access{Kind: AccessCompare, Record: 1, Version: 41})
	b = AppendAccess(b, Access{Kind: AccessRead, Record: 0, Version: 6, Data: []byte("12345678")})
	b = AppendAccess(b, Access{Kind: AccessWrite, Record: 1, Version: 42})
	return SealMessage(b, 3)
}

// The bytes of version 1, written out by hand from the description.
func TestChainGolden(t *testing.T) {
	require.Equal(t, ""+
		"0100030060000000"+"8877665544332211"+"0900000000000000"+
		"0300000005000000"+"d007000021000000"+
		"0300010000000000"+"2900000000000000"+
		"0100000000000000"+"0000000000000000"+
		"0200010005000000"+"0000000000000000"+"68656c6c6f000000",
		hex.EncodeToString(exampleRequest(nil)))
	require.Equal(t, ""+
		"0101030058000000"+"8877665544332211"+"0900000000000000"+"0200000021000000"+
		"0300010000000000"+"2900000000000000"+
		"0100000008000000"+"0600000000000000"+"3132333435363738"+
		"0200010000000000"+"2a00000000000000",
		hex.EncodeToString(exampleReply(nil)))
}

func TestChainRoundTrip(t *testing.T) {
	r, err := DecodeRequest(exampleRequest(nil))
	require.NoError(t, err)
	require.Equal(t, []any{uint64(0x1122334455667788), uint64(9), uint32(3), false, TurnNone, uint32(5), uint32(2000), uint32(0x21), 3},
		[]any{r.Client, r.Seq, r.Slot, r.Shared, r.Turn, r.Tries, r.Deadline, r.Agent, r.Ops.N})
	require.Equal(t, Access{AccessCompare, 1, 41, []byte{}}, r.Ops.Next())
	require.Equal(t, Access{AccessRead, 0, 0, []byte{}}, r.Ops.Next())
	require.Equal(t, Access{AccessWrite, 1, 0, []byte("hello")}, r.Ops.Next())
	require.Zero(t, r.Ops.N)

	a, err := DecodeReply(exampleReply(nil))
	require.NoError(t, err)
	require.Equal(t, ChainDone, a.Status)
	require.Equal(t, uint32(2), a.Tries)
	require.Equal(t, uint32(0x21), a.Agent)
	a.Ops.Next()
	require.Equal(t, Access{AccessRead, 0, 6, []byte("12345678")}, a.Ops.Next())
}

// A shared chain says so, and is no request for a turn.
func TestChainShared(t *testing.T) {
	msg := SealMessage((&ChainRequest{Client: 1, Seq: 1, Shared: true}).AppendTo(nil), 0)
	require.Equal(t, "01010000", hex.EncodeToString(msg[:4]))
	r, err := DecodeRequest(msg)
	require.NoError(t, err)
	require.True(t, r.Shared)
	require.Equal(t, TurnNone, r.Turn)
}

func TestChainCutShort(t *testing.T) {
	for name, msg := range map[string][]byte{"request": exampleRequest(nil), "reply": exampleReply(nil)} {
		for i := range msg {
			_, err := DecodeRequest(msg[:i])
			require.ErrorIs(t, err, ErrMalformed, "%s of %d", name, i)
			_, err = DecodeReply(msg[:i])
			require.ErrorIs(t, err, ErrMalformed, "%s of %d", name, i)
		}
	}
	long := append(exampleRequest(nil), 0)
	_, err := DecodeRequest(long)
	require.ErrorIs(t, err, ErrMalformed)
}

func TestChainHostileFields(t *testing.T) {
	for _, v := range []struct {
		at    int
		value byte
	}{
		{0, 0}, {0, 2}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {2, 4}, {4, 0x68}, // version, lock, operations, length
		{40, 0}, {40, 4}, {41, 1}, {44, 255}, {47, 255}, // kind, reserved, length of data
		{ChainRequestHead + 3*AccessHead + 5, 1}, // padding
	} {
		msg := exampleRequest(nil)
		msg[v.at] = v.value
		_, err := DecodeRequest(msg)
		require.ErrorIs(t, err, ErrMalformed, "byte %d", v.at)
	}
	for _, r := range []ChainRequest{{Turn: TurnAsk + 2}, {Turn: TurnEnd}} { // an unknown kind, and the end of nothing
		r.Client, r.Seq = 1, 1
		_, err := DecodeRequest(SealMessage(r.AppendTo(nil), 0))
		require.ErrorIs(t, err, ErrMalformed, "%+v", r)
	}
	msg := exampleRequest(nil)
	msg[16] = 0
	_, err := DecodeRequest(msg)
	require.ErrorIs(t, err, ErrMalformed, "sequence 0")
	for status := range ChainDamaged + 2 {
		r := ChainReply{Client: 1, Seq: 1, Status: status}
		got, err := DecodeReply(SealMessage(r.AppendTo(nil), 0))
		if status >= ChainDone && status <= ChainDamaged {
			require.NoError(t, err)
			require.Equal(t, status, got.Status)
		} else {
			require.ErrorIs(t, err, ErrMalformed, "status %d", status)
		}
	}
	msg = exampleReply(nil)
	msg[16] = 0
	_, err = DecodeReply(msg)
	require.ErrorIs(t, err, ErrMalformed, "sequence 0")
}

func TestChainCodingAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 256)
	junk := make([]byte, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		buf = exampleRequest(buf[:0])
		r, err := DecodeRequest(buf)
		for err == nil && r.Ops.N > 0 {
			r.Ops.Next()
		}
		buf = exampleReply(buf[:0])
		if _, err := DecodeReply(buf); err != nil {
			panic(err)
		}
		if _, err := DecodeRequest(junk); err == nil {
			panic("accepted")
		}
	}))
}

func FuzzChainRequest(f *testing.F) {
	f.Add(exampleRequest(nil))
	f.Add(SealMessage((&ChainRequest{Client: 1, Seq: 1, Shared: true}).AppendTo(nil), 0))
	f.Add(SealMessage((&ChainRequest{Client: 1, Seq: 1, Turn: TurnAsk}).AppendTo(nil), 0))
	f.Add(SealMessage(AppendAccess((&ChainRequest{Client: 1, Seq: 1, Turn: TurnEnd}).AppendTo(nil), Access{Kind: AccessCompare}), 1))
	f.Add([]byte{})
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, msg []byte) {
		r, err := DecodeRequest(msg)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, n := r.AppendTo(nil), 0
		for ; r.Ops.N > 0; n++ {
			again = AppendAccess(again, r.Ops.Next())
		}
		require.Equal(t, msg, SealMessage(again, n))
	})
}

func FuzzChainReply(f *testing.F) {
	f.Add(exampleReply(nil))
	f.Add(SealMessage((&ChainReply{Client: 1, Seq: 1, Status: ChainBusy}).AppendTo(nil), 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		r, err := DecodeReply(msg)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, n := r.AppendTo(nil), 0
		for ; r.Ops.N > 0; n++ {
			again = AppendAccess(again, r.Ops.Next())
		}
		require.Equal(t, msg, SealMessage(again, n))
	})
}
