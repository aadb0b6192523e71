//go:build linux && cgo

package verbs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// TestNotMadeFor: what a queue pair was not made for is refused by name, before
// anything of the batch is begun. The pointers of these operations are NULL.
func TestNotMadeFor(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  QPConfig
		add  func(*Batch)
		want string
	}{
		{"SEND_WITH_INV on RC", QPConfig{Extended: true}, func(b *Batch) {
			b.Add(WR{ID: 2, Flags: Signaled, Op: WRSendInvalidate, Remote: Remote{RKey: 7}, Local: []SGE{wordSGE}})
		}, "SEND_WITH_INV"},
		{"LOCAL_INV on RC", QPConfig{Extended: true}, func(b *Batch) { b.Add(WR{ID: 2, Flags: Signaled, Op: WRLocalInvalidate, Remote: Remote{RKey: 7}}) }, "LOCAL_INV"},
		{"LOCAL_INV beside SEND_WITH_INV", QPConfig{Ops: OpSendInvalidate}, func(b *Batch) { b.Add(WR{ID: 2, Flags: Signaled, Op: WRLocalInvalidate, Remote: Remote{RKey: 7}}) }, "LOCAL_INV"},
		{"READ on UC", QPConfig{Type: UC, Extended: true}, func(b *Batch) { b.Read(2, Signaled, wordAt, wordSGE) }, "READ"},
		{"FETCH_ADD on SRD", QPConfig{Type: SRD}, func(b *Batch) { b.FetchAdd(2, Signaled, wordAt, 1, wordSGE) }, "FETCH_ADD"},
		{"CMP_SWAP on SRD", QPConfig{Type: SRD}, func(b *Batch) { b.CmpSwap(2, Signaled, wordAt, 1, 2, wordSGE) }, "CMP_SWAP"},
		{"WRITE on SRD of a device that only reads", QPConfig{Type: SRD}, func(b *Batch) { b.Write(2, Signaled, wordAt, wordSGE) }, "WRITE"},
		{"SEND_WITH_INV on a DCI", QPConfig{Type: DCI}, func(b *Batch) {
			b.Add(WR{ID: 2, Flags: Signaled, Op: WRSendInvalidate, Remote: Remote{RKey: 7}, Local: []SGE{wordSGE}})
		}, "SEND_WITH_INV"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, b, _, toPeer := connected(t, c.cfg, 2)
			toPeer()
			b.Send(1, Signaled, wordSGE)
			c.add(b)
			n, err := b.Post()
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, q.life.Label)
			require.ErrorContains(t, err, c.want+": this")
			require.Zero(t, n)
			recorded(t, "")
			toPeer()
			b.Send(1, Signaled, wordSGE)
			_, err = b.Post()
			require.NoError(t, err)
		})
	}
}

// TestMadeFor: what was asked for can be called.
func TestMadeFor(t *testing.T) {
	_, b, _, _ := connected(t, QPConfig{Ops: OpSendInvalidate | OpLocalInvalidate}, 2)
	b.Add(WR{ID: 1, Flags: Signaled, Op: WRSendInvalidate, Remote: Remote{RKey: 7}, Local: []SGE{wordSGE}})
	b.Add(WR{ID: 2, Flags: Signaled, Op: WRLocalInvalidate, Remote: Remote{RKey: 8}})
	_, err := b.Post()
	require.NoError(t, err)
	recorded(t, `
		start
		send_inv id=0x1 flags=0x2 rkey=0x7
		  sge lkey=0x9 addr=0x5000 length=8
		local_inv id=0x2 flags=0x2 rkey=0x8
		complete`)
}

// TestInlineTooLong: too much inline is no full queue, which polling would empty.
func TestInlineTooLong(t *testing.T) {
	long, half := SGE{Addr: 0x5000, Length: 33}, SGE{Addr: 0x5000, Length: 17}
	for name, add := range map[string]func(*Batch){
		"one piece":       func(b *Batch) { b.Send(1, Inline, long) },
		"in sum":          func(b *Batch) { b.Write(1, Inline, wordAt, half, half) },
		"beyond 32 bits":  func(b *Batch) { b.Send(1, Inline, SGE{Length: maxSGELength}, SGE{Length: maxSGELength}) },
		"READ":            func(b *Batch) { b.Read(1, Inline, wordAt, wordSGE) },
		"FETCH_ADD":       func(b *Batch) { b.FetchAdd(1, Inline, wordAt, 1, wordSGE) },
		"with a datagram": func(b *Batch) { b.SendTo(1, Inline, Destination{}, long) },
		"with an old key": func(b *Batch) {
			b.Add(WR{ID: 1, Flags: Inline, Op: WRSendInvalidate, Remote: Remote{RKey: 3}, Local: []SGE{long}})
		},
		"with a immediate": func(b *Batch) { b.WriteImm(1, Inline, 3, wordAt, half, half) },
	} {
		t.Run(name, func(t *testing.T) {
			_, b, _, _ := connected(t, QPConfig{Extended: true, MaxInline: 32, MaxSendSGE: 2}, 1)
			add(b)
			_, err := b.Post()
			require.ErrorIs(t, err, ErrAttributes)
			require.ErrorContains(t, err, "inline")
			recorded(t, "")
		})
	}
	_, b, _, _ := connected(t, QPConfig{Extended: true, MaxInline: 32, MaxSendSGE: 2}, 2)
	b.SendInline(1, Signaled, make([]byte, 32))
	b.Send(2, Signaled|Inline, SGE{}, SGE{})
	_, err := b.Post()
	require.NoError(t, err)
}

// TestSignalAllMasked: the provider signals all requests but raw entries.
func TestSignalAllMasked(t *testing.T) {
	_, b, _, _ := connected(t, QPConfig{Ops: OpMasked, SignalAll: true}, 2)
	b.Add(WR{ID: 6, Op: WRMaskedFetchAdd, Remote: wordAt, Value: 1, Mask: 0x80, Local: []SGE{wordSGE}})
	entry := make([]byte, 16)
	entry[7] = 1
	b.Raw(7, 0, entry)
	_, err := b.Post()
	require.NoError(t, err)
	lines := strings.Split(standin.Recorded(), "\n")
	require.Len(t, lines, 4)
	for _, l := range lines[1:3] {
		bytes := l[strings.LastIndex(l, " ")+1:]
		require.Equal(t, fmt.Sprintf("%02x", wqeSignaled), bytes[22:24], l)
	}
}

// TestSRDFlags: EFA signals everything and knows no other flag but Inline.
func TestSRDFlags(t *testing.T) {
	for flag, ok := range map[SendFlags]bool{0: true, Signaled: true, Inline: true, Fence: false, Solicited: false, Signaled | Fence: false} {
		t.Run(flag.String(), func(t *testing.T) {
			_, b, _, toPeer := connected(t, QPConfig{Type: SRD, MaxInline: 32}, 2)
			toPeer()
			b.Send(1, 0, wordSGE)
			if flag&Inline != 0 {
				b.SendInline(2, 0, []byte("hello"))
			} else {
				b.Send(2, flag, wordSGE)
			}
			_, err := b.Post()
			if ok {
				require.NoError(t, err)
				require.Contains(t, standin.Recorded(), "complete")
				return
			}
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, (flag &^ Signaled).String())
			recorded(t, "")
		})
	}
}

// TestMaskedTypes: raw entries are for queue pairs that mlx5dv makes.
func TestMaskedTypes(t *testing.T) {
	_, p, c, _ := driverRig(t)
	for _, typ := range []QPType{UC, UD, SRD} {
		_, err := p.CreateQP(QPConfig{Type: typ, SendCQ: c, GID: standinGID, Ops: OpMasked})
		require.ErrorIs(t, err, ErrUnsupported, "%v", typ)
	}
}
