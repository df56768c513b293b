// Package segmentio does the checks with segmentio's kafka-go.
package segmentio

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/scram"

	"stratalog/clients/checks"
)

const (
	sessionTimeout = 10 * time.Second
	heartbeat      = 500 * time.Millisecond
	lingerMax      = 10 * time.Millisecond
	dialMax        = 10 * time.Second
	mostBytes      = 10_000_000
)

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

var acks = map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne, "0": kafka.RequireNone}

// Client is kafka-go.
type Client struct{ given checks.Given }

// New is a client of the brokers that are given.
func New(given checks.Given) Client { return Client{given} }

func (client Client) transport() *kafka.Transport {
	transport := &kafka.Transport{TLS: client.given.TLS(), DialTimeout: dialMax}
	if user, password, ok := client.given.Login(); ok {
		mechanism, err := scram.Mechanism(scram.SHA512, user, password)
		checks.Must(err, "make a mechanism")
		transport.SASL = mechanism
	}
	return transport
}

func (client Client) dialer() *kafka.Dialer {
	transport := client.transport()
	return &kafka.Dialer{Timeout: dialMax, TLS: transport.TLS, SASLMechanism: transport.SASL}
}

// api is the client of single requests.
func (client Client) api() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(client.given.Servers...), Timeout: dialMax, Transport: client.transport()}
}

// ofRecord chooses the partition that a message brings along.
func ofRecord(message kafka.Message, _ ...int) int { return message.WriterData.(int) }

// Write each record to its partition.
func (client Client) Write(how checks.Producing, topic string, records []checks.Record) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(client.given.Servers...), Topic: topic, RequiredAcks: acks[how.Acks], Compression: codecs[how.Codec],
		Balancer: kafka.BalancerFunc(ofRecord), BatchTimeout: lingerMax, Transport: client.transport(),
	}
	sent := make([]kafka.Message, len(records))
	for number, each := range records {
		sent[number] = toSegmentio(each)
	}
	checks.Must(writer.WriteMessages(checks.Context, sent...), "produce with acks "+how.Acks)
	checks.Must(writer.Close(), "close the writer")
}

func toSegmentio(record checks.Record) kafka.Message {
	made := kafka.Message{
		Key: record.Key, Value: record.Value, Time: time.UnixMilli(record.TimestampMs), WriterData: int(record.Partition),
	}
	for _, each := range record.Headers {
		made.Headers = append(made.Headers, kafka.Header{Key: each.Key, Value: each.Value})
	}
	return made
}

func fromSegmentio(message kafka.Message) checks.Record {
	made := checks.Record{
		Partition: int32(message.Partition), Offset: message.Offset, Key: message.Key, Value: message.Value,
		TimestampMs: message.Time.UnixMilli(),
	}
	for _, each := range message.Headers {
		made.Headers = append(made.Headers, checks.Header{Key: each.Key, Value: each.Value})
	}
	return made
}

func (client Client) reader(topic string, partition int32, isCommitted bool) *kafka.Reader {
	config := kafka.ReaderConfig{
		Brokers: client.given.Servers, Topic: topic, Partition: int(partition), Dialer: client.dialer(),
		MaxBytes: mostBytes, MaxWait: 200 * time.Millisecond,
	}
	if isCommitted {
		config.IsolationLevel = kafka.ReadCommitted
	}
	return kafka.NewReader(config)
}

// Read by assignment: kafka-go has a reader for each partition.
func (client Client) Read(what checks.Reading, count int) []checks.Record {
	ctx, stop := context.WithCancel(checks.Context)
	defer stop()
	found := make(chan checks.Record)
	for partition, offset := range what.From {
		reader := client.reader(what.Topic, partition, what.Committed)
		checks.Must(reader.SetOffset(offset), "set an offset")
		go pump(ctx, reader, found)
	}
	return take(found, count)
}

// ReadSince reads from a time on.
func (client Client) ReadSince(topic string, partition int32, timestampMs int64, count int) []checks.Record {
	ctx, stop := context.WithCancel(checks.Context)
	defer stop()
	reader := client.reader(topic, partition, false)
	checks.Must(reader.SetOffsetAt(ctx, time.UnixMilli(timestampMs)), "set an offset by a time")
	found := make(chan checks.Record)
	go pump(ctx, reader, found)
	return take(found, count)
}

// pump sends what a reader reads, until the context ends.
func pump(ctx context.Context, reader *kafka.Reader, to chan<- checks.Record) {
	defer func() { _ = reader.Close() }()
	for {
		message, err := reader.FetchMessage(ctx)
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			panic(err)
		}
		select {
		case to <- fromSegmentio(message):
		case <-ctx.Done():
			return
		}
	}
}

func take(from <-chan checks.Record, count int) (seen []checks.Record) {
	for len(seen) < count {
		select {
		case one := <-from:
			seen = append(seen, one)
		case <-checks.Context.Done():
			checks.Fail("%d of %d records", len(seen), count)
		}
	}
	return seen
}

func (client Client) listed(topic string, partition int32, ask kafka.OffsetRequest) kafka.PartitionOffsets {
	answer, err := client.api().ListOffsets(checks.Context, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {ask}},
	})
	checks.Must(err, "list offsets")
	found := answer.Topics[topic][0]
	checks.Must(found.Error, "list offsets of a partition")
	return found
}

// Ends are the first offset and the one after the last.
func (client Client) Ends(topic string, partition int32) (int64, int64) {
	start := client.listed(topic, partition, kafka.FirstOffsetOf(int(partition)))
	end := client.listed(topic, partition, kafka.LastOffsetOf(int(partition)))
	return start.FirstOffset, end.LastOffset
}

// OffsetAt is the first offset of a time or after it.
func (client Client) OffsetAt(topic string, partition int32, timestampMs int64) int64 {
	ask := kafka.TimeOffsetOf(int(partition), time.UnixMilli(timestampMs))
	for offset := range client.listed(topic, partition, ask).Offsets {
		return offset
	}
	return -1
}
