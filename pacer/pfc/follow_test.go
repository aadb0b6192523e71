package pfc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/pacer"
)

func write(t *testing.T, dir string, values map[string]uint64) {
	t.Helper()
	for name, v := range values {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), []byte(strconv.FormatUint(v, 10)+"\n"), 0o600))
		require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, name)))
	}
}

// Of the counters that a device has, those of the priority count before those of the
// whole link.
func TestCountersOfAFolder(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]uint64
		want  Counters
	}{
		"mlx5":       {map[string]uint64{"rx_prio3_pause": 5, "tx_prio3_pause": 7, "rx_prio4_pause": 1, "rx_pause_ctrl_phy": 90, "rx_prio3_pause_duration": 99}, Counters{5, 7}},
		"ice":        {map[string]uint64{"rx_priority_3_xoff": 2, "tx_priority_3_xoff": 4, "rx_priority_3_xon": 9}, Counters{2, 4}},
		"bnxt":       {map[string]uint64{"rx_pfc_ena_frames_pri3": 1, "tx_pfc_ena_frames_pri3": 3}, Counters{1, 3}},
		"global":     {map[string]uint64{"rx_pause": 8, "tx_pause": 6}, Counters{8, 6}},
		"InfiniBand": {map[string]uint64{"port_xmit_wait": 11, "port_xmit_data": 5}, Counters{11, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.files)
			s, err := Folder(dir, 3)
			require.NoError(t, err)
			got, err := s.Read()
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	dir := t.TempDir()
	_, err := Folder(dir, 3)
	require.ErrorIs(t, err, ErrNone)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rx_prio3_pause"), []byte("N/A (no PMA)\n"), 0o600))
	_, err = Folder(dir, 3)
	require.ErrorIs(t, err, strconv.ErrSyntax)
	for _, priority := range []int{-1, 8} {
		_, err = Folder(dir, priority)
		require.Error(t, err)
		_, err = Netdev("lo", priority)
		require.Error(t, err)
	}
	_, err = Netdev("no such device", 3)
	require.Error(t, err)
}

// What each reading comes to.
func TestReadings(t *testing.T) {
	const ms = time.Millisecond
	f := follower{most: 30 * ms}
	for _, s := range []struct {
		at            time.Duration
		c             Counters
		held, flooded bool
	}{
		{0, Counters{100, 100}, false, false}, // from before
		{10 * ms, Counters{100, 100}, false, false},
		{20 * ms, Counters{101, 100}, true, false},
		{30 * ms, Counters{105, 100}, true, false},
		{40 * ms, Counters{105, 101}, false, true},
		{50 * ms, Counters{106, 103}, true, true},
		{60 * ms, Counters{107, 103}, true, false},
		{70 * ms, Counters{108, 103}, true, false},
		{80 * ms, Counters{109, 103}, false, false}, // a storm: requests go for one reading
		{90 * ms, Counters{110, 103}, true, false},
		{100 * ms, Counters{0, 0}, false, false}, // the device was reset
		{110 * ms, Counters{1, 1}, true, true},
	} {
		flooded := f.step(s.c, s.at)
		require.Equal(t, s.held, f.held, "at %v", s.at)
		require.Equal(t, s.flooded, flooded, "at %v", s.at)
	}
}

// acquires reports whether anything is granted at the moment.
func acquires(p *pacer.Pacer) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	c, err := p.Acquire(ctx, 0, 64)
	c.Release()
	return err == nil
}

// The link partner's pauses hold a pacer, and this host's own shrink its threshold. The
// program's own pause stays the program's.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]uint64{"rx_prio3_pause": 1, "tx_prio3_pause": 1})
	s, err := Folder(dir, 3)
	require.NoError(t, err)
	p, err := pacer.New(pacer.Config{Tune: true, Threshold: 1 << 20})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Watch(ctx, p, s, Config{Every: time.Millisecond, MaxHold: time.Hour}) }()
	require.True(t, acquires(p))
	storm, calm := context.WithCancel(t.Context())
	stormed := make(chan struct{})
	go func() {
		defer close(stormed)
		for n := uint64(2); storm.Err() == nil; n++ {
			write(t, dir, map[string]uint64{"rx_prio3_pause": n})
		}
	}()
	require.Eventually(t, func() bool { return !acquires(p) }, time.Minute, time.Millisecond)
	calm()
	<-stormed
	require.Eventually(t, func() bool { return acquires(p) }, time.Minute, time.Millisecond)
	p.Pause(true)
	before := p.Stats().Threshold
	write(t, dir, map[string]uint64{"tx_prio3_pause": 2})
	require.Eventually(t, func() bool { return p.Stats().Threshold <= before/2 }, time.Minute, time.Millisecond)
	require.False(t, acquires(p))
	p.Pause(false)
	require.True(t, acquires(p))
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)

	broken := errors.New("gone")
	p.PauseLink(true)
	require.ErrorIs(t, Watch(t.Context(), p, failing{broken}, Config{}), broken)
	require.True(t, acquires(p), "it holds nothing when it returns")
	require.NoError(t, p.Close())
}

type failing struct{ err error }

func (f failing) Read() (Counters, error) { return Counters{}, f.err }
