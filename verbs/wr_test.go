//go:build linux && cgo

package verbs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAddIsTheMethods: a request is the same in C, added by Add or by the method for it.
func TestAddIsTheMethods(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{Extended: true, SendCQ: c, GID: standinGID, MaxSendSGE: 2, MaxInline: 32})
	require.NoError(t, err)
	b, err := q.NewBatch(2)
	require.NoError(t, err)
	fresh, two, data := b.wrs[0], SGE{Addr: 0x6000, Length: 5, LKey: 9}, []byte("inline")
	for name, x := range map[string]struct {
		w      WR
		method func()
	}{
		"READ":             {ReadWR(wordAt, wordSGE, two), func() { b.Read(7, Fence, wordAt, wordSGE, two) }},
		"WRITE":            {WriteWR(wordAt, wordSGE), func() { b.Write(7, Fence, wordAt, wordSGE) }},
		"WRITE_IMM":        {WR{Op: WRWriteImm, Imm: 3, Remote: wordAt, Local: []SGE{wordSGE}}, func() { b.WriteImm(7, Fence, 3, wordAt, wordSGE) }},
		"SEND":             {SendWR(), func() { b.Send(7, Fence) }},
		"SEND_IMM":         {SendImmWR(3, two), func() { b.SendImm(7, Fence, 3, two) }},
		"SEND to":          {WR{Op: WRSend, Remote: wordAt, Local: []SGE{two}}, func() { b.Send(7, Fence, two) }},
		"SEND inline":      {WR{Op: WRSend, Data: data}, func() { b.SendInline(7, Fence, data) }},
		"WRITE inline":     {WR{Op: WRWrite, Remote: wordAt, Data: data}, func() { b.WriteInline(7, Fence, wordAt, data) }},
		"WRITE by posting": {WR{Op: WRWrite, Flags: Inline, Remote: wordAt, Local: []SGE{two}}, func() { b.Write(7, Fence|Inline, wordAt, two) }},
		"FETCH_ADD":        {WR{Op: WRFetchAdd, Remote: wordAt, Value: 5, Local: []SGE{wordSGE}}, func() { b.FetchAdd(7, Fence, wordAt, 5, wordSGE) }},
		"CMP_SWAP":         {WR{Op: WRCmpSwap, Remote: wordAt, Compare: 5, Value: 6, Local: []SGE{wordSGE}}, func() { b.CmpSwap(7, Fence, wordAt, 5, 6, wordSGE) }},
	} {
		t.Run(name, func(t *testing.T) {
			x.w.ID, x.w.Flags = 7, x.w.Flags|Fence
			require.NoError(t, b.Check(x.w))
			b.wrs[0] = fresh
			b.Add(x.w)
			require.NoError(t, b.err)
			require.Equal(t, 1, b.Len())
			added, sges, inline := b.wrs[0], [2]SGE(b.sges[:2]), bytes.Clone(b.chain.Inline[:len(data)])
			b.Reset()
			b.wrs[0] = fresh
			x.method()
			require.NoError(t, b.err)
			require.Equal(t, b.wrs[0], added)
			require.Equal(t, [2]SGE(b.sges[:2]), sges)
			require.Equal(t, b.chain.Inline[:len(data)], inline)
			b.Reset()
		})
	}
}

// TestCheckIsPost: Check returns what Post would, and nothing of the request is in the batch.
func TestCheckIsPost(t *testing.T) {
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{Extended: true, SendCQ: c, GID: standinGID, MaxInline: 32})
	require.NoError(t, err)
	b, err := q.NewBatch(2)
	require.NoError(t, err)
	long := SGE{Length: 1<<30 + 1}
	for _, x := range []struct {
		w    WR
		want error
		text string
	}{
		{WR{}, ErrAttributes, "no operation"},
		{WR{Op: WRMaskedFetchAdd + 1}, ErrAttributes, "no operation"},
		{ReadWR(badRemote, wordSGE), ErrRange, "remote memory"},
		{ReadWR(wordAt, wordSGE, wordSGE), ErrAttributes, "2 scatter/gather entries"},
		{WriteWR(wordAt, long), ErrTooLarge, "bytes; the port takes"},
		{WriteWR(wordAt, closedSGE), ErrClosed, "local memory"},
		{WriteWR(wordAt, badSGE), ErrRange, "local memory"},
		{WR{Op: WRRead, Flags: Inline, Remote: wordAt, Local: []SGE{wordSGE}}, ErrAttributes, "READ has no data to be inline"},
		{WR{Op: WRRead, Remote: wordAt, Data: []byte("x")}, ErrAttributes, "READ has no data to be inline"},
		{WR{Op: WRSend, Local: []SGE{wordSGE}, Data: []byte("x")}, ErrAttributes, "Local and Data"},
		{WR{Op: WRSend, Data: make([]byte, 1<<12)}, ErrAttributes, "4096 bytes inline"},
		{WR{Op: WRWrite, Remote: badRemote, Data: []byte("x")}, ErrRange, "remote memory"},
		{WR{Op: WRFetchAdd, Remote: wordAt}, ErrRange, "the result of an atomic has 8 bytes"},
		{WR{Op: WRFetchAdd, Remote: wordAt, Local: []SGE{closedSGE}}, ErrClosed, "local memory"},
		{WR{Op: WRCmpSwap, Remote: Remote{Addr: 4}, Local: []SGE{wordSGE}}, ErrRange, "aligned word of 8 bytes"},
		{WR{Op: WRCmpSwap, Remote: badRemote, Local: []SGE{wordSGE}}, ErrRange, "remote memory"},
		{WR{Op: WRMaskedCmpSwap, Remote: wordAt, Local: []SGE{wordSGE}}, ErrUnsupported, "without OpMasked"},
		{WR{Op: WRAtomicWrite, Remote: wordAt}, ErrUnsupported, "without OpAtomicWrite"},
		{WR{Op: WRSend, To: &Destination{}}, ErrAttributes, "a datagram needs an address handle"},
		{WR{Op: WRBindWindow}, ErrAttributes, "no window"},
	} {
		err := b.Check(x.w)
		require.ErrorIs(t, err, x.want, "%+v", x.w)
		require.ErrorContains(t, err, x.text)
		b.Add(x.w)
		n, posted := b.Post()
		require.Zero(t, n)
		require.EqualError(t, posted, err.Error())
		require.Zero(t, b.Len())
	}
	require.NoError(t, b.Check(ReadWR(wordAt, wordSGE)))
}

func TestOperationsHaveNames(t *testing.T) {
	for o := WRWrite; o <= WRMaskedFetchAdd; o++ {
		require.NotEqual(t, "no operation", o.String())
	}
	require.Equal(t, "no operation", WROp(0).String())
	require.Equal(t, "no operation", (WRMaskedFetchAdd + 1).String())
	require.True(t, strings.HasPrefix(WRSendInvalidate.String(), "SEND"))
}
