//go:build linux

package integrations

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream"
)

// rdma returns what the near end dials with, and a listener at the far end. Simulated devices have no
// connection manager.
func rdma(t testing.TB) (*rdmacm.CM, stream.Config, net.Listener) {
	t.Helper()
	ends := lab.Require(t, 2)
	open := func() *rdmacm.CM {
		cm, err := rdmacm.Open(rdmacm.Config{})
		if errors.Is(err, verbs.ErrUnsupported) && !lab.In() {
			t.Skip(err)
		}
		require.NoError(t, err)
		return cm
	}
	first := open() // librdmacm keeps each device that it has used, and a protection domain
	for _, e := range ends {
		_, err := first.Device(e.Device)
		require.NoError(t, err)
		l, err := first.Listen(netip.AddrPortFrom(e.Addr, 0).String(), rdmacm.ListenConfig{})
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	require.NoError(t, first.Close())

	lab.NoLeftovers(t)
	cm := open()
	t.Cleanup(func() { require.NoError(t, cm.Close()) })
	l, err := stream.Listen(cm, netip.AddrPortFrom(ends[1].Addr, 0).String(), stream.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return cm, stream.Config{Dial: rdmacm.DialConfig{Local: netip.AddrPortFrom(ends[0].Addr, 0)}}, l
}

// web returns as many bytes as the path says, or those that were posted. A header has the network and
// the address of the client.
var web = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	w.Header().Set("Client", local.Network()+" "+r.RemoteAddr)
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body) // the whole request, before the response begins
		w.Write(body)
	} else if n, err := strconv.Atoi(r.URL.Path[1:]); err == nil {
		w.Write(make([]byte, n))
	}
})

// do returns the body of a response, and the header of web.
func do(c *http.Client, method, url string, body []byte) ([]byte, string, error) {
	r, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	response, err := c.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return got, response.Header.Get("Client"), err
}

// All requests go over one connection, a stream, plain or encrypted.
func TestHTTP(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run("encrypted "+strconv.FormatBool(encrypted), func(t *testing.T) {
			cm, cfg, l := rdma(t)
			s := &httptest.Server{Listener: l, Config: &http.Server{Handler: web}}
			transport := HTTPTransport(cm, cfg)
			if encrypted {
				s.StartTLS()
				transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
				transport.TLSClientConfig.ServerName = "example.com"
			} else {
				s.Start()
			}
			defer s.Close()
			c := &http.Client{Transport: transport}
			defer c.CloseIdleConnections()

			_, first, err := do(c, http.MethodGet, s.URL+"/0", nil)
			require.NoError(t, err)
			require.Regexp(t, "^rdma ", first)
			for _, n := range []int{1, 300_000} {
				got, client, err := do(c, http.MethodGet, s.URL+"/"+strconv.Itoa(n), nil)
				require.NoError(t, err)
				require.Len(t, got, n)
				require.Equal(t, first, client)
			}
			sent := bytes.Repeat([]byte("goverbs "), 1<<15)
			got, client, err := do(c, http.MethodPost, s.URL, sent)
			require.NoError(t, err)
			require.True(t, bytes.Equal(got, sent))
			require.Equal(t, first, client)
		})
	}
}

// Where no server listens, a client gets the error of its connection, at once.
func TestDialRefused(t *testing.T) {
	cm, cfg, l := rdma(t)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	_, _, err := do(&http.Client{Transport: HTTPTransport(cm, cfg), Timeout: time.Minute}, http.MethodGet, "http://"+address, nil)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}
