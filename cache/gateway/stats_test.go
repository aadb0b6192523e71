package gateway

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
)

// stats returns the lines of a stats command.
func (p *peer) stats(command string) map[string]string {
	p.t.Helper()
	text, ok := strings.CutSuffix(p.ask(command+"\r\n"), "END\r\n")
	require.True(p.t, ok, command)
	all := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		require.Len(p.t, f, 3, "%q", line)
		require.Equal(p.t, "STAT", f[0])
		require.NotContains(p.t, all, f[1])
		all[f[1]] = f[2]
	}
	return all
}

// Clients take the version for three numbers: one behind which anything follows ends programs with
// npm's memcached, and one that does not begin with a number is an error for libmemcached.
func TestVersion(t *testing.T) {
	_, addr := newServer(t, Config{})
	p := dial(t, "tcp", addr)
	v := p.ask("version\r\n")
	require.Regexp(t, `^VERSION \d+\.\d+\.\d+\r\n$`, v)
	require.Equal(t, "VERSION "+p.stats("stats")["version"]+"\r\n", v)
}

// What memcached's clients and prometheus/memcached_exporter read of the stats command is there, and
// is a number.
func TestStatsFields(t *testing.T) {
	_, addr := newServer(t, Config{})
	all := dial(t, "tcp", addr).stats("stats")
	fields := `pid uptime time pointer_size threads
		max_connections curr_connections total_connections rejected_connections accepting_conns listen_disabled_num idle_kicks
		cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses delete_hits delete_misses incr_hits incr_misses decr_hits decr_misses
		cas_hits cas_misses cas_badval touch_hits touch_misses auth_cmds auth_errors store_too_large store_no_memory
		bytes_read bytes_written curr_items total_items limit_maxbytes`
	for _, f := range strings.Fields(fields) {
		_, err := strconv.ParseUint(all[f], 10, 64)
		require.NoError(t, err, f)
	}
	for _, f := range []string{"rusage_user", "rusage_system"} {
		require.Regexp(t, `^\d+\.\d{6}$`, all[f])
	}
}

// Each command counts as with memcached.
func TestStatsAgainstMemcached(t *testing.T) {
	theirs := memcached(t)
	_, addr := newServer(t, Config{})
	ours := dial(t, "tcp", addr)
	names := strings.Fields(`cmd_get cmd_set cmd_flush cmd_touch get_hits get_misses delete_hits delete_misses incr_hits incr_misses
		decr_hits decr_misses cas_hits cas_misses cas_badval touch_hits touch_misses store_too_large store_no_memory total_items`)
	count := func(p *peer, command string) map[string]int {
		before := p.stats("stats")
		p.ask(command)
		after, grown := p.stats("stats"), map[string]int{}
		for _, n := range names {
			a, err1 := strconv.Atoi(after[n])
			b, err2 := strconv.Atoi(before[n])
			require.NoError(t, err1, n)
			require.NoError(t, err2, n)
			if a != b {
				grown[n] = a - b
			}
		}
		return grown
	}
	long := strings.Repeat("x", 2<<20)
	counted := 0
	for _, command := range []string{
		"set a 0 0 1\r\nx\r\n", "get a b\r\n", "gets a\r\n", "gat 0 a b\r\n", "touch a 0\r\n", "touch b 0\r\n",
		"mg a v\r\n", "mg b v\r\n", "mg a T0\r\n", "mg new N0 v\r\n", "mg new N0 v\r\n", "mg new s\r\n", "me a\r\n", "me b\r\n",
		"add a 0 0 1\r\nx\r\n", "replace none 0 0 1\r\nx\r\n", "append none 0 0 1\r\nx\r\n", "append a 0 0 1\r\nx\r\n",
		"cas none 0 0 1 7\r\nx\r\n", "cas a 0 0 1 999999\r\nx\r\n", "ms none 1 C9\r\nx\r\n", "ms a 1 C999999\r\nx\r\n", "ms a 1\r\nx\r\n",
		"ms a 1 I C1\r\nx\r\n", "ms none 1 MA\r\nx\r\n",
		"set n 0 0 1\r\n1\r\n", "incr n 1\r\n", "incr a 1\r\n", "incr b 1\r\n", "decr n 1\r\n", "decr b 1\r\n",
		"ma n\r\n", "ma b\r\n", "ma b N0\r\n", "ma n MD\r\n", "ma n C999999\r\n",
		"delete n\r\n", "delete n\r\n", "md a C999999\r\n", "md a I\r\n", "md a\r\n", "md a\r\n",
		fmt.Sprintf("set long 0 0 %d\r\n%s\r\n", len(long), long), fmt.Sprintf("ms long %d\r\n%s\r\n", len(long), long),
		"set e 0 -1 1\r\nx\r\n", "get e\r\n", "set k 0 0 1 noreply\r\nx\r\n", "get k " + strings.Repeat("k", 251) + "\r\n",
		"flush_all\r\n", "flush_all 0\r\n", "get k\r\n", "verbosity 1\r\n", "nonsense\r\n",
	} {
		want := count(theirs, command)
		require.Equal(t, want, count(ours, command), "%.40q", command)
		counted += len(want)
	}
	require.Greater(t, counted, 50, "memcached counts, too")
}

// Bytes are those of the connection, and connections are counted whatever becomes of them.
func TestStatsOfConnections(t *testing.T) {
	_, addr := newServer(t, Config{MaxConn: 2})
	require.Equal(t, "END\r\n", dial(t, "tcp", addr).rest("get a\r\nquit\r\n"))
	p := dial(t, "tcp", addr)
	require.Eventually(t, func() bool { return p.stats("stats")["curr_connections"] == "1" }, stuck, time.Millisecond)
	before := p.stats("stats")
	require.Equal(t, []string{"1", "2"}, []string{before["get_misses"], before["total_connections"]}, "what has ended counts")
	one := dial(t, "tcp", addr)
	require.Equal(t, "END\r\n", one.ask("get b\r\n"))
	require.Equal(t, "ERROR Too many open connections\r\n", dial(t, "tcp", addr).rest(""))
	after := p.stats("stats")
	for name, want := range map[string]int{
		"curr_connections": 1, "total_connections": 2, "rejected_connections": 1, "accepting_conns": 0, "cmd_get": 1,
		"bytes_read": len("get b\r\nmn\r\n" + "stats\r\nmn\r\n"),
	} {
		a, _ := strconv.Atoi(after[name])
		b, _ := strconv.Atoi(before[name])
		require.Equal(t, want, a-b, name)
	}
	require.NotEqual(t, before["bytes_written"], after["bytes_written"])

	conns := p.stats("stats conns")
	require.Len(t, conns, 8)
	require.Equal(t, "conn_parse_cmd", conns["2:state"])
	require.Eventually(t, func() bool { return p.stats("stats conns")["3:state"] == "conn_waiting" }, stuck, time.Millisecond)
	require.Equal(t, "tcp:"+p.nc.LocalAddr().String(), conns["2:addr"])
	require.Equal(t, "tcp:"+addr, conns["3:listen_addr"])
	require.Contains(t, conns, "3:secs_since_last_cmd")
}

// A connection that was silent for too long is counted, and one that ends by itself is not.
func TestIdleKicks(t *testing.T) {
	s, addr := newServer(t, Config{Idle: 100 * time.Millisecond})
	require.Empty(t, dial(t, "tcp", addr).rest("quit\r\n"))
	require.Empty(t, dial(t, "tcp", addr).rest(""))
	require.Eventually(t, func() bool { return s.Stats().Connections == 0 }, stuck, time.Millisecond)
	require.Equal(t, uint64(1), s.Stats().IdleKicks)
}

func TestStatsSettings(t *testing.T) {
	s, addr := newServer(t, Config{MaxConn: 7, MaxItem: 5000, Idle: time.Minute})
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	p := dial(t, "tcp", addr)
	got := p.stats("stats settings")
	for name, want := range map[string]string{
		"maxconns": "7", "item_size_max": "5000", "idle_timeout": "60", "tcpport": port, "inter": "127.0.0.1", "domain_socket": "NULL", "maxbytes": u64(8 * 8 << 20),
		"auth_enabled_ascii": "no", "ssl_enabled": "no", "detail_enabled": "no", "lru_crawler": "no", "cas_enabled": "yes",
	} {
		require.Equal(t, want, got[name], name)
	}
	s.Admit(nil, map[string]string{"ann": "secret"})
	p.ask("stats detail on\r\n")
	got = p.stats("stats settings")
	require.Equal(t, []string{"yes", "yes"}, []string{got["auth_enabled_ascii"], got["detail_enabled"]})
}

// A reset sets what stats shows to zero, but not what Prometheus is told.
func TestStatsReset(t *testing.T) {
	s, addr := newServer(t, Config{})
	p := dial(t, "tcp", addr)
	p.ask("set a 0 0 1\r\nx\r\nget a b\r\ndelete a\r\nset n 0 0 1\r\n1\r\nstats detail on\r\nget u:1\r\n")
	before := p.stats("stats")
	require.Equal(t, []string{"1", "2", "2", "1"}, []string{before["get_hits"], before["get_misses"], before["total_items"], before["curr_items"]})
	require.Equal(t, "RESET\r\n", p.ask("stats reset\r\n"))
	after := p.stats("stats")
	for _, name := range strings.Fields("get_hits get_misses cmd_set delete_hits total_items total_connections") {
		require.Equal(t, "0", after[name], name)
	}
	require.Equal(t, []string{"1", "1"}, []string{after["curr_items"], after["curr_connections"]})
	require.Equal(t, "END\r\n", p.ask("stats detail dump\r\n"))
	slabs := p.stats("stats slabs")
	require.Equal(t, []string{"1", "0"}, []string{slabs["7:used_chunks"], slabs["7:cmd_set"]})
	require.Equal(t, []uint64{3, 1}, []uint64{s.Stats().Gets, s.Stats().Hits})
	require.Equal(t, "VALUE n 0 1\r\n1\r\nEND\r\n", p.ask("get n\r\n"))
	require.Equal(t, "1", p.stats("stats")["get_hits"])
}

var listed = regexp.MustCompile(`(?m)^ITEM (\S+) \[(\d+) b; (\d+) s\]\r$`)

// Records are shown by ranges of sizes, in the place of slabs.
func TestStatsOfRanges(t *testing.T) {
	_, addr := newServer(t, Config{})
	p := dial(t, "tcp", addr)
	for i := range 3 {
		p.ask(fmt.Sprintf("set short%d 0 0 1\r\n1\r\n", i))
	}
	p.ask(fmt.Sprintf("set long 0 1000 3000\r\n%s\r\n", strings.Repeat("x", 3000)))
	p.ask("get short0 long\r\ngat 2000 long\r\nincr short1 1\r\nincr short1 1\r\ndecr short1 1\r\ndelete short2\r\ncas short0 0 0 1 5\r\nx\r\n")

	items := p.stats("stats items")
	require.Equal(t, []string{"2", "1"}, []string{items["items:7:number"], items["items:12:number"]})
	require.Equal(t, "0", items["items:12:evicted"])
	require.NotContains(t, items, "items:8:number")

	slabs := p.stats("stats slabs")
	for name, want := range map[string]string{
		"7:chunk_size": "128", "7:used_chunks": "2", "7:total_chunks": "2", "7:cmd_set": "3", "7:get_hits": "1", "7:incr_hits": "2", "7:decr_hits": "1",
		"7:delete_hits": "1", "7:cas_badval": "1", "7:cas_hits": "0", "7:touch_hits": "0",
		"12:chunk_size": "4096", "12:used_chunks": "1", "12:cmd_set": "1", "12:get_hits": "1", "12:touch_hits": "1", "active_slabs": "2",
	} {
		require.Equal(t, want, slabs[name], name)
	}
	require.Equal(t, map[string]string{"128": "2", "4096": "1"}, p.stats("stats sizes"))

	keys := func(command string) (names []string) {
		got := p.ask(command + "\r\n")
		require.True(t, strings.HasSuffix(got, "END\r\n"), got)
		for _, m := range listed.FindAllStringSubmatch(got, -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, []string{"short0", "short1"}, keys("stats cachedump 7 0"))
	require.Len(t, keys("stats cachedump 7 1"), 1)
	require.Equal(t, []string{"long"}, keys("stats cachedump 12 100"))
	require.Empty(t, keys("stats cachedump 8 100"))
	m := listed.FindStringSubmatch(p.ask("stats cachedump 12 1\r\n"))
	expires, err := strconv.ParseInt(m[3], 10, 64)
	require.NoError(t, err)
	require.Equal(t, "3000", m[2])
	require.WithinDuration(t, time.Now().Add(2000*time.Second), time.Unix(expires, 0), time.Minute)
	require.Equal(t, "0", listed.FindStringSubmatch(p.ask("stats cachedump 7 1\r\n"))[3], "it does not expire")
	for command, want := range map[string]string{
		"stats cachedump": "CLIENT_ERROR bad command line\r\n", "stats cachedump 1": "CLIENT_ERROR bad command line\r\n",
		"stats cachedump 1 x": "CLIENT_ERROR bad command line format\r\n", "stats cachedump 99 1": "CLIENT_ERROR Illegal slab id\r\n",
	} {
		require.Equal(t, want, p.ask(command+"\r\n"))
	}
	require.Equal(t, "OK\r\n", p.ask("flush_all\r\n"))
	require.Empty(t, keys("stats cachedump 7 0"))
}

// A key that came by RDMA may have what ends a line. A list leaves it out.
func TestDumpLeavesOutWhatBreaksLines(t *testing.T) {
	l := newLocal(t)
	_, addr := newServer(t, Config{Store: l})
	for _, k := range []string{"a\r\nEND", "b c", "d\x00", "good"} {
		_, err := l.Do(t.Context(), &kv.Request{Op: kv.OpSet, Key: []byte(k)})
		require.NoError(t, err)
	}
	require.Equal(t, "ITEM good [0 b; 0 s]\r\nEND\r\n", dial(t, "tcp", addr).ask("stats cachedump 7 0\r\n"))
}

// A store that does not list its records has none to show.
func TestStatsWithoutInspector(t *testing.T) {
	_, addr := newServer(t, Config{Store: struct{ Store }{newLocal(t)}})
	p := dial(t, "tcp", addr)
	p.ask("set a 0 0 1\r\nx\r\n")
	for _, command := range []string{"stats items", "stats sizes", "stats cachedump 7 0"} {
		require.Equal(t, "END\r\n", p.ask(command+"\r\n"))
	}
	require.Equal(t, map[string]string{"active_slabs": "0", "total_malloced": "0"}, p.stats("stats slabs"))
}

func TestStatsDetail(t *testing.T) {
	_, addr := newServer(t, Config{})
	p := dial(t, "tcp", addr)
	use := "set us:a 0 0 1\r\nx\r\nget us:a us:b\r\ndelete us:a\r\nset none 0 0 1\r\nx\r\nmg de:a v\r\n"
	p.ask(use)
	require.Equal(t, "END\r\n", p.ask("stats detail dump\r\n"))
	require.Equal(t, "OK\r\n", p.ask("stats detail on\r\n"))
	p.ask(use)
	want := "PREFIX de get 1 hit 0 set 0 del 0\r\nPREFIX us get 2 hit 1 set 1 del 1\r\nEND\r\n"
	require.Equal(t, want, p.ask("stats detail dump\r\n"))
	require.Equal(t, "OK\r\n", p.ask("stats detail off\r\n"))
	p.ask(use)
	require.Equal(t, want, p.ask("stats detail dump\r\n"))
	for _, command := range []string{"stats detail", "stats detail x"} {
		require.Equal(t, "CLIENT_ERROR usage: stats detail on|off|dump\r\n", p.ask(command+"\r\n"))
	}
	p.ask("stats detail on\r\n")
	var many strings.Builder
	for i := range maxPrefixes + 10 {
		fmt.Fprintf(&many, "get p%d:\r\n", i)
	}
	p.ask(many.String())
	require.Equal(t, maxPrefixes, strings.Count(p.ask("stats detail dump\r\n"), "PREFIX "), "no client makes it grow for ever")
}
