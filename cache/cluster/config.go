package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// Config configures a member.
type Config struct {
	// Name is the cluster's: all its keys in etcd begin with "/rdmacached/" and the name.
	Name string
	// ID is the name of this server in the cluster. No other server has it, and the next life of this one has it
	// again.
	ID string
	// Etcd has the addresses of etcd's members, "http://host:port" or "https://host:port".
	Etcd []string
	// TLS is for https; nil means the certificate authorities of this host, and no certificate of its own.
	TLS *tls.Config
	// User and Password are those of etcd, if it asks for them. The user has to read and write the keys of the cluster.
	User, Password string
	// Advertise is the server's address as clients and other members connect to it.
	Advertise string
	// Weight says how many shards this server gets, in proportion to those of the others, from 0 to 100; nil
	// means 1. A server with the weight 0 gets none, unless all have it.
	Weight *int
	// Zone names what fails together with this server; it may be empty.
	Zone string
	// TTL is how long a member must have been silent, less a tenth, before the others take over its shards. All
	// members need the same, in whole ms: from 1 s to 60 s; 0 means 3 s.
	TTL time.Duration
	// Client is how this member connects to others, to copy their records. It has the Key of
	// the servers.
	Client cache.Config
	// Logger is told of moves, of other members, and of trouble with etcd; nil: silent.
	Logger *slog.Logger

	patience time.Duration // for which changes of a shard wait for its next owner
}

const (
	patience   = 2 * time.Second
	defaultTTL = 3 * time.Second
	minTTL     = time.Second
	maxTTL     = time.Minute
)

func (c *Config) defaults() {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Weight == nil {
		one := 1
		c.Weight = &one
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.patience == 0 {
		c.patience = patience
	}
	c.Client.FailFast = true
}

// Check returns what is wrong with the configuration; [Join] refuses it with the same error.
func (c Config) Check() error {
	c.defaults()
	if err := c.checkEtcd(); err != nil {
		return err
	}
	switch {
	case !place.IsName(c.ID):
		return fmt.Errorf("cluster: id %q: 1 to 63 of a to z, 0 to 9, dot and hyphen", c.ID)
	case c.Zone != "" && !place.IsName(c.Zone):
		return fmt.Errorf("cluster: zone %q: 1 to 63 of a to z, 0 to 9, dot and hyphen", c.Zone)
	case c.TTL < minTTL || c.TTL > maxTTL || c.TTL%time.Millisecond != 0:
		return fmt.Errorf("cluster: TTL of %v: from %v to %v, in whole ms", c.TTL, minTTL, maxTTL)
	case *c.Weight < 0 || *c.Weight > place.MaxWeight:
		return fmt.Errorf("cluster: weight of %d: from 0 to %d", *c.Weight, place.MaxWeight)
	}
	return checkAddress(c.Advertise)
}

// checkEtcd returns what is wrong with how to reach the keys of a cluster.
func (c *Config) checkEtcd() error {
	switch {
	case !place.IsName(c.Name):
		return fmt.Errorf("cluster: name %q: 1 to 63 of a to z, 0 to 9, dot and hyphen", c.Name)
	case len(c.Etcd) == 0:
		return errors.New("cluster: no address of etcd")
	}
	secure := 0
	for _, e := range c.Etcd {
		u, err := url.Parse(e)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
			return fmt.Errorf("cluster: %q is no address of etcd, such as http://10.77.0.2:2379", e)
		}
		if u.Scheme == "https" {
			secure++
		}
	}
	switch {
	case secure != 0 && secure != len(c.Etcd):
		return errors.New("cluster: some addresses of etcd are of http and some of https")
	case secure == 0 && c.TLS != nil:
		return fmt.Errorf("cluster: certificates are for https, and %q is of http", c.Etcd[0])
	case (c.User == "") != (c.Password == ""):
		return errors.New("cluster: etcd's user and password belong together")
	}
	return nil
}

// checkAddress returns what is wrong with an address for clients.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	ip, _ := netip.ParseAddr(host)
	if err != nil || host == "" || port == "" || port == "0" || ip.IsUnspecified() {
		return fmt.Errorf("cluster: %q is no address that clients can connect to, such as 10.77.0.2:7481", address)
	}
	if len(address) > place.MaxAddress {
		return fmt.Errorf("cluster: address %q: at most %d bytes", address, place.MaxAddress)
	}
	return nil
}

// own returns the configuration of package own.
func (c *Config) own() own.Config { return own.Config{TTL: c.TTL, Drift: own.Drift} }

// server returns this life of the server for the placement.
func (c *Config) server(boot uint64) place.Server {
	return place.Server{Life: place.Life{ID: c.ID, Boot: boot}, Address: c.Advertise, Zone: c.Zone, Weight: uint8(*c.Weight)}
}
