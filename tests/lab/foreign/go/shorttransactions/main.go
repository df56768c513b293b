// Short transactions, one after the other at once, by franz-go with several requests in flight:
//
//	shorttransactions write HOST:PORT,... TOPIC ID TRANSACTIONS SECONDS RECORDS
//	shorttransactions read HOST:PORT,... TOPIC
//
// `write` ends after so many transactions or seconds and prints a line for each, `committed ID-17`, `aborted ID-17` or
// `unknown ID-17`, with the error that ended it. A record's value is "ID-17:3", its transaction and number. `read` prints
// the values that read_committed shows, up to the end.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const endMax = 2 * time.Minute

func main() {
	servers, topic := strings.Split(os.Args[2], ","), os.Args[3]
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if os.Args[1] == "read" {
		read(servers, topic, out)
		return
	}
	write(servers, topic, os.Args[4], number(5), number(6), number(7), out)
}

func number(at int) int {
	found, err := strconv.Atoi(os.Args[at])
	must(err)
	return found
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func open(servers []string, topic, id string) *kgo.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DefaultProduceTopic(topic), kgo.TransactionalID(id),
		kgo.ProducerBatchMaxBytes(16<<10), kgo.ProducerLinger(0), kgo.RecordRetries(1000),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	must(err)
	return client
}

func write(servers []string, topic, id string, transactions, seconds, records int, out *bufio.Writer) {
	client := open(servers, topic, id)
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	for n := 0; n < transactions && time.Now().Before(until); n++ {
		name := fmt.Sprintf("%s-%d", id, n)
		outcome, err := transact(client, name, records)
		fmt.Fprintf(out, "%s %s", outcome, name)
		if err != nil {
			fmt.Fprintf(out, " %s", strings.ReplaceAll(err.Error(), "\n", " "))
			out.Flush()
			client.Close()
			client = open(servers, topic, id)
		}
		fmt.Fprintln(out)
	}
	client.Close()
}

// transact runs one transaction. With an error the client cannot go on: a new one fences it.
func transact(client *kgo.Client, name string, records int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), endMax)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return "aborted", err
	}
	failures := make(chan error, records)
	for each := 0; each < records; each++ {
		record := kgo.StringRecord(fmt.Sprintf("%s:%d", name, each))
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { failures <- err })
	}
	var failure error
	for each := 0; each < records; each++ {
		if err := <-failures; err != nil && failure == nil {
			failure = err
		}
	}
	if failure != nil {
		if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
			return "aborted", fmt.Errorf("%w; and then %s", failure, err)
		}
		return "aborted", failure
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return "unknown", err
	}
	return "committed", nil
}

func read(servers []string, topic string, out *bufio.Writer) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	must(err)
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	must(err)
	left := map[int32]int64{}
	ends.Each(func(each kadm.ListedOffset) {
		if each.Offset > 0 {
			left[each.Partition] = each.Offset
		}
	})
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		must(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				fmt.Fprintln(out, string(record.Value))
			}
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
}
