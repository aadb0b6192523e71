// Command hitrate sends one trace of gets, with a set after each miss, to caches of the same memory: the server's
// store, an LRU list by bytes that loses nothing to rounding, and memcached, if one listens on a unix socket. It
// needs no RDMA device, and prints what came of it as JSON:
//
//	memcached -m 64 -s /tmp/memcached &
//	hitrate -mix 64MiB_100KB -seed 1 -memcached /tmp/memcached
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "hitrate:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("mix", mixes[0].Name, "`name` of the mix: "+strings.Join(names(), ", "))
	seed := flag.Uint64("seed", 1, "`number` that the trace is made of")
	socket := flag.String("memcached", "", "unix `socket` of a memcached without items")
	flag.Parse()
	m, ok := find(*name)
	if !ok {
		return fmt.Errorf("no mix %q", *name)
	}
	ours, err := newStore(m.Memory)
	if err != nil {
		return err
	}
	sides := []side{ours, newLRU(m.Memory)}
	if *socket != "" {
		theirs, err := dialMemcached(*socket)
		if err != nil {
			return err
		}
		sides = append(sides, theirs)
	}
	results, err := m.run(*seed, sides...)
	if err != nil {
		return err
	}
	perByte, err := ours.perByte()
	if err != nil {
		return err
	}
	out := map[string]any{"ours": results[0], "lru": results[1], "arena_bytes_per_stored_byte": perByte}
	if len(results) > 2 {
		out["memcached"] = results[2]
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func names() (all []string) {
	for _, m := range mixes {
		all = append(all, m.Name)
	}
	return all
}

func find(name string) (mix, bool) {
	for _, m := range mixes {
		if m.Name == name {
			return m, true
		}
	}
	return mix{}, false
}
