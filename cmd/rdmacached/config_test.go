package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/verbs"
)

const example = `{
	"listen": "10.77.0.2:7481", "device": "", "memory": "1GiB",
	"huge_pages": "if there are any", "max_value": "1MiB", "lease": "5s", "snapshot": "/var/lib/rdmacached/snapshot",
	"gateway": {"listen": "10.77.0.2:11211", "connections": 1024, "idle": "1m"},
	"dc": {"responders": 64},
	"metrics": "127.0.0.1:9481", "log": "warn"
}`

func TestConfig(t *testing.T) {
	c, err := parseConfig([]byte(example))
	require.NoError(t, err)
	require.Equal(t, size(1<<30), c.Memory)
	require.Equal(t, slog.LevelWarn, c.Log)
	s, err := c.server(nil)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, s.Lease)
	require.Equal(t, 1<<20, s.MaxValue)
	require.Equal(t, "/var/lib/rdmacached/snapshot", s.Snapshot)
	require.Equal(t, verbs.PagesTryHuge, s.Pages)
	require.Equal(t, server.DCConfig{Responders: 64}, s.DC)
	g, err := c.gateway()
	require.NoError(t, err)
	require.Equal(t, time.Minute, g.Idle)
	require.Equal(t, 1<<20, g.MaxItem)
	require.Nil(t, g.TLS)
}

// A key comes from its file, and none is no key at all.
func TestKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	c, err := parseConfig([]byte(`{"listen": ":1", "key": "` + file + `", "clients": 5}`))
	require.NoError(t, err)
	_, err = c.server(nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte(" \n"), 0o600))
	_, err = c.server(nil)
	require.ErrorContains(t, err, "no key")
	require.NoError(t, os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600))
	s, err := c.server(nil)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", string(s.Key))
	require.Equal(t, 5, s.MaxClients)

	c, err = parseConfig([]byte(`{"listen": ":1", "memory": "1MiB", "max_value": 9, "dc": {"responders": 4}, "tenants": {
		"red": {"key": "` + file + `", "memory": "2MiB", "snapshot": "s", "clients": 3}, "blue": {"key": "none", "dc": {}}}}`))
	require.NoError(t, err)
	red, err := c.tenant("red", slog.Default())
	require.NoError(t, err)
	require.Equal(t, []any{"red", "0123456789abcdef", 2 << 20, "s", 3, 9},
		[]any{red.Name, string(red.Key), red.Memory, red.Snapshot, red.MaxClients, red.MaxValue})
	require.Equal(t, server.DCConfig{Responders: 4}, red.DC, "as for all")
	blue, err := c.tenant("blue", slog.Default())
	require.Zero(t, blue.DC)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestConfigRefuses(t *testing.T) {
	for text, why := range map[string]string{
		``:                                       "EOF",
		`{}`:                                     "missing",
		`{"listen": ":1"} more`:                  "",
		`{"listen": ":1"} {}`:                    "follows",
		`{"listen": ":1", "memmory": 5}`:         "memmory",
		`{"listen": ":1", "memory": "5MB"}`:      "bytes",
		`{"listen": ":1", "memory": -5}`:         "bytes",
		`{"listen": ":1", "lease": "5"}`:         "no time",
		`{"listen": ":1", "lease": "-5s"}`:       "below 0",
		`{"listen": ":1", "huge_pages": "some"}`: "none of",
		`{"listen": ":1", "log": "loud"}`:        "",
		`{"listen": ":1", "gateway": {"listen": ":2", "key": "x"}}`: "belong together",
		`{"listen": ":1", "gateway": {"users": "x"}}`:               "listen",

		"{\"listen\": \":1\",\n\"memory\": 5,\n}":                          "line 3",
		`{"listen": "10.77.0.2"}`:                                          "missing port",
		`{"listen": ":1", "metrics": "1"}`:                                 `"metrics"`,
		`{"listen": ":1", "gateway": {"listen": "x"}}`:                     "of the gateway",
		`{"listen": ":1", "gateway": {"listen": ":2", "connections": -1}}`: "below 0",

		`{"listen": ":1", "clients": -1}`:          "below 0",
		`{"listen": ":1", "tenants": {"red": {}}}`: "key",
		`{"listen": ":1", "tenants": {"red": {"key": "k", "snapshot": "s"}, "blue": {"key": "l", "snapshot": "./s"}}}`: "that of",
		`{"listen": ":1", "tenants": {"red": {"key": "k", "clients": -1}}}`:                                            "below 0",
		`{"listen": ":1", "tenants": {"red": {"key": "k"}}, "snapshot": "x"}`:                                          "its own",
		`{"listen": ":1", "tenants": {"red": {"key": "k"}}, "gateway": {"listen": ":2"}}`:                              "none of",
		`{"listen": ":1", "gateway": {"listen": ":2", "tenant": "red"}}`:                                               "none of",
		`{"listen": ":1", "tenants": {"red": {"key": "k"}}, "gateway": {"listen": ":2", "tenant": "blue"}}`:            "none of",
		`{"listen": ":1", "dc": {"responders": -1}}`:                                                                   "not within",
		`{"listen": ":1", "tenants": {"red": {"key": "k", "dc": {"responders": 100000}}}}`:                             "of tenant",
	} {
		_, err := parseConfig([]byte(text))
		require.ErrorContains(t, err, why, text)
	}
	_, err := readConfig(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, start(t.Context(), "", false, nil), "usage")
}

// What -check finds right is not refused when the daemon begins, but for want of a device.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	short, key := write("short", "fifteen bytes.."), write("key", "sixteen bytes...")
	for text, why := range map[string]string{
		`"lease": "1ms"`:                                  "lease",
		`"memory": "3KiB"`:                                "memory",
		`"memory": "1MiB", "max_value": "1MiB"`:           "no room for one",
		`"max_value": "65MiB"`:                            "from 0 to 67108864",
		`"key": "` + short + `"`:                          "shorter than 16",
		`"tenants": {"red": {"key": "` + short + `"}}`:    `tenant "red": cache: key of 15 bytes`,
		`"tenants": {"red": {"key": "` + dir + `/none"}}`: "no such file",
		`"tenants": {"red": {"key": "` + key + `", "memory": "1KiB"}, "blue": {"key": "` + key + `"}}`: `tenant "red": cache: memory`,
	} {
		err := start(t.Context(), write("config", `{"listen": ":1", `+text+`}`), true, nil)
		require.ErrorContains(t, err, why, text)
		err = start(t.Context(), write("config", `{"listen": "127.0.0.1:0", `+text+`}`), false, nil)
		require.Error(t, err, text)
	}
	require.NoError(t, start(t.Context(), write("config", `{"listen": ":1", "tenants": {"red": {"key": "`+key+`"}}}`), true, nil))
	require.NoError(t, start(t.Context(), write("config", `{"listen": ":1", "key": "`+key+`", "max_value": "2MiB"}`), true, nil))
}

// A file of users that admits no client, or every one, is a mistake.
func TestUsers(t *testing.T) {
	u, err := users([]byte("# people\nalice:secret\n\n bob:a:b \n"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"alice": "secret", "bob": "a:b"}, u)
	for _, text := range []string{"", "# nobody", "alice", "alice:", ":x"} {
		_, err := users([]byte(text))
		require.Error(t, err, text)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	file := write("config", `{"listen": ":1", "gateway": {"listen": ":2", "users": "`+write("users", "a:b")+`"}}`)
	require.NoError(t, start(t.Context(), file, true, nil))
	file = write("config", `{"listen": ":1", "gateway": {"listen": ":2", "users": "`+write("users", "")+`"}}`)
	require.ErrorContains(t, start(t.Context(), file, true, nil), "no users")
	file = write("config", `{"listen": ":1", "gateway": {"listen": ":2", "certificate": "`+dir+`/x", "key": "`+dir+`/y"}}`)
	require.ErrorIs(t, start(t.Context(), file, true, nil), os.ErrNotExist)
}
