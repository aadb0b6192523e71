// Posing starts rdmacached on a simulated device with options of memcached, as its test suite
// passes them. What has no counterpart is ignored: the tests show whether that matters.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "posing:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "-h" {
		fmt.Println("memcached 1.6.18\n-p, --port\n-l, --listen") // neither sockets nor SASL, TLS, extstore
		return nil
	}
	c, err := config(args)
	if err != nil {
		return err
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(os.Getenv("COMPAT_SERVER")), "config")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "rdmacached.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	env := append(os.Environ(), "SIMHCA=mlx5:ipv4", "LD_PRELOAD="+os.Getenv("COMPAT_PRELOAD"))
	server := os.Getenv("COMPAT_SERVER")
	return syscall.Exec(server, []string{server, "-config", path}, env)
}

// config returns the configuration of rdmacached for options of memcached.
func config(args []string) (map[string]any, error) {
	host, port := "127.0.0.1", "11211"
	gateway := map[string]any{}
	c := map[string]any{"listen": "127.0.0.1:0", "device": "mlx5_0", "memory": "64MiB", "gateway": gateway, "log": "warn"}
	// Options with a value that matters. The others are -o for more options, and what is ignored.
	const values = "plmIcYoUutRnfbBaseD"
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.HasPrefix(a, "-") || strings.HasPrefix(a, "--") || len(a) < 2 {
			continue
		}
		option, value := a[1], a[2:]
		if value == "" && strings.IndexByte(values, option) >= 0 && i+1 < len(args) {
			i++
			value = args[i]
		}
		switch option {
		case 'p':
			port = value
		case 'l':
			host = value
		case 'm':
			c["memory"] = value + "MiB"
		case 'I':
			n, err := size(value)
			if err != nil {
				return nil, err
			}
			c["max_value"] = n
		case 'c':
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, err
			}
			gateway["connections"] = n
		case 'Y':
			gateway["users"] = value
		case 'o':
			if seconds, ok := strings.CutPrefix(value, "idle_timeout="); ok {
				gateway["idle"] = seconds + "s"
			}
		}
	}
	gateway["listen"] = host + ":" + port
	return c, nil
}

// size returns the bytes of a size such as 1024, 512k or 32m.
func size(s string) (int, error) {
	unit := 1
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'k', 'K':
			unit, s = 1<<10, s[:n-1]
		case 'm', 'M':
			unit, s = 1<<20, s[:n-1]
		}
	}
	n, err := strconv.Atoi(s)
	return n * unit, err
}
