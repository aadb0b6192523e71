package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/goverbs/goverbs/cache/server"
)

// tenantConfig is a tenant's, in the configuration file. What it leaves out is as for all.
type tenantConfig struct {
	Key      string    `json:"key"` // a file
	Memory   size      `json:"memory"`
	MaxValue size      `json:"max_value"`
	Snapshot string    `json:"snapshot"`
	Clients  int       `json:"clients"`
	DC       *dcConfig `json:"dc"`
}

// checkTenants returns what is wrong with the tenants and with the settings that go with them.
func (c *config) checkTenants() error {
	snapshots := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		if other, used := snapshots[filepath.Clean(t.Snapshot)]; used && t.Snapshot != "" {
			return at("tenants."+name+".snapshot", fmt.Errorf(`"snapshot" of tenant %q is that of %q`, name, other))
		}
		snapshots[filepath.Clean(t.Snapshot)] = name
		switch {
		case t.Key == "":
			return at("tenants."+name, fmt.Errorf(`"key" of tenant %q is missing: the file of its key`, name))
		case t.Clients < 0:
			return at("tenants."+name+".clients", fmt.Errorf(`"clients" of tenant %q is below 0`, name))
		}
		if t.DC != nil {
			if err := t.DC.check(fmt.Sprintf(" of tenant %q", name)); err != nil {
				return at("tenants."+name+".dc", err)
			}
		}
	}
	if err := c.DC.check(""); err != nil {
		return at("dc", err)
	}
	switch _, known := c.Tenants[c.Gateway.Tenant]; {
	case c.Clients < 0:
		return at("clients", errors.New(`"clients" is below 0`))
	case len(c.Tenants) == 0 && c.Gateway.Tenant != "":
		return at("gateway.tenant", errors.New(`"tenant" of the gateway is none of "tenants"`))
	case len(c.Tenants) == 0:
		return nil
	case c.Key != "" || c.Snapshot != "" || c.Clients != 0:
		return at("tenants", errors.New(`with "tenants" each has its own "key", "snapshot" and "clients"`))
	case c.Gateway.Listen != "" && !known:
		return at("gateway", errors.New(`"tenant" of the gateway is none of "tenants": the gateway serves the records of one`))
	}
	return nil
}

// readKey reads a key's file. Space around the key is none of it.
func readKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, fmt.Errorf("key: %s: no key: that would admit every client", path)
	}
	return b, nil
}

// tenant returns the configuration of one for package server.
func (c *config) tenant(name string, log *slog.Logger) (server.Tenant, error) {
	t := c.Tenants[name]
	key, err := readKey(t.Key)
	s, _ := c.server(log.With("tenant", name))
	s.Key, s.Snapshot, s.MaxClients = nil, t.Snapshot, t.Clients
	if t.Memory > 0 {
		s.Memory = int(t.Memory)
	}
	if t.DC != nil {
		s.DC = t.DC.server()
	}
	if t.MaxValue > 0 {
		s.MaxValue = int(t.MaxValue)
	}
	return server.Tenant{Name: name, Key: key, Config: s}, err
}

// serving is what has RDMA clients: one server, or those of tenants.
type serving interface {
	Serve(context.Context) error
	Addr() net.Addr
	Refused() server.Refused
	Close() error
}

// listen makes what has RDMA clients, and finds the server that the gateway is for.
func (d *service) listen(ctx context.Context) (err error) {
	c := d.config
	if len(c.Tenants) == 0 {
		cfg, err := c.server(d.log)
		if err != nil {
			return err
		}
		if d.cache, err = server.Listen(ctx, c.Listen, cfg); err != nil {
			return err
		}
		d.rdma, d.key = d.cache, cfg.Key
		return nil
	}
	var list []server.Tenant
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t, err := c.tenant(name, d.log)
		if c.revokes(&t) { // when it comes back, its records are to be gone
			if err = os.Remove(t.Snapshot); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			d.log.Info("a tenant is revoked", "tenant", name)
		} else {
			list = append(list, t)
		}
		if err != nil {
			return fmt.Errorf("tenant %q: %w", name, err)
		}
	}
	if d.tenants, err = server.ListenTenants(ctx, c.Listen, list, d.log); err != nil {
		return err
	}
	d.rdma, d.cache = d.tenants, d.tenants.Server(c.Gateway.Tenant)
	return nil
}

// each calls f for each server, with its tenant's name.
func (d *service) each(f func(tenant string, s *server.Server)) {
	if d.tenants == nil {
		f("", d.cache)
		return
	}
	for _, name := range d.tenants.Names() {
		if s := d.tenants.Server(name); s != nil { // it was not revoked just now
			f(name, s)
		}
	}
}

// revoked is what the file of a revoked tenant has in place of a key. It is too short for one.
const revoked = "revoked"

// revokes reports whether the file of a tenant's key revokes it. The gateway's tenant cannot be revoked.
func (c *config) revokes(t *server.Tenant) bool {
	return string(t.Key) == revoked && (c.Gateway.Listen == "" || t.Name != c.Gateway.Tenant)
}

// rekey reads the keys again. A file that is missing or is no key changes nothing: it may be
// about to be replaced. A tenant that was revoked comes back with another key, and without its records.
func (d *service) rekey(ctx context.Context) {
	if path := d.config.Key; path != "" {
		key, err := readKey(path)
		if err == nil {
			err = d.cache.SetKey(key)
		}
		if err != nil {
			d.log.Error("the key stays as it was", "error", err)
			return
		}
		d.log.Info("the server has the key of its file")
	}
	for _, name := range slices.Sorted(maps.Keys(d.config.Tenants)) {
		t, err := d.config.tenant(name, d.log)
		there := d.tenants.Server(name) != nil
		what := "has the key of its file"
		switch gone := d.config.revokes(&t); {
		case err != nil:
		case gone && !there:
			continue
		case gone:
			what, err = "is revoked", d.tenants.Revoke(name)
		case there:
			err = d.tenants.SetKey(name, t.Key)
		default:
			err = d.tenants.Admit(ctx, &t)
		}
		if err != nil {
			d.log.Error("a tenant stays as it was", "tenant", name, "error", err)
			continue
		}
		d.log.Info("a tenant "+what, "tenant", name)
	}
}
