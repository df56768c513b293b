// Package saramago does the checks with sarama.
package saramago

import (
	"slices"
	"time"

	"github.com/IBM/sarama"

	"stratalog/clients/checks"
)

const (
	sessionTimeout = 10 * time.Second
	heartbeat      = 500 * time.Millisecond
	pollMax        = 200 * time.Millisecond
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse}

var balancers = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"sticky":             sarama.NewBalanceStrategySticky,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

// Client is sarama, with the newest requests that it knows, or those of `version`.
type Client struct{ given checks.Given }

// New is a client of the brokers that are given.
func New(given checks.Given) Client { return Client{given} }

func (client Client) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if text, ok := client.given.Values["version"]; ok {
		version, err := sarama.ParseKafkaVersion(text)
		checks.Must(err, "parse a version")
		config.Version = version
	}
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = sessionTimeout
	config.Consumer.Group.Heartbeat.Interval = heartbeat
	if tls := client.given.TLS(); tls != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, tls
	}
	if user, password, ok := client.given.Login(); ok {
		config.Net.SASL.Enable, config.Net.SASL.Mechanism = true, sarama.SASLTypeSCRAMSHA512
		config.Net.SASL.User, config.Net.SASL.Password = user, password
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{} }
	}
	return config
}

// Write each record to its partition; idempotent writes are of small batches, one request at a time as sarama asks for.
func (client Client) Write(how checks.Producing, topic string, records []checks.Record) {
	config := client.config()
	config.Producer.RequiredAcks = acks[how.Acks]
	config.Producer.Compression = codecs[how.Codec]
	if how.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
		config.Producer.Flush.MaxMessages = 10
	}
	producer, err := sarama.NewSyncProducer(client.given.Servers, config)
	checks.Must(err, "open a producer")
	sent := make([]*sarama.ProducerMessage, len(records))
	for number, each := range records {
		sent[number] = toSarama(topic, each)
	}
	checks.Must(producer.SendMessages(sent), "produce with acks "+how.Acks)
	checks.Must(producer.Close(), "close the producer")
}

func toSarama(topic string, record checks.Record) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{
		Topic: topic, Partition: record.Partition, Timestamp: time.UnixMilli(record.TimestampMs),
	}
	if record.Key != nil {
		made.Key = sarama.ByteEncoder(record.Key)
	}
	if record.Value != nil {
		made.Value = sarama.ByteEncoder(record.Value)
	}
	for _, each := range record.Headers {
		made.Headers = append(made.Headers, sarama.RecordHeader{Key: []byte(each.Key), Value: each.Value})
	}
	return made
}

func fromSarama(message *sarama.ConsumerMessage) checks.Record {
	made := checks.Record{
		Partition: message.Partition, Offset: message.Offset, Key: message.Key, Value: message.Value,
		TimestampMs: message.Timestamp.UnixMilli(),
	}
	for _, each := range message.Headers {
		made.Headers = append(made.Headers, checks.Header{Key: string(each.Key), Value: each.Value})
	}
	return made
}

// Read by assignment, one partition after the other.
func (client Client) Read(what checks.Reading, count int) []checks.Record {
	config := client.config()
	if what.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(client.given.Servers, config)
	checks.Must(err, "open a consumer")
	defer func() { checks.Must(consumer.Close(), "close the consumer") }()
	var all []sarama.PartitionConsumer
	for partition, offset := range what.From {
		one, err := consumer.ConsumePartition(what.Topic, partition, offset)
		checks.Must(err, "consume a partition")
		defer one.AsyncClose()
		all = append(all, one)
	}
	var seen []checks.Record
	checks.Await("records", func() bool {
		for _, each := range all {
			seen = append(seen, waiting(each)...)
		}
		return len(seen) >= count
	})
	return seen
}

// waiting are the records that a consumer has fetched.
func waiting(consumer sarama.PartitionConsumer) (seen []checks.Record) {
	for {
		select {
		case message := <-consumer.Messages():
			seen = append(seen, fromSarama(message))
		case err := <-consumer.Errors():
			checks.Fail("consume: %w", err)
		default:
			return seen
		}
	}
}

// ReadSince reads from the first offset of a time on.
func (client Client) ReadSince(topic string, partition int32, timestampMs int64, count int) []checks.Record {
	from := map[int32]int64{partition: client.OffsetAt(topic, partition, timestampMs)}
	return client.Read(checks.Reading{Topic: topic, From: from}, count)
}

func (client Client) offset(topic string, partition int32, at int64) int64 {
	opened, err := sarama.NewClient(client.given.Servers, client.config())
	checks.Must(err, "open a client")
	defer func() { checks.Must(opened.Close(), "close the client") }()
	found, err := opened.GetOffset(topic, partition, at)
	checks.Must(err, "list an offset")
	return found
}

// Ends are the first offset and the one after the last.
func (client Client) Ends(topic string, partition int32) (int64, int64) {
	return client.offset(topic, partition, sarama.OffsetOldest), client.offset(topic, partition, sarama.OffsetNewest)
}

// OffsetAt is the first offset of a time or after it.
func (client Client) OffsetAt(topic string, partition int32, timestampMs int64) int64 {
	return client.offset(topic, partition, timestampMs)
}

func without(values []int32, gone int32) []int32 {
	return slices.DeleteFunc(slices.Clone(values), func(each int32) bool { return each == gone })
}
