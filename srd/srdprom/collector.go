// Package srdprom exports the statistics of endpoints to Prometheus. It is apart from package srd so
// that programs without Prometheus do not have it.
package srdprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/goverbs/goverbs/internal/prom"
	"github.com/goverbs/goverbs/srd"
)

// New returns a collector of an endpoint. Register it with a constant label where there are several:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"device": "efa_0"}, registry).MustRegister(srdprom.New(ep))
func New(ep *srd.Endpoint) prometheus.Collector { return prom.One("srd_", metrics, ep.Stats) }

var metrics = []prom.Metric[srd.Stats]{
	prom.Count("sent_packets", "Packets sent.", func(s *srd.Stats) uint64 { return s.Sent }),
	prom.Count("received_packets", "Packets received.", func(s *srd.Stats) uint64 { return s.Received }),
	prom.Count("retransmitted_packets", "Packets sent again.", func(s *srd.Stats) uint64 { return s.Retransmitted }),
	prom.Count("timeouts", "Packets without a response in time.", func(s *srd.Stats) uint64 { return s.Timeouts }),
	prom.Count("probes", "Probes of silent peers and paths.", func(s *srd.Stats) uint64 { return s.Probes }),
	prom.Count("responses", "Responses that were sent alone, not with a message.", func(s *srd.Stats) uint64 { return s.Responses }),
	prom.Count("duplicate_packets", "Packets that had arrived before.", func(s *srd.Stats) uint64 { return s.Duplicates }),
	prom.Count("beyond_packets", "Packets that found no memory and come again.", func(s *srd.Stats) uint64 { return s.Beyond }),
	prom.Count("delivered_messages", "Messages that arrived.", func(s *srd.Stats) uint64 { return s.Delivered }),
	prom.Count("refused_messages", "Messages that found no buffer.", func(s *srd.Stats) uint64 { return s.Refused }),
	prom.Count("sessions", "Sessions with peers.", func(s *srd.Stats) uint64 { return s.Sessions }),
	prom.Count("forgotten", "Peers forgotten.", func(s *srd.Stats) uint64 { return s.Forgotten }),
	prom.Count("retired_paths", "Paths taken out of use.", func(s *srd.Stats) uint64 { return s.Retired }),
	prom.Count("revived_paths", "Paths taken into use again.", func(s *srd.Stats) uint64 { return s.Revived }),
	prom.Count("broken_queue_pairs", "Queue pairs that the device gave up.", func(s *srd.Stats) uint64 { return s.Broken }),
	prom.Count("malformed_packets", "Malformed packets.", func(s *srd.Stats) uint64 { return s.Malformed }),
	prom.Count("wrong_token_packets", "Packets with a wrong token.", func(s *srd.Stats) uint64 { return s.WrongToken }),
	prom.Count("wrong_source_packets", "Packets from a wrong source.", func(s *srd.Stats) uint64 { return s.WrongSource }),
	prom.Count("wrong_cookie_packets", "Packets with a wrong cookie.", func(s *srd.Stats) uint64 { return s.WrongCookie }),
	prom.Count("wrong_key_packets", "Packets with a wrong key.", func(s *srd.Stats) uint64 { return s.WrongKey }),
	prom.Count("old_epoch_packets", "Packets of an old epoch.", func(s *srd.Stats) uint64 { return s.OldEpoch }),
	prom.Count("bogus_packets", "Packets with contents that no peer sends.", func(s *srd.Stats) uint64 { return s.Bogus }),
	prom.Count("resets", "Resets sent.", func(s *srd.Stats) uint64 { return s.Resets }),
	prom.Count("challenges", "Challenges sent.", func(s *srd.Stats) uint64 { return s.Challenges }),
	prom.Count("unanswered", "Replies to unauthenticated peers that were not sent since there were too many.", func(s *srd.Stats) uint64 { return s.Unanswered }),
}
