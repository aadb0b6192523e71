package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// store is etcd, by a client of each of its members, so that one that hangs costs one timeout.
type store struct {
	endpoints []*endpoint
	at        atomic.Uint32 // the one that replied last
	timeout   time.Duration // of one member
	revision  atomic.Int64  // the highest that etcd was read at
	prefix    string
}

// The keys below the prefix. Members watch all from "moves/" to those of the servers.
const (
	placementKey = "placement"
	serversKey   = "servers/" // and id, "/", boot number
	movesKey     = "moves/"
	requestsKey  = movesKey + "to/"   // and the id of the next owner
	repliesKey   = movesKey + "from/" // and the id of the owner
	drainKey     = "operator/drain/"  // and the id of a server that is to have no shards
)

// openStore returns etcd, of which each member has some time to reply.
func openStore(cfg *Config, timeout time.Duration) *store {
	s := &store{timeout: timeout, prefix: "/rdmacached/" + cfg.Name + "/"}
	for _, address := range cfg.Etcd {
		ctx, stop := context.WithCancel(context.Background())
		e := &endpoint{stop: stop} // which knows why a dial with a user has failed before the call ends that waits for it
		e.cfg = clientv3.Config{
			Endpoints: []string{address}, TLS: e.tls(cfg.TLS), Username: cfg.User, Password: cfg.Password, Context: ctx,
			DialTimeout: timeout * 7 / 8, Logger: zap.NewNop(), DialKeepAliveTime: cfg.TTL, DialKeepAliveTimeout: cfg.TTL / 4,
			DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: timeout, Multiplier: 1.5, Jitter: 0.2, MaxDelay: cfg.TTL},
				MinConnectTimeout: cfg.TTL, // and at most: a way that was cut may be there again
			}), grpc.WithChainUnaryInterceptor(e.note)},
		}
		s.endpoints = append(s.endpoints, e)
	}
	return s
}

func (s *store) close() error {
	var errs []error
	for _, e := range s.endpoints {
		errs = append(errs, e.close())
	}
	return errors.Join(errs...)
}

// do executes a transaction at one member after the other, until one replies: other operations if a comparison fails. A transaction without a reply may have been
// executed, or may be executed later.
func (s *store) do(ctx context.Context, compare []clientv3.Cmp, others []clientv3.Op, ops ...clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	first := s.at.Load()
	var errs []error // of each member
	for i := range uint32(len(s.endpoints)) {
		n := (first + i) % uint32(len(s.endpoints))
		if resp, err = s.doAt(ctx, n, compare, others, ops); err == nil {
			s.at.Store(n)
			return resp, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.endpoints[n].cfg.Endpoints[0], err))
	}
	return nil, fmt.Errorf("cluster: etcd: %w", errors.Join(errs...))
}

// doAt is do at one member.
func (s *store) doAt(ctx context.Context, n uint32, compare []clientv3.Cmp, others, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e := s.endpoints[n]
	c, err := e.connect(ctx)
	if err != nil {
		return nil, e.explain(err)
	}
	resp, err := c.Txn(ctx).If(compare...).Then(ops...).Else(others...).Commit()
	return resp, e.explain(err)
}

// watcher is what a member does about changes in etcd.
type watcher struct {
	id      string                             // of the member
	changed func()                             // the placement, what an operator wants, or a move of the member that another one goes on with
	beat    func(l place.Life, revision int64) // the key of a life
}

// watch watches until ctx ends, at the member of etcd that has replied last. It may miss changes.
func (s *store) watch(ctx context.Context, w watcher) {
	for ctx.Err() == nil {
		s.watchAt(ctx, s.at.Load(), w)
		select {
		case <-time.After(s.timeout):
		case <-ctx.Done():
		}
	}
}

// watchAt is watch at one member of etcd, until that fails or another one has replied. The client of a member that has died
// goes on to try that member.
func (s *store) watchAt(ctx context.Context, n uint32, w watcher) {
	c, err := s.endpoints[n].connect(ctx)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(s.timeout)
	defer tick.Stop()
	responses := c.Watch(ctx, s.prefix+movesKey, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.prefix+serversKey)))
	for s.at.Load() == n {
		select {
		case r, ok := <-responses:
			if !ok || r.Err() != nil {
				return
			}
			s.tell(r.Events, w)
		case <-tick.C:
		}
	}
}

// tell tells of changes.
func (s *store) tell(events []*clientv3.Event, w watcher) {
	for _, e := range events {
		key := strings.TrimPrefix(string(e.Kv.Key), s.prefix)
		if key, ok := strings.CutPrefix(key, serversKey); ok {
			if l, err := lifeOf(key); err == nil && e.Type == clientv3.EventTypePut {
				w.beat(l, e.Kv.ModRevision)
			}
		} else if !strings.HasPrefix(key, movesKey) || movesOn(key, e.Kv.Value, w.id) {
			w.changed()
		}
	}
}

// movesOn reports whether a request or a reply is for a member, which need not hear of the moves of others, or of what it
// has written itself.
func movesOn(key string, value []byte, id string) bool {
	var r request // or the reply, which has some of its fields
	if json.Unmarshal(value, &r) != nil {
		return true // the next beat says so
	}
	if strings.HasPrefix(key, repliesKey) {
		return r.To == id
	}
	return r.From == id
}

// lifeOf returns the life of a key below serversKey.
func lifeOf(key string) (place.Life, error) {
	id, boot, _ := strings.Cut(key, "/")
	l := place.Life{ID: id}
	_, err := fmt.Sscan(boot, &l.Boot)
	return l, err
}

// view is all that etcd has of a cluster, at one moment.
type view struct {
	own.View       // without a placement if there is none
	revision int64 // of the placement; 0: there is none
	servers  map[place.Life]place.Server
	ttls     map[place.Life]time.Duration
	requests map[string]request // by id
	replies  map[string]reply
	drains   map[string]bool // ids that an operator drains
}

func emptyView() *view {
	return &view{View: own.View{Beats: make(map[place.Life]int64)}, servers: make(map[place.Life]place.Server),
		ttls: make(map[place.Life]time.Duration), requests: make(map[string]request), replies: make(map[string]reply), drains: make(map[string]bool)}
}

// life is what a server's key has.
type life struct {
	Address string `json:"address"`
	Zone    string `json:"zone,omitempty"`
	Weight  uint8  `json:"weight"`
	TTL     int64  `json:"ttl"` // ms
}

func (s *store) lifeKey(l place.Life) string {
	return fmt.Sprintf("%s%s%s/%d", s.prefix, serversKey, l.ID, l.Boot)
}

// beat writes the key of a life, and reads everything, as read does.
func (s *store) beat(ctx context.Context, m place.Server, ttl time.Duration) (*view, error) {
	b, err := json.Marshal(life{m.Address, m.Zone, m.Weight, ttl.Milliseconds()})
	if err != nil {
		return nil, err
	}
	return s.read(ctx, clientv3.OpPut(s.lifeKey(m.Life), string(b)))
}

// read reads everything, after other operations. It returns that with an error while revisions are below earlier ones, since a
// backup has been restored: a key may have its revision of before for a second time, and transactions compare revisions.
func (s *store) read(ctx context.Context, ops ...clientv3.Op) (*view, error) {
	before := s.revision.Load()
	resp, err := s.do(ctx, nil, nil, append(ops, clientv3.OpGet(s.prefix, clientv3.WithPrefix()))...)
	if err != nil {
		return nil, err
	}
	v := emptyView()
	for _, kv := range resp.Responses[len(ops)].GetResponseRange().Kvs {
		if err := v.add(strings.TrimPrefix(string(kv.Key), s.prefix), kv.Value, kv.ModRevision); err != nil {
			return nil, fmt.Errorf("cluster: etcd: key %s: %w", kv.Key, err)
		}
	}
	if resp.Header.Revision < before {
		return v, fmt.Errorf("cluster: etcd is at revision %d, after %d: a backup has been restored", resp.Header.Revision, before)
	}
	s.revision.Store(resp.Header.Revision)
	return v, nil
}

// add adds a key. It ignores those that it does not know.
func (v *view) add(key string, value []byte, revision int64) (err error) {
	if key == placementKey {
		v.Placement, err = place.Parse(value)
		v.revision = revision
		return err
	}
	if id, ok := strings.CutPrefix(key, requestsKey); ok {
		var r request
		err = json.Unmarshal(value, &r)
		v.requests[id] = r
		return err
	}
	if id, ok := strings.CutPrefix(key, repliesKey); ok {
		var r reply
		err = json.Unmarshal(value, &r)
		v.replies[id] = r
		return err
	}
	if id, ok := strings.CutPrefix(key, drainKey); ok {
		v.drains[id] = true
	}
	if key, ok := strings.CutPrefix(key, serversKey); ok {
		l, err := lifeOf(key)
		if err != nil {
			return err
		}
		var server life
		if err := json.Unmarshal(value, &server); err != nil {
			return err
		}
		v.Beats[l], v.ttls[l] = revision, time.Duration(server.TTL)*time.Millisecond
		v.servers[l] = place.Server{Life: l, Address: server.Address, Zone: server.Zone, Weight: server.Weight}
	}
	return nil
}

// replace replaces the placement of a revision, and executes other operations with it. It returns the placement that etcd
// has then: if it is another one than next, nothing was executed, and nothing will be.
func (s *store) replace(ctx context.Context, revision int64, next *place.Placement, compare []clientv3.Cmp, ops ...clientv3.Op) (*place.Placement, error) {
	b, err := next.Format()
	if err != nil {
		return nil, err
	}
	key := s.prefix + placementKey
	compare = append(compare, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
	resp, err := s.do(ctx, compare, []clientv3.Op{clientv3.OpGet(key)}, append(ops, clientv3.OpPut(key, string(b)))...)
	if err != nil || resp.Succeeded {
		return next, err
	}
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		return place.Parse(kv.Value)
	}
	return nil, errors.New("cluster: etcd has no placement")
}

// ends are what a transaction compares and does that ends a life of which the key has a revision.
func (s *store) ends(l place.Life, revision int64) ([]clientv3.Cmp, clientv3.Op) {
	key := s.lifeKey(l)
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}, clientv3.OpDelete(key)
}

// exists is what a transaction compares that makes a life a member: one that has withdrawn has no key.
func (s *store) exists(l place.Life) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.lifeKey(l)), ">", 0)}
}

// forget deletes the key of a life.
func (s *store) forget(ctx context.Context, l place.Life) error {
	_, err := s.do(ctx, nil, nil, clientv3.OpDelete(s.lifeKey(l)))
	return err
}

// put writes a key that one member alone writes.
func (s *store) put(ctx context.Context, key, id string, value any) error {
	b, err := json.Marshal(value)
	if err == nil {
		_, err = s.do(ctx, nil, nil, clientv3.OpPut(s.prefix+key+id, string(b)))
	}
	return err
}
