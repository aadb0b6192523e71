package server

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/greet"
)

// A tenant's records are not left where another one would take them from.
func TestTenantsHaveSnapshotsOfTheirOwn(t *testing.T) {
	all := Tenants{servers: map[string]*Server{"red": {cfg: Config{Snapshot: "/var/s"}}}, coming: map[string]*coming{"green": {snapshot: "/var/t"}}}
	n := Tenant{Name: "blue", Key: bytes.Repeat([]byte("k"), greet.MinKey), Config: Config{Snapshot: "/var/./s"}}
	require.ErrorContains(t, all.Admit(t.Context(), &n), `that of tenant "red"`)
	n.Snapshot = "/var/t"
	require.ErrorContains(t, all.Admit(t.Context(), &n), `that of tenant "green"`)
	require.Equal(t, []string{"red"}, all.Names())
}

// A key that could be guessed is none, and one of a program's own memory does not change.
func TestKeysOfTenants(t *testing.T) {
	short := bytes.Repeat([]byte("k"), 15)
	_, err := checkKey(short)
	require.ErrorContains(t, err, "shorter than 16")
	long := append(short, 'k')
	key, err := checkKey(long)
	require.NoError(t, err)
	long[0] = 'x'
	require.Equal(t, bytes.Repeat([]byte("k"), 16), key)
}

// A server that has a key may have another one, for later connections.
func TestSetKey(t *testing.T) {
	key, other := bytes.Repeat([]byte("k"), greet.MinKey), bytes.Repeat([]byte("o"), greet.MinKey)
	s := &Server{admission: &admission{tenants: map[string]tenant{}}, cfg: Config{Key: key}}
	s.admission.set("", tenant{key, s})
	has := func() []byte {
		key, whose := s.admission.keyOf("")
		require.Same(t, s, whose)
		return key
	}
	require.Error(t, s.SetKey(other[1:]))
	require.Equal(t, key, has())
	require.NoError(t, s.SetKey(other))
	require.Equal(t, other, has())
	require.Error(t, (&Server{cfg: Config{Key: key}}).SetKey(other), "it is a tenant's")
	require.Error(t, (&Server{admission: s.admission}).SetKey(other), "it admits all")
	require.Equal(t, other, has())
}

// An empty key, as of an empty file, does not mean that all are admitted.
func TestEmptyKey(t *testing.T) {
	require.NoError(t, Config{}.Check())
	require.ErrorContains(t, Config{Key: []byte{}}.Check(), "key of 0 bytes")
	_, err := Listen(t.Context(), "127.0.0.1:0", Config{Key: []byte{}})
	require.ErrorContains(t, err, "key of 0 bytes")
}

// A key that is set just while its tenant is revoked admits no client afterwards.
func TestKeyOfARevokedTenant(t *testing.T) {
	d := &admission{tenants: map[string]tenant{}}
	all := Tenants{admission: d, servers: map[string]*Server{}}
	key := bytes.Repeat([]byte("k"), greet.MinKey)
	for range 2000 {
		s := &Server{links: newQueue(nil), streams: newQueue(nil), stop: func() {}, tell: time.NewTimer(time.Hour)}
		all.servers["red"] = s
		d.set("red", tenant{key, s})
		var both sync.WaitGroup
		both.Go(func() { _ = all.SetKey("red", key) })
		both.Go(func() { assert.NoError(t, all.Revoke("red")) })
		both.Wait()
		require.Empty(t, d.tenants)
	}
}

// While a tenant's memory is registered, the others are served, and its name is taken. One that is revoked meanwhile
// is none.
func TestAdmitHoldsUpNoOther(t *testing.T) {
	all, err := ListenTenants(t.Context(), "127.0.0.1:0", nil, nil)
	require.NoError(t, err)
	red := bare(all.Addr(), Config{})
	all.servers["red"] = red
	registering := make(chan struct{})
	all.make = func(ctx context.Context, at net.Addr, cfg Config) (*Server, error) {
		close(registering)
		<-ctx.Done()
		return bare(at, cfg), nil // it was too late to stop
	}
	n := Tenant{Name: "blue", Key: bytes.Repeat([]byte("k"), greet.MinKey)}
	admitted := make(chan error, 1)
	go func() { admitted <- all.Admit(t.Context(), &n) }()
	<-registering
	others := make(chan struct{})
	go func() {
		defer close(others)
		assert.Same(t, red, all.Server("red"))
		assert.Equal(t, []string{"red"}, all.Names())
		assert.ErrorContains(t, all.Admit(t.Context(), &n), "there is one of this name")
	}()
	select {
	case <-others:
	case <-time.After(patient):
		require.Fail(t, "the others wait")
	}
	require.NoError(t, all.Revoke("blue"))
	require.ErrorIs(t, <-admitted, errRevoked)
	require.Nil(t, all.Server("blue"))
	require.NoError(t, all.Close())
}

// A tenant that was revoked while its server was made does not join, and neither does one of closed tenants.
func TestJoin(t *testing.T) {
	all := Tenants{admission: &admission{tenants: map[string]tenant{}}, servers: map[string]*Server{}, coming: map[string]*coming{"red": {}}}
	s := &Server{}
	require.ErrorIs(t, all.join("red", &coming{revoked: true}, s), errRevoked)
	all.closed = true
	require.ErrorIs(t, all.join("red", &coming{}, s), ErrClosed)
	require.Empty(t, all.coming)
	require.Empty(t, all.admission.tenants)
	all.closed = false
	require.NoError(t, all.join("red", &coming{}, nil))
	require.Empty(t, all.servers)
	require.NoError(t, all.join("red", &coming{}, s))
	require.Same(t, s, all.Server("red"))
	require.Same(t, s, all.admission.tenants["red"].server)
}
