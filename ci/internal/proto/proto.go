// Package proto is what the launcher and the init process of a guest say to
// each other: lines of JSON over a virtio serial port, and the frames in which
// standard input travels.
package proto

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
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

// Ports lists them.
var Ports = []string{PortControl, PortStdin, PortStdout, PortStderr}

// Socket is where programs in a guest talk to its init process.
const Socket = "/run/rxelab.sock"

// Job is what a guest needs to know; it comes with OpJob. Paths are those of
// the launcher's host.
type Job struct {
	Topology string // "wire", "ecmp", "hosts" or "none"
	Clock    string // see vm.Config
	Host     int    // number of this host, from 0
	Hosts    int
	Shares   [][]byte // folders shared read-write; their 9p tags are share0, share1, ...
	Modules  []byte   // folder of the kernel's modules
	Needs    [][]byte // folders that a program of the guest must find
	Root     []byte   // folder with the system of the guest; empty for the host's own
}

// Message is a line in either direction. A reply carries the ID of its
// request. Arguments, environment and paths are bytes: they need not be UTF-8.
type Message struct {
	ID   uint64 `json:"id,omitempty"`
	Op   string `json:"op"`
	Host int    `json:"host"`

	Job *Job `json:"job,omitempty"`

	Argv [][]byte `json:"argv,omitempty"`
	Env  [][]byte `json:"env,omitempty"`
	Dir  []byte   `json:"dir,omitempty"`
	TTY  bool     `json:"tty,omitempty"`
	Main bool     `json:"main,omitempty"` // input and output go by the ports
	// Keep names files and folders: what the program has written there is copied
	// to the folder "out" under the number of its name.
	Keep   [][]byte `json:"keep,omitempty"`
	Signal int      `json:"signal,omitempty"`
	Peer   string   `json:"peer,omitempty"` // address of a host

	Code   int    `json:"code,omitempty"`
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	// OutBytes and ErrBytes are how much a Main program wrote to the ports.
	OutBytes int64  `json:"out_bytes,omitempty"`
	ErrBytes int64  `json:"err_bytes,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Operations.
const (
	OpInit   = "init"   // guest to launcher: the init process runs
	OpJob    = "job"    // launcher to guest: what to prepare
	OpReady  = "ready"  // guest to launcher: prepared, or the error
	OpProve  = "prove"  // launcher to guest: exchange datagrams with a peer
	OpExec   = "exec"   // run a program; the reply has its exit status
	OpSignal = "signal" // launcher to guest: a signal for the Main program
	OpKill   = "kill"   // guest to launcher: kill a host
	OpStart  = "start"  // guest to launcher: boot it again
	OpDone   = "done"   // reply
)

// Bytes converts strings to what a [Message] carries, and Strings back.
func Bytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

// Strings is the inverse of [Bytes].
func Strings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}

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

// maxFrame bounds a frame of standard input.
const maxFrame = 1 << 16

// SendInput copies r to w in frames: a length of four bytes, big endian, and as
// many bytes. The last frame is empty: a serial port has no end of file.
func SendInput(w io.Writer, r io.Reader) error {
	buf := make([]byte, 4+maxFrame)
	for {
		n, err := r.Read(buf[4:])
		if n > 0 {
			binary.BigEndian.PutUint32(buf, uint32(n))
			if _, err := w.Write(buf[:4+n]); err != nil {
				return err
			}
		}
		if err != nil {
			_, werr := w.Write(make([]byte, 4))
			if err == io.EOF {
				err = werr
			}
			return err
		}
	}
}

// ReceiveInput copies frames from r to w until the last one. Once w fails the
// rest is read and dropped: the sender must not be held up by a program that
// does not read.
func ReceiveInput(w io.Writer, r io.Reader) error {
	in := bufio.NewReaderSize(r, 4+maxFrame)
	var head [4]byte
	dead := false
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n == 0 {
			return nil
		}
		if n > maxFrame {
			return fmt.Errorf("frame of %d bytes", n)
		}
		frame := io.LimitReader(in, int64(n))
		if !dead {
			_, err := io.Copy(w, frame)
			dead = err != nil
		}
		if _, err := io.Copy(io.Discard, frame); err != nil {
			return err
		}
	}
}
