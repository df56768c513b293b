package saramago

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"stratalog/clients/checks"
)

const perTransaction = 40

// worker reads, processes and writes what its claims bring, in transactions of one producer.
type worker struct {
	given     checks.Given
	producer  sarama.AsyncProducer
	attempts  int
	done      int
	aborted   int
	finished  context.CancelFunc
	claims    chan struct{}
	firstFail error
}

// Transactions read, process and write with offsets of a live member; every third one is aborted and done again.
func Transactions(given checks.Given) {
	client, source := New(given), given.Values["topic"]
	wanted := checks.Fill(client, source, 0)
	config := client.config()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{balancers[given.Values["balancer"]]()}
	group, err := sarama.NewConsumerGroup(given.Servers, given.Values["group"], config)
	checks.Must(err, "open a member")
	ctx, cancel := context.WithCancel(checks.Context)
	defer cancel()
	one := make(chan struct{}, 1)
	producer, failures := client.transactional()
	worker := &worker{given: given, producer: producer, finished: cancel, claims: one}
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{source}, worker)
		checks.Must(errors.Join(err, worker.firstFail), "consume")
	}
	checks.Must(worker.producer.Close(), "close the producer")
	checks.Must(group.Close(), "leave the group")
	checks.Equal("records that failed", len(failures), 0)
	checks.True(worker.aborted > 0, "nothing was aborted")
	checks.Compare(client, given.Values["out"], wanted, worker.aborted)
	checks.Equal("the sum of the group's offsets", sumOfOffsets(client, given.Values["group"], source), int64(checks.FillCount))
}

// transactional opens a producer, and gives the errors of its records.
func (client Client) transactional() (sarama.AsyncProducer, <-chan error) {
	config := client.config()
	config.Producer.Idempotent, config.Producer.RequiredAcks = true, sarama.WaitForAll
	config.Producer.Transaction.ID = client.given.Values["id"]
	config.Producer.Return.Successes = false
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(client.given.Servers, config)
	checks.Must(err, "open a transactional producer")
	failures := make(chan error, checks.FillCount)
	go func() {
		for each := range producer.Errors() {
			failures <- each.Err
		}
	}()
	return producer, failures
}

func (worker *worker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (worker *worker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (worker *worker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	var batch []*sarama.ConsumerMessage
	for message := range claim.Messages() {
		batch = append(batch, message)
		if len(batch) < perTransaction && message.Offset+1 < claim.HighWaterMarkOffset() {
			continue
		}
		if err := worker.process(session, batch); err != nil {
			worker.firstFail = err
			worker.finished()
			return err
		}
		batch = nil
	}
	return nil
}

// process a batch of a claim; claims take turns, as a producer has one transaction at a time.
func (worker *worker) process(session sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage) error {
	worker.claims <- struct{}{}
	defer func() { <-worker.claims }()
	for {
		worker.attempts++
		isCommit := !checks.Aborts(worker.attempts)
		if err := worker.attempt(session, batch, isCommit); err != nil {
			return err
		}
		if isCommit {
			break
		}
		worker.aborted += len(batch)
	}
	worker.done += len(batch)
	if worker.done >= checks.FillCount {
		worker.finished()
	}
	return nil
}

func (worker *worker) attempt(session sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage, isCommit bool) error {
	producer, group := worker.producer, worker.given.Values["group"]
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	metadata := sarama.NewConsumerGroupMetadataFromSession(session, group, nil)
	for _, each := range batch {
		producer.Input() <- toSarama(worker.given.Values["out"], fromSarama(each))
		if err := producer.AddMessageToTxnWithGroupMetadata(each, metadata, nil); err != nil {
			return err
		}
	}
	if isCommit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func sumOfOffsets(client Client, group, topic string) (sum int64) {
	admin := client.admin()
	defer func() { checks.Must(admin.Close(), "close the admin") }()
	found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3}})
	checks.Must(err, "list offsets")
	for _, each := range found.Blocks[topic] {
		sum += each.Offset
	}
	return sum
}

// Fence has a second producer take over a transactional id: the first one cannot commit.
func Fence(given checks.Given) {
	client, topic := New(given), given.Values["topic"]
	first, failures := client.transactional()
	checks.Must(first.BeginTxn(), "begin")
	first.Input() <- toSarama(topic, checks.Record{Value: []byte("of the first")})
	second, _ := client.transactional()
	checks.Must(second.BeginTxn(), "begin")
	second.Input() <- toSarama(topic, checks.Record{Value: []byte("of the second")})
	first.Input() <- toSarama(topic, checks.Record{Value: []byte("too late")})
	err := first.CommitTxn()
	if !isFenced(err) { // it ended with the record that was too late
		checks.True(err != nil, "the first producer commits")
		checks.Await("error of a fenced producer", func() bool { return isFenced(<-failures) })
	}
	checks.Must(second.CommitTxn(), "commit of the second")
	checks.Must(second.Close(), "close the second")
	seen := client.Read(checks.Reading{Topic: topic, From: map[int32]int64{0: 0}, Committed: true}, 1)
	checks.Equal("what is committed", string(seen[0].Value), "of the second")
}

func isFenced(err error) bool {
	return errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch)
}
