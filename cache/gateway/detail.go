package gateway

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cache/kv"
)

const (
	prefixEnd   = ":"  // behind the prefix of a key
	maxPrefixes = 4096 // that are counted
)

// prefix is what is counted of the keys that begin with it.
type prefix struct{ gets, hits, sets, deletes uint64 }

// details count commands by the prefix of their key, while they are on.
type details struct {
	on  atomic.Bool
	mu  sync.Mutex
	all map[string]*prefix
}

func (d *details) count(q *kv.Request, a *kv.Reply) {
	name, _, ok := bytes.Cut(q.Key, []byte(prefixEnd))
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.all[string(name)]
	if p == nil {
		if len(d.all) >= maxPrefixes || breaksLine(string(name)) {
			return
		}
		if d.all == nil {
			d.all = map[string]*prefix{}
		}
		p = new(prefix)
		d.all[string(name)] = p
	}
	switch {
	case q.Op == kv.OpGet:
		p.gets++
		if a.Status == kv.OK {
			p.hits++
		}
	case q.Op == kv.OpDelete:
		p.deletes++
	case q.Op.Stores():
		p.sets++
	}
}

func (d *details) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.all)
}

func (d *details) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d.all)) {
		p := d.all[name]
		fmt.Fprintf(&out, "PREFIX %s get %d hit %d set %d del %d\r\n", name, p.gets, p.hits, p.sets, p.deletes)
	}
	return out.String()
}

// breaksLine reports whether a key would end a line or a token of a reply.
func breaksLine(key string) bool { return strings.ContainsAny(key, " \r\n\x00") }
