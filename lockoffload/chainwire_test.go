package lockoffload

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func exampleRequest(b []byte) []byte {
	r := chainRequest{client: 0x1122334455667788, seq: 9, slot: 3, tries: 5, deadline: 2000}
	b = appendAccess(r.appendTo(b), wireAccess{kind: accessCompare, record: 1, version: 41})
	b = appendAccess(b, wireAccess{kind: accessRead, record: 0})
	b = appendAccess(b, wireAccess{kind: accessWrite, record: 1, data: []byte("hello")})
	return sealMessage(b, 3)
}

func exampleReply(b []byte) []byte {
	r := chainReply{client: 0x1122334455667788, seq: 9, status: chainDone, tries: 2}
	b = appendAccess(r.appendTo(b), wireAccess{kind: accessCompare, record: 1, version: 41})
	b = appendAccess(b, wireAccess{kind: accessRead, record: 0, version: 6, data: []byte("12345678")})
	b = appendAccess(b, wireAccess{kind: accessWrite, record: 1, version: 42})
	return sealMessage(b, 3)
}

// The bytes of version 1, written out by hand from the description.
func TestChainGolden(t *testing.T) {
	require.Equal(t, ""+
		"0100030060000000"+"8877665544332211"+"0900000000000000"+
		"0300000005000000"+"d007000000000000"+
		"0300010000000000"+"2900000000000000"+
		"0100000000000000"+"0000000000000000"+
		"0200010005000000"+"0000000000000000"+"68656c6c6f000000",
		hex.EncodeToString(exampleRequest(nil)))
	require.Equal(t, ""+
		"0101030058000000"+"8877665544332211"+"0900000000000000"+"0200000000000000"+
		"0300010000000000"+"2900000000000000"+
		"0100000008000000"+"0600000000000000"+"3132333435363738"+
		"0200010000000000"+"2a00000000000000",
		hex.EncodeToString(exampleReply(nil)))
}

func TestChainRoundTrip(t *testing.T) {
	r, err := decodeRequest(exampleRequest(nil))
	require.NoError(t, err)
	require.Equal(t, []any{uint64(0x1122334455667788), uint64(9), uint32(3), false, uint32(5), uint32(2000), 3},
		[]any{r.client, r.seq, r.slot, r.shared, r.tries, r.deadline, r.ops.n})
	require.Equal(t, wireAccess{accessCompare, 1, 41, []byte{}}, r.ops.next())
	require.Equal(t, wireAccess{accessRead, 0, 0, []byte{}}, r.ops.next())
	require.Equal(t, wireAccess{accessWrite, 1, 0, []byte("hello")}, r.ops.next())
	require.Zero(t, r.ops.n)

	a, err := decodeReply(exampleReply(nil))
	require.NoError(t, err)
	require.Equal(t, chainDone, a.status)
	require.Equal(t, uint32(2), a.tries)
	a.ops.next()
	require.Equal(t, wireAccess{accessRead, 0, 6, []byte("12345678")}, a.ops.next())
}

func TestChainCutShort(t *testing.T) {
	for name, msg := range map[string][]byte{"request": exampleRequest(nil), "reply": exampleReply(nil)} {
		for i := range msg {
			_, err := decodeRequest(msg[:i])
			require.ErrorIs(t, err, ErrMessage, "%s of %d", name, i)
			_, err = decodeReply(msg[:i])
			require.ErrorIs(t, err, ErrMessage, "%s of %d", name, i)
		}
	}
	long := append(exampleRequest(nil), 0)
	_, err := decodeRequest(long)
	require.ErrorIs(t, err, ErrMessage)
}

func TestChainHostileFields(t *testing.T) {
	for at, value := range map[int]byte{
		0: 2, 1: 2, 2: 4, 4: 0x68, // version, lock, operations, length
		40: 0, 41: 1, 44: 255, 47: 255, // kind, reserved, length of data
		requestHead + 3*accessHead + 5: 1, // padding
	} {
		msg := exampleRequest(nil)
		msg[at] = value
		_, err := decodeRequest(msg)
		require.ErrorIs(t, err, ErrMessage, "byte %d", at)
	}
	for _, r := range []chainRequest{{turn: turnAsk + 2}, {turn: turnEnd}} { // which nobody knows, and of nothing
		r.client, r.seq = 1, 1
		_, err := decodeRequest(sealMessage(r.appendTo(nil), 0))
		require.ErrorIs(t, err, ErrMessage, "%+v", r)
	}
	msg := exampleRequest(nil)
	msg[16] = 0
	_, err := decodeRequest(msg)
	require.ErrorIs(t, err, ErrMessage, "sequence 0")
	for _, status := range []byte{0, 8} {
		msg = exampleReply(nil)
		msg[1] = status
		_, err = decodeReply(msg)
		require.ErrorIs(t, err, ErrMessage)
	}
}

func TestChainCodingAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 256)
	junk := make([]byte, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		buf = exampleRequest(buf[:0])
		r, err := decodeRequest(buf)
		for err == nil && r.ops.n > 0 {
			r.ops.next()
		}
		buf = exampleReply(buf[:0])
		if _, err := decodeReply(buf); err != nil {
			panic(err)
		}
		if _, err := decodeRequest(junk); err == nil {
			panic("accepted")
		}
	}))
}

func FuzzChainRequest(f *testing.F) {
	f.Add(exampleRequest(nil))
	f.Add(sealMessage((&chainRequest{client: 1, seq: 1, shared: true}).appendTo(nil), 0))
	f.Add(sealMessage((&chainRequest{client: 1, seq: 1, turn: turnAsk}).appendTo(nil), 0))
	f.Add(sealMessage(appendAccess((&chainRequest{client: 1, seq: 1, turn: turnEnd}).appendTo(nil), wireAccess{kind: accessCompare}), 1))
	f.Add([]byte{})
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, msg []byte) {
		r, err := decodeRequest(msg)
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		again, n := r.appendTo(nil), 0
		for ; r.ops.n > 0; n++ {
			again = appendAccess(again, r.ops.next())
		}
		require.Equal(t, msg, sealMessage(again, n))
	})
}

func FuzzChainReply(f *testing.F) {
	f.Add(exampleReply(nil))
	f.Add(sealMessage((&chainReply{client: 1, seq: 1, status: chainBusy}).appendTo(nil), 0))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		r, err := decodeReply(msg)
		if err != nil {
			require.ErrorIs(t, err, ErrMessage)
			return
		}
		again, n := r.appendTo(nil), 0
		for ; r.ops.n > 0; n++ {
			again = appendAccess(again, r.ops.next())
		}
		require.Equal(t, msg, sealMessage(again, n))
	})
}
