package verbs

import (
	"errors"

	"github.com/goverbs/goverbs/cgo"
)

// Batches posts batches of several queue pairs and shared receive queues in one crossing
// into C, in the order in which they were added, with one doorbell for each. So a
// protocol that spreads its packets over several queue pairs needs no more calls than one
// with a single queue pair.
//
//	list.Add(a)
//	list.Add(b)
//	err := list.Post() // as a.Post() and b.Post()
//
// The zero value is ready. It and the batches in it are for one goroutine at a time.
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

// Posted is the result of posting one batch of [Batches].
type Posted struct {
	N   int   // requests that were posted, the first ones
	Err error // why not all, as [Batch.Post] and [RecvBatch.Post] say it
}

// Add puts a batch on the list. The next [Batches.Post] posts it with all that is in it
// then. A batch that is added twice is posted once.
func (l *Batches) Add(b *Batch) { l.list = append(l.list, entry{send: b}) }

// AddRecv is Add for receives.
func (l *Batches) AddRecv(b *RecvBatch) { l.list = append(l.list, entry{recv: b}) }

// Len is the number of batches that were added since the last Post.
func (l *Batches) Len() int { return len(l.list) }

// Post posts and empties each batch, as the batch's own Post does, and then empties the
// list. If a batch fails, the other batches are still posted. The first requests of the
// failed batch may have been posted; the memory of its other requests is the program's
// again. The error joins those of all that failed; [Batches.Results] tells them apart.
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

// Results returns what became of each batch of the last Post, in the order of adding.
// They are valid until the next Post.
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
