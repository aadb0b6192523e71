package gateway

import (
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/accept"
)

// memcachedVersion is that of the memcached with which replies agree. Clients read three numbers and nothing
// behind them: npm's memcached throws at anything else, libmemcached and PHP fail.
const memcachedVersion = "1.6.18"

// resettable are the store's lines that stats reset sets to zero.
var resettable = map[string]bool{
	"total_items": true, "evictions": true, "reclaimed": true, "expired_unfetched": true, "evicted_unfetched": true,
	"rdma_records_moved": true, "rdma_reads_reported": true,
	"rdma_read_hits": true, "rdma_probes": true, "rdma_reads": true, "rdma_calls": true, "rdma_sessions": true,
}

// tellStats replies with the counters of gateway and store. Lines about parts of memcached that are
// not here, such as its LRU crawler, are left out.
func (c *conn) tellStats(t []string) error {
	if len(t) == 1 {
		c.lines(c.s.general())
		return c.say("END")
	}
	switch t[1] {
	case "reset":
		c.s.reset()
		return c.say("RESET")
	case "settings":
		c.lines(c.s.settings())
	case "conns":
		c.lines(c.s.conns())
	case "items":
		c.lines(c.s.items())
	case "slabs":
		c.lines(c.s.slabs())
	case "sizes":
		c.lines(c.s.sizes())
	case "cachedump":
		return c.dump(t)
	case "detail":
		return c.detail(t)
	default:
		return c.say("ERROR")
	}
	return c.say("END")
}

func (c *conn) lines(lines [][2]string) {
	for _, l := range lines {
		_, _ = c.w.WriteString("STAT " + l[0] + " " + l[1] + "\r\n")
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// general returns the lines of stats.
func (s *Server) general() [][2]string {
	now, mine := time.Now(), s.cfg.Store.StatLines()
	user, system := cpuTime()
	s.mu.Lock()
	defer s.mu.Unlock()
	n, open := s.sum().since(&s.base.sums), uint64(len(s.open))
	accepting := uint64(0)
	if !s.closed && !slices.ContainsFunc(slices.Collect(maps.Values(s.heard)), (*accept.Acceptor).Short) {
		accepting = 1
	}
	lines := [][2]string{
		number64("pid", uint64(os.Getpid())), number64("uptime", uint64(now.Sub(s.begun)/time.Second)), number64("time", uint64(now.Unix())),
		{"version", memcachedVersion}, number64("pointer_size", strconv.IntSize), {"rusage_user", seconds(user)}, {"rusage_system", seconds(system)},
		number64("max_connections", uint64(s.cfg.MaxConn)), number64("curr_connections", open),
		number64("total_connections", n[accepted]), number64("rejected_connections", n[rejected]),
		number64("cmd_get", n[getHits]+n[getMisses]), number64("cmd_set", n[stores]), number64("cmd_flush", n[flushes]),
		number64("cmd_touch", n[touchHits]+n[touchMisses]), number64("cmd_meta", n[metas]),
		number64("get_hits", n[getHits]), number64("get_misses", n[getMisses]),
		number64("delete_misses", n[deleteMisses]), number64("delete_hits", n[deleteHits]),
		number64("incr_misses", n[incrMisses]), number64("incr_hits", n[incrHits]),
		number64("decr_misses", n[decrMisses]), number64("decr_hits", n[decrHits]),
		number64("cas_misses", n[casMisses]), number64("cas_hits", n[casHits]), number64("cas_badval", n[casMismatches]),
		number64("touch_hits", n[touchHits]), number64("touch_misses", n[touchMisses]),
		number64("store_too_large", n[tooLarge]), number64("store_no_memory", n[noMemory]),
		number64("auth_cmds", n[passwords]), number64("auth_errors", n[passwordErrors]),
		number64("bytes_read", n[bytesRead]), number64("bytes_written", n[bytesWritten]),
		number64("idle_kicks", n[idleKicks]), number64("accepting_conns", accepting), number64("listen_disabled_num", n[shortages]),
		number64("threads", uint64(runtime.GOMAXPROCS(0))), number64("binary_refused", n[binaryRefused]),
	}
	for _, l := range mine {
		if v, err := strconv.ParseUint(l[1], 10, 64); err == nil && resettable[l[0]] {
			l[1] = u64(v - s.base.store[l[0]])
		}
		lines = append(lines, l)
	}
	return lines
}

// seconds returns a time as memcached writes it: with microseconds.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%d.%06d", d/time.Second, d%time.Second/time.Microsecond)
}

// reset makes the stats command count from now on. What Stats returns stays.
func (s *Server) reset() {
	base := baseline{store: map[string]uint64{}, ranges: map[int]kv.Events{}}
	for _, l := range s.cfg.Store.StatLines() {
		if v, err := strconv.ParseUint(l[1], 10, 64); err == nil {
			base.store[l[0]] = v
		}
	}
	if in, ok := s.cfg.Store.(Inspector); ok {
		for _, r := range in.Ranges() {
			base.ranges[r.ID] = r.Events
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	base.sums = s.sum()
	s.base = base
	s.details.clear()
}

// settings returns the lines of stats settings.
func (s *Server) settings() [][2]string {
	by := s.access.Load()
	lines := [][2]string{
		number64("maxconns", uint64(s.cfg.MaxConn)), number64("item_size_max", uint64(s.cfg.MaxItem)),
		number64("idle_timeout", uint64(s.cfg.Idle/time.Second)), number64("num_threads", uint64(runtime.GOMAXPROCS(0))),
		{"udpport", "0"}, {"verbosity", "0"}, {"evictions", "on"}, {"cas_enabled", "yes"}, {"flush_enabled", "yes"},
		{"binding_protocol", "ascii"}, {"maxconns_fast", "yes"}, {"shutdown_command", "no"}, {"stat_key_prefix", prefixEnd},
		{"detail_enabled", yes(s.details.on.Load())}, {"auth_enabled_ascii", yes(len(by.users) > 0)}, {"auth_enabled_sasl", "no"},
		{"ssl_enabled", yes(by.tls != nil)}, {"ssl_min_version", "tlsv1.3"},
		{"lru_crawler", "no"}, {"slab_reassign", "no"}, {"slab_automove", "0"},
	}
	for _, l := range s.cfg.Store.StatLines() {
		if l[0] == "limit_maxbytes" {
			lines = append(lines, [2]string{"maxbytes", l[1]})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	port, host, socket := "0", "NULL", "NULL" // of one listener of each kind
	for l := range s.heard {
		switch at := l.Addr().(type) {
		case *net.TCPAddr:
			port, host = strconv.Itoa(at.Port), at.IP.String()
		default:
			socket = at.String()
		}
	}
	return append(lines, [2]string{"tcpport", port}, [2]string{"inter", host}, [2]string{"domain_socket", socket})
}

// conns returns the lines of stats conns. Connections have numbers in the order in which they came.
func (s *Server) conns() (lines [][2]string) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.open))
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *inbound) int { return int(a.id) - int(b.id) })
	for _, c := range all {
		line := func(name, value string) { lines = append(lines, [2]string{u64(c.id) + ":" + name, value}) }
		line("addr", address(c.RemoteAddr()))
		line("listen_addr", address(c.LocalAddr()))
		if c.reading.Load() {
			line("state", "conn_waiting")
		} else {
			line("state", "conn_parse_cmd")
		}
		line("secs_since_last_cmd", strconv.Itoa(int((time.Since(s.begun)-time.Duration(c.heard.Load()))/time.Second)))
	}
	return lines
}

// address returns an address as memcached writes it, without spaces.
func address(a net.Addr) string {
	return a.Network() + ":" + strings.ReplaceAll(a.String(), " ", "_")
}

// detail switches the counters of prefixes on or off, or lists them.
func (c *conn) detail(t []string) error {
	what := ""
	if len(t) > 2 {
		what = t[2]
	}
	switch what {
	case "on", "off":
		c.s.details.on.Store(what == "on")
		return c.say("OK")
	case "dump":
		_, _ = c.w.WriteString(c.s.details.String())
		return c.say("END")
	}
	return c.say("CLIENT_ERROR usage: stats detail on|off|dump")
}
