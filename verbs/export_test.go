package verbs

var CheckTransition = checkTransition

// Credits is how many requests the queue has room for, and how many at all.
func (r *Requester) Credits() (have, capacity int32) { return r.credits.Load(), r.capacity }
