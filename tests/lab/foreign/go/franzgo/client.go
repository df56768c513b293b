// Package franzgo does the checks with franz-go.
package franzgo

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"stratalog/clients/checks"
)

const (
	pollMax        = 200 * time.Millisecond
	sessionTimeout = 10 * time.Second
	heartbeat      = 500 * time.Millisecond
	nextGen        = "next-gen "
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}

// Client is franz-go.
type Client struct{ given checks.Given }

// New is a client of the brokers that are given.
func New(given checks.Given) Client { return Client{given} }

func (client Client) open(more ...kgo.Opt) *kgo.Client {
	options := append([]kgo.Opt{kgo.SeedBrokers(client.given.Servers...)}, more...)
	if config := client.given.TLS(); config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	if user, password, ok := client.given.Login(); ok {
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	opened, err := kgo.NewClient(options...)
	checks.Must(err, "open a client")
	return opened
}

func (client Client) admin() *kadm.Client { return kadm.NewClient(client.open()) }

// Write each record to its partition; idempotent writes are of small batches, without linger.
func (client Client) Write(how checks.Producing, topic string, records []checks.Record) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[how.Codec]), kgo.RequiredAcks(acks[how.Acks]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if how.Idempotent {
		options = append(options, kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(2_000))
	} else {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer := client.open(options...)
	defer producer.Close()
	sent := make([]*kgo.Record, len(records))
	for number, each := range records {
		sent[number] = toFranz(topic, each)
	}
	checks.Must(producer.ProduceSync(checks.Context, sent...).FirstErr(), "produce with acks "+how.Acks)
}

func toFranz(topic string, record checks.Record) *kgo.Record {
	made := &kgo.Record{
		Topic: topic, Partition: record.Partition, Key: record.Key, Value: record.Value,
		Timestamp: time.UnixMilli(record.TimestampMs),
	}
	for _, each := range record.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: each.Key, Value: each.Value})
	}
	return made
}

func fromFranz(record *kgo.Record) checks.Record {
	made := checks.Record{
		Partition: record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value,
		TimestampMs: record.Timestamp.UnixMilli(),
	}
	for _, each := range record.Headers {
		made.Headers = append(made.Headers, checks.Header{Key: each.Key, Value: each.Value})
	}
	return made
}

// Read by assignment.
func (client Client) Read(what checks.Reading, count int) []checks.Record {
	offsets := map[int32]kgo.Offset{}
	for partition, offset := range what.From {
		offsets[partition] = kgo.NewOffset().At(offset)
	}
	level := kgo.ReadUncommitted()
	if what.Committed {
		level = kgo.ReadCommitted()
	}
	return client.read(what.Topic, offsets, count, kgo.FetchIsolationLevel(level))
}

// ReadSince reads from a time on.
func (client Client) ReadSince(topic string, partition int32, timestampMs int64, count int) []checks.Record {
	return client.read(topic, map[int32]kgo.Offset{partition: kgo.NewOffset().AfterMilli(timestampMs)}, count)
}

func (client Client) read(topic string, from map[int32]kgo.Offset, count int, more ...kgo.Opt) []checks.Record {
	consumer := client.open(append(more, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))...)
	defer consumer.Close()
	var seen []checks.Record
	checks.Await("records", func() bool {
		seen = append(seen, polled(consumer)...)
		return len(seen) >= count
	})
	return seen
}

func polled(consumer *kgo.Client) []checks.Record {
	ctx, cancel := context.WithTimeout(checks.Context, pollMax)
	defer cancel()
	return fetched(consumer.PollFetches(ctx))
}

func fetched(fetches kgo.Fetches) []checks.Record {
	fetches.EachError(func(topic string, partition int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) {
			checks.Must(err, "fetch "+topic)
		}
	})
	var seen []checks.Record
	fetches.EachRecord(func(each *kgo.Record) { seen = append(seen, fromFranz(each)) })
	return seen
}

// Ends are the first offset and the one after the last.
func (client Client) Ends(topic string, partition int32) (int64, int64) {
	admin := client.admin()
	defer admin.Close()
	starts, err := admin.ListStartOffsets(checks.Context, topic)
	checks.Must(err, "list start offsets")
	ends, err := admin.ListEndOffsets(checks.Context, topic)
	checks.Must(err, "list end offsets")
	start, _ := starts.Lookup(topic, partition)
	end, _ := ends.Lookup(topic, partition)
	return start.Offset, end.Offset
}

// OffsetAt is the first offset of a time or after it.
func (client Client) OffsetAt(topic string, partition int32, timestampMs int64) int64 {
	admin := client.admin()
	defer admin.Close()
	listed, err := admin.ListOffsetsAfterMilli(checks.Context, timestampMs, topic)
	checks.Must(err, "list offsets")
	found, ok := listed.Lookup(topic, partition)
	checks.True(ok && found.Err == nil, "offset of a time: %v", found)
	return found.Offset
}

type member struct {
	*kgo.Client
	mutex       sync.Mutex
	share, gone []int32
}

var balancers = map[string][]kgo.GroupOpt{
	"range":              {kgo.Balancers(kgo.RangeBalancer())},
	"roundrobin":         {kgo.Balancers(kgo.RoundRobinBalancer())},
	"sticky":             {kgo.Balancers(kgo.StickyBalancer())},
	"cooperative-sticky": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	nextGen + "uniform":  {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
	nextGen + "range":    {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
}

func groupOptions(as checks.Grouping) []kgo.Opt {
	options := []kgo.Opt{
		kgo.ConsumerGroup(as.Group), kgo.ConsumeTopics(as.Topic), kgo.SessionTimeout(sessionTimeout),
		kgo.HeartbeatInterval(heartbeat), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	for _, each := range balancers[as.Balancer] {
		options = append(options, each)
	}
	if as.Instance != "" {
		options = append(options, kgo.InstanceID(as.Instance))
	}
	return options
}

// Join a group, classic or next-gen.
func (client Client) Join(as checks.Grouping) checks.Member {
	made := &member{}
	with := append(groupOptions(as),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			made.change(added[as.Topic], nil)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
			made.change(nil, gone[as.Topic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
			made.change(nil, gone[as.Topic])
		}))
	made.Client = client.open(with...)
	return made
}

func (member *member) change(added, gone []int32) {
	member.mutex.Lock()
	defer member.mutex.Unlock()
	kept := append([]int32{}, added...)
	for _, each := range member.share {
		if !slices.Contains(gone, each) {
			kept = append(kept, each)
		}
	}
	member.share = kept
	member.gone = append(member.gone, gone...)
}

func (member *member) Poll() []checks.Record { return polled(member.Client) }

func (member *member) Assignment() []int32 {
	member.mutex.Lock()
	defer member.mutex.Unlock()
	return append([]int32{}, member.share...)
}

func (member *member) Revoked() []int32 {
	member.mutex.Lock()
	defer member.mutex.Unlock()
	return append([]int32{}, member.gone...)
}

func (member *member) Commit() {
	checks.Must(member.CommitUncommittedOffsets(checks.Context), "commit")
}
