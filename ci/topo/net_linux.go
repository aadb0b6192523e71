package topo

import (
	"fmt"
	stdnet "net"
	"net/netip"
	"strings"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const tableLocal = unix.RT_TABLE_LOCAL

// net changes one network namespace.
type net struct {
	conn *rtnetlink.Conn
	ns   *namespace // nil for the one of this process
}

// dial opens a named namespace, or this process's for an empty name.
func dial(name string) (*net, error) {
	if name == "" {
		conn, err := rtnetlink.Dial(nil)
		return &net{conn: conn}, err
	}
	ns, err := openNamespace(name)
	if err != nil {
		return nil, err
	}
	conn, err := rtnetlink.Dial(&netlink.Config{NetNS: ns.fd()})
	if err != nil {
		ns.close()
		return nil, err
	}
	return &net{conn: conn, ns: ns}, nil
}

func (n *net) close() {
	n.conn.Close()
	if n.ns != nil {
		n.ns.close()
	}
}

// link finds an interface by its name.
func (n *net) link(name string) (rtnetlink.LinkMessage, error) {
	list, err := n.conn.Link.List()
	if err != nil {
		return rtnetlink.LinkMessage{}, err
	}
	for _, l := range list {
		if l.Attributes != nil && l.Attributes.Name == name {
			return l, nil
		}
	}
	return rtnetlink.LinkMessage{}, fmt.Errorf("no interface %s", name)
}

func (n *net) index(name string) (uint32, error) {
	l, err := n.link(name)
	return l.Index, err
}

func (n *net) up(name string) error {
	i, err := n.index(name)
	if err != nil {
		return err
	}
	err = n.conn.Link.Set(&rtnetlink.LinkMessage{Family: unix.AF_UNSPEC, Index: i, Flags: unix.IFF_UP, Change: unix.IFF_UP})
	return wrap(err, "set up %s", name)
}

func (n *net) setMTU(name string, mtu uint32) error {
	return n.change(name, rtnetlink.LinkAttributes{MTU: mtu})
}

func (n *net) change(name string, a rtnetlink.LinkAttributes) error {
	l, err := n.link(name)
	if err != nil {
		return err
	}
	err = n.conn.Link.Set(&rtnetlink.LinkMessage{Family: unix.AF_UNSPEC, Index: l.Index, Attributes: &a})
	return wrap(err, "change %s", name)
}

// rename gives the first interface with a name that begins with one of the prefixes
// a new name, unless it has it.
func (n *net) rename(name string, prefixes ...string) error {
	list, err := n.conn.Link.List()
	if err != nil {
		return err
	}
	for _, l := range list {
		if l.Attributes.Name == name {
			return nil
		}
	}
	for _, l := range list {
		for _, p := range prefixes {
			if strings.HasPrefix(l.Attributes.Name, p) {
				return n.change(l.Attributes.Name, rtnetlink.LinkAttributes{Name: name})
			}
		}
	}
	return fmt.Errorf("no network card")
}

// addLink makes a link of a kind that takes no parameters.
func (n *net) addLink(name, kind string) error {
	err := n.conn.Link.New(&rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
		Name: name, Info: &rtnetlink.LinkInfo{Kind: kind}}})
	return wrap(err, "make %s", name)
}

// addVeth joins two new interfaces by a cable. The names may carry a
// namespace, as in "r0/p1".
func (n *net) addVeth(a, b string) error {
	end := func(name string) (*rtnetlink.LinkAttributes, func(), error) {
		attr := &rtnetlink.LinkAttributes{Name: name, MTU: MTU}
		space, inside, ok := strings.Cut(name, "/")
		if !ok {
			return attr, func() {}, nil
		}
		ns, err := openNamespace(space)
		if err != nil {
			return nil, nil, err
		}
		attr.Name, attr.NetNS = inside, rtnetlink.NetNSForFD(uint32(ns.fd()))
		return attr, ns.close, nil
	}
	attrA, doneA, err := end(a)
	if err != nil {
		return err
	}
	defer doneA()
	attrB, doneB, err := end(b)
	if err != nil {
		return err
	}
	defer doneB()
	attrA.Info = &rtnetlink.LinkInfo{Kind: "veth", Data: &driver.Veth{PeerInfo: &rtnetlink.LinkMessage{Attributes: attrB}}}
	return wrap(n.conn.Link.New(&rtnetlink.LinkMessage{Attributes: attrA}), "make veth %s-%s", a, b)
}

func ip4(a netip.Addr) stdnet.IP { return stdnet.IP(a.AsSlice()) }

func (n *net) addAddr(dev string, a netip.Addr, bits int) error {
	i, err := n.index(dev)
	if err != nil {
		return err
	}
	err = n.conn.Address.New(&rtnetlink.AddressMessage{Family: unix.AF_INET, PrefixLength: uint8(bits), Index: i,
		Attributes: &rtnetlink.AddressAttributes{Address: ip4(a), Local: ip4(a)}})
	return wrap(err, "add address %v to %s", a, dev)
}

// rule is a routing policy.
type rule struct {
	pref     int
	iif      string
	from, to netip.Prefix
	table    int
}

// only is the network of one address.
func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func (r rule) message() *rtnetlink.RuleMessage {
	m := &rtnetlink.RuleMessage{Family: unix.AF_INET, Table: uint8(r.table), Action: unix.FR_ACT_TO_TBL}
	pref := uint32(r.pref)
	m.Attributes = &rtnetlink.RuleAttributes{Priority: &pref}
	if r.iif != "" {
		m.Attributes.IIFName = &r.iif
	}
	if r.from.IsValid() {
		from := ip4(r.from.Addr())
		m.SrcLength, m.Attributes.Src = uint8(r.from.Bits()), &from
	}
	if r.to.IsValid() {
		to := ip4(r.to.Addr())
		m.DstLength, m.Attributes.Dst = uint8(r.to.Bits()), &to
	}
	return m
}

func (n *net) addRule(r rule) error {
	return wrap(n.conn.Rule.Add(r.message()), "add rule %d", r.pref)
}

func (n *net) delRule(r rule) error {
	return wrap(n.conn.Rule.Delete(r.message()), "delete rule %d", r.pref)
}

// route leads to dst/bits, directly or by one or more gateways.
type route struct {
	dst   netip.Addr
	bits  int
	dev   string
	src   netip.Addr
	via   []hop
	table int // 0 is the main table
}

type hop struct {
	gateway netip.Addr
	dev     string
}

func (n *net) addRoute(r route) error {
	m := &rtnetlink.RouteMessage{Family: unix.AF_INET, DstLength: uint8(r.bits), Table: uint8(r.table),
		Protocol: unix.RTPROT_STATIC, Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_UNIVERSE}
	if r.table == 0 {
		m.Table = unix.RT_TABLE_MAIN
	}
	prefix := netip.PrefixFrom(r.dst, r.bits).Masked()
	m.Attributes.Dst = ip4(prefix.Addr())
	if r.src.IsValid() {
		m.Attributes.Src = ip4(r.src)
	}
	if len(r.via) == 0 {
		i, err := n.index(r.dev)
		if err != nil {
			return err
		}
		m.Scope, m.Attributes.OutIface = unix.RT_SCOPE_LINK, i
	}
	for _, h := range r.via {
		i, err := n.index(h.dev)
		if err != nil {
			return err
		}
		if len(r.via) == 1 {
			m.Attributes.OutIface, m.Attributes.Gateway = i, ip4(h.gateway)
			break
		}
		m.Attributes.Multipath = append(m.Attributes.Multipath,
			rtnetlink.NextHop{Hop: rtnetlink.RTNextHop{IfIndex: i}, Gateway: ip4(h.gateway)})
	}
	return wrap(n.conn.Route.Add(m), "add route to %v", prefix)
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
