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
	Key      string       `json:"key"` // a file
	Memory   size         `json:"memory"`
	MaxValue size         `json:"max_value"`
	Snapshot string       `json:"snapshot"`
	Clients  int          `json:"clients"`
	Writable size         `json:"writable"`
	Shared   sharedConfig `json:"shared"`
	DC       *dcConfig    `json:"dc"`
}

// checkTenants returns what is wrong with the tenants and with the settings that go with them.
func (c *config) checkTenants() error {
	snapshots := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t := c.Tenants[name]
		if other, used := snapshots[filepath.Clean(t.Snapshot)]; used && t.Snapshot != "" {
			return fmt.Errorf(`"snapshot" of tenant %q is that of %q`, name, other)
		}
		snapshots[filepath.Clean(t.Snapshot)] = name
		switch {
		case t.Key == "":
			return fmt.Errorf(`"key" of tenant %q is missing: the file of its key`, name)
		case t.Clients < 0:
			return fmt.Errorf(`"clients" of tenant %q is below 0`, name)
		}
		of := fmt.Sprintf(" of tenant %q", name)
		if err := t.Shared.check(of); err != nil {
			return err
		}
		if t.DC != nil {
			if err := t.DC.check(of); err != nil {
				return err
			}
		}
	}
	if err := c.DC.check(""); err != nil {
		return err
	}
	switch _, known := c.Tenants[c.Gateway.Tenant]; {
	case c.Clients < 0:
		return errors.New(`"clients" is below 0`)
	case len(c.Tenants) == 0 && c.Gateway.Tenant != "":
		return errors.New(`"tenant" of the gateway is none of "tenants"`)
	case len(c.Tenants) == 0:
		return c.Shared.check("")
	case c.Key != "" || c.Snapshot != "" || c.Clients != 0 || c.Writable != 0 || c.Shared != sharedConfig{}:
		return errors.New(`with "tenants" each has its own "key", "snapshot", "clients", "writable" and "shared"`)
	case c.Gateway.Listen != "" && !known:
		return errors.New(`"tenant" of the gateway is none of "tenants"`)
	}
	return nil
}

// readKey reads a key's file. Space around the key is none of it.
func readKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	return bytes.TrimSpace(b), err
}

// tenant returns the configuration of one for package server.
func (c *config) tenant(name string, log *slog.Logger) (server.Tenant, error) {
	t := c.Tenants[name]
	key, err := readKey(t.Key)
	s, _ := c.server(log.With("tenant", name))
	s.Key, s.Snapshot, s.MaxClients, s.Writable, s.Shared = nil, t.Snapshot, t.Clients, int(t.Writable), t.Shared.server()
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
		d.rdma = d.cache
		return nil
	}
	var list []server.Tenant
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t, err := c.tenant(name, d.log)
		if err != nil {
			return err
		}
		list = append(list, t)
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

// rekey reads the tenants' keys again. A tenant without its file is revoked; one that was
// revoked comes back with another file, and without its records.
func (d *service) rekey(ctx context.Context) {
	if d.tenants == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.config.Tenants)) {
		t, err := d.config.tenant(name, d.log)
		there := d.tenants.Server(name) != nil
		what := "has the key of its file"
		switch {
		case errors.Is(err, fs.ErrNotExist) && !there:
			continue
		case errors.Is(err, fs.ErrNotExist) && name == d.config.Gateway.Tenant && d.gateway != nil:
			err = errors.New("the gateway's tenant cannot be revoked")
		case errors.Is(err, fs.ErrNotExist):
			what, err = "is revoked: the file of its key is gone", d.tenants.Revoke(name)
		case err != nil:
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
