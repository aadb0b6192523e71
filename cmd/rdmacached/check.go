package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// check returns what is wrong with the configuration at path, the files that it names and this host, each with its
// line and key, as far as that can be said without opening the device. It is a [configError] unless all that is wrong
// is that an address or the device is missing, which may come later.
func (c *config) check(path string, log *slog.Logger) error {
	_, err := c.gateway()
	errs := []error{err}
	if len(c.Tenants) == 0 {
		s, err := c.server(log)
		errs = append(errs, ofKey("key", err), checkServer("", s))
	}
	all, revoked := server.Config{}, 0
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		t, err := c.tenant(name, log)
		if c.revokes(&t) {
			revoked++
			continue
		}
		prefix := "tenants." + name + "."
		if err = ofKey(prefix+"key", err); err == nil {
			err = checkServer(prefix, t.Config)
		}
		if err == nil {
			err = ofKey(prefix+"key", t.Check())
		}
		errs = append(errs, err)
		all.Memory += t.Memory
	}
	if errors.Join(errs...) == nil {
		errs = append(errs, ofKey("memory", all.CheckHost()))
	}
	wrong := c.located(path, errs...)
	if err = c.checkAddresses(); err == nil && (len(c.Tenants) == 0 || revoked < len(c.Tenants)) {
		err = c.checkDevice()
	}
	if err = errors.Join(wrong, c.located(path, err)); wrong != nil {
		return configError{err}
	}
	return err
}

// located joins errors of the configuration at path, each with its line.
func (c *config) located(path string, errs ...error) error {
	for i := range errs {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: %w", path, locate(c.text, errs[i]))
		}
	}
	return errors.Join(errs...)
}

// checkAddresses returns an error if this host has not an address.
func (c *config) checkAddresses() error {
	for _, a := range [...]struct{ key, address string }{{"listen", c.Listen}, {"gateway.listen", c.Gateway.Listen}, {"metrics", c.Metrics}} {
		if host, _, _ := net.SplitHostPort(a.address); host != "" {
			l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				err = fmt.Errorf("no interface of this host has the address %s", host)
			}
			if err != nil {
				return ofKey(a.key, err)
			}
			_ = l.Close()
		}
	}
	return nil
}

// checkDevice returns an error if this host has not the device, or if the address to listen at leads to none.
func (c *config) checkDevice() error {
	if c.Device == "" {
		a, err := net.ResolveTCPAddr("tcp", c.Listen)
		switch {
		case err != nil:
		case a.IP == nil || a.IP.IsUnspecified():
			err = errors.New(`an address of all devices: name one in "device"`)
		default:
			_, err = netpath.LookupAddr(context.Background(), a.AddrPort().Addr().Unmap())
		}
		return ofKey("listen", err)
	}
	devices, err := verbs.Devices()
	if err != nil {
		return ofKey("device", err)
	}
	names := make([]string, len(devices))
	for i := range devices {
		names[i] = devices[i].Name
	}
	if !slices.Contains(names, c.Device) {
		return ofKey("device", fmt.Errorf("this host has no RDMA device %q, but [%s]", c.Device, strings.Join(names, " ")))
	}
	return nil
}

// checkServer returns the first error of a server's configuration, with its key.
func checkServer(prefix string, s server.Config) error {
	for _, part := range [...]struct {
		key string
		cfg server.Config
	}{
		{"key", server.Config{Key: s.Key}},
		{"lease", server.Config{Lease: s.Lease}},
		{"names", server.Config{Names: s.Names}},
		{"memory", server.Config{Memory: s.Memory}},
		{"max_value", server.Config{Memory: s.Memory, MaxValue: s.MaxValue}},
		{"snapshot", server.Config{Memory: s.Memory, Snapshot: s.Snapshot, Logger: s.Logger}},
	} {
		if err := errors.Join(part.cfg.Check(), part.cfg.CheckHost()); err != nil {
			return ofKey(prefix+part.key, err)
		}
	}
	return nil
}

// ofKey returns an error of the value of a key, which it names; nil stays nil.
func ofKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return at(key, fmt.Errorf("%q: %w", key, err))
}
