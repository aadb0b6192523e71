//go:build linux

package pacer_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
)

// The test binary is also the other process, which takes all credit that it gets and
// holds it.
func TestMain(m *testing.M) {
	if path := os.Getenv("PACER_SHARED"); path != "" {
		if err := hold(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

const (
	sharedTotal = 100_000
	sharedOne   = 5000
	sharedAll   = sharedTotal - 2*sharedOne // and more is what one that is alone comes to hold
)

func newShared(path string) (*pacer.Pacer, error) {
	p, err := pacer.New(pacer.Config{Threshold: 10 * sharedTotal, Small: 1, Reserve: 1})
	if err == nil {
		err = p.ShareThreshold(path, sharedTotal)
	}
	return p, err
}

// hold acquires what it can, says so, and waits to be killed.
func hold(path string) error {
	p, err := newShared(path)
	if err != nil {
		return err
	}
	grab(context.Background(), p, sharedAll)
	fmt.Println(p.Stats().Outstanding)
	select {}
}

// grab acquires until nothing more comes for a while, on a busy machine perhaps not for a
// longer one, if it does not hold more than it should by then.
func grab(ctx context.Context, p *pacer.Pacer, should int64) (out []pacer.Credit) {
	for end := time.Now().Add(stuck); ; {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		c, err := p.Acquire(short, 0, sharedOne)
		cancel()
		if err == nil {
			out = append(out, c)
		} else if p.Stats().Outstanding > should || time.Now().After(end) {
			return out
		}
	}
}

// A process that dies with credit leaves it to the others, and until then no credit is
// given twice.
func TestProcessThatDiesHoldingCredit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "threshold")
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "PACER_SHARED="+path)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var theirs int64
	_, err = fmt.Sscan(line, &theirs)
	require.NoError(t, err)
	require.Greater(t, theirs, int64(sharedAll), "it was alone")

	p, err := newShared(path)
	require.NoError(t, err)
	mine := grab(t.Context(), p, -1)
	require.LessOrEqual(t, p.Stats().Outstanding+theirs, int64(sharedTotal+sharedOne+200), "one more than there is")
	require.NoError(t, c.Process.Kill())
	c.Wait()
	more := grab(t.Context(), p, sharedAll)
	require.Greater(t, p.Stats().Outstanding, int64(sharedAll))
	for _, c := range append(mine, more...) {
		c.Release()
	}
	require.Zero(t, p.Stats().Outstanding)
	held, err := p.Acquire(t.Context(), 0, sharedOne)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.Stats().Threshold == sharedTotal }, 5*time.Second, time.Millisecond)
	require.ErrorIs(t, p.ShareThreshold(path+"2", sharedOne), verbs.ErrInUse, "it does so already")
	require.EqualValues(t, sharedTotal, p.Stats().Threshold, "what is refused changes nothing")
	held.Release()
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.ShareThreshold(path, 0), pacer.ErrConfig)
}

// A process that was stopped while it looked at the records does not keep others from
// what they have, nor from leaving.
func TestProcessThatStopsWithTheRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "threshold")
	p, err := newShared(path)
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Len: 1}))
	time.Sleep(20 * time.Millisecond) // it comes to where it looks again
	c, err := p.Acquire(t.Context(), 0, sharedOne)
	require.NoError(t, err)
	c.Release()
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(stuck):
		t.Error("Close waits for the other process")
		require.NoError(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart, Len: 1}))
		require.NoError(t, <-closed)
	}
}

// Credit of responses that have come is not kept from other processes by a program that
// does not poll for them.
func TestSharedCreditOfAProgramThatDoesNotPoll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "threshold")
	r := newRig(t, pacer.Config{Threshold: 10 * sharedTotal})
	require.NoError(t, r.p.ShareThreshold(path, sharedTotal))
	q, _ := r.paced(r.cq(), verbs.QPConfig{}, pacer.FlowConfig{})
	post(t, q, 1, r.b.mr.Region().At(0), r.a.mr.SGE(0, 12<<10)) // and it does not poll
	p, err := newShared(path)
	require.NoError(t, err)
	defer p.Close()
	held, err := p.Acquire(t.Context(), 0, sharedOne)
	require.NoError(t, err)
	defer held.Release()
	require.Eventually(t, func() bool { return p.Stats().Threshold == sharedTotal }, stuck, time.Millisecond)
	require.NoError(t, one(t, q).Err())
}
