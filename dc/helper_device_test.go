//go:build linux

package dc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// The test binary is also the program that runs on other hosts of the lab:
// DC_HELPER says as what.
func TestMain(m *testing.M) {
	role, arg, _ := strings.Cut(os.Getenv("DC_HELPER"), " ")
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "target":
		err = targetProgram(arg)
	case "initiator":
		err = initiatorProgram(arg)
	default:
		err = errors.New("no such helper: " + role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const helperKey = 3

// openHelper opens the device of this host.
func openHelper() (pd *verbs.PD, gid verbs.GIDEntry, mr *verbs.MR, err error) {
	es, err := lab.Endpoints()
	if err != nil || len(es) == 0 {
		return nil, gid, nil, fmt.Errorf("no device here: %w", err)
	}
	dev, err := verbs.Open(es[0].Device, verbs.DeviceConfig{})
	if err != nil {
		return nil, gid, nil, err
	}
	if gid, err = dev.FindGID(verbs.GIDQuery{Addr: es[0].Addr}); err != nil {
		return nil, gid, nil, err
	}
	if pd, err = dev.AllocPD(); err != nil {
		return nil, gid, nil, err
	}
	mr, err = pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
	return pd, gid, mr, err
}

// record is what others must know of a target: its address, its generation,
// and memory of its own.
type record struct {
	addr       dc.Address
	generation uint64
	at         verbs.Remote
}

const recordLen = dc.AddressLen + 8 + 8 + 4

func recordOf(target *dc.Target, at verbs.Remote) []byte {
	b, _ := target.Address().MarshalBinary()
	b = binary.BigEndian.AppendUint64(b, target.Generation())
	b = binary.BigEndian.AppendUint64(b, at.Addr)
	return binary.BigEndian.AppendUint32(b, at.RKey)
}

func readRecord(from io.Reader) (r record, err error) {
	var b [recordLen]byte
	if _, err = io.ReadFull(from, b[:]); err != nil {
		return r, err
	}
	err = r.addr.UnmarshalBinary(b[:dc.AddressLen])
	r.generation = binary.BigEndian.Uint64(b[dc.AddressLen:])
	r.at = verbs.Remote{Addr: binary.BigEndian.Uint64(b[60:]), RKey: binary.BigEndian.Uint32(b[68:])}
	return r, err
}

// targetProgram is a target with a service at a port, which is also where TCP
// connections are told of it. A connection that says something ends the program
// at once.
func targetProgram(port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	pd, gid, mr, err := openHelper()
	if err != nil {
		return err
	}
	target, err := dc.NewTarget(dc.TargetConfig{PD: pd, GID: gid, AccessKey: helperKey, Responders: 2, Service: uint16(n)})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		conn.Write(recordOf(target, mr.Region().At(0)))
		go func() {
			if n, _ := conn.Read(make([]byte, 1)); n > 0 {
				os.Exit(0)
			}
			conn.Close()
		}()
	}
}

// initiatorProgram attaches to the target that it is told of at an address,
// does a request, says so, and stays attached until the connection ends.
func initiatorProgram(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := readRecord(conn)
	if err != nil {
		return err
	}
	pd, gid, mr, err := openHelper()
	if err != nil {
		return err
	}
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, GID: gid, ConnectTimeout: testTimeout})
	if err != nil {
		return err
	}
	p, err := i.Resolve(r.addr, helperKey)
	if err != nil {
		return err
	}
	if _, err = i.Post(p, dc.Request{Op: dc.Write, Local: mr.SGE(0, 8), Remote: r.at}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var cs [1]dc.Completion
	if _, err := i.Wait(ctx, cs[:]); err != nil || cs[0].Err != nil {
		return errors.Join(err, cs[0].Err)
	}
	conn.Write([]byte{1})
	conn.Read(make([]byte, 1))
	return i.Close()
}

// helper runs this program on a host, until the test ends or longer.
func helper(t testing.TB, host int, role string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done }) // it logs
	go func() {
		defer close(done)
		if host == lab.Self() {
			c := exec.CommandContext(ctx, self)
			c.Env = append(os.Environ(), "DC_HELPER="+role)
			if out, err := c.CombinedOutput(); ctx.Err() == nil {
				t.Logf("%s: %v %s", role, err, out)
			}
			return
		}
		r, err := lab.Host(host).Exec(ctx, "env", "DC_HELPER="+role, self)
		if ctx.Err() == nil {
			t.Logf("host %d: %s: ended with %d: %v %s", host, role, r.Code, err, r.Stderr)
		}
	}()
}

// remoteTarget runs a target on another host.
func remoteTarget(t testing.TB, host int, port uint16) record {
	t.Helper()
	helper(t, host, fmt.Sprint("target ", port))
	var r record
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(lab.Addrs()[host], port).String(), time.Second)
		if err != nil {
			return false
		}
		defer conn.Close()
		// A program that has just ended may still have taken the connection.
		conn.SetDeadline(time.Now().Add(testTimeout))
		r, err = readRecord(conn)
		return err == nil
	}, testTimeout, 50*time.Millisecond, "host %d", host)
	return r
}

// endTarget ends its program at once.
func endTarget(t testing.TB, host int, port uint16) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(lab.Addrs()[host], port).String(), time.Second)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte{1})
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	io.Copy(io.Discard, conn) // it is gone when this ends
}
