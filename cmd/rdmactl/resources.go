package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/nldev"
)

type resourceRow struct {
	Device string `json:"device"`
	Kind   string `json:"kind"`
	Number uint32 `json:"number"`
	Type   string `json:"type,omitempty"`
	State  string `json:"state,omitempty"`
	Size   uint64 `json:"size,omitempty"` // bytes of a memory region, entries of a completion queue
	PID    int    `json:"pid,omitempty"`  // of the process; 0 for the kernel's, or if the thread that made it has ended
	Comm   string `json:"comm"`           // name of the process, or of the part of the kernel in brackets
}

type resourceList []resourceRow

func resources(_ context.Context, args []string) (answer, error) {
	names, err := deviceArgs(args)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		known, err := kernelDevices()
		if err != nil {
			return nil, err
		}
		if _, err := only(known, names, func(d kernelDevice) string { return d.Name }); err != nil {
			return nil, err
		}
	}
	list, err := nldev.Resources()
	if err != nil && !errors.Is(err, nldev.ErrNone) {
		return nil, err
	}
	out := resourceList{}
	for _, r := range list {
		if len(names) > 0 && !contains(names, r.Device) {
			continue
		}
		row := resourceRow{Device: r.Device, Kind: r.Kind, Number: r.Number, Type: r.Type, State: r.State, Size: r.Size}
		switch {
		case r.Kernel != "":
			row.Comm = "[" + r.Kernel + "]"
		case r.PID != 0:
			row.PID, row.Comm = holder(r.PID)
		}
		out = append(out, row)
	}
	return out, nil
}

// holder finds the process of a thread: the kernel names the thread that made
// an object.
func holder(tid int) (pid int, comm string) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return tid, "" // of another PID namespace, or just gone
	}
	pid = tid
	if tgid, err := strconv.Atoi(statusField(string(b), "Tgid")); err == nil {
		pid = tgid
	}
	b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return pid, strings.TrimSpace(string(b))
}

func (l resourceList) text(w io.Writer) error {
	if len(l) == 0 {
		_, err := fmt.Fprintln(w, "no RDMA objects in use")
		return err
	}
	var t table
	t.row("DEVICE", "KIND", "NUMBER", "TYPE", "STATE", "SIZE", "PID", "PROCESS")
	for _, r := range l {
		size := ""
		if r.Size > 0 {
			size = fmt.Sprint(r.Size)
		}
		t.row(r.Device, r.Kind, r.Number, r.Type, r.State, size, nonZero(r.PID), r.Comm)
	}
	return t.write(w)
}
