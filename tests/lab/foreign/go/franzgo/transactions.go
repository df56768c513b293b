package franzgo

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"stratalog/clients/checks"
)

const perTransaction = 60

// Transactions read, process and write with offsets, by a GroupTransactSession; every third one is aborted.
func Transactions(given checks.Given) {
	client, source, out := New(given), given.Values["topic"], given.Values["out"]
	wanted := checks.Fill(client, source, 0)
	as := checks.Grouping{Group: given.Values["group"], Topic: source, Balancer: given.Values["balancer"]}
	options := append(groupOptions(as), kgo.SeedBrokers(given.Servers...), kgo.TransactionalID(given.Values["id"]),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	session, err := kgo.NewGroupTransactSession(options...)
	checks.Must(err, "open a session")
	defer session.Close()
	done, aborted := 0, 0
	for attempt := 0; done < len(wanted); {
		seen := someOf(session)
		if len(seen) == 0 {
			continue
		}
		attempt++
		committed := transact(session, out, seen, !checks.Aborts(attempt))
		if committed {
			done += len(seen)
		} else {
			aborted += len(seen)
		}
	}
	checks.True(aborted > 0, "nothing was aborted")
	checks.Compare(client, out, wanted, aborted)
	checks.Equal("the sum of the group's offsets", sumOfOffsets(client, as.Group), int64(checks.FillCount))
}

func someOf(session *kgo.GroupTransactSession) []checks.Record {
	ctx, cancel := context.WithTimeout(checks.Context, pollMax)
	defer cancel()
	return fetched(session.PollRecords(ctx, perTransaction))
}

func transact(session *kgo.GroupTransactSession, out string, records []checks.Record, isCommit bool) bool {
	checks.Must(session.Begin(), "begin")
	for _, each := range records {
		session.Produce(checks.Context, toFranz(out, each), func(_ *kgo.Record, err error) {
			if err != nil && isCommit {
				panic(err)
			}
		})
	}
	if !isCommit {
		checks.Must(session.Client().Flush(checks.Context), "flush")
	}
	committed, err := session.End(checks.Context, kgo.TransactionEndTry(isCommit))
	checks.Must(err, "end a transaction")
	checks.Equal("committed", committed, isCommit)
	return committed
}

func sumOfOffsets(client Client, group string) (sum int64) {
	admin := client.admin()
	defer admin.Close()
	stored, err := admin.FetchOffsets(checks.Context, group)
	checks.Must(err, "fetch offsets")
	stored.Each(func(each kadm.OffsetResponse) { sum += each.At })
	return sum
}

// Fence has a second producer take over a transactional id: the first one cannot commit.
func Fence(given checks.Given) {
	client, topic := New(given), given.Values["topic"]
	open := func() *kgo.Client {
		opened := client.open(kgo.TransactionalID(given.Values["id"]), kgo.DefaultProduceTopic(topic))
		checks.Must(opened.BeginTransaction(), "begin")
		return opened
	}
	send := func(producer *kgo.Client, value string) error {
		return producer.ProduceSync(checks.Context, kgo.StringRecord(value)).FirstErr()
	}
	first := open()
	defer first.Close()
	checks.Must(send(first, "of the first"), "produce")
	second := open()
	defer second.Close()
	checks.Must(send(second, "of the second"), "produce")
	err := send(first, "too late")
	if err == nil {
		err = first.EndTransaction(checks.Context, kgo.TryCommit)
	}
	isFenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	checks.True(isFenced, "the first producer is not fenced: %v", err)
	checks.Must(second.EndTransaction(checks.Context, kgo.TryCommit), "commit of the second")
	seen := client.Read(checks.Reading{Topic: topic, From: map[int32]int64{0: 0}, Committed: true}, 1)
	checks.Equal("what is committed", string(seen[0].Value), "of the second")
}
