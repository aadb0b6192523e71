// Package credit says when a side of a connection may send a frame: only when the other
// side holds a receive for it. It has no I/O, clocks or locks.
//
//	this side                                       the other side
//	Room: as many as that holds, less what it has
//	not taken ────────── frame, Say ─────────────▶  Heard, Took
//	Heard ◀───────────── credit: a frame without ─  due: Say
//	                     data, unless one with data
//	                     has said it meanwhile
//
// Frames without data are not counted. At most two are under way for as many frames as the
// other side holds, and two of before: [Spare] receives are for them.
package credit

// Spare is how many receives a side has beside those for frames with data.
const Spare = 4

// Flow is one side. Numbers of frames wrap around.
type Flow struct {
	holds, theirs uint32 // frames that each side has receives for
	sent          uint32 // by this side
	passed        uint32 // of those, what the other side has taken
	taken         uint32 // by this side
	told          uint32 // of those, what the other side knows
}

// New returns a side that has receives for so many frames with data, and the other for theirs.
func New(holds, theirs uint32) Flow { return Flow{holds: holds, theirs: theirs} }

// Room returns how many frames with data may be sent. A peer that says it has taken more than was sent
// harms itself.
func (f *Flow) Room() int { return max(int(f.theirs)-int(int32(f.sent-f.passed)), 0) }

// Send counts frames with data that are about to be sent.
func (f *Flow) Send(n int) { f.sent += uint32(n) }

// Say returns what each frame tells the other side.
func (f *Flow) Say() uint32 {
	f.told = f.taken
	return f.taken
}

// Heard takes what a frame of the other side said, and reports whether that is new. A frame
// that was posted later may say less, and is not.
func (f *Flow) Heard(taken uint32) bool {
	news := int32(taken-f.passed) > 0
	if news {
		f.passed = taken
	}
	return news
}

// Took counts a frame with data that was taken; its receive is posted again. It reports whether the
// other side has to hear of it now, by a frame without data.
func (f *Flow) Took() (due bool) {
	f.taken++
	return f.taken-f.told >= (f.holds+1)/2
}
