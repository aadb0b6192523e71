package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// silentEtcd returns the address of an etcd that accepts connections and never replies.
func silentEtcd(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// A member of etcd that does not reply to a user for the first time takes nothing of the time of calls that end before, nor of close.
func TestConnectEndsWithItsContext(t *testing.T) {
	const long = time.Minute
	s := openStore(&Config{Name: "test", Etcd: []string{silentEtcd(t)}, User: "u", Password: "p", TTL: maxTTL}, long)
	begun := time.Now()
	waiting, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_, err := s.read(waiting)
		require.ErrorIs(t, err, context.Canceled)
	})
	require.Eventually(t, func() bool {
		e := s.endpoints[0]
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.conn != nil
	}, long, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := s.read(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	stop()
	running.Wait()
	require.NoError(t, s.close())
	require.Less(t, time.Since(begun), long/2)
	_, err = s.read(t.Context())
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.close())
}

// An error has what is wrong with each member of etcd.
func TestErrorsOfAllEtcds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refused := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	silent := silentEtcd(t)
	s := openStore(&Config{Name: "test", Etcd: []string{refused, silent}, TTL: minTTL}, minTTL/4)
	defer s.close()
	_, err = s.read(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, refused+": ")
	require.ErrorContains(t, err, silent+": ")
}

// A user's configuration of TLS is asked for certificates as before, and without one there is no TLS.
func TestEndpointKeepsTLS(t *testing.T) {
	e := &endpoint{}
	require.Nil(t, e.tls(nil))
	mine := &tls.Certificate{Certificate: [][]byte{{1}}}
	cfg := e.tls(&tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return mine, nil }})
	got, err := cfg.GetClientCertificate(&tls.CertificateRequestInfo{})
	require.NoError(t, err)
	require.Same(t, mine, got)
	require.False(t, e.asks)
	got, err = e.tls(&tls.Config{}).GetClientCertificate(&tls.CertificateRequestInfo{})
	require.NoError(t, err)
	require.Empty(t, got.Certificate)
	require.True(t, e.asks)
}

// Of several certificates the member of etcd gets one that it accepts. A choice that fails is an error, and a user's
// configuration of TLS stays as it is.
func TestEndpointChoosesACertificate(t *testing.T) {
	e := &endpoint{}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	own := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{{1}}, PrivateKey: curve}, {Certificate: [][]byte{{2}}, PrivateKey: edwards}}}
	cfg := e.tls(own)
	require.Nil(t, own.GetClientCertificate)
	got, err := cfg.GetClientCertificate(&tls.CertificateRequestInfo{Version: tls.VersionTLS13, SignatureSchemes: []tls.SignatureScheme{tls.Ed25519}})
	require.NoError(t, err)
	require.Equal(t, [][]byte{{2}}, got.Certificate)
	own.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, io.EOF }
	_, err = e.tls(own).GetClientCertificate(&tls.CertificateRequestInfo{})
	require.ErrorIs(t, err, io.EOF)
	require.False(t, e.asks)
}

// The reason why there is no connection is that of the last call, and is told when the time was over.
func TestEndpointExplains(t *testing.T) {
	e := &endpoint{}
	call := func(result error) error {
		got := e.note(t.Context(), "", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return result })
		require.Equal(t, result, got)
		return e.explain(context.DeadlineExceeded)
	}
	refused := status.Error(codes.DeadlineExceeded, "latest balancer error: refused")
	require.EqualError(t, call(refused), "context deadline exceeded: refused")
	require.Equal(t, io.EOF, e.explain(io.EOF))
	require.Equal(t, context.DeadlineExceeded, call(io.EOF))
	e.asks = true
	require.ErrorContains(t, call(refused), "asks for a client certificate")
	require.Equal(t, context.DeadlineExceeded, call(nil))
	require.EqualError(t, call(refused), "context deadline exceeded: refused")
}

// All calls have one connection.
func TestConnectsOnce(t *testing.T) {
	s := openStore(&Config{Name: "test", Etcd: []string{silentEtcd(t)}, TTL: maxTTL}, time.Second)
	first, err := s.endpoints[0].connect(t.Context())
	require.NoError(t, err)
	again, err := s.endpoints[0].connect(t.Context())
	require.NoError(t, err)
	require.Same(t, first, again)
	require.NoError(t, s.close())
	require.Equal(t, connectivity.Shutdown, first.ActiveConnection().GetState())
}

// A connection that fails is made anew for the next call.
func TestConnectTriesAgain(t *testing.T) {
	s := openStore(&Config{Name: "test", Etcd: []string{silentEtcd(t)}, User: "u", Password: "p", TTL: minTTL}, 10*time.Millisecond)
	defer s.close()
	e := s.endpoints[0]
	for range 2 {
		_, err := e.connect(t.Context())
		require.ErrorContains(t, err, context.DeadlineExceeded.Error())
		require.Nil(t, e.conn)
	}
}

// An etcd that was away for long is reached within a TTL when it is back.
func TestConnectsAgainSoon(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	s := openStore(&Config{Name: "test", Etcd: []string{"http://" + address}, TTL: 100 * time.Millisecond}, 25*time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			_, err := s.read(ctx)
			require.Error(t, err)
			time.Sleep(10 * time.Millisecond)
		}
	})
	time.Sleep(1300 * time.Millisecond)
	l, err = net.Listen("tcp", address)
	require.NoError(t, err)
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(500*time.Millisecond)))
	c, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	stop()
	running.Wait()
	require.NoError(t, s.close())
}

// A member hears of the moves that others go on with, of all that is no move, and of what it cannot read.
func TestTold(t *testing.T) {
	s := openStore(&Config{Name: "test", TTL: maxTTL}, time.Second)
	for _, tt := range []struct {
		key   string
		value any
		told  bool
	}{
		{placementKey, 0, true},
		{drainKey + "c", 0, true},
		{requestsKey + "c", request{To: "c", From: "b"}, true},
		{requestsKey + "b", request{To: "b", From: "c"}, false}, // its own
		{requestsKey + "c", request{To: "c", From: "d"}, false},
		{requestsKey + "c", "bad", true},
		{repliesKey + "c", reply{To: "b"}, true},
		{repliesKey + "b", reply{To: "c"}, false}, // its own
		{repliesKey + "c", reply{To: "d"}, false},
		{repliesKey + "c", reply{}, false},
		{serversKey + "c/7", life{}, false},
	} {
		value, err := json.Marshal(tt.value)
		require.NoError(t, err)
		told := false
		s.tell([]*clientv3.Event{{Kv: &mvccpb.KeyValue{Key: []byte(s.prefix + tt.key), Value: value}}}, watcher{
			id: "b", changed: func() { told = true }, beat: func(place.Life, int64) {},
		})
		require.Equal(t, tt.told, told, "%s: %s", tt.key, value)
	}
}
