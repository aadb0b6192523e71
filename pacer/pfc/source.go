package pfc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Counters are pauses since the device started.
type Counters struct {
	Received uint64 // that the link partner asked for
	Sent     uint64 // that this host asked for
}

// Source reads the counters of one link. Its errors are the operating system's, or
// [ErrNone].
type Source interface {
	Read() (Counters, error)
}

// ErrNone: the device counts no pauses.
var ErrNone = errors.New("no counters of pauses")

// MaxPriority is the highest priority of IEEE 802.1Q.
const MaxPriority = 7

// received and sent are the names of counters, those that say most first: of one
// priority, as mlx5, ice, bnxt and others have them; of the whole link; and the time
// that an InfiniBand port had something to send and no credit.
func received(priority int) []string {
	return []string{fmt.Sprintf("rx_prio%d_pause", priority), fmt.Sprintf("rx_priority_%d_xoff", priority), fmt.Sprintf("rx_pfc_ena_frames_pri%d", priority),
		"rx_pause_ctrl_phy", "rx_pause", "port_xmit_wait"}
}

func sent(priority int) []string {
	return []string{fmt.Sprintf("tx_prio%d_pause", priority), fmt.Sprintf("tx_priority_%d_xoff", priority), fmt.Sprintf("tx_pfc_ena_frames_pri%d", priority),
		"tx_pause_ctrl_phy", "tx_pause"}
}

// counters reads the first counters that exist; value returns the one with a name.
func counters(priority int, value func(name string) (v uint64, ok bool, err error)) (c Counters, err error) {
	found := false
	pick := func(names []string) uint64 {
		for _, name := range names {
			v, ok, e := value(name)
			if e != nil {
				err = errors.Join(err, e)
			}
			if ok {
				found = true
				return v
			}
		}
		return 0
	}
	c = Counters{Received: pick(received(priority)), Sent: pick(sent(priority))}
	if err == nil && !found {
		err = ErrNone
	}
	return c, err
}

type folder struct {
	path     string
	priority int
}

// Folder returns a source that reads counters from files of their names, as sysfs has for a port:
// /sys/class/infiniband/mlx5_0/ports/1/counters.
func Folder(path string, priority int) (Source, error) {
	if err := check(priority); err != nil {
		return nil, err
	}
	f := folder{path, priority}
	_, err := f.Read()
	return f, err
}

func check(priority int) error {
	if priority < 0 || priority > MaxPriority {
		return fmt.Errorf("pfc: there is no priority %d", priority)
	}
	return nil
}

func (f folder) Read() (Counters, error) {
	c, err := counters(f.priority, func(name string) (uint64, bool, error) {
		text, err := os.ReadFile(filepath.Join(f.path, name))
		if errors.Is(err, fs.ErrNotExist) {
			return 0, false, nil
		} else if err != nil {
			return 0, false, err
		}
		v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return v, err == nil, err
	})
	if err != nil {
		return Counters{}, fmt.Errorf("pfc: read %s: %w", f.path, err)
	}
	return c, nil
}
