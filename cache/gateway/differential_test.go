package gateway

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/internal/testseed"
)

// memcached starts Debian's, on a socket of its own.
func memcached(t testing.TB, more ...string) *peer {
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("no memcached here (make setup installs it)")
	}
	dir, err := os.MkdirTemp("", "mc")
	require.NoError(t, err)
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, append([]string{"-s", socket, "-u", "root", "-U", "0", "-t", "1", "-m", "64"}, more...)...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	for range 200 {
		if nc, err := net.Dial("unix", socket); err == nil {
			t.Cleanup(func() { _ = nc.Close() })
			return &peer{t, nc}
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatal("memcached does not listen")
	return nil
}

// step is one command. What is compared with a CAS number, or stored by one, gets each
// side's own in the place of CAS.
type step struct {
	text  string
	key   string // that the number is of
	shift int
}

var numbers = regexp.MustCompile(`(VALUE [^ ]+ \d+ \d+) \d+\r\n`)
var metaNumbers = regexp.MustCompile(`(?m)^((?:HD|VA|EX|NF|NS|EN)[^\r\n]*)`)
var casOrTime = regexp.MustCompile(` ([ctl])-?\d+`)
var version = regexp.MustCompile(`VERSION .*`)
var debug = regexp.MustCompile(`(ME [^ ]+) [^\r\n]*`)

// alike leaves out of a reply what differs between servers: CAS numbers and times.
func alike(answer string) string {
	answer = numbers.ReplaceAllString(answer, "$1 CAS\r\n")
	answer = version.ReplaceAllString(answer, "VERSION\r")
	answer = debug.ReplaceAllString(answer, "$1 ...")
	return metaNumbers.ReplaceAllStringFunc(answer, func(line string) string {
		return casOrTime.ReplaceAllString(line, " $1#")
	})
}

func (p *peer) do(s step) string {
	text := s.text
	if s.key != "" {
		var cas int
		var flags, n int
		if _, err := fmt.Sscanf(p.ask("gets "+s.key+"\r\n"), "VALUE "+s.key+" %d %d %d", &flags, &n, &cas); err != nil {
			cas = 1
		}
		sent := cas + s.shift
		if sent < 1 { // 0 asks for no comparison, and 1 may be the value's own
			sent = cas + 1
		}
		text = strings.ReplaceAll(text, "CAS", fmt.Sprint(sent))
	}
	return alike(p.ask(text))
}

// writer makes up commands, most of them right.
type writer struct{ *rand.Rand }

func (w writer) of(s ...string) string { return s[w.IntN(len(s))] }

func (w writer) key() string {
	if w.IntN(60) == 0 {
		return strings.Repeat("k", 249+w.IntN(3))
	}
	return w.of("a", "b", "c", "num", "d", "a", "b", "c", "num", "d", "a\tb", "\x80\xff")
}

func (w writer) number() string {
	return w.of("0", "1", "7", "10", "99", "18446744073709551615", "18446744073709551616", "-1", "-5", "+3", "x", "1x", "", "4294967296", "\t8")
}

func (w writer) exptime() string {
	return w.of("0", "0", "0", "100", "100", "-1", "2592000", "2592001", "2147483647", "2147483648", "-2147483648", "4102444800", "4294967296", "9223372036854775808", "x", "+50", "1.5")
}

func (w writer) noreply() string { return w.of("", "", "", "", " noreply", " noreplx") }

// block is a length and the data behind it, now and then not as long.
func (w writer) block() (n, data string) {
	v := w.of("", "0", "5", "10", "007", "12 ", " 3", "  12  ", "1 2", "+1", "1\t", "\n4", "hello", "-4", strings.Repeat("v", w.IntN(2000)), "a\r\nb", "9223372036854775807", "99")
	n = fmt.Sprint(len(v))
	switch w.IntN(40) {
	case 0:
		return fmt.Sprint(max(len(v)-3, 0)), v + "\r\n" // the rest is a command, a strange one
	case 1:
		return w.of("-1", "x", ""), v + "\r\n"
	}
	return n, v + "\r\n"
}

func (w writer) flags(from string, most int) string {
	var out []string
	for range w.IntN(most + 1) {
		f := string(from[w.IntN(len(from))])
		switch f {
		case "O":
			f += w.of("", "opaque", strings.Repeat("o", 30), strings.Repeat("o", 31))
			// What is too long is found by mg and ma of 1.6.18 after half the work is done.
			if strings.Contains(from, "S") && w.IntN(5) == 0 {
				f = "O" + strings.Repeat("o", 32)
			}
		case "T":
			f += w.of("0", "100", "-1", "x", "")
		case "N", "R":
			f += w.of("0", "100", "30", "x")
		case "F", "J", "D":
			f += w.number()
		case "M":
			f += w.of("S", "E", "A", "P", "R", "I", "D", "+", "-", "z", "", "SS")
		case "C":
			f += w.of("CAS", "CAS", "0", "x", "99999999") // 1 may be a value's own, at either
		}
		out = append(out, f)
	}
	if w.IntN(50) == 0 {
		out = append(out, w.of("", "!", "\x80", "Z", "é"))
	}
	return strings.Join(out, " ")
}

// renew stores a number after arithmetic. Whether memcached fills a number that became
// shorter up with spaces depends on what else holds the item just then. Of numbers from
// 2^63 on it takes a minus sign for theirs that was left in the memory behind them.
func (w writer) renew(key string) string {
	v := w.of("3", "42", "9223372036854775807", "007")
	return fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(v), v)
}

// rest removes what flush_all leaves: memcached's knows seconds, and goes by CAS numbers
// within one, so now and then something of the present second stays.
var rest = func() string {
	var b strings.Builder
	for _, k := range []string{"a", "b", "c", "num", "d", "a\tb", "\x80\xff", strings.Repeat("k", 249), strings.Repeat("k", 250)} {
		b.WriteString("delete " + k + " noreply\r\n")
	}
	for _, k := range []string{"bin1", "bin22"} {
		b.WriteString("md " + base64.StdEncoding.EncodeToString([]byte(k)) + " b q\r\n")
	}
	return b.String()
}()

// metaKey is a key, and the flag that says that it is in base64.
func (w writer) metaKey() (key, plain, flag string) {
	if w.IntN(6) == 0 {
		if w.IntN(8) == 0 {
			return w.of("!!!", "AAA", "=AAA", "AA=="), "zz", " b"
		}
		k := "bin" + w.of("1", "22")
		return base64.StdEncoding.EncodeToString([]byte(k)), k, " b"
	}
	k := w.key()
	return k, k, ""
}

func (w writer) step() step {
	k := w.key()
	switch w.IntN(20) {
	case 0, 1, 2:
		n, data := w.block()
		return step{text: fmt.Sprintf("%s %s %s %s %s%s\r\n%s", w.of("set", "set", "add", "replace", "append", "prepend"), k, w.of("0", "0", "5", "4294967295", "4294967296", "-1", "x"), w.exptime(), n, w.noreply(), data)}
	case 3:
		n, data := w.block()
		return step{text: fmt.Sprintf("cas %s 3 %s %s %s%s\r\n%s", k, w.exptime(), n, w.of("CAS", "CAS", "CAS", "0", "x"), w.noreply(), data), key: k, shift: w.IntN(3) - 1}
	case 4, 5:
		return step{text: w.of("get ", "gets ", "bget ") + k + " " + w.key() + " missing " + w.key() + "\r\n"}
	case 6:
		return step{text: w.of("gat ", "gats ") + w.exptime() + " " + k + w.of("", " a b") + "\r\n"}
	case 7, 8:
		k = w.of(k, "num", "num")
		return step{text: w.of("incr ", "decr ") + k + " " + w.number() + w.noreply() + "\r\n" + w.renew(k)}
	case 9:
		return step{text: "touch " + k + " " + w.exptime() + w.noreply() + "\r\n"}
	case 10:
		return step{text: "delete " + k + w.of("", "", "", " 0", " 1", " 0 noreply", " noreply", " 5 noreply", " 0 0 0") + "\r\n"}
	case 11:
		switch w.IntN(6) {
		case 0:
			if w.IntN(4) == 0 { // about as long as an item may be
				v := strings.Repeat("x", 1<<20-75+w.IntN(30))
				if len(k) > wire.MaxKey { // the value would be a line too long, which ends the connection
					k = "a"
				}
				// What append makes of it may be too large for one of the two alone.
				return step{text: fmt.Sprintf(w.of("set %s 0 0 %d\r\n%s\r\n", "ms %s %d\r\n%s\r\n")+"delete %[1]s\r\n", k, len(v), v)}
			}
			return step{text: "flush_all" + w.of("", " 0", " noreply", " x", " 0 noreply", " -1", " 0 0 0") + "\r\n" + rest}
		default:
			return step{text: w.of("", "x", "  ", "get", "gat 0", "gat x", "set", "set a", "verbosity", "verbosity 1", "verbosity x", "verbosity 1 noreply", "verbosity 1 2 3",
				"touch a", "incr a", "stats reset", "stats nonsense", "shutdown", "GET a", "mx a", "mg", "ms", "ms a", "md", "ma", "me", "get a\x00b", "version x\x00", "set a 0 0 1 2 3", "quitt", "cache_memlimit x", "delete",
				"get "+strings.Repeat("a ", 40), "mg a "+strings.Repeat("v ", 17), "mg a v s t f c k h l q u O1 L P N0 T0 R0 b I", "md a v s t f c k h l q u O1 L P N0 T0 R0 b I", "  get   a  ") + w.of("\r\n", "\n") + ""}
		}
	case 12, 13, 14:
		mk, _, b := w.metaKey()
		fs := "stcflhOkvquI"
		if b == "" {
			fs += "N"
		}
		s := w.flags(fs, 8)
		// The two that depend on their order come in one order.
		s = strings.TrimSpace(w.of("", "", "", "T100 ", "T-1 ", "T0 ") + w.of("", "", "R30 ", "R200 ") + s)
		return step{text: "mg " + mk + b + " " + s + "\r\n"}
	case 15, 16, 17:
		mk, plain, b := w.metaKey()
		n, data := w.block()
		flags := w.flags("OkcFTCMqIS", 6)
		if b != "" { // 1.6.18 forgets of a record that it adds to that its key came in base64
			flags = strings.NewReplacer("MA", "MS", "MP", "ME").Replace(flags)
		}
		return step{text: "ms " + mk + " " + n + b + " " + flags + "\r\n" + data, key: plain, shift: w.IntN(3) - 1}
	case 18:
		mk, plain, b := w.metaKey()
		if w.IntN(4) == 0 {
			return step{text: "me " + mk + b + "\r\n"}
		}
		return step{text: "md " + mk + b + " " + w.flags("OkqICTS", 5) + "\r\n", key: plain, shift: w.IntN(3) - 1}
	default:
		mk, plain, b := w.of("num", k), "", ""
		plain = mk
		return step{text: "ma " + mk + b + " " + w.flags("OkqctvDJNMC", 6) + "\r\n" + w.renew(mk), key: plain, shift: w.IntN(2)}
	}
}

// pipeline returns several commands that are sent together. A get of a key that is too long takes with it what
// memcached has not sent yet of the replies to those before it.
func (w writer) pipeline() step {
	var all step
	for n := 2 + w.IntN(8); n > 0; n-- {
		if s := w.step(); len(s.text) < 4<<10 && !strings.Contains(s.text, strings.Repeat("k", wire.MaxKey+1)) {
			all.text += strings.ReplaceAll(s.text, "CAS", w.of("0", "99999999"))
		}
	}
	return all
}

// abridged is a command for people to read.
func abridged(text string) string {
	if len(text) > 400 {
		return fmt.Sprintf("%q ... %d bytes ... %q", text[:280], len(text)-360, text[len(text)-80:])
	}
	return fmt.Sprintf("%q", text)
}

// against runs a script at both, and shows the commands before the first difference.
func against(t testing.TB, seed uint64, n int, theirs, ours *peer) {
	w := writer{rand.New(rand.NewPCG(seed, 0))}
	var script []string
	over := false
	defer func() {
		if !over {
			t.Logf("seed %d, after:\n%s", seed, strings.Join(script[max(len(script)-25, 0):], "\n"))
		}
	}()
	both := func(s step) {
		script = append(script, abridged(s.text))
		want, got := theirs.do(s), ours.do(s)
		require.Equal(t, want, got)
	}
	both(step{text: "flush_all\r\n" + rest})
	for range n {
		if w.IntN(10) == 0 {
			both(w.pipeline())
		} else {
			both(w.step())
		}
	}
	both(step{text: "get a b c d num\r\nmg a k v s f\r\nmg num k v s f\r\n"})
	over = true
}

// The same scripts to memcached and to the gateway: the replies are the same bytes.
func TestAgainstMemcached(t *testing.T) {
	theirs := memcached(t)
	_, addr := newServer(t, Config{})
	ours := dial(t, "tcp", addr)
	seed, rounds := testseed.New(t), 8
	if !testing.Short() {
		rounds = 1000
	}
	for i := range rounds {
		against(t, seed+uint64(i), 100, theirs, ours)
	}
}

func FuzzAgainstMemcached(f *testing.F) {
	theirs := memcached(f)
	_, addr := newServer(f, Config{})
	ours := dial(f, "tcp", addr)
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		theirs.t, ours.t = t, t
		against(t, seed, 50, theirs, ours)
	})
}
