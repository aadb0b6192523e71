//go:build simhca && linux && cgo

package cluster_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/ci/etcd"
)

// certificate makes a certificate for 127.0.0.1 that signs itself, and returns its files and what trusts it.
func certificate(t *testing.T) (cert, key string, cfg *tls.Config) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(cert, certPEM, 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certPEM))
	return cert, key, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

// A member uses an etcd that asks for certificates, a user and a password, and none that it does not trust, or that does not
// trust it. The log says why.
func TestSimulatedSecureEtcd(t *testing.T) {
	cert, key, secure := certificate(t)
	r := rigWith(t, etcd.StartTLS(t, "--cert-file", cert, "--key-file", key, "--trusted-ca-file", cert, "--client-cert-auth"))
	ctx := r.ctx
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{r.etcd.URL}, TLS: secure, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool {
		_, err := c.UserAdd(ctx, "root", "secret")
		return err == nil
	}, stuck, 100*time.Millisecond)
	_, err = c.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = c.AuthEnable(ctx)
	require.NoError(t, err)

	with := func(tls *tls.Config, password string) func(*cluster.Config) {
		return func(cfg *cluster.Config) { cfg.TLS, cfg.User, cfg.Password = tls, "root", password }
	}
	a := r.start("a", "127.0.0.1:0", 1, with(secure, "secret"))
	a.owns(shards)
	_, _, other := certificate(t)
	for id, tt := range map[string]struct {
		edit func(*cluster.Config)
		says string
	}{
		"b": {with(other, "secret"), "certificate signed by unknown authority"},
		"c": {with(&tls.Config{RootCAs: secure.RootCAs}, "secret"), "asks for a client certificate"},
		"d": {with(secure, "wrong"), "authentication failed"},
	} {
		var log lines
		n := r.start(id, "127.0.0.1:0", 1, tt.edit, func(cfg *cluster.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		require.Eventually(t, func() bool { return log.has(tt.says) }, stuck, 10*time.Millisecond, tt.says)
		require.Equal(t, cluster.Joining, n.Status().State, id)
		n.end()
	}
	require.Len(t, a.Status().Members, 1)
}
