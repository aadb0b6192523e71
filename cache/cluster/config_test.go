package cluster

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigRefuses(t *testing.T) {
	weight := func(w int) func(*Config) { return func(c *Config) { c.Weight = &w } }
	etcd := func(list ...string) func(*Config) { return func(c *Config) { c.Etcd = list } }
	advertise := func(a string) func(*Config) { return func(c *Config) { c.Advertise = a } }
	const address = "is no address that clients can connect to"
	for what, one := range map[string]struct {
		edit func(*Config)
		why  string
	}{
		"no name":             {func(c *Config) { c.Name = "" }, `name ""`},
		"slash in the name":   {func(c *Config) { c.Name = "a/b" }, `name "a/b"`},
		"no id":               {func(c *Config) { c.ID = "" }, `id ""`},
		"long id":             {func(c *Config) { c.ID = strings.Repeat("a", 64) }, "1 to 63"},
		"zone":                {func(c *Config) { c.Zone = "Z" }, `zone "Z"`},
		"no etcd":             {etcd(), "no address of etcd"},
		"etcd without scheme": {etcd("h:2379"), `"h:2379" is no address of etcd`},
		"etcd without port":   {etcd("http://h"), "is no address of etcd"},
		"etcd with a user":    {etcd("http://u:p@h:1"), "is no address of etcd"},
		"etcd with a query":   {etcd("http://h:1?a=b"), "is no address of etcd"},
		"http and https":      {etcd("http://h:1", "https://h:2"), "some of https"},
		"TLS of http":         {func(c *Config) { c.TLS = &tls.Config{} }, `"http://h:2379" is of http`},
		"no password":         {func(c *Config) { c.User = "u" }, "belong together"},
		"short TTL":           {func(c *Config) { c.TTL = time.Second - time.Millisecond }, "TTL of 999ms"},
		"long TTL":            {func(c *Config) { c.TTL = time.Minute + time.Millisecond }, "from 1s to 1m0s"},
		"odd TTL":             {func(c *Config) { c.TTL = time.Second + time.Microsecond }, "whole ms"},
		"weight below 0":      {weight(-1), "weight of -1"},
		"weight above 100":    {weight(101), "weight of 101"},
		"no address":          {advertise(""), address},
		"no port":             {advertise("10.77.0.2"), address},
		"port 0":              {advertise("10.77.0.2:0"), address},
		"no host":             {advertise(":7481"), address},
		"unspecified":         {advertise("[::]:7481"), address},
		"long address":        {advertise(strings.Repeat("h", 64) + ":7481"), "at most 64 bytes"},
	} {
		c := Config{Name: "prod", ID: "a", Etcd: []string{"http://h:2379"}, Advertise: "10.77.0.2:7481"}
		require.NoError(t, c.Check())
		one.edit(&c)
		require.ErrorContains(t, c.Check(), one.why, what)
		_, err := Join(nil, c)
		require.Equal(t, c.Check(), err, what)
	}
}

// Keys that are none of a cluster are ignored; values that cannot be read stop this server from acting on what etcd has.
func TestKeysThatCannotBeRead(t *testing.T) {
	for key, value := range map[string]string{
		placementKey:            "{}",
		serversKey + "a":        "{}",
		serversKey + "a/x":      "{}",
		serversKey + "a/1":      "{",
		requestsKey + "a":       "[]",
		repliesKey + "a":        "x",
		serversKey + "a/1/2":    `{"weight": 256}`,
		placementKey + "/later": "",
		"later/a":               "",
	} {
		v := emptyView()
		if err := v.add(key, []byte(value), 1); strings.Contains(key, "later") {
			require.NoError(t, err, key)
		} else {
			require.Error(t, err, key)
		}
	}
}

// What another member asks for may be anything.
func TestPromiseIsRefused(t *testing.T) {
	m, _ := draining(t)
	for _, asked := range []string{"", "x", "[]", `{"epoch": -1}`, `{"by": {"ID": "b", "Boot": 1}, "of": {"ID": "x"}, "epoch": 4294967295}`} {
		_, ok := m.promise([]byte(asked))
		require.False(t, ok, asked)
	}
	m.own = nil
	_, ok := m.promise([]byte(`{}`))
	require.False(t, ok, "it has not begun")
}
