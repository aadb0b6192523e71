package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// params are what the peers must agree on. They travel with each address, as
// JSON in [verbs.Endpoint.Data].
type params struct {
	Version    int           `json:"v"`
	Test       string        `json:"test"`
	Transport  string        `json:"transport"` // RC, UC, UD
	Size       int           `json:"size"`      // bytes
	Sweep      bool          `json:"sweep"`
	Iterations int           `json:"iterations"` // 0 with a duration
	Duration   time.Duration `json:"duration"`
	Warmup     int           `json:"warmup"`
	QPs        int           `json:"qps"`
	Events     bool          `json:"events"`
	Passive    bool          `json:"passive"` // write_lat without replies
	MTU        int           `json:"mtu"`     // bytes, 0 for the port's; the smaller one counts
}

const paramsVersion = 1

func (p params) bandwidth() bool { return strings.HasSuffix(p.Test, "_bw") }

// pingPong reports whether the server replies to each message.
func (p params) pingPong() bool { return p.Test == "send_lat" || p.Test == "write_lat" && !p.Passive }

// reliable reports whether what was sent arrives.
func (p params) reliable() bool { return p.Transport == "RC" }

func (p params) qpType() verbs.QPType {
	switch p.Transport {
	case "UC":
		return verbs.UC
	case "UD":
		return verbs.UD
	}
	return verbs.RC
}

func (p params) encode() ([]byte, error) { return json.Marshal(p) }

// agree compares the peer's parameters with these and returns those that hold.
func (p params) agree(message []byte) (params, error) {
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(message, &version); err != nil || version.V == 0 {
		return p, fmt.Errorf("the peer is no rdmabench: it sent %.40q", message)
	}
	if version.V != p.Version {
		return p, fmt.Errorf("the peer is another rdmabench: parameters version %d here, %d there", p.Version, version.V)
	}
	var peer params
	dec := json.NewDecoder(bytes.NewReader(message))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&peer); err != nil {
		return p, fmt.Errorf("the peer's parameters: %w", err)
	}
	var differ []string
	for _, c := range []struct {
		name        string
		here, there any
	}{
		{"test", p.Test, peer.Test}, {"-c", p.Transport, peer.Transport}, {"-a", p.Sweep, peer.Sweep}, {"-s", p.Size, peer.Size},
		{"-n", p.Iterations, peer.Iterations}, {"-D", p.Duration, peer.Duration}, {"-warmup", p.Warmup, peer.Warmup},
		{"-q", p.QPs, peer.QPs}, {"-e", p.Events, peer.Events}, {"-passive", p.Passive, peer.Passive},
	} {
		if c.here != c.there {
			differ = append(differ, fmt.Sprintf("%s is %v here and %v there", c.name, c.here, c.there))
		}
	}
	if len(differ) > 0 {
		return p, fmt.Errorf("the peer runs another test: %s", strings.Join(differ, ", "))
	}
	if peer.MTU != 0 && (p.MTU == 0 || peer.MTU < p.MTU) {
		if mtuOf(peer.MTU) == 0 {
			return p, fmt.Errorf("the peer's MTU of %d bytes does not exist", peer.MTU)
		}
		p.MTU = peer.MTU
	}
	return p, nil
}
