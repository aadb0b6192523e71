package verbs

// Quiesce stops the peer: when it returns, no request of the peer is being executed, and
// none will be that was sent before the queue pair is connected again. It moves the queue
// pair to [StateError], where nothing new begins, and from there to [StateReset]. Work
// requests in it may complete as [WCFlushed].
//
// RESET itself waits for what is being executed, except with Soft-RoCE before Linux 6.4.
// There Quiesce waits between the two, some milliseconds. On EFA the
// queue pair ends in ERROR, as [QP.ToReset] says.
func (q *QP) Quiesce() error {
	if q.State() == StateReset {
		return q.ToReset()
	}
	if err := q.ToError(); err != nil {
		return err
	}
	if q.pd != nil && q.pd.dev.resetRaces() {
		awaitExecuting()
	}
	return q.ToReset()
}

// resetRaces reports whether [QP.ToReset] harms a device when it meets requests that are
// being executed or have just been acknowledged. That is so for Soft-RoCE before
// Linux 6.4: rxe_qp_reset runs the responder at the same time as the soft interrupt does
// (tasklet_disable does not hold off rxe_run_task). Both give the packet back. Queue pair
// and device then have a reference too few ("refcount_t: underflow"), so that the device
// may go away, and the request that was being executed may write to memory later.
// [QP.Quiesce] and [QP.Close] do no harm.
func (d *Device) resetRaces() bool { return d.softRoCE() && !resetWaits() }
