package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// endpoint is a member of etcd.
type endpoint struct {
	cfg  clientv3.Config // its context ends with close
	stop context.CancelFunc

	mu   sync.Mutex  // of what follows
	conn *connection // nil: none that is made, or has been
	why  string      // there is no connection to the member; empty: there is one, or it is not known
	asks bool        // the member has asked for a certificate, and there is none for it
}

// connection is a client of a member of etcd, which has been made when done is closed.
type connection struct {
	done   chan struct{}
	client *clientv3.Client
	err    error
}

// tls returns a configuration of TLS that notes when the member asks for a certificate in vain. After that it ends the
// connection, of which the client may read no more than "broken pipe".
func (e *endpoint) tls(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil // an address without a scheme is one without TLS then
	}
	cfg = cfg.Clone()
	choose, all := cfg.GetClientCertificate, cfg.Certificates
	if choose == nil { // as crypto/tls chooses
		choose = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			for i := range all {
				if asked.SupportsCertificate(&all[i]) == nil {
					return &all[i], nil
				}
			}
			return &tls.Certificate{}, nil
		}
	}
	cfg.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		c, err := choose(asked)
		if err == nil && len(c.Certificate) == 0 {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.asks = true
		}
		return c, err
	}
	return cfg
}

// connect returns the client. With a user it is made when the member of etcd has replied: connect waits for that until
// ctx ends, and others need not wait longer for it.
func (e *endpoint) connect(ctx context.Context) (*clientv3.Client, error) {
	e.mu.Lock()
	if err := e.cfg.Context.Err(); err != nil {
		e.mu.Unlock()
		return nil, err
	}
	if e.conn == nil {
		e.conn = &connection{done: make(chan struct{})}
		go e.dial(e.conn)
	}
	c := e.conn
	e.mu.Unlock()
	select {
	case <-c.done:
		return c.client, c.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dial makes a client.
func (e *endpoint) dial(c *connection) {
	defer close(c.done)
	if c.client, c.err = clientv3.New(e.cfg); c.err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.conn = nil // the next one tries again
	}
}

// note calls invoke, and notes why there is no connection: the client of etcd returns its context's error alone.
func (e *endpoint) note(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	why, ok := strings.CutPrefix(status.Convert(err).Message(), "latest balancer error: ")
	if !ok {
		why = ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.why, e.asks = why, e.asks && err != nil
	return err
}

// explain returns an error with the reason why there is no connection, if that is why the time was over.
func (e *endpoint) explain(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if e.asks {
		err = fmt.Errorf("%w: it asks for a client certificate, and there is none that it accepts", err)
	}
	if e.why != "" {
		err = fmt.Errorf("%w: %s", err, e.why)
	}
	return err
}

func (e *endpoint) close() error {
	e.mu.Lock()
	e.stop()
	c := e.conn
	e.conn = nil
	e.mu.Unlock()
	if c == nil {
		return nil
	}
	if <-c.done; c.err != nil {
		return nil
	}
	return c.client.Close()
}
