package segmentio

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"stratalog/clients/checks"
)

const pollMax = 200 * time.Millisecond

var balancers = map[string]kafka.GroupBalancer{
	"range":      kafka.RangeGroupBalancer{},
	"roundrobin": kafka.RoundRobinGroupBalancer{},
}

// member of a group by its generations: each has an assignment, and ends with a rebalance.
type member struct {
	client     Client
	topic      string
	group      *kafka.ConsumerGroup
	stop       context.CancelFunc
	done       chan error
	mutex      sync.Mutex
	share      []int32
	gone       []int32
	collected  []checks.Record
	polled     map[int]int64
	generation *kafka.Generation
}

// Join a classic group.
func (client Client) Join(as checks.Grouping) checks.Member {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: as.Group, Brokers: client.given.Servers, Topics: []string{as.Topic}, Dialer: client.dialer(),
		GroupBalancers: []kafka.GroupBalancer{balancers[as.Balancer]}, SessionTimeout: sessionTimeout,
		HeartbeatInterval: heartbeat, JoinGroupBackoff: heartbeat, StartOffset: kafka.FirstOffset,
	})
	checks.Must(err, "open a member")
	ctx, stop := context.WithCancel(checks.Context)
	made := &member{client: client, topic: as.Topic, group: group, stop: stop, done: make(chan error, 1)}
	go func() { made.done <- made.run(ctx) }()
	return made
}

func (member *member) run(ctx context.Context) error {
	for {
		generation, err := member.group.Next(ctx)
		if errors.Is(err, context.Canceled) || errors.Is(err, kafka.ErrGroupClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		assigned := generation.Assignments[member.topic]
		member.change(func() {
			member.gone = append(member.gone, member.share...)
			member.generation, member.share, member.polled, member.collected = generation, nil, map[int]int64{}, nil
			for _, each := range assigned {
				member.share = append(member.share, int32(each.ID))
			}
		})
		for _, each := range assigned {
			generation.Start(func(ctx context.Context) { member.read(ctx, generation, each) })
		}
	}
}

// read a partition from the offset of the assignment until the generation ends.
func (member *member) read(ctx context.Context, generation *kafka.Generation, of kafka.PartitionAssignment) {
	reader := member.client.reader(member.topic, int32(of.ID), false)
	defer func() { _ = reader.Close() }()
	if err := reader.SetOffset(of.Offset); err != nil {
		panic(err)
	}
	for {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			if !errors.Is(err, kafka.ErrGenerationEnded) && ctx.Err() == nil {
				panic(err)
			}
			return
		}
		member.change(func() {
			if member.generation == generation {
				member.collected = append(member.collected, fromSegmentio(message))
			}
		})
	}
}

func (member *member) change(by func()) {
	member.mutex.Lock()
	defer member.mutex.Unlock()
	by()
}

func (member *member) Poll() (seen []checks.Record) {
	select {
	case err := <-member.done:
		checks.Fail("the group: %w", err)
	case <-time.After(pollMax):
	}
	member.change(func() {
		seen, member.collected = member.collected, nil
		for _, each := range seen {
			member.polled[int(each.Partition)] = each.Offset + 1
		}
	})
	return seen
}

func (member *member) Assignment() (share []int32) {
	member.change(func() { share = slices.Clone(member.share) })
	return share
}

func (member *member) Revoked() (gone []int32) {
	member.change(func() { gone = slices.Clone(member.gone) })
	return gone
}

func (member *member) Commit() {
	member.change(func() {
		err := member.generation.CommitOffsets(map[string]map[int]int64{member.topic: member.polled})
		checks.Must(err, "commit")
	})
}

func (member *member) Close() {
	member.stop()
	checks.Must(<-member.done, "the group")
	checks.Must(member.group.Close(), "leave the group")
}

// GoOn has a Reader with a group id, which commits what it was given: the next one begins where the group stood.
func GoOn(given checks.Given) {
	client, topic := New(given), given.Values["topic"]
	for round := range 3 {
		wanted := checks.Fill(client, topic, round*checks.FillCount)
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: given.Servers, GroupID: given.Values["group"], GroupTopics: []string{topic}, Dialer: client.dialer(),
			GroupBalancers: []kafka.GroupBalancer{balancers["range"]}, SessionTimeout: sessionTimeout,
			HeartbeatInterval: heartbeat, StartOffset: kafka.FirstOffset, MaxBytes: mostBytes, MaxWait: pollMax,
		})
		var seen []checks.Record
		for range wanted {
			message, err := reader.ReadMessage(checks.Context)
			checks.Must(err, "read a message")
			seen = append(seen, fromSegmentio(message))
		}
		checks.Equal("what a reader reads", checks.Values(seen), wanted)
		checks.Must(reader.Close(), "close a reader")
	}
}
