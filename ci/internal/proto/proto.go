// Package proto is what the launcher and the init process of a guest say to
// each other: lines of JSON over a virtio serial port.
package proto

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"
)

// Names of the virtio serial ports of a guest.
const (
	PortControl = "control"
	PortStdin   = "stdin"
	PortStdout  = "stdout"
	PortStderr  = "stderr"
)

// Socket is where programs in a guest talk to its init process.
const Socket = "/run/rxelab.sock"

// Job is what a guest needs to know at boot; it is /job.json in its initramfs.
type Job struct {
	Topology string // "wire", "ecmp", "hosts" or "none"
	Clock    string // "wall" or "instructions"
	Host     int    // number of this host, from 0
	Hosts    int
	Shares   []string // folders shared read-write; their 9p tags are share0, share1, ...
	Modules  string   // folder of the kernel's modules on the host
}

// Message is a line in either direction. A reply carries the ID of its
// request.
type Message struct {
	ID   uint64 `json:"id,omitempty"`
	Op   string `json:"op"`
	Host int    `json:"host"`
	From int    `json:"from,omitempty"` // set by the launcher: who asks

	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	TTY  bool     `json:"tty,omitempty"`
	Main bool     `json:"main,omitempty"` // output goes to the ports, not into the reply

	Code   int    `json:"code,omitempty"`
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Operations.
const (
	OpReady = "ready" // guest to launcher: booted, topology proven
	OpExec  = "exec"  // run a program; the reply has its exit status
	OpKill  = "kill"  // guest to launcher: kill a host
	OpStart = "start" // guest to launcher: boot it again
	OpDone  = "done"  // reply
)

// Conn sends and receives messages; Send may be called concurrently.
type Conn struct {
	mu  sync.Mutex
	enc *json.Encoder
	dec *json.Decoder
}

func NewConn(rw io.ReadWriter) *Conn {
	return &Conn{enc: json.NewEncoder(rw), dec: json.NewDecoder(bufio.NewReader(rw))}
}

func (c *Conn) Send(m Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.enc.Encode(m)
}

func (c *Conn) Receive() (Message, error) {
	var m Message
	return m, c.dec.Decode(&m)
}
