package checks

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
)

// Given is what a program was started with: the bootstrap servers, and values by their names.
type Given struct {
	Servers []string
	Values  map[string]string
}

// Parse takes the arguments of a program: `host:port,...`, then `name=value` ones.
func Parse(arguments []string) Given {
	given := Given{strings.Split(arguments[0], ","), map[string]string{}}
	for _, each := range arguments[1:] {
		name, value, _ := strings.Cut(each, "=")
		given.Values[name] = value
	}
	return given
}

// Login is the user and the password for SCRAM-SHA-512; not ok for a listener without SASL.
func (given Given) Login() (user, password string, ok bool) {
	user, ok = given.Values["user"]
	return user, given.Values["password"], ok
}

// TLS is nil for a listener without it. `authority` is a PEM file, `certificate` one with a certificate and its key.
func (given Given) TLS() *tls.Config {
	authority, ok := given.Values["authority"]
	if !ok {
		return nil
	}
	pem, err := os.ReadFile(authority)
	Must(err, "read the authority")
	pool := x509.NewCertPool()
	True(pool.AppendCertsFromPEM(pem), "no certificate in %s", authority)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if own, ok := given.Values["certificate"]; ok {
		pair, err := tls.LoadX509KeyPair(own, own)
		Must(err, "load the certificate")
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// Header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record of a topic; a nil key or value is null.
type Record struct {
	Partition   int32
	Offset      int64
	Key, Value  []byte
	Headers     []Header
	TimestampMs int64
}

// Producing is how records are written: acks is `all`, `1` or `0`.
type Producing struct {
	Codec, Acks string
	Idempotent  bool
}

// Plain is how records are written when it does not matter.
var Plain = Producing{Codec: "none", Acks: "all"}

// Reading is what is read by assignment: a topic from an offset of each partition.
type Reading struct {
	Topic     string
	From      map[int32]int64
	Committed bool
}

// Grouping is what a member of a group is.
type Grouping struct {
	Group, Topic, Balancer, Instance string
}

// Member of a group. What it polled is what it commits.
type Member interface {
	Poll() []Record
	Assignment() []int32
	Revoked() []int32
	Commit()
	Close()
}

// Client is a library with its own way to do what the checks need.
type Client interface {
	Write(how Producing, topic string, records []Record)
	Read(what Reading, count int) []Record
	ReadSince(topic string, partition int32, timestampMs int64, count int) []Record
	Ends(topic string, partition int32) (start, end int64)
	OffsetAt(topic string, partition int32, timestampMs int64) int64
	Join(as Grouping) Member
}

// Sorted are the partitions in order, each once.
func Sorted[T cmp.Ordered](values []T) []T {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}
