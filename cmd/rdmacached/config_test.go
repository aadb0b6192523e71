package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/sysroot"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
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
		``:                                       "line 1: the file is empty",
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

		`{"listen": ":1", "cluster": {}}`: "name",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "H 1", "etcd": ["http://h:2379"], "advertise": "h:1"}}`:                                      "id",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "h1", "advertise": "h:1"}}`:                                                                  "etcd",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "h1", "etcd": ["ftp://h:2379"], "advertise": "h:1"}}`:                                        "etcd",
		`{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1", "http://h:2"], "advertise": "h:1"}}`:                               "some of https",
		`{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1"], "advertise": "h:1", "certificate": "c"}}`:                         "belong together",
		`{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1"], "advertise": "h:1", "certificate": "c", "certificate_key": "k"}}`: "cluster.certificate",
		`{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1"], "advertise": "h:1", "ca": "none"}}`:                               "cluster.ca",
		`{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1"], "advertise": "h:1", "ca": "config.go"}}`:                          "no certificate",
		`{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1"], "advertise": "h:1", "user": "u"}}`:                                "belong together",
		`{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1"], "advertise": "h:1", "user": "u", "password": "none"}}`:            "cluster.password",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "h1", "etcd": ["http://h:2379/x"], "advertise": "h:1"}}`:                                     "etcd",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "h1", "etcd": ["http://h:2379"], "advertise": "0.0.0.0:1"}}`:                                 "connect to",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "h1", "etcd": ["http://h:2379"], "advertise": "h:1", "weight": 101}}`:                        "weight",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "h1", "etcd": ["http://h:2379"], "advertise": "h:1", "ttl": "500ms"}}`:                       "TTL",
		`{"listen": ":1", "cluster": {"name": "prod", "id": "h1", "etcd": ["http://h:2379"], "advertise": "h:1", "zone": "a b"}}`:                        "zone",
		`{"listen": ":1", "snapshot": "s", "cluster": {"name": "prod", "id": "h1", "etcd": ["http://h:2379"], "advertise": "h:1"}}`:                      "exclude",
		`{"listen": ":1", "gateway": {"listen": ":2"}, "cluster": {"name": "p", "id": "a", "etcd": ["http://h:1"], "advertise": "h:1"}}`:                 "exclude",
		`{"listen": ":1", "tenants": {"red": {"key": "k"}}, "cluster": {"name": "p", "id": "a", "etcd": ["http://h:1"], "advertise": "h:1"}}`:            "exclude",
	} {
		_, err := parseConfig([]byte(text))
		require.ErrorContains(t, err, why, text)
	}
	_, err := readConfig(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, start(t.Context(), "", false, nil), "usage")
}

// An error says where in the file it is.
func TestConfigErrorsHaveLines(t *testing.T) {
	for text, want := range map[string]string{
		"\n\"memmory\": 5":        `line 3: "memmory": there is no such key`,
		"\n\"memory\":\n \"5MB\"": `line 3: "memory": "5MB" is no number of bytes`,
		"\n\"names\": \"a:1\"":    `line 3: "names": a value of type string in the place of a list`,
		"\n\"gateway\": {\n\"listen\": \":2\",\n\"idle\": \"5\"}":            `line 5: "gateway.idle": "5" is no time`,
		"\n\"gateway\": {\n\"connections\": \"x\"}":                          `line 4: "gateway.connections": a value of type string in the place of a whole number`,
		"\n\"gateway\": {\n\"idle\": 5}":                                     `line 4: "gateway.idle": a value of type number in the place of a string`,
		"\n\n\"gateway\": []":                                                `line 4: "gateway": a value of type array in the place of an object`,
		"\n\"gateway\": {\n\"door\": {\"a\": 1}}":                            `line 4: "gateway.door": there is no such key`,
		"\n\"dc\": {\n\"responders\": -1}":                                   `line 3: "responders" of "dc" is not within`,
		"\n\"gateway\": {\n\"listen\": \":2\",\n\"connections\": -1}":        `line 5: "connections" of the gateway`,
		"\n\"metrics\": \"1\"":                                               `line 3: "metrics" is no address`,
		"\n\"tenants\": {\n\"red\": {},\n\"blue\": {\"clients\": \"x\"}}":    `line 5: "tenants.blue.clients": a value of type string`,
		"\n\"tenants\": {\n\"a\": {\"key\": \"k\"},\n\"b\": {\n\"key\": 3}}": `line 6: "tenants.b.key": a value of type number in the place of a string`,
		"\n\"tenants\": {\n\"a\": {\"key\": \"k\"},\n\"b\": {}}":             `line 5: "key" of tenant "b" is missing`,
		"\n\"lease\": \"1s\",\n\"lease\": \"2s\"":                            `line 4: "lease": the key is there twice`,
		"\n\"Listen\": \":2\"":                                               `line 3: "Listen": the key is there twice`,
		"\n\"gateway\": {\n\"idle\": \"1s\",\n\"IDLE\": \"2s\"}":             `line 5: "gateway.IDLE": the key is there twice`,
		"\n\"tenants\": {\"a\": {\"key\": \"k\"},\n\"a\": {\"key\": \"l\"}}": `line 4: "tenants.a": the key is there twice`,
		"\n\"log\":\n 5,,":                                                   `line 4: `,
	} {
		_, err := parseConfig([]byte("{\n\"listen\": \":1\"," + text + "\n}\n"))
		require.ErrorContains(t, err, want, text)
	}
	_, err := parseConfig([]byte("{\n\"listen\": \":1\",\n"))
	require.ErrorContains(t, err, "line 3: the text ends")
	_, err = parseConfig([]byte("{\n\"listen\": \":1\"}\n\n{}"))
	require.ErrorContains(t, err, "line 4: something follows")
	_, err = parseConfig([]byte(`{"listen": ":1", "tenants": {"a": {"key": "k"}, "A": {"key": "k"}}}`))
	require.NoError(t, err, "names of tenants differ in case")
	file := filepath.Join(t.TempDir(), "rdmacached.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"listen": ":1", "memory": "x"}`), 0o600))
	err = start(t.Context(), file, true, nil)
	require.ErrorContains(t, err, file+`: line 1: "memory": "x" is no number`)
	require.Equal(t, 78, exitStatus(err))
}

// requireRight requires that -check finds nothing wrong but the want of a device, which these tests have
// only if lo's addresses are those of simulated ones.
func requireRight(t *testing.T, err error) {
	t.Helper()
	if sysroot.StandIn() {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, netpath.ErrNotRDMA)
	require.ErrorContains(t, err, `line 1: "listen": `)
	require.NotContains(t, err.Error(), "\n", "one error")
	require.Equal(t, 1, exitStatus(err), "the device may come later")
}

// What -check finds right is not refused when the daemon begins.
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
		`"tenants": {"red": {"key": "` + short + `"}}`:    `"tenants.red.key": cache: key of 15 bytes`,
		`"tenants": {"red": {"key": "` + dir + `/none"}}`: "no such file",
		`"tenants": {"red": {"key": "` + key + `", "memory": "1KiB"}, "blue": {"key": "` + key + `"}}`: `"tenants.red.memory": cache: memory`,
		`"memory": "1023TiB"`:                                                          "this host has",
		`"snapshot": "` + dir + `/none/snapshot"`:                                      "no such file",
		`"snapshot": "` + dir + `"`:                                                    dir + " is no file",
		`"tenants": {"red": {"key": "` + key + `", "memory": "1023TiB"}}`:              `"tenants.red.memory": cache: memory`,
		`"tenants": {"red": {"key": "` + key + `", "snapshot": "` + dir + `/none/s"}}`: `"tenants.red.snapshot": cache: snapshot`,
	} {
		file := write("config", `{"listen": "127.0.0.1:1", `+text+`}`)
		err := start(t.Context(), file, true, nil)
		require.ErrorContains(t, err, why, text)
		require.ErrorContains(t, err, file+": ")
		require.Equal(t, 78, exitStatus(err), text)
		require.Equal(t, err, start(t.Context(), file, false, nil), "the daemon does not start")
	}
	half := strconv.FormatUint(machineMemory(t)/3*2, 10)
	require.ErrorContains(t, start(t.Context(), write("config", `{"listen": "127.0.0.1:1", "memory": `+half+`, "tenants": {"red": {"key": "`+key+`"}, "blue": {"key": "`+key+`"}}}`), true, nil), "this host has")
	requireRight(t, start(t.Context(), write("config", `{"listen": "127.0.0.1:1", "tenants": {"red": {"key": "`+key+`"}}}`), true, nil))
	requireRight(t, start(t.Context(), write("config", `{"listen": "127.0.0.1:1", "snapshot": "`+dir+`/snapshot"}`), true, nil))
	require.NoFileExists(t, dir+"/snapshot")
	requireRight(t, start(t.Context(), write("config", `{"listen": "127.0.0.1:1", "key": "`+key+`", "max_value": "2MiB"}`), true, nil))
}

// An error that -check finds has file, line and key, and there may be several.
func TestCheckErrorsHaveLines(t *testing.T) {
	dir := t.TempDir()
	file, key := filepath.Join(dir, "rdmacached.json"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(key, []byte("sixteen bytes..."), 0o600))
	for text, want := range map[string]string{
		"\n\"listen\": \"192.0.2.1:7481\"":                                                                          `line 2: "listen": no interface of this host has the address 192.0.2.1`,
		"\n\"listen\": \":7481\"":                                                                                   `line 2: "listen": an address of all devices`,
		"\n\"listen\": \"[::]:7481\"":                                                                               `line 2: "listen": an address of all devices`,
		"\n\"listen\": \"127.0.0.1:no-such-port\"":                                                                  `line 2: "listen": lookup tcp/no-such-port: unknown port`,
		"\"listen\": \"127.0.0.1:1\",\n\"metrics\": \"192.0.2.1:9481\"":                                             `line 2: "metrics": no interface of this host has the address 192.0.2.1`,
		"\"listen\": \"127.0.0.1:1\",\n\"gateway\": {\"listen\": \"192.0.2.1:1\"}":                                  `line 2: "gateway.listen": no interface of this host has the address 192.0.2.1`,
		"\"listen\": \"127.0.0.1:1\",\n\"device\": \"mlx5_99\"":                                                     `line 2: "device": `,
		"\"listen\": \"127.0.0.1:1\",\n\"lease\": \"1ms\"":                                                          `line 2: "lease": cache: lease`,
		"\"listen\": \"127.0.0.1:1\",\n\"snapshot\": \"/none/s\"":                                                   `line 2: "snapshot": cache: snapshot`,
		"\"listen\": \"127.0.0.1:1\",\n\"key\": \"/none/k\"":                                                        `line 2: "key": key: open`,
		"\"listen\": \"127.0.0.1:1\",\n\n\"memory\": \"1KiB\",\n\"tenants\": {\"red\": {\"key\": \"" + key + "\"}}": `line 3: "tenants.red.memory": cache: memory`,
		"\"listen\": \"127.0.0.1:1\",\n\"memory\": \"1KiB\",\n\"tenants\": {\"red\": {\"key\": \"" + key + "\",\n\"memory\": \"2KiB\"}}": `line 4: "tenants.red.memory": cache: memory`,
		"\"listen\": \"127.0.0.1:1\",\n\"gateway\": {\n\"listen\": \":2\", \"users\": \"/none/u\"}":                                      `line 3: gateway.users: open`,
	} {
		require.NoError(t, os.WriteFile(file, []byte("{"+text+"}"), 0o600))
		require.ErrorContains(t, start(t.Context(), file, true, nil), file+": "+want, text)
	}
	require.NoError(t, os.WriteFile(file, []byte(`{"listen": "192.0.2.1:1"}`), 0o600))
	require.Equal(t, 1, exitStatus(start(t.Context(), file, false, nil)), "the address may come later")
	require.NoError(t, os.WriteFile(file, []byte("{\"listen\": \"127.0.0.1:1\",\n\"lease\": \"1ms\",\n\"gateway\": {\"listen\": \"192.0.2.1:1\"}}"), 0o600))
	err := start(t.Context(), file, true, nil)
	require.Equal(t, 78, exitStatus(err))
	require.ErrorContains(t, err, file+`: line 2: "lease"`)
	require.ErrorContains(t, err, file+`: line 3: "gateway.listen"`)
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
	file := write("config", `{"listen": "127.0.0.1:1", "gateway": {"listen": ":2", "users": "`+write("users", "a:b")+`"}}`)
	requireRight(t, start(t.Context(), file, true, nil))
	file = write("config", `{"listen": "127.0.0.1:1", "gateway": {"listen": ":2", "users": "`+write("users", "")+`"}}`)
	require.ErrorContains(t, start(t.Context(), file, true, nil), "no users")
	file = write("config", `{"listen": "127.0.0.1:1", "gateway": {"listen": ":2", "certificate": "`+dir+`/x", "key": "`+dir+`/y"}}`)
	require.ErrorIs(t, start(t.Context(), file, true, nil), os.ErrNotExist)
}

// machineMemory returns the bytes of memory that this host has.
func machineMemory(t *testing.T) uint64 {
	b, err := os.ReadFile("/proc/meminfo")
	require.NoError(t, err)
	var kib uint64
	_, err = fmt.Sscanf(string(b), "MemTotal: %d kB", &kib)
	require.NoError(t, err)
	return kib << 10
}

// What is in the files for etcd is in the configuration of the membership.
func TestClusterConfig(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	parse := func() (config, error) {
		return parseConfig(fmt.Appendf(nil, `{"listen": ":1", "cluster": {"name": "p", "id": "a", "etcd": ["https://h:1"], "advertise": "h:1",
			"user": "u", "password": %q}}`, password))
	}
	c, err := parse()
	require.NoError(t, err)
	m, err := c.Cluster.member([]byte("key"), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"u", "secret", "key"}, []string{m.User, m.Password, string(m.Client.Key)})
	require.Nil(t, m.TLS, "the authorities of this host")
	require.NoError(t, os.WriteFile(password, []byte(" \n"), 0o600))
	_, err = parse()
	require.ErrorContains(t, err, "is empty")
}

// The commands for operators need a file with a cluster, and at most one id.
func TestOperateRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rdmacached.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"listen": ":1"}`), 0o600))
	for _, c := range []struct {
		args []string
		why  string
	}{
		{nil, "usage: rdmacached drain"},
		{[]string{"-config", file, "a", "b"}, "usage"},
		{[]string{"-config", file}, `there is no "cluster"`},
		{[]string{"-config", file + "x"}, "no such file"},
		{[]string{"-weight", "1"}, "not defined"},
	} {
		require.ErrorContains(t, operate(t.Context(), "drain", c.args, io.Discard), c.why)
	}
}
