package rig

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// UCX is the environment of UCX's programs on simulated devices (docs/simhca.md): its own
// interception of mmap leads past them.
var UCX = []string{"UCX_MEM_MMAP_HOOK_MODE=none"}

// UCXLatency returns the mean of all operations, in microseconds, from the line that ucx_perftest ends with.
func UCXLatency(out []byte) (float64, error) {
	_, last, ok := bytes.Cut(out, []byte("Final:"))
	fields := strings.Fields(string(last))
	if !ok || len(fields) < 4 { // iterations, median, mean of the last interval, mean of all
		return 0, errors.New("ucx_perftest: no result: " + Tail(out))
	}
	return strconv.ParseFloat(fields[3], 64)
}
