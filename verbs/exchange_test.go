package verbs_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func someEndpoint() verbs.Endpoint {
	return verbs.Endpoint{
		Type: verbs.RC, QPN: 0x112233, PSN: 0x445566, QKey: 7, LID: 3, MTU: verbs.MTU4096,
		GID:     verbs.GIDOf(netip.MustParseAddr("10.77.0.1")),
		Regions: []verbs.Region{{Addr: 1 << 40, Length: 4096, RKey: 42}, {Addr: 8, Length: 1, RKey: 1}},
		Data:    []byte("hello"), MaxReads: 16,
	}
}

func TestExchange(t *testing.T) {
	a, b := net.Pipe() // without a buffer: both sides must write and read at once
	defer a.Close()
	defer b.Close()
	mine, theirs := someEndpoint(), someEndpoint()
	theirs.QPN, theirs.Regions, theirs.Data = 5, nil, nil
	got := make(chan verbs.Endpoint, 1)
	go func() {
		e, _ := verbs.Exchange(context.Background(), b, theirs)
		got <- e
	}()
	e, err := verbs.Exchange(context.Background(), a, mine)
	require.NoError(t, err)
	require.Equal(t, theirs, e)
	require.Equal(t, mine, <-got)
}

func TestExchangeWithBadPeers(t *testing.T) {
	good, err := new(verbs.Endpoint{Type: verbs.UD, MTU: verbs.MTU1024}).AppendBinary(nil)
	require.NoError(t, err)
	flip := func(i int, v byte) []byte {
		b := bytes.Clone(good)
		b[i] = v
		return b
	}
	for _, c := range []struct {
		name, text string
		bytes      []byte
		is         error
	}{
		{"another protocol", "speaks something else", []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"), verbs.ErrMessage},
		{"another version", "version 9", flip(4, 9), verbs.ErrMessage},
		{"a damaged bit", "checksum", flip(20, 0xff), verbs.ErrMessage},
		{"an absurd length", "payload of 65535 bytes", flip(6, 0xff)[:8:8], verbs.ErrMessage},
		{"nothing and the end", "EOF (the peer closed the connection before", nil, nil},
		{"half a message and the end", "unexpected EOF (the peer closed the connection before", good[:20], nil},
	} {
		if c.name == "an absurd length" {
			c.bytes[7] = 0xff
		}
		t.Run(c.name, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			go func() {
				buf := make([]byte, 1024)
				b.Read(buf)
				b.Write(c.bytes)
				b.Close()
			}()
			_, err := verbs.Exchange(context.Background(), a, someEndpoint())
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "exchange addresses with pipe")
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

func TestExchangeWithASilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := net.Pipe()
		start := time.Now()
		_, err := verbs.Exchange(context.Background(), a, someEndpoint())
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, verbs.ExchangeTimeout, time.Since(start))

		a, _ = net.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		start = time.Now()
		_, err = verbs.Exchange(ctx, a, someEndpoint())
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestEndpointLimits(t *testing.T) {
	e := someEndpoint()
	e.Regions = make([]verbs.Region, verbs.MaxRegions)
	e.Data = make([]byte, verbs.MaxEndpointData)
	rand.Read(e.Data)
	b, err := e.AppendBinary(nil)
	require.NoError(t, err)
	var back verbs.Endpoint
	require.NoError(t, back.UnmarshalBinary(b))
	require.Equal(t, e, back)

	e.Regions = append(e.Regions, verbs.Region{})
	_, err = e.AppendBinary(nil)
	require.ErrorIs(t, err, verbs.ErrMessage)
	for _, reads := range []int{-1, 0, 1, 254} {
		e = someEndpoint()
		e.MaxReads = reads
		b, err = e.AppendBinary(nil)
		require.NoError(t, err)
		require.NoError(t, back.UnmarshalBinary(b))
		require.Equal(t, e, back)
	}
	for _, reads := range []int{-2, 255} {
		e.MaxReads = reads
		_, err = e.AppendBinary(nil)
		require.ErrorIs(t, err, verbs.ErrMessage)
	}
}

// TestEndpointVersions: an endpoint with ECE has a version of its own; without, it
// is byte for byte what programs from before ECE write and read.
func TestEndpointVersions(t *testing.T) {
	e := verbs.Endpoint{Type: verbs.UD, QPN: 0x112233, PSN: 0x445566, QKey: 7, LID: 3, MTU: verbs.MTU1024, Data: []byte("hi")}
	b, err := e.AppendBinary(nil)
	require.NoError(t, err)
	require.Equal(t, "47564550010000280403000000030011223300445566000000070000000000000000000000000000000000000002686916cffad0", hex.EncodeToString(b))

	e.ECE = verbs.ECE{Vendor: 0x15b3, Options: 0x30000006}
	e.Regions = []verbs.Region{{Addr: 1, Length: 2, RKey: 3}}
	b, err = e.AppendBinary(nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, b[4])
	var back verbs.Endpoint
	require.NoError(t, back.UnmarshalBinary(b))
	require.Equal(t, e, back)

	b[4] = 1
	require.ErrorIs(t, back.UnmarshalBinary(withChecksum(b)), verbs.ErrMessage)
	e.ECE.Vendor = 0
	_, err = e.AppendBinary(nil)
	require.ErrorIs(t, err, verbs.ErrMessage)
}

// FuzzEndpoint: whatever arrives, decoding ends in an endpoint that encodes to
// the very same bytes, or in ErrMessage.
func FuzzEndpoint(f *testing.F) {
	e := someEndpoint()
	b, _ := e.AppendBinary(nil)
	f.Add(b)
	f.Add(b[:30])
	e.ECE = verbs.ECE{Vendor: 0x15b3, Options: 6}
	b, _ = e.AppendBinary(nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, b := range [][]byte{in, withChecksum(in)} {
			var e verbs.Endpoint
			if err := e.UnmarshalBinary(b); err != nil {
				require.ErrorIs(t, err, verbs.ErrMessage)
				continue
			}
			out, err := e.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, b, out)
		}
	})
}

func TestRegionAsMessage(t *testing.T) {
	r := verbs.Region{Addr: 0x1122334455667788, Length: 1 << 40, RKey: 0xcafe}
	b, err := r.MarshalBinary()
	require.NoError(t, err)
	require.Equal(t, "112233445566778800000100000000000000cafe", fmt.Sprintf("%x", b))
	var got verbs.Region
	require.NoError(t, got.UnmarshalBinary(b))
	require.Equal(t, r, got)
	for _, wrong := range [][]byte{nil, b[:19], append(b, 0)} {
		require.ErrorIs(t, got.UnmarshalBinary(wrong), verbs.ErrMessage)
	}
	require.Equal(t, r, got)
}
