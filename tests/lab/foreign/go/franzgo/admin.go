package franzgo

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"stratalog/clients/checks"
)

const (
	replicas = 3
	classic  = "range"
)

func withAdmin(run func(Client, *kadm.Client, checks.Given)) func(checks.Given) {
	return func(given checks.Given) {
		client := New(given)
		admin := client.admin()
		defer admin.Close()
		run(client, admin, given)
	}
}

// Topics creates, describes and deletes, adds partitions, and is refused.
var Topics = withAdmin(func(_ Client, admin *kadm.Client, given checks.Given) {
	ctx, topic := checks.Context, given.Values["new"]
	configs := map[string]*string{"retention.ms": kadm.StringPtr("7654321")}
	checked, err := admin.ValidateCreateTopics(ctx, 2, replicas, configs, topic)
	checks.Must(errors.Join(err, checked.Error()), "validate")
	made, err := admin.CreateTopic(ctx, 2, replicas, configs, topic)
	checks.Must(err, "create")
	checks.Equal("partitions and replicas", []int{int(made.NumPartitions), int(made.ReplicationFactor)}, []int{2, replicas})
	checks.Equal("a config of the answer", *made.Configs["retention.ms"].Value, "7654321")
	_, err = admin.CreateTopic(ctx, 2, replicas, nil, topic)
	checks.True(errors.Is(err, kerr.TopicAlreadyExists), "created twice: %v", err)
	_, err = admin.CreateTopic(ctx, 2, replicas, nil, "a/b")
	checks.True(errors.Is(err, kerr.InvalidTopicException), "a name that is not allowed: %v", err)
	added, err := admin.CreatePartitions(ctx, 3, topic)
	checks.Must(errors.Join(err, added.Error()), "create partitions")
	checks.Await("five partitions with leaders", func() bool {
		listed, err := admin.ListTopics(ctx, topic)
		checks.Must(err, "list topics")
		checks.True(len(listed[topic].ID) == 16 && listed[topic].ID == made.ID, "another id: %v", listed[topic].ID)
		leaders := 0
		for _, each := range listed[topic].Partitions {
			if each.Leader > 0 && len(each.Replicas) == replicas {
				leaders++
			}
		}
		return leaders == 5
	})
	fewer, err := admin.UpdatePartitions(ctx, 1, topic)
	checks.Must(err, "update partitions")
	checks.True(errors.Is(fewer[topic].Err, kerr.InvalidPartitions), "fewer partitions: %v", fewer[topic].Err)
	_, err = admin.DeleteTopic(ctx, topic)
	checks.Must(err, "delete")
	checks.Await("topic that is gone", func() bool {
		listed, err := admin.ListTopics(ctx)
		checks.Must(err, "list topics")
		return !listed.Has(topic)
	})
	_, err = admin.DeleteTopic(ctx, topic)
	checks.True(errors.Is(err, kerr.UnknownTopicOrPartition), "deleted twice: %v", err)
})

// Configs describes and alters those of a topic and of a broker.
var Configs = withAdmin(func(_ Client, admin *kadm.Client, given checks.Given) {
	ctx, topic := checks.Context, given.Values["topic"]
	valueOf := func(name string) string {
		described, err := admin.DescribeTopicConfigs(ctx, topic)
		checks.Must(err, "describe")
		found, err := described.On(topic, nil)
		checks.Must(errors.Join(err, found.Err), "describe "+topic)
		for _, each := range found.Configs {
			if each.Key == name {
				return each.MaybeValue()
			}
		}
		return "none"
	}
	alter := func(configs ...kadm.AlterConfig) {
		answers, err := admin.AlterTopicConfigs(ctx, configs, topic)
		checks.Must(err, "alter")
		answer, err := answers.On(topic, nil)
		checks.Must(errors.Join(err, answer.Err), "alter "+topic)
	}
	alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("1234567")},
		kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")})
	checks.Await("retention.ms", func() bool { return valueOf("retention.ms") == "1234567" })
	checks.Equal("an appended config", valueOf("cleanup.policy"), "delete,compact")
	alter(kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"})
	checks.Await("retention.ms of the default", func() bool { return valueOf("retention.ms") == "604800000" })
	state := []kadm.AlterConfig{{Name: "segment.ms", Value: kadm.StringPtr("7200000")}}
	answers, err := admin.AlterTopicConfigsState(ctx, state, topic)
	checks.Must(err, "alter the whole")
	answer, err := answers.On(topic, nil)
	checks.Must(errors.Join(err, answer.Err), "alter the whole of "+topic)
	checks.Await("segment.ms", func() bool { return valueOf("segment.ms") == "7200000" })
	checks.Equal("a config that is not in the whole", valueOf("cleanup.policy"), "delete")
	wrong := []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("soon")}}
	answers, err = admin.ValidateAlterTopicConfigs(ctx, wrong, topic)
	checks.Must(err, "validate")
	answer, _ = answers.On(topic, nil)
	checks.True(errors.Is(answer.Err, kerr.InvalidConfig), "a wrong value: %v", answer.Err)
	brokers, err := admin.DescribeBrokerConfigs(ctx, 1)
	checks.Must(err, "describe broker 1")
	broker, err := brokers.On("1", nil)
	checks.Must(errors.Join(err, broker.Err), "describe broker 1")
	checks.True(len(broker.Configs) > 20, "%d configs of a broker", len(broker.Configs))
})

// Groups lists, describes, deletes a classic and a next-gen group; lists, alters and deletes offsets.
var Groups = withAdmin(func(client Client, admin *kadm.Client, given checks.Given) {
	for _, balancer := range []string{classic, nextGen + "uniform"} {
		groupOf(client, admin, checks.Grouping{
			Group: given.Values["group"] + balancer[:5], Topic: given.Values["topic"], Balancer: balancer,
		})
	}
})

func groupOf(client Client, admin *kadm.Client, as checks.Grouping) {
	ctx := checks.Context
	checks.Fill(client, as.Topic, 0)
	member := client.Join(as)
	seen := 0
	checks.Await("records", func() bool {
		seen += len(member.Poll())
		return seen >= checks.FillCount
	})
	member.Commit()
	described := describe(admin, as, "Stable")
	checks.Equal("members", described, 1)
	deleted, _ := admin.DeleteGroup(ctx, as.Group)
	checks.True(errors.Is(deleted.Err, kerr.NonEmptyGroup), "a group with a member is deleted: %v", deleted.Err)
	if as.Balancer == classic { // kadm asks for it as for a classic group only
		lags, err := admin.Lag(ctx, as.Group)
		checks.Must(err, "describe the lag")
		lag := lags[as.Group]
		checks.Must(lag.Error(), "describe the lag of "+as.Group)
		checks.Equal("the lag", lag.Lag.Total(), int64(0))
	}
	member.Close()
	checks.Await("empty group", func() bool { return describe(admin, as, "Empty") == 0 })
	listed, err := admin.ListGroups(ctx, "Empty")
	checks.Must(err, "list groups")
	checks.Equal("the state", listed[as.Group].State, "Empty")
	altered := kadm.Offsets{}
	altered.AddOffset(as.Topic, 0, 7, -1)
	altered.AddOffset(as.Topic, 1, 8, -1)
	checks.Must(admin.CommitAllOffsets(ctx, as.Group, altered), "alter offsets")
	offsetOf := func(partition int32) int64 {
		stored, err := admin.FetchOffsets(ctx, as.Group)
		checks.Must(err, "fetch offsets")
		found, ok := stored.Lookup(as.Topic, partition)
		if !ok {
			return -1
		}
		return found.At
	}
	checks.Equal("altered offsets", []int64{offsetOf(0), offsetOf(1)}, []int64{7, 8})
	gone := kadm.TopicsSet{}
	gone.Add(as.Topic, 0)
	answer, err := admin.DeleteOffsets(ctx, as.Group, gone)
	checks.Must(errors.Join(err, answer.Error()), "delete offsets")
	checks.Equal("offsets", []int64{offsetOf(0), offsetOf(1)}, []int64{-1, 8})
	_, err = admin.DeleteGroup(ctx, as.Group)
	checks.Must(err, "delete the group")
	listed, err = admin.ListGroups(ctx)
	checks.Must(err, "list groups")
	_, isListed := listed[as.Group]
	checks.True(!isListed, "the deleted group is listed")
}

// describe waits for the state, and returns the number of members.
func describe(admin *kadm.Client, as checks.Grouping, state string) (members int) {
	checks.Await("group that is "+state, func() bool {
		if as.Balancer == classic {
			described, err := admin.DescribeGroups(checks.Context, as.Group)
			checks.Must(errors.Join(err, described[as.Group].Err), "describe the group")
			members = len(described[as.Group].Members)
			return described[as.Group].State == state
		}
		described, err := admin.DescribeConsumerGroups(checks.Context, as.Group)
		checks.Must(errors.Join(err, described[as.Group].Err), "describe the next-gen group")
		members = len(described[as.Group].Members)
		return described[as.Group].State == state
	})
	return members
}

// Records deletes them, and lists offsets by time, by the newest time, and by leader epoch.
var Records = withAdmin(func(client Client, admin *kadm.Client, given checks.Given) {
	ctx, topic := checks.Context, given.Values["topic"]
	checks.Fill(client, topic, 0)
	until := kadm.Offsets{}
	until.AddOffset(topic, 0, 20, -1)
	deleted, err := admin.DeleteRecords(ctx, until)
	checks.Must(errors.Join(err, deleted.Error()), "delete records")
	low, _ := deleted.Lookup(topic, 0)
	checks.Equal("the low watermark", low.LowWatermark, int64(20))
	start, end := client.Ends(topic, 0)
	checks.Equal("the ends", []int64{start, end}, []int64{20, 50})
	newest, err := admin.ListMaxTimestampOffsets(ctx, topic)
	checks.Must(err, "list the newest")
	found, _ := newest.Lookup(topic, 0)
	checks.Equal("the newest record", found.Offset, int64(49))
	committed, err := admin.ListCommittedOffsets(ctx, topic)
	checks.Must(err, "list committed offsets")
	stable, _ := committed.Lookup(topic, 0)
	checks.Equal("the last stable offset", stable.Offset, int64(50))
	epochs := kadm.OffsetForLeaderEpochRequest{}
	epochs.Add(topic, 0, stable.LeaderEpoch)
	ends, err := admin.OffsetForLeaderEpoch(ctx, epochs)
	checks.Must(err, "offset of the leader epoch")
	checks.Equal("the end of the leader epoch", ends[topic][0].EndOffset, int64(50))
	outside := kadm.Offsets{}
	outside.AddOffset(topic, 0, 1_000, -1)
	deleted, err = admin.DeleteRecords(ctx, outside)
	checks.Must(err, "delete records")
	low, _ = deleted.Lookup(topic, 0)
	checks.True(errors.Is(low.Err, kerr.OffsetOutOfRange), "records that are not there: %v", low.Err)
})
