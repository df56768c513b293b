package saramago

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"stratalog/clients/checks"
)

// member collects what its claims bring: a record and the session that marks it.
type member struct {
	group     sarama.ConsumerGroup
	stop      context.CancelFunc
	done      chan error
	mutex     sync.Mutex
	share     []int32
	gone      []int32
	collected []claimed
	session   sarama.ConsumerGroupSession
}

type claimed struct {
	session sarama.ConsumerGroupSession
	message *sarama.ConsumerMessage
}

// Join a classic group.
func (client Client) Join(as checks.Grouping) checks.Member {
	config := client.config()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{balancers[as.Balancer]()}
	config.Consumer.Group.InstanceId = as.Instance
	group, err := sarama.NewConsumerGroup(client.given.Servers, as.Group, config)
	checks.Must(err, "open a member")
	ctx, stop := context.WithCancel(checks.Context)
	made := &member{group: group, stop: stop, done: make(chan error, 1)}
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{as.Topic}, made); err != nil && ctx.Err() == nil {
				made.done <- err
				return
			}
		}
		made.done <- nil
	}()
	go func() {
		for range group.Errors() { // errors that matter end Consume
			continue
		}
	}()
	return made
}

func (member *member) Setup(session sarama.ConsumerGroupSession) error {
	member.mutex.Lock()
	defer member.mutex.Unlock()
	member.session = session
	return nil
}

func (member *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (member *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	member.change(func() { member.share = append(member.share, claim.Partition()) })
	defer member.change(func() {
		member.share = without(member.share, claim.Partition())
		member.gone = append(member.gone, claim.Partition())
	})
	for message := range claim.Messages() {
		member.change(func() { member.collected = append(member.collected, claimed{session, message}) })
	}
	return nil
}

func (member *member) change(by func()) {
	member.mutex.Lock()
	defer member.mutex.Unlock()
	by()
}

func (member *member) Poll() []checks.Record {
	select {
	case err := <-member.done:
		checks.Fail("consume: %w", err)
	case <-time.After(pollMax):
	}
	var seen []checks.Record
	member.change(func() {
		for _, each := range member.collected {
			each.session.MarkMessage(each.message, "")
			seen = append(seen, fromSarama(each.message))
		}
		member.collected = nil
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

func (member *member) Commit() { member.session.Commit() }

func (member *member) Close() {
	member.stop()
	if err := <-member.done; err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
		checks.Fail("consume: %w", err)
	}
	checks.Must(member.group.Close(), "leave the group")
}
