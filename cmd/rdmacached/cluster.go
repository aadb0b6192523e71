package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/internal/cachestatus"
	"github.com/goverbs/goverbs/internal/prom"
)

// clusterConfig is the membership in a cluster, in the configuration file.
type clusterConfig struct {
	Name      string   `json:"name"`
	ID        string   `json:"id"`
	Etcd      []string `json:"etcd"`
	Advertise string   `json:"advertise"`
	Weight    *int     `json:"weight"`
	Zone      string   `json:"zone"`
	TTL       duration `json:"ttl"`
	Drain     duration `json:"drain"`

	CA             string `json:"ca"` // a file, as are the others
	Certificate    string `json:"certificate"`
	CertificateKey string `json:"certificate_key"`
	User           string `json:"user"`
	Password       string `json:"password"` // a file
}

// defaultDrain is how long a server that ends may take to hand over its shards.
const defaultDrain = 4 * time.Minute

// member returns the configuration for package cluster, with what is in the files for etcd.
func (c *clusterConfig) member(key []byte, log *slog.Logger) (cluster.Config, error) {
	m := cluster.Config{
		Name: c.Name, ID: c.ID, Etcd: c.Etcd, Advertise: c.Advertise, Weight: c.Weight, Zone: c.Zone, TTL: time.Duration(c.TTL),
		User: c.User, Client: cache.Config{Key: key, Logger: log}, Logger: log,
	}
	if c.CA != "" || c.Certificate != "" {
		m.TLS = &tls.Config{}
	}
	if c.CA != "" {
		b, err := os.ReadFile(c.CA)
		if err != nil {
			return m, at("cluster.ca", fmt.Errorf("cluster.ca: %w", err))
		}
		if m.TLS.RootCAs = x509.NewCertPool(); !m.TLS.RootCAs.AppendCertsFromPEM(b) {
			return m, at("cluster.ca", fmt.Errorf("cluster.ca: %s has no certificate", c.CA))
		}
	}
	if c.Certificate != "" {
		cert, err := tls.LoadX509KeyPair(c.Certificate, c.CertificateKey)
		if err != nil {
			return m, at("cluster.certificate", fmt.Errorf("cluster.certificate and cluster.certificate_key: %w", err))
		}
		m.TLS.Certificates = []tls.Certificate{cert}
	}
	if c.Password != "" {
		b, err := os.ReadFile(c.Password)
		if err != nil {
			return m, at("cluster.password", fmt.Errorf("cluster.password: %w", err))
		}
		if m.Password = strings.TrimSpace(string(b)); m.Password == "" {
			return m, at("cluster.password", fmt.Errorf("cluster.password: %s is empty", c.Password))
		}
	}
	return m, at("cluster", m.Check())
}

// checkCluster returns what is wrong with the membership and with the settings that go with it.
func (c *config) checkCluster() error {
	if c.Cluster == nil {
		return nil
	}
	for what, there := range map[string]bool{"tenants": len(c.Tenants) > 0, "snapshot": c.Snapshot != "", "gateway": c.Gateway.Listen != ""} {
		if there {
			return at(what, fmt.Errorf("%q and \"cluster\" exclude each other", what))
		}
	}
	if (c.Cluster.Certificate == "") != (c.Cluster.CertificateKey == "") {
		return at("cluster", errors.New(`"certificate" and "certificate_key" of the cluster belong together`))
	}
	_, err := c.Cluster.member(nil, nil)
	return err
}

// join makes the server a member, if the configuration has a cluster.
func (d *service) join() error {
	if c := d.config.Cluster; c != nil {
		m, err := c.member(d.key, d.log)
		if err == nil {
			d.member, err = cluster.Join(d.cache, m)
		}
		return err
	}
	return nil
}

// memberMetrics are the metrics of the membership.
var memberMetrics = []prom.Metric[cluster.Status]{
	prom.Gauge("epoch", "Epoch of the table of shards.", func(s *cluster.Status) float64 { return float64(s.Epoch) }),
	prom.Gauge("members", "Servers that are members.", func(s *cluster.Status) float64 { return float64(len(s.Members)) }),
	prom.Gauge("shards", "Shards that this server owns.", func(s *cluster.Status) float64 { return float64(s.Shards) }),
	prom.Gauge("moves_planned", "Moves of shards between members until each has its share.", func(s *cluster.Status) float64 { return float64(s.Planned) }),
	prom.Gauge("left_seconds", "Time for which this server serves its shards without a word of etcd or of all other members.", func(s *cluster.Status) float64 { return s.Left.Seconds() }),
	prom.Counter("moves", "Shards that others have handed over to this server.", func(s *cluster.Status) float64 { return float64(s.Moves) }),
	prom.Counter("given", "Shards that this server has handed over to others.", func(s *cluster.Status) float64 { return float64(s.Given) }),
	prom.Counter("held_seconds", "Time for which changes of shards waited for their next owner, of all shards together.", func(s *cluster.Status) float64 { return s.Held.Seconds() }),
	prom.Counter("takeovers", "Members that this server has found dead, and whose shards it or another one has taken over.", func(s *cluster.Status) float64 { return float64(s.Takeovers) }),
	prom.Counter("promises", "Rounds of promises of all other members, which have taken the place of etcd.", func(s *cluster.Status) float64 { return float64(s.Promises) }),
	prom.Counter("beats", "Beats that etcd has confirmed.", func(s *cluster.Status) float64 { return float64(s.Beats) }),
	prom.Counter("beats_missed", "Beats that etcd has not confirmed.", func(s *cluster.Status) float64 { return float64(s.Missed) }),
	prom.Gauge("beat_seconds", "Time until etcd confirmed the last beat.", func(s *cluster.Status) float64 { return s.Beat.Seconds() }),
}

// memberCollector returns a collector of a membership's metrics.
func memberCollector(m *cluster.Member) prometheus.Collector {
	return prom.New("rdmacached_cluster_", memberMetrics, "", func(f func(string, *cluster.Status)) {
		st := m.Status()
		f("", &st)
	})
}

// memberStatus returns what rdmactl shows of a membership, or nil.
func memberStatus(m *cluster.Member) *cachestatus.Cluster {
	if m == nil {
		return nil
	}
	s := m.Status()
	c := &cachestatus.Cluster{
		Name: s.Name, ID: s.ID, State: string(s.State), Epoch: s.Epoch, Shards: s.Shards, Planned: s.Planned, Left: s.Left.Seconds(),
		Moves: s.Moves, Given: s.Given, Takeovers: s.Takeovers, Promises: s.Promises, Beats: s.Beats, Missed: s.Missed, Beat: s.Beat.Seconds(),
	}
	for _, one := range s.Members {
		c.Members = append(c.Members, cachestatus.Member(one))
	}
	return c
}

// leave hands over the shards, for as long as the configuration says.
func (d *service) leave(ctx context.Context) {
	if d.member == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(d.config.Cluster.Drain), defaultDrain))
	defer cancel()
	switch err := d.member.Drain(ctx); {
	case errors.Is(err, cluster.ErrLast):
		d.log.Info("the records are lost: there is no other member of the cluster")
	case err != nil:
		d.log.Error("records are lost: not all shards were handed over", "error", err)
	}
}

// follow waits until ctx ends, and returns an error if the membership ends before.
func (d *service) follow(ctx context.Context) error {
	if d.member == nil {
		return nil
	}
	select {
	case <-d.member.Done():
		return d.member.Err()
	case <-ctx.Done():
		return nil
	}
}

// closeMember ends the membership.
func (d *service) closeMember() error {
	if d.member == nil {
		return nil
	}
	return d.member.Close()
}
