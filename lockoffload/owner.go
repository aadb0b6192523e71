package lockoffload

import (
	"fmt"
	"sync"
)

// A region has one server and one agent at a time. Two servers would give the same
// places to different clients, two agents would unlock each other's locks.
type role string

const (
	serverRole role = "server"
	agentRole  role = "agent"
)

// ownership is a role at a memory, by its first byte.
type ownership struct {
	mem *byte
	role
}

var owners sync.Map // of the ownerships that are taken

// claim makes the caller the only one in a role, until release is called.
func claim(mem []byte, r role) (release func(), err error) {
	o := ownership{&mem[0], r}
	if _, taken := owners.LoadOrStore(o, nil); taken {
		return nil, fmt.Errorf("%w: the region has its %s already", ErrConfig, r)
	}
	return sync.OnceFunc(func() { owners.Delete(o) }), nil
}

// owned reports whether a server or an agent serves a memory.
func owned(mem []byte) bool {
	_, served := owners.Load(ownership{&mem[0], serverRole})
	_, helped := owners.Load(ownership{&mem[0], agentRole})
	return served || helped
}
