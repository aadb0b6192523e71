package verbs

import "github.com/goverbs/goverbs/cgo"

// AttachMulticast makes a UD queue pair receive what is sent to a multicast group, named
// by its GID, and on InfiniBand its LID. It does not make the network deliver those
// packets to this host: package rdmacm joins groups and does both.
func (q *QP) AttachMulticast(group GID, lid uint16) error {
	return q.life.With("attach", func() error {
		return opError("attach", q.life.Label, cgo.AttachMcast(q.qp, group, lid), "group ", group)
	})
}

// DetachMulticast undoes AttachMulticast. So does the end of the queue pair.
func (q *QP) DetachMulticast(group GID, lid uint16) error {
	return q.life.With("detach", func() error {
		return opError("detach", q.life.Label, cgo.DetachMcast(q.qp, group, lid), "group ", group)
	})
}
