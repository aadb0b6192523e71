package verbs

var CheckTransition = checkTransition

// Credits is how many requests the queue has room for, and how many at all.
func Credits(r *Requester) (have, capacity int32) { return r.credits.Load(), r.capacity }
