package verbs

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// Endpoint is what a peer must know to reach a queue pair, and the memory
// regions behind it.
type Endpoint struct {
	Type QPType
	QPN  uint32 // 24 bits
	PSN  uint32 // 24 bits: first packet that the queue pair will send
	QKey uint32 // UD
	GID  GID
	LID  uint16 // InfiniBand
	SL   uint8  // service level to use towards it, 0 to 15
	MTU  MTU    // of the port and the netdev of GID: see [Device.LocalMTU]
	// MaxReads is how many READs and atomics the queue pair issues and executes at a time,
	// at most: [QP.Connect] takes the smaller of both sides. As in [ConnectConfig], -1
	// means none; 0 means that the peer does not say. At most 254.
	MaxReads int
	ECE      ECE // what the queue pair offers; zero for nothing
	Regions  []Region
	Data     []byte // for the program's own use
}

// Limits of an encoded [Endpoint].
const (
	MaxRegions      = 256
	MaxEndpointData = 4096

	endpointMagic   = "GVEP"
	endpointRefused = "GVNO\x00\x00\x00\x00" // instead of a message
	endpointVersion = 1
	endpointECE     = 2 // version with ECE behind the fixed part
	eceLen          = 8
	headerLen       = 8 // magic, version, reserved, payload length
	fixedLen        = 4*1 + 2 + 3*4 + 16 + 2 + 2
	checksumLen     = 4
	maxSL           = 15
	maxReads        = 254
	noReads         = 255 // of the message
	maxPayload      = fixedLen + eceLen + MaxRegions*RegionSize + MaxEndpointData
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendBinary appends the message form of e, all of it big endian, with the length of each field in
// bytes:
//
//	"GVEP" | version 1 | 0 | payload length 2 | payload | CRC-32C of all before 4
//	payload: type 1 | MTU 1 | SL 1 | READs 1 | LID 2 | QPN 4 | PSN 4 | QKey 4 | GID 16 |
//	         regions 2 | data length 2 | regions * [Region.AppendBinary] | data
//
// READs is MaxReads, or 255 for none.
//
// An endpoint with ECE has version 2, and vendor 4 | options 4 before the regions.
// Without, it has version 1, so that programs from before ECE understand it.
func (e *Endpoint) AppendBinary(b []byte) ([]byte, error) {
	if e.SL > maxSL {
		return b, opError("encode", "endpoint", ErrMessage, "service level ", e.SL)
	}
	if e.MaxReads < -1 || e.MaxReads > maxReads {
		return b, opError("encode", "endpoint", ErrMessage, "MaxReads ", e.MaxReads)
	}
	if len(e.Regions) > MaxRegions || len(e.Data) > MaxEndpointData {
		return b, opError("encode", "endpoint", ErrMessage,
			fmt.Sprintf("%d regions, %d bytes of data; at most %d and %d", len(e.Regions), len(e.Data), MaxRegions, MaxEndpointData))
	}
	if e.ECE.Vendor == 0 && e.ECE.Options != 0 {
		return b, opError("encode", "endpoint", ErrMessage, "ECE options without a vendor")
	}
	start := len(b)
	be := binary.BigEndian
	version, fixed := byte(endpointVersion), fixedLen
	if e.ECE != (ECE{}) {
		version, fixed = endpointECE, fixedLen+eceLen
	}
	b = append(b, endpointMagic...)
	b = append(b, version, 0)
	b = be.AppendUint16(b, uint16(fixed+len(e.Regions)*RegionSize+len(e.Data)))
	b = append(b, byte(e.Type), byte(e.MTU), e.SL, byte(e.MaxReads)) // -1 is noReads
	b = be.AppendUint16(b, e.LID)
	b = be.AppendUint32(b, e.QPN)
	b = be.AppendUint32(b, e.PSN)
	b = be.AppendUint32(b, e.QKey)
	b = append(b, e.GID[:]...)
	b = be.AppendUint16(b, uint16(len(e.Regions)))
	b = be.AppendUint16(b, uint16(len(e.Data)))
	if version == endpointECE {
		b = be.AppendUint32(b, e.ECE.Vendor)
		b = be.AppendUint32(b, e.ECE.Options)
	}
	for _, r := range e.Regions {
		b, _ = r.AppendBinary(b)
	}
	b = append(b, e.Data...)
	return be.AppendUint32(b, crc32.Checksum(b[start:], castagnoli)), nil
}

// MarshalBinary is [Endpoint.AppendBinary] into new memory.
func (e *Endpoint) MarshalBinary() ([]byte, error) { return e.AppendBinary(nil) }

// readEndpoint reads one message and nothing behind it.
func readEndpoint(r io.Reader) (Endpoint, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Endpoint{}, err
	}
	n, err := payloadLen(header[:])
	if err != nil {
		return Endpoint{}, err
	}
	msg := make([]byte, headerLen+n+checksumLen)
	copy(msg, header[:])
	if _, err := io.ReadFull(r, msg[headerLen:]); err != nil {
		return Endpoint{}, err
	}
	var e Endpoint
	return e, e.UnmarshalBinary(msg)
}

func malformed(format string, args ...any) error {
	return opError("decode", "endpoint", ErrMessage, fmt.Sprintf(format, args...))
}

func payloadLen(header []byte) (int, error) {
	if string(header) == endpointRefused {
		return 0, opError("decode", "endpoint", ErrUnreachable, "the peer could not make its own")
	}
	if string(header[:4]) != endpointMagic {
		return 0, malformed("it begins with %q: the peer speaks something else", header[:4])
	}
	fixed := fixedLen
	switch header[4] {
	case endpointVersion:
	case endpointECE:
		fixed += eceLen
	default:
		return 0, malformed("version %d, this program speaks %d and %d", header[4], endpointVersion, endpointECE)
	}
	n := int(binary.BigEndian.Uint16(header[6:]))
	if n < fixed || n > maxPayload {
		return 0, malformed("payload of %d bytes", n)
	}
	return n, nil
}

// UnmarshalBinary decodes exactly one message. Anything that AppendBinary does not make
// is refused with [ErrMessage].
func (e *Endpoint) UnmarshalBinary(b []byte) error {
	if len(b) < headerLen+fixedLen+checksumLen {
		return malformed("%d bytes", len(b))
	}
	n, err := payloadLen(b)
	if err != nil {
		return err
	}
	if len(b) != headerLen+n+checksumLen {
		return malformed("%d bytes, %d announced", len(b), headerLen+n+checksumLen)
	}
	be := binary.BigEndian
	body, sum := b[:len(b)-checksumLen], be.Uint32(b[len(b)-checksumLen:])
	if crc32.Checksum(body, castagnoli) != sum {
		return malformed("checksum")
	}
	p := body[headerLen:]
	reads := int(p[3])
	if reads == noReads {
		reads = -1
	}
	out := Endpoint{
		MaxReads: reads,
		Type:     QPType(p[0]),
		MTU:      MTU(p[1]),
		SL:       p[2],
		LID:      be.Uint16(p[4:]),
		QPN:      be.Uint32(p[6:]),
		PSN:      be.Uint32(p[10:]),
		QKey:     be.Uint32(p[14:]),
		GID:      GID(p[18:34]),
	}
	regions, data := int(be.Uint16(p[34:])), int(be.Uint16(p[36:]))
	p = p[fixedLen:]
	if b[4] == endpointECE {
		out.ECE = ECE{Vendor: be.Uint32(p), Options: be.Uint32(p[4:])}
		p = p[eceLen:]
		if out.ECE.Vendor == 0 {
			return malformed("ECE without a vendor")
		}
	}
	switch {
	case b[5] != 0:
		return malformed("a reserved byte is set")
	case out.SL > maxSL:
		return malformed("service level %d", out.SL)
	case regions > MaxRegions || data > MaxEndpointData || len(p) != regions*RegionSize+data:
		return malformed("%d regions and %d bytes of data in %d bytes", regions, data, len(p))
	case out.Type != RC && out.Type != UC && out.Type != UD:
		return malformed("%v", out.Type)
	case out.QPN>>24 != 0 || out.PSN>>24 != 0:
		return malformed("queue pair number %#x, PSN %#x", out.QPN, out.PSN)
	case out.MTU.Bytes() == 0:
		return malformed("MTU code %d", out.MTU)
	}
	for range regions {
		var r Region
		if err := r.UnmarshalBinary(p[:RegionSize]); err != nil {
			return err
		}
		out.Regions = append(out.Regions, r)
		p = p[RegionSize:]
	}
	if data > 0 {
		out.Data = append([]byte(nil), p...)
	}
	*e = out
	return nil
}

// sayReads is a number of READs as an endpoint says it.
func sayReads(n int) int {
	if n == 0 {
		return -1
	}
	return min(n, maxReads)
}

// Endpoint describes the queue pair to a peer; add regions and data as needed. MaxReads is
// the device's limit: set it to what this side will connect with, if that is less.
func (q *QP) Endpoint() (Endpoint, error) {
	if err := q.life.Open("describe"); err != nil {
		return Endpoint{}, err
	}
	port, err := q.pd.dev.Port(q.gid.Port)
	if err != nil {
		return Endpoint{}, err
	}
	mtu, err := q.pd.dev.mtuOn(port, q.gid)
	if err != nil {
		return Endpoint{}, err
	}
	return Endpoint{MaxReads: sayReads(q.pd.dev.readLimit()), Type: q.typ, QPN: q.num, PSN: q.psn, QKey: q.qkey.Load(), GID: q.gid.GID, LID: port.LID, MTU: mtu, ECE: q.offer}, nil
}
