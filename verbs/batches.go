package verbs

import (
	"errors"

	"github.com/goverbs/goverbs/cgo"
)

// Batches posts batches of several queue pairs and shared receive queues in one crossing
// into C, in the order in which they were added, with one doorbell for each. A protocol
// that spreads its packets over queue pairs needs no more calls for them than one that has
// a single queue pair.
//
//	list.Add(a)
//	list.Add(b)
//	err := list.Post() // as a.Post() and b.Post()
//
// The zero value is ready. It is, with the batches in it, for one goroutine at a time.
type Batches struct {
	list     []entry
	postings []cgo.Posting // of the entries that can be posted
	results  []Posted
}

// entry is a batch of either kind.
type entry struct {
	send *Batch
	recv *RecvBatch
	at   int // of postings, or -1
}

// Posted tells what became of one batch of [Batches].
type Posted struct {
	N   int   // requests that were posted, the first ones
	Err error // why not all, as [Batch.Post] and [RecvBatch.Post] say it
}

// Add has a batch posted by the next [Batches.Post], with all that is in it then. One that is
// added twice is posted once.
func (l *Batches) Add(b *Batch) { l.list = append(l.list, entry{send: b}) }

// AddRecv is Add for receives.
func (l *Batches) AddRecv(b *RecvBatch) { l.list = append(l.list, entry{recv: b}) }

// Len is the number of batches that were added since the last Post.
func (l *Batches) Len() int { return len(l.list) }

// Post posts each of the batches and empties it, as the batch's own Post does, and then
// the list. A batch that fails keeps none of the others from being posted: its first
// requests may have been, and the memory of the others is the program's. The error is
// that of all that failed; [Batches.Results] tells them apart.
func (l *Batches) Post() error {
	l.postings, l.results = l.postings[:0], l.results[:0]
	for i := range l.list {
		e := &l.list[i]
		p, n, err := e.enter()
		e.at = -1
		if err == nil && n > 0 {
			e.at = len(l.postings)
			l.postings = append(l.postings, p)
		} else if err != nil {
			e.ended() // now: it may be in the list again, and be able to post by then
		}
		l.results = append(l.results, Posted{Err: err})
	}
	if len(l.postings) > 0 {
		cgo.PostAll(l.postings)
	}
	var failed []error
	for i := range l.list {
		e, r := &l.list[i], &l.results[i]
		if e.at >= 0 {
			r.N, r.Err = e.posted(&l.postings[e.at])
			e.ended()
		}
		if r.Err != nil {
			failed = append(failed, r.Err)
		}
	}
	clear(l.list)
	l.list = l.list[:0]
	return errors.Join(failed...)
}

// Results tell what became of each batch of the last Post, in the order of adding. They
// are valid until the next one.
func (l *Batches) Results() []Posted { return l.results }

// enter holds open what the batch needs, and empties it, so that it is posted once though
// it may be in the list twice.
func (e *entry) enter() (p cgo.Posting, n int, err error) {
	if b := e.recv; b != nil {
		if err := b.enter(); err != nil || b.n == 0 {
			return p, 0, err
		}
		n, b.n = b.n, 0
		if b.srq != nil {
			return cgo.SRQPosting(b.srq.srq, b.chain, n), n, nil
		}
		return cgo.RecvPosting(b.qp.qp, b.chain, n), n, nil
	}
	b := e.send
	if b == nil {
		return p, 0, opError("post", "batch", ErrAttributes, "there is none")
	}
	if err := b.enter(); err != nil || b.n == 0 {
		return p, 0, err
	}
	n, b.n = b.n, 0
	return cgo.SendPosting(b.qp.qp, b.qp.path, b.chain, n), n, nil
}

// posted lets go of what enter held.
func (e *entry) posted(p *cgo.Posting) (n int, err error) {
	n, err = p.Posted()
	if b := e.recv; b != nil {
		b.exit()
		return n, b.postError(err)
	}
	e.send.exit()
	if err != nil {
		err = e.send.postError(err)
	}
	return n, err
}

func (e *entry) ended() {
	switch {
	case e.recv != nil:
		e.recv.Reset()
	case e.send != nil:
		e.send.Reset()
	}
}
