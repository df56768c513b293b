package checks

import (
	"fmt"
	"slices"
	"strings"
)

const (
	partitions = 3
	count      = 300
	firstMs    = 1_700_000_000_000
	many       = 3_000
)

func value(number int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("record %d ", number), 8))
}

// record has a null key or value now and then, and several headers, two of the same name.
func record(number, partitions int) Record {
	made := Record{
		Partition:   int32(number % partitions),
		Key:         []byte(fmt.Sprintf("key %d", number)),
		Value:       value(number),
		Headers:     []Header{{"of", []byte("Go")}, {"number", []byte{byte(number)}}, {"of", []byte("again")}},
		TimestampMs: int64(firstMs + number),
	}
	if number%5 == 0 {
		made.Key = nil
	}
	if number%7 == 0 {
		made.Value = nil
	}
	return made
}

func records(begin, end, partitions int) []Record {
	made := make([]Record, 0, end-begin)
	for number := begin; number < end; number++ {
		made = append(made, record(number, partitions))
	}
	return made
}

func ofPartition(records []Record, partition int) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(each Record) bool { return int(each.Partition) != partition })
}

// Produce writes to each partition with each of acks, reads all by assignment, and compares all that a record has.
func Produce(client Client, given Given) {
	topic, read := given.Values["topic"], int64(0)
	for round, acks := range []string{"all", "1", "0"} {
		sent := records(round*count, (round+1)*count, partitions)
		client.Write(Producing{Codec: given.Values["codec"], Acks: acks}, topic, sent)
		seen := client.Read(Reading{Topic: topic, From: map[int32]int64{0: read, 1: read, 2: read}}, count)
		for partition := range partitions {
			wanted := ofPartition(sent, partition)
			for number := range wanted {
				wanted[number].Offset = read + int64(number)
			}
			found := ofPartition(seen, partition)
			Equal(fmt.Sprintf("number of records with acks %s in %d", acks, partition), len(found), len(wanted))
			for number := range wanted {
				Equal("a record with acks "+acks, found[number], wanted[number])
			}
		}
		read += count / partitions
	}
}

// ProduceIdempotently writes many small batches of a partition: all are there once, in order.
func ProduceIdempotently(client Client, given Given) {
	topic, sent := given.Values["topic"], records(0, many, 1)
	client.Write(Producing{Codec: "none", Acks: "all", Idempotent: true}, topic, sent)
	seen := client.Read(Reading{Topic: topic, From: map[int32]int64{0: 0}}, many)
	for number, each := range seen {
		sent[number].Offset = int64(number)
		Equal("a record", each, sent[number])
	}
	_, end := client.Ends(topic, 0)
	Equal("the end", end, int64(many))
}

// ReadByAssignment reads from an offset and from a time, and asks for a partition's ends.
func ReadByAssignment(client Client, given Given) {
	topic := given.Values["topic"]
	sent := records(0, 100, 1)
	for number := range sent {
		sent[number].TimestampMs = firstMs + 10*int64(number)
		sent[number].Offset = int64(number)
	}
	client.Write(Plain, topic, sent)
	Equal("from an offset", client.Read(Reading{Topic: topic, From: map[int32]int64{0: 40}}, 60), sent[40:])
	start, end := client.Ends(topic, 0)
	Equal("the ends", []int64{start, end}, []int64{0, 100})
	Equal("the offset of a time", client.OffsetAt(topic, 0, firstMs+695), int64(70))
	Equal("from a time", client.ReadSince(topic, 0, firstMs+695, 30), sent[70:])
}
