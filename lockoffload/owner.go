package lockoffload

import (
	"fmt"
	"sync"
)

// A region has one server and one agent at a time. Two servers would give the same
// places to different clients, two agents would unlock each other's locks.
var owners struct {
	sync.Mutex
	of map[*byte]map[string]bool // the roles taken, by the first byte of the memory
}

// claim makes the caller the only one in a role, until release is called.
func claim(mem []byte, role string) (release func(), err error) {
	at := &mem[0]
	owners.Lock()
	defer owners.Unlock()
	if owners.of[at][role] {
		return nil, fmt.Errorf("%w: the region has its %s already", ErrConfig, role)
	}
	if owners.of == nil {
		owners.of = map[*byte]map[string]bool{}
	}
	if owners.of[at] == nil {
		owners.of[at] = map[string]bool{}
	}
	owners.of[at][role] = true
	return sync.OnceFunc(func() {
		owners.Lock()
		defer owners.Unlock()
		delete(owners.of[at], role)
		if len(owners.of[at]) == 0 {
			delete(owners.of, at)
		}
	}), nil
}

// owned reports whether a server or an agent serves a memory.
func owned(mem []byte) bool {
	owners.Lock()
	defer owners.Unlock()
	return len(owners.of[&mem[0]]) > 0
}
