package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/verbs"
)

// config is the configuration file.
type config struct {
	Listen    string                  `json:"listen"`
	Names     []string                `json:"names"`
	Device    string                  `json:"device"`
	Memory    size                    `json:"memory"`
	HugePages huge                    `json:"huge_pages"`
	MaxValue  size                    `json:"max_value"`
	Lease     duration                `json:"lease"`
	Snapshot  string                  `json:"snapshot"`
	Key       string                  `json:"key"` // a file
	Clients   int                     `json:"clients"`
	DC        dcConfig                `json:"dc"`
	Tenants   map[string]tenantConfig `json:"tenants"`
	Cluster   *clusterConfig          `json:"cluster"`
	Gateway   struct {
		Listen      string   `json:"listen"`
		Tenant      string   `json:"tenant"`
		Certificate string   `json:"certificate"`
		Key         string   `json:"key"`
		Users       string   `json:"users"`
		Connections int      `json:"connections"`
		Idle        duration `json:"idle"`
	} `json:"gateway"`
	Metrics string     `json:"metrics"`
	Log     slog.Level `json:"log"`

	text []byte // of the file
}

// size is bytes, as a number or as in "64MiB".
type size int

var units = []struct {
	name  string
	bytes int
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

func (s *size) UnmarshalJSON(b []byte) error {
	text, unit := strings.Trim(string(b), `"`), 1
	for _, u := range units {
		if t, ok := strings.CutSuffix(text, u.name); ok {
			text, unit = t, u.bytes
			break
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 || n > (1<<62)/unit {
		return fmt.Errorf("%s is no number of bytes, such as 1048576 or \"64MiB\"", b)
	}
	*s = size(n * unit)
	return nil
}

type duration time.Duration

func (d *duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	switch {
	case err != nil:
		err = fmt.Errorf("%q is no time, such as \"5s\"", b)
	case v < 0:
		err = fmt.Errorf("%q is below 0", b)
	}
	*d = duration(v)
	return err
}

type huge verbs.PageSize

var hugeNames = map[string]verbs.PageSize{"no": verbs.PagesNormal, "if there are any": verbs.PagesTryHuge, "yes": verbs.PagesHuge}

func (h *huge) UnmarshalText(b []byte) error {
	v, ok := hugeNames[string(b)]
	if !ok {
		return fmt.Errorf("%q is none of no, yes, \"if there are any\"", b)
	}
	*h = huge(v)
	return nil
}

// configError is an error of the configuration or of a file that it names: the next start would find it again.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// readConfig reads the configuration file. What it does not know is an error. Each is a [configError].
func readConfig(path string) (config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return config{}, configError{err}
	}
	c, err := parseConfig(b)
	if err != nil {
		return config{}, configError{fmt.Errorf("%s: %w", path, err)}
	}
	return c, nil
}

func parseConfig(b []byte) (config, error) {
	c := config{text: b}
	err := decode(b, &c)
	if err == nil {
		err = repeated(b)
	}
	if err == nil {
		err = c.checkKeys()
	}
	if err != nil {
		err = locate(b, err)
	}
	return c, err
}

// checkKeys returns what is wrong with the values by themselves and with each other.
func (c *config) checkKeys() error {
	switch {
	case c.Listen == "":
		return errors.New(`"listen" is missing: the address for RDMA clients`)
	case (c.Gateway.Certificate == "") != (c.Gateway.Key == ""):
		return at("gateway", errors.New(`"certificate" and "key" of the gateway belong together`))
	case c.Gateway.Listen == "" && (c.Gateway.Certificate != "" || c.Gateway.Users != ""):
		return at("gateway", errors.New(`"listen" of the gateway is missing`))
	case c.Gateway.Connections < 0:
		return at("gateway.connections", errors.New(`"connections" of the gateway is below 0`))
	}
	for _, a := range [...]struct{ key, what, address string }{
		{"listen", `"listen"`, c.Listen}, {"gateway.listen", `"listen" of the gateway`, c.Gateway.Listen}, {"metrics", `"metrics"`, c.Metrics},
	} {
		if _, _, err := net.SplitHostPort(a.address); err != nil && a.address != "" {
			return at(a.key, fmt.Errorf("%s is no address, such as 10.77.0.2:7481: %w", a.what, err))
		}
	}
	return errors.Join(c.checkTenants(), c.checkCluster())
}

func (c *config) server(log *slog.Logger) (s server.Config, err error) {
	var key []byte
	if c.Key != "" {
		key, err = readKey(c.Key)
	}
	return server.Config{
		Key: key, MaxClients: c.Clients, DC: c.DC.server(),
		Names: c.Names, Device: c.Device, Memory: int(c.Memory), Pages: verbs.PageSize(c.HugePages),
		MaxValue: int(c.MaxValue), Lease: time.Duration(c.Lease), Snapshot: c.Snapshot, Logger: log,
	}, err
}

// gateway returns the gateway's configuration, with what is in its files.
func (c *config) gateway() (gateway.Config, error) {
	g := gateway.Config{MaxConn: c.Gateway.Connections, Idle: time.Duration(c.Gateway.Idle), MaxItem: int(c.MaxValue)}
	if c.Gateway.Certificate != "" {
		cert, err := tls.LoadX509KeyPair(c.Gateway.Certificate, c.Gateway.Key)
		if err != nil {
			return g, at("gateway.certificate", fmt.Errorf("gateway.certificate and gateway.key: %w", err))
		}
		g.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	if c.Gateway.Users != "" {
		b, err := os.ReadFile(c.Gateway.Users)
		if err != nil {
			return g, at("gateway.users", fmt.Errorf("gateway.users: %w", err))
		}
		if g.Users, err = users(b); err != nil {
			return g, at("gateway.users", fmt.Errorf("gateway.users: %s: %w", c.Gateway.Users, err))
		}
	}
	return g, nil
}

// users returns the lines "name:password" of a file. None at all would admit every client.
func users(b []byte) (map[string]string, error) {
	all := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, password, ok := strings.Cut(line, ":")
		if !ok || name == "" || password == "" {
			return nil, fmt.Errorf("line %d is not name:password", n)
		}
		all[name] = password
	}
	if len(all) == 0 {
		return nil, errors.New("no users")
	}
	return all, lines.Err()
}
