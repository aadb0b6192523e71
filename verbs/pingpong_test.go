//go:build linux

package verbs_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// ibv_rc_pingpong is rdma-core's own example. The peers tell each other
// "LID:QPN:PSN:GID" in hexadecimal over TCP, and SEND to and fro.
const (
	pingpongRounds = 100
	pingpongSize   = 64
	pingpongWord   = len("0000:000000:000000:00000000000000000000000000000000") + 1 // with the terminating zero
)

type pingpong struct {
	s    *rig.Side
	self verbs.Endpoint
}

func newPingpong(t *testing.T, p rig.Port) *pingpong {
	s := rig.NewSide(t, p, verbs.QPConfig{}, verbs.CQConfig{})
	s.Recv(t, 100, pingpongSize)
	return &pingpong{s, s.Endpoint(t)}
}

func (p *pingpong) word() []byte {
	g := p.self.GID
	return append(fmt.Appendf(nil, "%04x:%06x:%06x:%s", p.self.LID, p.self.QPN, p.self.PSN, hex.EncodeToString(g[:])), 0)
}

func (p *pingpong) connect(t *testing.T, word []byte) {
	fields := bytes.Split(bytes.TrimRight(word, "\x00"), []byte(":"))
	require.Len(t, fields, 4, "%q", word)
	number := func(i int) uint32 {
		v, err := strconv.ParseUint(string(fields[i]), 16, 32)
		require.NoError(t, err)
		return uint32(v)
	}
	peer := verbs.Endpoint{Type: verbs.RC, LID: uint16(number(0)), QPN: number(1), PSN: number(2), MTU: verbs.MTU1024}
	gid, err := hex.DecodeString(string(fields[3]))
	require.NoError(t, err)
	copy(peer.GID[:], gid)
	require.NoError(t, p.s.QP.Connect(peer, verbs.ConnectConfig{MTU: verbs.MTU1024}))
}

// play does the rounds; with begin it sends first.
func (p *pingpong) play(t *testing.T, begin bool) {
	b := p.s.Batch(t, 1)
	recv, err := p.s.QP.NewRecvBatch(1)
	require.NoError(t, err)
	sent, received := 0, 0
	send := func() {
		b.Send(1000, verbs.Signaled, p.s.MR.SGE(0, pingpongSize))
		_, err := b.Post()
		require.NoError(t, err)
		sent++
	}
	if begin {
		send()
	}
	for done := 0; done < pingpongRounds || received < pingpongRounds; {
		wc := p.s.Wait(t, 1)[0]
		require.NoError(t, wc.Err())
		if wc.Opcode() != verbs.WCRecv {
			done++
			continue
		}
		require.Equal(t, pingpongSize, wc.Len())
		received++
		recv.Recv(wc.ID(), p.s.MR.SGE(0, pingpongSize))
		_, err := recv.Post()
		require.NoError(t, err)
		if sent < pingpongRounds {
			send()
		}
	}
}

func pingpongProgram(t *testing.T, ctx context.Context, p rig.Port, tcp int, server string) (*exec.Cmd, *bytes.Buffer) {
	path, err := exec.LookPath("ibv_rc_pingpong")
	if err != nil {
		rig.Missing(t, "ibverbs-utils is not installed")
	}
	args := []string{"-d", p.Name, "-g", strconv.Itoa(int(p.GID.Index)), "-p", strconv.Itoa(tcp), "-n", strconv.Itoa(pingpongRounds), "-s", strconv.Itoa(pingpongSize)}
	if server != "" {
		args = append(args, server)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	return cmd, &out
}

func TestPingpongClient(t *testing.T) {
	p := rig.Ports(t)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	cmd, out := pingpongProgram(t, ctx, p[1], 18700, "")
	var conn net.Conn
	require.Eventually(t, func() (ok bool) {
		var err error
		conn, err = net.Dial("tcp", "127.0.0.1:18700")
		return err == nil
	}, rig.Timeout, 50*time.Millisecond)
	defer conn.Close()
	us := newPingpong(t, p[0])
	_, err := conn.Write(us.word())
	require.NoError(t, err)
	word := make([]byte, pingpongWord)
	_, err = io.ReadFull(conn, word)
	require.NoError(t, err)
	us.connect(t, word)
	_, err = conn.Write([]byte("done\x00"))
	require.NoError(t, err)
	us.play(t, true)
	require.NoError(t, cmd.Wait(), out.String())
}

func TestPingpongServer(t *testing.T) {
	p := rig.Ports(t)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	us := newPingpong(t, p[0])
	cmd, out := pingpongProgram(t, ctx, p[1], l.Addr().(*net.TCPAddr).Port, "127.0.0.1")
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	word := make([]byte, pingpongWord)
	_, err = io.ReadFull(conn, word)
	require.NoError(t, err)
	us.connect(t, word)
	_, err = conn.Write(us.word())
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, len("done")))
	require.NoError(t, err)
	us.play(t, false)
	require.NoError(t, cmd.Wait(), out.String())
}
