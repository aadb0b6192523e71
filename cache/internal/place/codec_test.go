package place

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

func TestFormat(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 3))
	for range 50 {
		p := random(rng)
		text, err := p.Format()
		require.NoError(t, err)
		q, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, p, q)
	}
}

// The form stays: other versions read it.
func TestFormatStays(t *testing.T) {
	p := cluster(t, 1, 2)
	p.Servers[1].Zone, p.Servers[1].State = "rack-2", Draining
	p, err := p.Move(Life{"h2", 1}, 1)
	require.NoError(t, err)
	text, err := p.Format()
	require.NoError(t, err)
	require.Less(t, len(text), 16<<10)
	require.True(t, strings.HasPrefix(string(text), `{"format":1,"cluster":"01020000000000000000000000000000","epoch":3,"servers":[`+
		`{"id":"h1","number":1,"boot":"1","address":"10.77.0.1:7481","weight":1,"state":"member"},`+
		`{"id":"h2","number":2,"boot":"1","address":"10.77.0.2:7481","zone":"rack-2","weight":2,"state":"draining"}],`+
		`"shards":"AQABAAAAAAACAQMAAAAAAAEAAQAAAAAA`), string(text[:500]))
}

func TestFormatRefuses(t *testing.T) {
	p := cluster(t, 1)
	p.Shards[7].Owner = 9
	_, err := p.Format()
	require.ErrorIs(t, err, ErrPlacement)
}

func TestParseRefuses(t *testing.T) {
	whole, err := cluster(t, 1, 1).Format()
	require.NoError(t, err)
	change := func(do func(m, first map[string]any)) []byte {
		var m map[string]any
		require.NoError(t, json.Unmarshal(whole, &m))
		do(m, m["servers"].([]any)[0].(map[string]any))
		b, err := json.Marshal(m)
		require.NoError(t, err)
		return b
	}
	require.NoError(t, func() error { _, err := Parse(change(func(m, _ map[string]any) { m["later"] = 1 })); return err }(), "another version's field")
	shard := func(b ...byte) []byte {
		return change(func(m, _ map[string]any) { m["shards"] = append(b, make([]byte, 8*(Shards-1))...) })
	}
	_, err = Parse(shard(1, 1, 2, 0, 0, 0, 0, 0))
	require.NoError(t, err)
	for name, b := range map[string][]byte{
		"nothing":               nil,
		"no JSON":               []byte("{"),
		"another kind":          []byte(`[]`),
		"too long":              append(bytes.Repeat([]byte{' '}, maxText), whole...),
		"another format":        change(func(m, _ map[string]any) { m["format"] = 2 }),
		"cluster too short":     change(func(m, _ map[string]any) { m["cluster"] = "0102" }),
		"cluster too long":      change(func(m, _ map[string]any) { m["cluster"] = strings.Repeat("01", 17) }),
		"cluster not hex":       change(func(m, _ map[string]any) { m["cluster"] = strings.Repeat("0g", 16) }),
		"epoch below":           change(func(m, _ map[string]any) { m["epoch"] = -1 }),
		"epoch too great":       change(func(m, _ map[string]any) { m["epoch"] = 1 << 33 }),
		"epochs above":          change(func(m, _ map[string]any) { m["epoch"] = 0 }),
		"no shards":             change(func(m, _ map[string]any) { delete(m, "shards") }),
		"shard too few":         change(func(m, _ map[string]any) { m["shards"] = make([]byte, 8*(Shards-1)) }),
		"owner without epoch":   shard(1, 0, 0, 0, 0, 0, 0, 0),
		"owner not there":       shard(3, 0, 1, 0, 0, 0, 0, 0),
		"shard later than all":  shard(1, 0, 3, 0, 0, 0, 0, 0),
		"shard with other bits": shard(1, 2, 1, 0, 0, 0, 0, 0),
		"shard with backups":    shard(1, 0, 1, 0, 0, 0, 2, 0),
		"with the other backup": shard(1, 0, 1, 0, 0, 0, 0, 2),
		"id in capitals":        change(func(_, s map[string]any) { s["id"] = "H1" }),
		"id too long":           change(func(_, s map[string]any) { s["id"] = strings.Repeat("a", 64) }),
		"id empty":              change(func(_, s map[string]any) { s["id"] = "" }),
		"id twice":              change(func(_, s map[string]any) { s["id"] = "h2" }),
		"number twice":          change(func(_, s map[string]any) { s["number"] = 2 }),
		"number 0":              change(func(_, s map[string]any) { s["number"] = 0 }),
		"number 256":            change(func(_, s map[string]any) { s["number"] = 256 }),
		"boot no number":        change(func(_, s map[string]any) { s["boot"] = "x" }),
		"weight too great":      change(func(_, s map[string]any) { s["weight"] = MaxWeight + 1 }),
		"zone":                  change(func(_, s map[string]any) { s["zone"] = "Zone" }),
		"state":                 change(func(_, s map[string]any) { s["state"] = "dead" }),
		"state empty":           change(func(_, s map[string]any) { s["state"] = "" }),
		"owner gone":            change(func(_, s map[string]any) { s["state"] = "gone" }),
		"address empty":         change(func(_, s map[string]any) { s["address"] = "" }),
		"address with a space":  change(func(_, s map[string]any) { s["address"] = "a b:1" }),
		"address with a DEL":    change(func(_, s map[string]any) { s["address"] = "a\x7f:1" }),
		"address too long":      change(func(_, s map[string]any) { s["address"] = strings.Repeat("a", MaxAddress+1) }),
	} {
		p, err := Parse(b)
		require.ErrorIs(t, err, ErrPlacement, name)
		require.Nil(t, p, name)
	}
}

func TestIsName(t *testing.T) {
	for _, s := range []string{"a", "h1.example-1", strings.Repeat("z", 63)} {
		require.True(t, IsName(s), s)
	}
	for _, s := range []string{"", "A", "a_b", "a/b", "a\n", strings.Repeat("z", 64)} {
		require.False(t, IsName(s), s)
	}
}

// messageOf returns the message of a server that lets all its shards be READ but some.
func messageOf(p *Placement, number uint8) *Message {
	m := &Message{Placement: *p, Server: number, Version: 77, Readable: make([]bool, len(p.Shards))}
	for i, s := range p.Shards {
		m.Readable[i] = s.Owner == number && number != 0 && i%5 != 0
	}
	return m
}

// Clients receive what concerns them.
func TestMessage(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 4))
	for range 50 {
		p := random(rng)
		number := uint8(0)
		for s := range p.Members() {
			number = s.Number
		}
		want := messageOf(p, number)
		b := want.Append([]byte("before"))[6:]
		require.Len(t, b, p.messageLength())
		var got Message
		require.NoError(t, got.Decode(b))
		var servers []Server
		for s := range p.Members() {
			servers = append(servers, Server{Number: s.Number, State: s.State, Weight: s.Weight, Address: s.Address})
		}
		want.Servers = servers
		for i := range want.Shards {
			want.Shards[i].Handed = false
		}
		require.Equal(t, *want, got)
	}
}

func TestMessageStays(t *testing.T) {
	p := cluster(t, 1, 2)
	b := messageOf(p, 1).Append(nil)
	require.Equal(t, "\x01\x02"+strings.Repeat("\x00", 14)+"\x02\x00\x00\x00"+"\x4d\x00\x00\x00"+"\x01\x02\x00\x04"+
		"\x01\x01\x01\x0e10.77.0.1:7481"+"\x02\x01\x02\x0e10.77.0.2:7481"+
		"\x01\x00\x01\x00\x00\x00"+"\x01\x01\x01\x00\x00\x00", string(b[:28+36+12]))
}

func TestMessageRefused(t *testing.T) {
	whole := messageOf(cluster(t, 1, 2), 1).Append(nil)
	const servers, table = messageFixed, messageFixed + 36
	var m Message
	require.NoError(t, m.Decode(whole))
	for n := range len(whole) {
		require.ErrorIs(t, m.Decode(whole[:n]), ErrPlacement, n)
	}
	require.ErrorIs(t, m.Decode(append(bytes.Clone(whole), 0)), ErrPlacement)
	require.ErrorIs(t, m.Decode(make([]byte, MaxMessage+1)), ErrPlacement)
	swapped := slices.Concat(whole[:servers], whole[servers+18:table], whole[servers:servers+18], whole[table:])
	require.ErrorIs(t, m.Decode(swapped), ErrPlacement, "servers out of order")
	for name, at := range map[string][2]int{
		"a server less":            {25, 1},
		"a server more":            {25, 3},
		"more shards":              {26, 1},
		"sent by another one":      {24, 3},
		"READ at another one":      {24, 2},
		"READ at none":             {24, 0},
		"epochs above":             {16, 0},
		"number 0":                 {servers, 0},
		"number above the next":    {servers, 2},
		"state 0":                  {servers + 1, 0},
		"state gone":               {servers + 1, int(Gone)},
		"another state":            {servers + 1, int(Gone) + 1},
		"weight":                   {servers + 2, MaxWeight + 1},
		"no address":               {servers + 3, 0},
		"an address that is long":  {servers + 3, 200},
		"an address with a space":  {servers + 4, ' '},
		"an owner that is not":     {table + 6, 3},
		"READ without an owner":    {table + 6, 0},
		"other bits":               {table + 1, 2},
		"an owner without epoch":   {table + 2, 0},
		"an epoch after the last":  {table + 2, 3},
		"READ without permission ": {table + 6, 2},
	} {
		b := bytes.Clone(whole)
		b[at[0]] = byte(at[1])
		require.ErrorIs(t, m.Decode(b), ErrPlacement, name)
	}
}

func FuzzParse(f *testing.F) {
	p := cluster(f, 1, 2)
	text, err := p.Format()
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"format":1,"cluster":"","servers":[{"boot":"1"}],"shards":"AAAA"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrPlacement)
			return
		}
		text, err := p.Format()
		require.NoError(t, err)
		q, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, p, q)
		p.Plan()
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(messageOf(cluster(f, 1, 2), 1).Append(nil))
	f.Add(messageOf(cluster(f, 1), 0).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		if err := m.Decode(b); err != nil {
			require.ErrorIs(t, err, ErrPlacement)
			return
		}
		require.Equal(t, b, m.Append(nil))
		m.Plan()
	})
}
