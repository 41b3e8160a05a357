// Calls a webhook as kube-apiserver does: Go's http.Transport over TLS, in bursts with pauses between them.
//
// A call that waits for a new connection takes one that becomes free meanwhile; the new one is then kept as a
// spare that has carried nothing yet. What the server does to such spares during a pause is what is looked at.
// Prints one JSON object with what became of the calls and of the connections.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// The limits of client-go for webhooks.
const (
	idlePerHost   = 25
	idleTimeout   = 90 * time.Second
	answerTimeout = 10 * time.Second
)

// Counts of one run. Spares: connections that have carried nothing until the last burst was over.
// ClosedByServer: connections that the server ended, whether they were in use or not.
type result struct {
	Calls          int64            `json:"calls"`
	Failed         int64            `json:"failed"`
	Errors         map[string]int64 `json:"errors"`
	Opened         int64            `json:"opened"`
	Spares         int64            `json:"spares"`
	ClosedByServer int64            `json:"closedByServer"`
	Seconds        float64          `json:"seconds"`
}

// A connection that knows whether it was used and who ended it.
type watched struct {
	net.Conn
	used   atomic.Bool
	closed *atomic.Int64
	once   sync.Once
}

func (c *watched) Write(b []byte) (int, error) {
	c.used.Store(true)
	return c.Conn.Write(b)
}

func (c *watched) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) { // ErrClosed: the transport itself let go of it
		c.once.Do(func() { c.closed.Add(1) })
	}
	return n, err
}

type caller struct {
	url     string
	body    []byte
	client  *http.Client
	mutex   sync.Mutex
	opened  []*watched
	closed  atomic.Int64
	outcome result
}

func newCaller(url string, body []byte, roots *x509.CertPool, dialJitter time.Duration) *caller {
	made := &caller{url: url, body: body, outcome: result{Errors: map[string]int64{}}}
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}}
	transport := &http.Transport{
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleTimeout,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if dialJitter > 0 { // a network slower than loopback: calls get other connections meanwhile
				time.Sleep(time.Duration(rand.Int63n(int64(dialJitter))))
			}
			kept := &watched{Conn: connection, closed: &made.closed}
			made.mutex.Lock()
			made.opened = append(made.opened, kept)
			made.mutex.Unlock()
			return kept, nil
		},
	}
	made.client = &http.Client{Transport: transport, Timeout: answerTimeout}
	return made
}

func (c *caller) call() error {
	answer, err := c.client.Post(c.url, "application/json", bytes.NewReader(c.body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d", answer.StatusCode)
	}
	return nil
}

func (c *caller) burst(calls, clients int) {
	var left atomic.Int64
	left.Store(int64(calls))
	var group sync.WaitGroup
	for range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			for left.Add(-1) >= 0 {
				err := c.call()
				c.mutex.Lock()
				c.outcome.Calls++
				if err != nil {
					c.outcome.Failed++
					c.outcome.Errors[err.Error()]++
				}
				c.mutex.Unlock()
			}
		}()
	}
	group.Wait()
}

func main() {
	url := flag.String("url", "", "where to post")
	authority := flag.String("ca", "", "PEM file of the authority")
	file := flag.String("body", "", "file with the body")
	calls := flag.Int("calls", 50000, "calls in all")
	size := flag.Int("burst", 1000, "calls of a burst")
	clients := flag.Int("clients", 24, "calls at a time")
	shortest := flag.Duration("shortest", 4*time.Second, "shortest pause")
	longest := flag.Duration("longest", 10*time.Second, "longest pause")
	jitter := flag.Duration("dial-jitter", 20*time.Millisecond, "longest delay of a new connection")
	flag.Parse()
	pem, err := os.ReadFile(*authority)
	exitOn(err)
	body, err := os.ReadFile(*file)
	exitOn(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		exitOn(fmt.Errorf("%s holds no certificate", *authority))
	}
	made, started := newCaller(*url, body, roots, *jitter), time.Now()
	for done := 0; done < *calls; done += *size {
		if done > 0 {
			time.Sleep(*shortest + time.Duration(rand.Int63n(int64(*longest-*shortest)+1)))
		}
		made.burst(min(*size, *calls-done), *clients)
	}
	time.Sleep(*jitter) // connections on their way
	made.mutex.Lock()
	defer made.mutex.Unlock()
	made.outcome.Opened = int64(len(made.opened))
	for _, each := range made.opened {
		if !each.used.Load() {
			made.outcome.Spares++
		}
	}
	made.outcome.ClosedByServer = made.closed.Load()
	made.outcome.Seconds = time.Since(started).Seconds()
	exitOn(json.NewEncoder(os.Stdout).Encode(made.outcome))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bursts:", err)
		os.Exit(2)
	}
}
