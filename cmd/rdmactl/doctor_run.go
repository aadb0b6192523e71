package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// selfTest tries one feature of a device.
type selfTest struct {
	feature string // as in the table of features in docs/features.md
	// told reports whether the device says that it has the feature; nil if no
	// device says so.
	told func(verbs.Features) bool
	// run returns what is worth a note. What it makes it leaves to the bench to
	// close.
	run func(*bench) (note string, err error)
}

// Time limits: of a test, and of starting the last one. A call into the kernel
// cannot be interrupted, so they bound waits.
const (
	testLimit = 5 * time.Second
	runLimit  = 45 * time.Second
)

// errData: an operation succeeded, and its data are not what they should be.
var errData = errors.New("wrong data")

// errClosing: an object that a test had made could not be closed.
var errClosing = errors.New("closing")

// notTried is the reason why a feature could not be tried here, whatever the
// device can.
type notTried string

func (e notTried) Error() string { return string(e) }

// doctorRun is doctor -run: a self-test between two queue pairs on one port, or
// between two ports that are both given.
func doctorRun(ctx context.Context, args []string, addresses bool) (result, error) {
	var places [2]place
	for i, arg := range args {
		p, err := portArg(arg)
		if err != nil {
			return nil, err
		}
		places[i] = p
	}
	here, err := places[0].find()
	if err != nil {
		return nil, err
	}
	there := here
	if len(args) == 2 {
		if there, err = places[1].find(); err != nil {
			return nil, err
		}
	}
	r := runReport{}
	if r.About, err = aboutPort(here, addresses); err != nil {
		return nil, err
	}
	netdevs, err := netpath.Netdevs(ctx)
	if err != nil {
		return nil, err
	}
	if err := testable(r.About, netdevs); err != nil {
		return nil, err
	}
	if there != here {
		r.About.Peer = fmt.Sprintf("%s port %d", there.device, there.port)
	}
	r.Results = selfTestDevice(ctx, here, there, r.About.Features)
	if err := ctx.Err(); err != nil {
		return nil, err // what was interrupted is not wrong
	}
	if !addresses {
		for i := range r.Results {
			r.Results[i].Note = hideAddresses(r.Results[i].Note)
		}
	}
	return r, r.err()
}

// selfTestDevice tries each feature on the port p, and returns the results.
// p may be the same port as peer.
func selfTestDevice(ctx context.Context, p, peer place, f verbs.Features) (out []runResult) {
	begin, low := time.Now(), limits().low()
	for _, c := range selfTests {
		r := runResult{Feature: c.feature, Result: untried, Note: "no time was left for it"}
		if ctx.Err() == nil && time.Since(begin) < runLimit {
			start := time.Now()
			note, err := tryFeature(ctx, c, p, peer, f)
			r.Time = time.Since(start)
			if r.Result, r.Note = verdict(c, f, err, low); err == nil {
				r.Note = note
			}
		}
		out = append(out, r)
	}
	for _, feature := range slices.Sorted(maps.Keys(notInSelfTest)) {
		out = append(out, runResult{Feature: feature, Result: untried, Note: notInSelfTest[feature]})
	}
	return out
}

func tryFeature(ctx context.Context, c selfTest, p, peer place, f verbs.Features) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	b := &bench{ctx: ctx, here: p, there: peer, features: f}
	note, err = c.run(b)
	if cerr := b.close(); cerr != nil {
		err = errors.Join(err, errClosing, cerr)
	}
	return note, err
}

// verdict judges how the trial of a feature ended. low says which resource limits are too
// low for a self-test; a peer that meets one may tell no more than that it refuses.
func verdict(c selfTest, f verbs.Features, err error, low string) (result, note string) {
	if err == nil {
		return works, ""
	}
	note = strings.ReplaceAll(err.Error(), "\n", "; ")
	var not notTried
	switch {
	case errors.Is(err, errClosing), errors.Is(err, errData):
	case errors.As(err, &not), errors.Is(err, verbs.ErrMemlock):
		return untried, note
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return untried, note + ": " + cmp.Or(low, moreFiles)
	case c.told != nil && !c.told(f), c.told == nil && errors.Is(err, verbs.ErrUnsupported): // whatever the library makes of it
		return refused, note
	case low != "":
		return untried, note + ": " + low
	case errors.Is(err, context.DeadlineExceeded):
		note = "no completion in time: " + note
	case errors.Is(err, verbs.ErrUnsupported):
		note = "the device tells that it has it, and refuses: " + note
	}
	return wrong, note
}

// selfTests are in the order of the table of features.
var selfTests = slices.Concat(objectTests, memoryTests, completionTests, queueTests, transferTests, atomicTests, vendorTests, eventTests, addressTests, connectionTests, linkTests)
