//go:build linux

package lockoffload_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload"
)

// A caller whose connection broke while it had nothing under way goes on as if nothing had
// happened: with the same agent, with another one, and over TLS, which cannot say goodbye
// on a connection that was reset.
func TestIdleCallerIsConnectedAgain(t *testing.T) {
	requireWire(t)
	for name, secure := range map[string]bool{"reset": false, "reset TLS": true, "other agent": false} {
		t.Run(name, func(t *testing.T) {
			ctx := within(t, stuck)
			near, far := open(t, wire[0]), open(t, wire[1])
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			raw := &resettable{Listener: tcp}
			listener, cfg := net.Listener(raw), lockoffload.DialConfig{Key: testKey, GID: near.gid}
			if secure {
				listener = tls.NewListener(raw, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
				cfg.Dialer = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext
			}
			lis, err := lockoffload.NewListener(far.pd, listener, lockoffload.ListenConfig{
				Layout: lockoffload.Layout{Slots: 2, Size: 8}, Key: testKey, Lease: long, Grace: -1, GID: far.gid})
			require.NoError(t, err)
			defer func() { require.NoError(t, lis.Close()) }()
			c, err := lockoffload.DialAgent(ctx, near.pd, tcp.Addr().String(), cfg)
			require.NoError(t, err)
			defer c.Close()
			for round := range 3 {
				_, err := c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{writeOf(0, "x")}})
				require.NoError(t, err, round)
				before := c.Connections()
				if name == "other agent" {
					lis.StopAgent()
				} else {
					raw.reset()
				}
				require.Eventually(t, func() bool { return c.Connections() > before }, stuck, time.Millisecond)
			}
		})
	}
}

// resettable is a listener whose newest connection can be reset as a firewall does.
type resettable struct {
	net.Listener
	mu   sync.Mutex
	last *net.TCPConn
}

func (l *resettable) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.last = c.(*net.TCPConn)
		l.mu.Unlock()
	}
	return c, err
}

func (l *resettable) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.SetLinger(0)
	l.last.Close()
}

func selfSigned(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
