package mirror

// grant lets a client READ: the server has all its records for itself until a time of its clock, in ms. Another
// server may have changed them after that.
type grant struct {
	until uint64
	renew uint64 // from then on the client asks for another one
}

// shortGrant is how long a client waits at least before it asks again, in ms.
const shortGrant = 10

// Grant takes a grant, which the server wrote at a time of its clock. An earlier one may last longer.
func (m *Mirror) Grant(until, clock uint64) {
	m.grant.until = max(m.grant.until, until)
	m.grant.renew = clock + max((max(until, clock)-clock)/2, shortGrant)
}

// Granted reports whether the result of a READ counts that has completed before the local time now. If due is set
// the client is to ask for another grant.
func (m *Mirror) Granted(now int64) (ok, due bool) {
	latest := m.times.latest(now)
	return latest < m.grant.until, latest >= m.grant.renew
}
