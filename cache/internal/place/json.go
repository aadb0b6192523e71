package place

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// format is the number of the form of [Placement.Format]. A server that reads another one does not follow it. A field that is
// added needs another number: a server that does not know the field drops it when it writes the next placement.
const format = 1

// maxText is the length of the longest text that [Parse] reads.
const maxText = 256 << 10

// The table of shards has 8 bytes for each: owner 1, bits 1, epoch 4, little endian, and 2 for the numbers
// of backups, which are 0 in this format.
const (
	tableEntry  = 8
	tableHanded = 1
)

type text struct {
	Format  int          `json:"format"`
	Cluster string       `json:"cluster"`
	Epoch   uint32       `json:"epoch"`
	Servers []textServer `json:"servers"`
	Shards  []byte       `json:"shards"`
}

type textServer struct {
	ID      string `json:"id"`
	Number  uint8  `json:"number"`
	Boot    uint64 `json:"boot,string"` // in quotes, since programs read numbers as float64
	Address string `json:"address"`
	Zone    string `json:"zone,omitempty"`
	Weight  uint8  `json:"weight"`
	State   string `json:"state"`
}

// states are the texts of the states.
var states = [...]string{Member: "member", Draining: "draining", Gone: "gone"}

// Format returns the placement as the JSON that is kept in etcd, or what [Placement.Check] returns.
func (p *Placement) Format() ([]byte, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	t := text{Format: format, Cluster: hex.EncodeToString(p.Cluster[:]), Epoch: p.Epoch}
	for _, s := range p.Servers {
		t.Servers = append(t.Servers, textServer{s.ID, s.Number, s.Boot, s.Address, s.Zone, s.Weight, states[s.State]})
	}
	for _, s := range p.Shards {
		bits := byte(0)
		if s.Handed {
			bits = tableHanded
		}
		t.Shards = append(t.Shards, s.Owner, bits)
		t.Shards = binary.LittleEndian.AppendUint32(t.Shards, s.Epoch)
		t.Shards = append(t.Shards, 0, 0)
	}
	return json.Marshal(&t)
}

// Parse returns the placement that a text of [Placement.Format] has. Any other text gives an error that matches
// [ErrPlacement].
func Parse(b []byte) (*Placement, error) {
	if len(b) > maxText {
		return nil, fmt.Errorf("%w: %d bytes", ErrPlacement, len(b))
	}
	var t text
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlacement, err)
	}
	if t.Format != format {
		return nil, fmt.Errorf("%w: format %d is another version's", ErrPlacement, t.Format)
	}
	p := &Placement{Epoch: t.Epoch}
	if n, err := hex.Decode(p.Cluster[:], []byte(t.Cluster[:min(len(t.Cluster), 2*len(p.Cluster))])); err != nil || n != len(p.Cluster) || len(t.Cluster) != 2*n {
		return nil, fmt.Errorf("%w: cluster %q", ErrPlacement, t.Cluster)
	}
	for _, s := range t.Servers {
		p.Servers = append(p.Servers, Server{Life{s.ID, s.Boot}, s.Number, s.Address, s.Zone, s.Weight, parseState(s.State)})
	}
	if len(t.Shards) != Shards*tableEntry {
		return nil, fmt.Errorf("%w: the table has %d bytes", ErrPlacement, len(t.Shards))
	}
	p.Shards = make([]Shard, Shards)
	for i := range p.Shards {
		e := t.Shards[i*tableEntry:][:tableEntry]
		if e[1]&^tableHanded != 0 || e[6] != 0 || e[7] != 0 {
			return nil, fmt.Errorf("%w: shard %d has bits %#x and backups", ErrPlacement, i, e[1])
		}
		p.Shards[i] = Shard{Owner: e[0], Epoch: binary.LittleEndian.Uint32(e[2:]), Handed: e[1] == tableHanded}
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

// parseState returns the state of a text, or 0, which [Placement.Check] refuses.
func parseState(text string) State {
	for s, t := range states {
		if t == text && t != "" {
			return State(s)
		}
	}
	return 0
}
