package verbs

// Quiesce ends what the peer can do: when it returns, no request of the peer's is
// being executed, and none will be that was sent before the queue pair is connected
// again. It moves the queue pair to [StateError], where nothing new begins, and from
// there to [StateReset]. Work requests in it may complete as [WCFlushed].
//
// RESET itself waits for what is being executed, except on a device with
// [Device.ResetRaces]. There Quiesce waits between the two, some milliseconds. On EFA the
// queue pair ends in ERROR, as [QP.ToReset] says.
func (q *QP) Quiesce() error {
	if q.State() == StateReset {
		return q.ToReset()
	}
	if err := q.ToError(); err != nil {
		return err
	}
	if q.pd != nil && q.pd.dev.ResetRaces() {
		awaitExecuting()
	}
	return q.ToReset()
}

// ResetRaces tells whether [QP.ToReset] harms a device where it meets requests that
// are being executed, or whose acknowledgement has just left. So it is with Soft-RoCE
// before Linux 6.4: rxe_qp_reset runs the responder beside that of the soft interrupt
// (tasklet_disable does not hold off rxe_run_task). Both give the packet back, and the
// queue pair and the device have a reference too few ("refcount_t: underflow"), for
// which the device may go; and what was being executed may write to memory later.
// [QP.Quiesce] and [QP.Close] do no harm.
func (d *Device) ResetRaces() bool { return d.SoftRoCE() && !resetWaits() }
