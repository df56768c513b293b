package saramago

import (
	"errors"

	"github.com/IBM/sarama"

	"stratalog/clients/checks"
)

const replicas = 3

func (client Client) admin() sarama.ClusterAdmin {
	opened, err := sarama.NewClusterAdmin(client.given.Servers, client.config())
	checks.Must(err, "open an admin")
	return opened
}

func withAdmin(run func(Client, sarama.ClusterAdmin, checks.Given)) func(checks.Given) {
	return func(given checks.Given) {
		client := New(given)
		admin := client.admin()
		run(client, admin, given)
		checks.Must(admin.Close(), "close the admin")
	}
}

func pointer[T any](value T) *T { return &value }

// Topics creates, describes and deletes, adds partitions, and is refused.
var Topics = withAdmin(func(_ Client, admin sarama.ClusterAdmin, given checks.Given) {
	topic := given.Values["new"]
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: replicas, ConfigEntries: map[string]*string{"retention.ms": pointer("7654321")},
	}
	checks.Must(admin.CreateTopic(topic, detail, true), "validate")
	checks.Must(admin.CreateTopic(topic, detail, false), "create")
	err := admin.CreateTopic(topic, detail, false)
	checks.True(errors.Is(err, sarama.ErrTopicAlreadyExists), "created twice: %v", err)
	err = admin.CreateTopic("a/b", detail, false)
	checks.True(errors.Is(err, sarama.ErrInvalidTopic), "a name that is not allowed: %v", err)
	checks.Await("topic", func() bool {
		listed, err := admin.ListTopics()
		checks.Must(err, "list topics")
		found, ok := listed[topic]
		return ok && *found.ConfigEntries["retention.ms"] == "7654321" && found.NumPartitions == 2
	})
	checks.Must(admin.CreatePartitions(topic, 5, nil, false), "create partitions")
	checks.Await("five partitions with leaders", func() bool {
		described, err := admin.DescribeTopics([]string{topic})
		checks.Must(err, "describe topics")
		leaders := 0
		for _, each := range described[0].Partitions {
			if each.Leader > 0 && len(each.Replicas) == replicas {
				leaders++
			}
		}
		return leaders == 5
	})
	err = admin.CreatePartitions(topic, 1, nil, false)
	checks.True(errors.Is(err, sarama.ErrInvalidPartitions), "fewer partitions: %v", err)
	checks.Must(admin.DeleteTopic(topic), "delete")
	checks.Await("topic that is gone", func() bool {
		listed, err := admin.ListTopics()
		checks.Must(err, "list topics")
		_, isThere := listed[topic]
		return !isThere
	})
})

// Configs describes and alters those of a topic and of a broker.
var Configs = withAdmin(func(_ Client, admin sarama.ClusterAdmin, given checks.Given) {
	topic := given.Values["topic"]
	valueOf := func(name string) string {
		resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}}
		entries, err := admin.DescribeConfig(resource)
		checks.Must(err, "describe")
		checks.Equal("described configs", len(entries), 1)
		return entries[0].Value
	}
	set := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms":   {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: pointer("1234567")},
		"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationAppend, Value: pointer("compact")},
	}
	checks.Must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false), "alter")
	checks.Await("retention.ms", func() bool { return valueOf("retention.ms") == "1234567" })
	checks.Equal("an appended config", valueOf("cleanup.policy"), "delete,compact")
	reset := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationDelete},
	}
	checks.Must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, reset, false), "reset")
	checks.Await("retention.ms of the default", func() bool { return valueOf("retention.ms") == "604800000" })
	whole := map[string]*string{"segment.ms": pointer("7200000")}
	checks.Must(admin.AlterConfig(sarama.TopicResource, topic, whole, false), "alter the whole")
	checks.Await("segment.ms", func() bool { return valueOf("segment.ms") == "7200000" })
	checks.Equal("a config that is not in the whole", valueOf("cleanup.policy"), "delete")
	wrong := map[string]*string{"retention.ms": pointer("soon")}
	err := admin.AlterConfig(sarama.TopicResource, topic, wrong, true)
	checks.True(errors.Is(err, sarama.ErrInvalidConfig), "a wrong value: %v", err)
	broker, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: "1"})
	checks.Must(err, "describe broker 1")
	checks.True(len(broker) > 20, "%d configs of a broker", len(broker))
})

// Groups lists, describes and deletes one; lists, alters and deletes offsets.
var Groups = withAdmin(func(client Client, admin sarama.ClusterAdmin, given checks.Given) {
	group, topic := given.Values["group"], given.Values["topic"]
	checks.Fill(client, topic, 0)
	member := client.Join(checks.Grouping{Group: group, Topic: topic, Balancer: "range"})
	seen := 0
	checks.Await("records", func() bool {
		seen += len(member.Poll())
		return seen >= checks.FillCount
	})
	member.Commit()
	described := func() *sarama.GroupDescription {
		found, err := admin.DescribeConsumerGroups([]string{group})
		checks.Must(err, "describe the group")
		return found[0]
	}
	checks.Equal("the state", described().State, "Stable")
	for _, each := range described().Members {
		assigned, err := each.GetMemberAssignment()
		checks.Must(err, "decode the assignment")
		checks.Equal("the assignment", checks.Sorted(assigned.Topics[topic]), []int32{0, 1, 2, 3})
	}
	err := admin.DeleteConsumerGroup(group)
	checks.True(errors.Is(err, sarama.ErrNonEmptyGroup), "a group with a member is deleted: %v", err)
	member.Close()
	checks.Await("empty group", func() bool { return described().State == "Empty" })
	listed, err := admin.ListConsumerGroups()
	checks.Must(err, "list groups")
	checks.Equal("the protocol type", listed[group], "consumer")
	offsets(admin, group, topic)
	checks.Must(admin.DeleteConsumerGroup(group), "delete the group")
	listed, err = admin.ListConsumerGroups()
	checks.Must(err, "list groups")
	_, isThere := listed[group]
	checks.True(!isThere, "the deleted group is listed")
})

func offsets(admin sarama.ClusterAdmin, group, topic string) {
	stored := func() []int64 {
		found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
		checks.Must(err, "list offsets")
		return []int64{found.GetBlock(topic, 0).Offset, found.GetBlock(topic, 1).Offset}
	}
	each := int64(checks.FillCount / 4)
	checks.Equal("the offsets", stored(), []int64{each, each})
	altered := map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 7, LeaderEpoch: -1}, 1: {Offset: 8, LeaderEpoch: -1}}}
	answer, err := admin.AlterConsumerGroupOffsets(group, altered, nil)
	checks.Must(err, "alter offsets")
	checks.Equal("errors of altered offsets", []sarama.KError{answer.Errors[topic][0], answer.Errors[topic][1]},
		[]sarama.KError{sarama.ErrNoError, sarama.ErrNoError})
	checks.Equal("altered offsets", stored(), []int64{7, 8})
	checks.Must(admin.DeleteConsumerGroupOffset(group, topic, 0), "delete an offset")
	checks.Equal("offsets", stored(), []int64{-1, 8})
}

// Records deletes them, and lists offsets.
var Records = withAdmin(func(client Client, admin sarama.ClusterAdmin, given checks.Given) {
	topic := given.Values["topic"]
	checks.Fill(client, topic, 0)
	checks.Must(admin.DeleteRecords(topic, map[int32]int64{0: 20}), "delete records")
	start, end := client.Ends(topic, 0)
	checks.Equal("the ends", []int64{start, end}, []int64{20, 50})
	asked := map[string]map[int32]int64{topic: {0: sarama.OffsetOldest, 1: sarama.OffsetNewest}}
	listed, err := admin.ListOffsets(asked, &sarama.ListOffsetsOptions{IsolationLevel: sarama.ReadCommitted})
	checks.Must(err, "list offsets")
	checks.Equal("listed offsets", []int64{listed[topic][0].Offset, listed[topic][1].Offset}, []int64{20, 50})
	err = admin.DeleteRecords(topic, map[int32]int64{0: 1_000})
	checks.True(errors.Is(err, sarama.ErrOffsetOutOfRange), "records that are not there: %v", err)
})
