package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
)

func sample() Record {
	return Record{
		Version: 7, CAS: 8, Expiry: 9000, Fingerprint: 10, Epoch: 11, Flags: 12, Attrs: AttrStale,
		Key: []byte("key"), Value: []byte("some value"),
	}
}

func slot(r Record) []byte {
	b := make([]byte, RecordSize(len(r.Key), len(r.Value))+100)
	b = b[:PutRecord(b, &r)]
	Publish(b)
	return b
}

func TestRecord(t *testing.T) {
	r := sample()
	b := slot(r)
	got, err := ReadRecord(append(b, "what was there before"...))
	require.NoError(t, err)
	require.Equal(t, r, got)

	for i := range b {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			_, err := ReadRecord(c)
			require.Error(t, err, "byte %d bit %d", i, bit)
		}
	}
	for n := range b {
		_, err := ReadRecord(b[:n])
		require.ErrorIs(t, err, Short)
	}
	Bury(b)
	_, err = ReadRecord(b)
	require.ErrorIs(t, err, Dead)

	_, err = ReadRecord(slot(Record{Version: 1}))
	require.NoError(t, err, "neither key nor value")
	n := PutRecord(b, &r)
	_, err = ReadRecord(b[:n])
	require.ErrorIs(t, err, Dead, "not published")
}

func TestValidate(t *testing.T) {
	b := slot(sample())
	e := Entry{Version: 7, Epoch: 11}
	_, err := Validate(b, &e, []byte("key"))
	require.NoError(t, err)
	_, err = Validate(b, &e, []byte("kex"))
	require.ErrorIs(t, err, OtherKey)
	_, err = Validate(b, &Entry{Version: 6, Epoch: 11}, []byte("key"))
	require.ErrorIs(t, err, OtherRecord)
	_, err = Validate(b, &Entry{Version: 7, Epoch: 12}, []byte("key"))
	require.ErrorIs(t, err, OtherEpoch)
	b[RecordHeader] ^= 1
	_, err = Validate(b, &e, []byte("key"))
	require.ErrorIs(t, err, Torn)
}

// Limits hold on both sides: what is at one is taken, and what is beyond it is refused.
func TestLimits(t *testing.T) {
	header := func(n uint32) error {
		b := binary.LittleEndian.AppendUint32(begin(nil, KindBye, 1)[:HeaderSize-4], n)
		_, err := ReadHeader(b)
		return err
	}
	require.ErrorIs(t, header(HeaderSize-1), Malformed)
	require.NoError(t, header(HeaderSize))
	require.NoError(t, header(MaxMessage))
	require.ErrorIs(t, header(MaxMessage+1), Malformed)

	r := sample()
	r.Key = bytes.Repeat([]byte("k"), MaxKey)
	_, err := ReadRecord(slot(r))
	require.NoError(t, err)
	r.Key = append(r.Key, 'k')
	_, err = ReadRecord(slot(r))
	require.ErrorIs(t, err, Malformed)
	r = sample()
	r.Attrs = attrsKnown + 1
	_, err = ReadRecord(slot(r))
	require.ErrorIs(t, err, Malformed)
	b := slot(sample())
	binary.LittleEndian.PutUint32(b[recValueLen:], MaxValue)
	_, err = ReadRecord(b)
	require.ErrorIs(t, err, Short)
	binary.LittleEndian.PutUint32(b[recValueLen:], MaxValue+1)
	_, err = ReadRecord(b)
	require.ErrorIs(t, err, Malformed)
}

func TestExpired(t *testing.T) {
	r := Record{Expiry: 10}
	require.False(t, r.Expired(9))
	require.True(t, r.Expired(10))
	require.False(t, (&Record{}).Expired(1<<60))
}

func messages() map[string][]byte {
	e, put := Entry{Fingerprint: 1, Version: 2, Place: 3, Epoch: 4, Item: 5}, Entry{Fingerprint: 1, Version: 2, Place: 3, Epoch: 1}
	return map[string][]byte{
		"request": AppendRequest(nil, &Request{ID: 1, Epoch: 10, Request: kv.Request{Op: kv.OpSet, Want: kv.WantTouch, Flags: 3, Expiry: -4, Vivify: 5, Recache: 6, CAS: 7, Delta: 8, Initial: 9, Key: []byte("k"), Value: []byte("v")}}),
		"flush":   AppendRequest(nil, &Request{ID: 1, Placement: 3, Request: kv.Request{Op: kv.OpFlush}}),
		"list":    AppendRequest(nil, &Request{ID: 1, Request: kv.Request{Op: OpList, Value: []byte{5}, Initial: 6}}),
		"reply":   AppendReply(nil, &Reply{ID: 1, Seq: 9, Entry: e, Epoch: 10, Reply: kv.Reply{Status: kv.OK, Bits: kv.ReplyWon, Flags: 3, CAS: 4, Expiry: 5, Clock: 6, Idle: 7, Number: 8, Value: []byte("v")}}),
		"map":     AppendMap(nil, &Map{1, 2, 3, Secret{4, 5}, Where{6, 7}, 8, 9, 10, false, true}),
		"alone":   AppendMap(nil, &Map{1, 2, 3, Secret{4, 5}, Where{6, 7}, 8, 9, 10, true, false}),
		"chunk":   AppendChunk(nil, &Chunk{1, 2, 3, true, []Entry{e, e}}),
		"deltas":  AppendDeltas(nil, &Deltas{1, 2, 3, []Delta{{ChangePut, 4, put}, {ChangeFlush, 5, Entry{Epoch: 1}}}}),
		"horizon": AppendHorizon(nil, &Horizon{1, 3, 2}),
		"report":  AppendReport(nil, &Report{1, 4, []Access{{2, 3}}}),
		"target":  AppendTarget(nil, &Target{1, 2, 3, []byte("address"), []byte("regions"), [SealSize]byte{4}}),
		"bye":     AppendBye(nil, 1),
		"mode":    AppendMode(nil, Bounded),
	}
}

// again decodes a message of any kind and encodes it.
func again(b []byte) ([]byte, error) {
	h, err := ReadHeader(b)
	if err != nil {
		return nil, err
	}
	switch h.Kind {
	case KindRequest:
		r, err := ReadRequest(b)
		return AppendRequest(nil, &r), err
	case KindReply:
		r, err := ReadReply(b)
		return AppendReply(nil, &r), err
	case KindMap:
		m, err := ReadMap(b)
		return AppendMap(nil, &m), err
	case KindChunk:
		var c Chunk
		err := c.Read(b)
		return AppendChunk(nil, &c), err
	case KindDeltas:
		var d Deltas
		err := d.Read(b)
		return AppendDeltas(nil, &d), err
	case KindHorizon:
		h, err := ReadHorizon(b)
		return AppendHorizon(nil, &h), err
	case KindReport:
		var r Report
		err := r.Read(b)
		return AppendReport(nil, &r), err
	case KindTarget:
		t, err := ReadTarget(b)
		return AppendTarget(nil, &t), err
	case KindBye:
		epoch, err := ReadBye(b)
		return AppendBye(nil, epoch), err
	case KindMode:
		m, err := ReadMode(b)
		return AppendMode(nil, m), err
	}
	return nil, Malformed
}

func TestMessages(t *testing.T) {
	for name, m := range messages() {
		got, err := again(m)
		require.NoError(t, err, name)
		require.Equal(t, m, got, name)
		for n := range m {
			_, err := again(m[:n])
			require.ErrorIs(t, err, Short, "%s of %d bytes", name, n)
		}
		_, err = again(append(bytes.Clone(m), 0))
		require.ErrorIs(t, err, Malformed, name)
		_, err = again(end(append(bytes.Clone(m), 0), 0))
		require.ErrorIs(t, err, Malformed, "%s with a longer body", name)
		if name != "bye" {
			_, err = again(end(bytes.Clone(m[:HeaderSize]), 0))
			require.ErrorIs(t, err, Short, "%s without a body", name)
		}
		later := bytes.Clone(m)
		later[3]++
		_, err = again(later)
		require.ErrorIs(t, err, Malformed, "%s of another format", name)
	}
	r, err := ReadRequest(messages()["request"])
	require.NoError(t, err)
	require.Equal(t, Request{ID: 1, Epoch: 10, Request: kv.Request{Op: kv.OpSet, Want: kv.WantTouch, Flags: 3, Expiry: -4, Vivify: 5, Recache: 6, CAS: 7, Delta: 8, Initial: 9, Key: []byte("k"), Value: []byte("v")}}, r)
}

// What is not ours is refused, each for its reason, and counted.
func TestRefusals(t *testing.T) {
	var c Refusals
	for _, r := range []Request{
		{Request: kv.Request{Op: 0}}, {Request: kv.Request{Op: ops}}, {Request: kv.Request{Op: kv.OpGet, Want: wantKnown + 1}}, {Request: kv.Request{Op: kv.OpFlush, Key: []byte("k")}},
		{Request: kv.Request{Op: OpList, Key: []byte("k")}}, {Placement: 1, Request: kv.Request{Op: kv.OpSet, Key: []byte("k")}},
		{Request: kv.Request{Op: kv.OpGet, Expiry: 1 << 62}}, {Request: kv.Request{Op: kv.OpGet, Vivify: -1 << 62}}, {Request: kv.Request{Op: kv.OpGet, Key: make([]byte, MaxKey+1)}},
	} {
		_, err := ReadRequest(AppendRequest(nil, &r))
		require.ErrorIs(t, c.Note(err), Malformed, "%+v", r)
	}
	for _, r := range []Reply{{}, {Reply: kv.Reply{Status: statuses}}, {Reply: kv.Reply{Status: kv.OK, Bits: replyKnown + 1}}} {
		_, err := ReadReply(AppendReply(nil, &r))
		require.ErrorIs(t, c.Note(err), Malformed, "%+v", r)
	}
	reserved := AppendRequest(nil, &Request{Request: kv.Request{Op: kv.OpGet, Key: []byte("k")}})
	reserved[HeaderSize+72] = 1
	_, err := ReadRequest(reserved)
	require.ErrorIs(t, c.Note(err), Malformed, "what is reserved")
	require.Equal(t, refusals, c.Note(refusals), "it is counted nowhere")
	var d Deltas
	require.ErrorIs(t, c.Note(d.Read(AppendDeltas(nil, &Deltas{List: []Delta{{Change: changes}}}))), Malformed)
	require.Empty(t, d.List)
	require.ErrorIs(t, c.Note(d.Read(AppendDeltas(nil, &Deltas{List: make([]Delta, MaxEntries+1)}))), Malformed)
	_, err = ReadHorizon(AppendHorizon(nil, &Horizon{Applied: 1, Quiet: 2}))
	require.ErrorIs(t, c.Note(err), Malformed)
	_, err = ReadHorizon(messages()["map"])
	require.ErrorIs(t, c.Note(err), Malformed, "another kind")
	require.NoError(t, c.Note(nil))
	require.Equal(t, uint64(17), c[Malformed])
	require.Equal(t, uint64(17), c.Total())
	require.Equal(t, "cache: record is dead", Dead.Error())
}

func FuzzMessages(f *testing.F) {
	for _, m := range messages() {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Refusals
		got, err := again(b)
		if err == nil {
			require.Equal(t, b, got, "what is accepted is what would be sent")
			return
		}
		_ = c.Note(err)
		require.Equal(t, uint64(1), c.Total(), "%v is not counted", err)
	})
}

func FuzzRead(f *testing.F) {
	f.Add(slot(sample()), []byte("key"))
	b := Bucket(make([]byte, BucketSize))
	b.Reset(0, 0, 0)
	f.Add([]byte(b), []byte{})
	f.Fuzz(func(t *testing.T, b, key []byte) {
		var c Refusals
		r, err := ReadRecord(b)
		if c.Note(err) == nil {
			require.Equal(t, b[:RecordSize(len(r.Key), len(r.Value))], slot(r))
		}
		_, verr := Validate(b, &Entry{Version: 7, Epoch: 11}, key)
		require.False(t, err != nil && verr == nil)
		_, err = ReadBucket(b, 0, 0, 0, 0, nil)
		_ = c.Note(err)
	})
}

// The warm path makes no garbage.
func TestDecodersDoNotAllocate(t *testing.T) {
	m, rec := messages(), slot(sample())
	var c Chunk
	var d Deltas
	require.NoError(t, c.Read(m["chunk"]))
	require.NoError(t, d.Read(m["deltas"]))
	e, key := Entry{Version: 7, Epoch: 11}, []byte("key")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := Validate(rec, &e, key)
		if err == nil {
			err = c.Read(m["chunk"])
		}
		if err == nil {
			err = d.Read(m["deltas"])
		}
		if err == nil {
			_, err = ReadReply(m["reply"])
		}
		if err != nil {
			t.Fatal(err)
		}
	}))
}

func TestLimitsOfHello(t *testing.T) {
	for _, n := range []int{0, 1, maxEndpoint} {
		h, err := ReadHello(AppendHello(nil, &Hello{Endpoint: make([]byte, n)}))
		require.NoError(t, err, n)
		require.Len(t, h.Endpoint, n)
	}
}

// A target has an address and regions of a bounded length, and no unknown bits.
func TestOddTargets(t *testing.T) {
	good := AppendTarget(nil, &Target{Epoch: 1, Number: 2, Address: make([]byte, maxTarget), Regions: make([]byte, maxRegions)})
	_, err := ReadTarget(good)
	require.NoError(t, err)
	for _, odd := range []Target{{Address: make([]byte, maxTarget+1)}, {Regions: make([]byte, maxRegions+1)}} {
		_, err := ReadTarget(AppendTarget(nil, &odd))
		require.ErrorIs(t, err, Malformed)
	}
}

// A report holds up the server for no longer than its limit says.
func TestReportsHaveALimit(t *testing.T) {
	r := Report{Epoch: 1, Accesses: make([]Access, MaxEntries)}
	require.NoError(t, new(Report).Read(AppendReport(nil, &r)))
	r.Accesses = append(r.Accesses, Access{})
	require.ErrorIs(t, new(Report).Read(AppendReport(nil, &r)), Malformed)
}

// A record that is written over another one is no record until it is published.
func TestRecordInUsedMemory(t *testing.T) {
	b, r := slot(sample()), sample()
	PutRecord(b, &r)
	_, err := ReadRecord(b)
	require.ErrorIs(t, err, Dead)
}

// The last part of a snapshot says so, and a map that it has no parts. A part may have as many entries as there may be.
func TestFlagsOfMaps(t *testing.T) {
	for _, set := range []bool{false, true} {
		var c Chunk
		require.NoError(t, c.Read(AppendChunk(nil, &Chunk{Epoch: 1, Last: set, Entries: make([]Entry, MaxEntries)})))
		require.Equal(t, set, c.Last)
		m, err := ReadMap(AppendMap(nil, &Map{Epoch: 1, Alone: set, Granted: !set}))
		require.NoError(t, err)
		require.Equal(t, [2]bool{set, !set}, [2]bool{m.Alone, m.Granted})
	}
}
