package netpath

import "fmt"

// NeighbourState is what the kernel knows of a neighbour (NUD_* of Linux).
type NeighbourState uint16

const (
	NeighbourNone       NeighbourState = 0    // NUD_NONE
	NeighbourIncomplete NeighbourState = 0x01 // NUD_INCOMPLETE: asked for, no reply yet
	NeighbourReachable  NeighbourState = 0x02 // NUD_REACHABLE
	NeighbourStale      NeighbourState = 0x04 // NUD_STALE: known, not confirmed lately
	NeighbourDelay      NeighbourState = 0x08 // NUD_DELAY
	NeighbourProbe      NeighbourState = 0x10 // NUD_PROBE
	NeighbourFailed     NeighbourState = 0x20 // NUD_FAILED
	NeighbourNoARP      NeighbourState = 0x40 // NUD_NOARP: the link needs no link-layer addresses
	NeighbourPermanent  NeighbourState = 0x80 // NUD_PERMANENT: set by hand, or this host itself
)

func (s NeighbourState) String() string {
	switch s {
	case NeighbourNone:
		return "none"
	case NeighbourIncomplete:
		return "incomplete"
	case NeighbourReachable:
		return "reachable"
	case NeighbourStale:
		return "stale"
	case NeighbourDelay:
		return "delay"
	case NeighbourProbe:
		return "probe"
	case NeighbourFailed:
		return "failed"
	case NeighbourNoARP:
		return "noarp"
	case NeighbourPermanent:
		return "permanent"
	}
	return fmt.Sprintf("NeighbourState(%#x)", uint16(s))
}

// known reports whether packets can be sent to the neighbour now.
func (s NeighbourState) known() bool {
	return s&(NeighbourReachable|NeighbourStale|NeighbourDelay|NeighbourProbe|NeighbourNoARP|NeighbourPermanent) != 0
}
