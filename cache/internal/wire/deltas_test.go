package wire

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Changes come back as they were, whatever their versions are to their numbers.
func TestDeltasComeBack(t *testing.T) {
	var d Deltas
	for _, first := range []uint64{1, 1 << 20, 1 << 63, math.MaxUint64 - 1} {
		want := Deltas{Epoch: 9, First: first, Clock: 2}
		for _, version := range []uint64{0, 1, first - 1, first, first + 500, 1 << 40, math.MaxUint64} {
			for _, gone := range []uint64{0, version - 1, first + 3, math.MaxUint64} {
				want.List = append(want.List, Delta{ChangePut, gone, Entry{Fingerprint: math.MaxUint64 - version, Version: version, Place: Place(gone), Epoch: 9}})
			}
		}
		want.List = append(want.List, Delta{ChangeTable, MaxDepth, Entry{Fingerprint: 1 << 47, Version: 77, Epoch: 9}})
		require.NoError(t, d.Read(AppendDeltas(nil, &want)))
		require.Equal(t, want, d)
	}
}

// Of what changes most a client is told in few bytes: the record's version is near the change's number.
func TestDeltasAreShort(t *testing.T) {
	d := Deltas{Epoch: 1, First: 5_000_000, List: make([]Delta, 100)}
	for i := range d.List {
		seq := d.First + uint64(i)
		d.List[i] = Delta{ChangePut, seq - 2000, Entry{Fingerprint: seq * 0x9e3779b97f4a7c15, Version: seq - 100, Place: PlaceOf(3, 1<<20, 1100), Epoch: 1}}
	}
	require.LessOrEqual(t, len(AppendDeltas(nil, &d)), HeaderSize+deltasFixed+100*20)
}

// Nothing is a delta that would be sent otherwise, or has not all that it says.
func TestDeltasRefused(t *testing.T) {
	var d Deltas
	whole := AppendDeltas(nil, &Deltas{Epoch: 1, First: 10, List: []Delta{{ChangePut, 8, Entry{Fingerprint: 5, Version: 9, Place: 6, Epoch: 1}}}})
	require.NoError(t, d.Read(whole))
	body := HeaderSize + deltasFixed
	with := func(n uint64, rest ...byte) []byte {
		b := append(append([]byte{}, whole[:body]...), rest...)
		binary.LittleEndian.PutUint64(b[body-8:], n)
		return end(b, 0)
	}
	change := func(numbers ...byte) []byte {
		return append(append([]byte{}, whole[body:body+deltaFixed]...), numbers...)
	}
	require.NoError(t, d.Read(with(1, change(1, 2)...)))
	for name, b := range map[string][]byte{
		"a number longer than needed":       with(1, change(0x81, 0, 2)...),
		"the other one":                     with(1, change(1, 0x82, 0)...),
		"a number without an end":           with(1, change(1, 0x82)...),
		"one that is too long":              with(1, change(1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2)...),
		"a number is missing":               with(1, change(1)...),
		"fewer than it says":                with(2, change(1, 2)...),
		"more than it says":                 with(1, append(change(1, 2), change(1, 2)...)...),
		"more than it can have":             with(math.MaxUint64, change(1, 2)...),
		"a table of more than the greatest": AppendDeltas(nil, &Deltas{First: 1, List: []Delta{{ChangeTable, MaxDepth + 1, Entry{}}}}),
	} {
		require.ErrorIs(t, d.Read(b), Malformed, name)
		require.Empty(t, d.List, name)
	}
}
