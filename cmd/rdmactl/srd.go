package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/goverbs/goverbs/srd"
)

// srdResult is what a running endpoint of package srd says of itself.
type srdResult struct{ *srd.Report }

func reliable(ctx context.Context, args []string) (result, error) {
	args, err := flags(args, 1, 1, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := srd.ReadReport(ctx, args[0])
	if err != nil {
		return nil, err
	}
	return srdResult{r}, nil
}

func (a srdResult) text(w io.Writer) error {
	s := &a.Stats
	fmt.Fprintf(w, "endpoint %s of process %d: %d packets sent, %d of them again, %d received; %d messages delivered, %d refused; %d timers ended, %d paths retired, %d revived\n\n",
		strings.Map(printable, a.Addr), a.PID, s.Sent, s.Retransmitted, s.Received, s.Delivered, s.Refused, s.Timeouts, s.Retired, s.Revived)
	var t table
	t.row("PEER", "PATH", "STATE", "ROUND TRIP", "LEAST", "LOSS", "SENT", "UNDER WAY")
	for _, p := range a.Peers {
		state := "idle"
		if !p.Established {
			state = "no session"
		}
		if len(p.Paths) == 0 {
			t.row(p.Addr, "-", state, "-", "-", "-", "-", p.UnderWay)
		}
		for i, x := range p.Paths {
			state := "used"
			switch {
			case x.Retired:
				state = "retired"
			case x.Suspect:
				state = "suspect"
			case x.Sent == 0:
				state = "unused"
			}
			t.row(p.Addr, i, state, x.RoundTrip.Round(time.Microsecond), x.MinRTT.Round(time.Microsecond),
				fmt.Sprintf("%.1f%%", math.Abs(100*x.Loss)), x.Sent, x.UnderWay)
		}
	}
	return t.write(w)
}
