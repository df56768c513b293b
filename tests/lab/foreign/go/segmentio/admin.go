package segmentio

import (
	"errors"
	"slices"

	"github.com/segmentio/kafka-go"

	"stratalog/clients/checks"
)

const replicas = 3

// Topics creates, describes and deletes, adds partitions, and is refused.
func Topics(given checks.Given) {
	ctx, api, topic := checks.Context, New(given).api(), given.Values["new"]
	config := kafka.TopicConfig{
		Topic: topic, NumPartitions: 2, ReplicationFactor: replicas,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "7654321"}},
	}
	create := func() error {
		made, err := api.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
		checks.Must(err, "create")
		return made.Errors[topic]
	}
	checks.Must(create(), "create")
	err := create()
	checks.True(errors.Is(err, kafka.TopicAlreadyExists), "created twice: %v", err)
	partitions := func(count int32) error {
		asked := []kafka.TopicPartitionsConfig{{Name: topic, Count: count}}
		made, err := api.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: asked})
		checks.Must(err, "create partitions")
		return made.Errors[topic]
	}
	checks.Must(partitions(5), "create partitions")
	checks.Await("five partitions with leaders", func() bool {
		described, err := api.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		checks.Must(err, "metadata")
		leaders := 0
		for _, each := range described.Topics[0].Partitions {
			if each.Leader.ID > 0 && len(each.Replicas) == replicas {
				leaders++
			}
		}
		return leaders == 5
	})
	err = partitions(1)
	checks.True(errors.Is(err, kafka.InvalidPartitionNumber), "fewer partitions: %v", err)
	deleted, err := api.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	checks.Must(errors.Join(err, deleted.Errors[topic]), "delete")
	checks.Await("topic that is gone", func() bool {
		described, err := api.Metadata(ctx, &kafka.MetadataRequest{})
		checks.Must(err, "metadata")
		return !slices.ContainsFunc(described.Topics, func(each kafka.Topic) bool { return each.Name == topic })
	})
}

// Configs describes and alters those of a topic and of a broker.
func Configs(given checks.Given) {
	ctx, api, topic := checks.Context, New(given).api(), given.Values["topic"]
	valueOf := func(kind kafka.ResourceType, resource, name string) string {
		described, err := api.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kind, ResourceName: resource, ConfigNames: []string{name}}},
		})
		checks.Must(err, "describe")
		checks.Must(described.Resources[0].Error, "describe "+resource)
		return described.Resources[0].ConfigEntries[0].ConfigValue
	}
	alter := func(config kafka.IncrementalAlterConfigsRequestConfig) error {
		answer, err := api.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
				Configs: []kafka.IncrementalAlterConfigsRequestConfig{config},
			}},
		})
		checks.Must(err, "alter")
		return answer.Resources[0].Error
	}
	set := kafka.IncrementalAlterConfigsRequestConfig{Name: "retention.ms", Value: "1234567", ConfigOperation: kafka.ConfigOperationSet}
	checks.Must(alter(set), "alter")
	checks.Await("retention.ms", func() bool { return valueOf(kafka.ResourceTypeTopic, topic, "retention.ms") == "1234567" })
	set.Value = "soon"
	checks.True(errors.Is(alter(set), kafka.InvalidConfiguration), "a wrong value is accepted")
	whole, err := api.AlterConfigs(ctx, &kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.AlterConfigRequestConfig{{Name: "segment.ms", Value: "7200000"}},
	}}})
	checks.Must(err, "alter the whole")
	for _, err := range whole.Errors {
		checks.Must(err, "alter the whole")
	}
	checks.Await("segment.ms", func() bool { return valueOf(kafka.ResourceTypeTopic, topic, "segment.ms") == "7200000" })
	checks.True(valueOf(kafka.ResourceTypeBroker, "1", "listeners") != "", "no listeners of broker 1")
}

// Groups lists, describes and deletes one; lists, alters and deletes offsets.
func Groups(given checks.Given) {
	ctx, client, topic, group := checks.Context, New(given), given.Values["topic"], given.Values["group"]
	api := client.api()
	checks.Fill(client, topic, 0)
	member := client.Join(checks.Grouping{Group: group, Topic: topic, Balancer: "range"})
	seen := 0
	checks.Await("records", func() bool {
		seen += len(member.Poll())
		return seen >= checks.FillCount
	})
	member.Commit()
	described := func() kafka.DescribeGroupsResponseGroup {
		found, err := api.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		checks.Must(err, "describe the group")
		checks.Must(found.Groups[0].Error, "describe the group")
		return found.Groups[0]
	}
	checks.Equal("the state", described().GroupState, "Stable")
	assigned := slices.Clone(described().Members[0].MemberAssignments.Topics[0].Partitions)
	checks.Equal("the assignment", checks.Sorted(assigned), []int{0, 1, 2, 3})
	member.Close()
	checks.Await("empty group", func() bool { return described().GroupState == "Empty" })
	checks.True(isListed(api, group), "the group is not listed")
	offsets(api, group, topic)
	deleted, err := api.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	checks.Must(errors.Join(err, deleted.Errors[group]), "delete the group")
	checks.True(!isListed(api, group), "the deleted group is listed")
}

// isListed asks each broker: kafka-go's call is for one.
func isListed(api *kafka.Client, group string) bool {
	metadata, err := api.Metadata(checks.Context, &kafka.MetadataRequest{Topics: []string{}})
	checks.Must(err, "metadata")
	for _, broker := range metadata.Brokers {
		listed, err := api.ListGroups(checks.Context, &kafka.ListGroupsRequest{Addr: address(broker)})
		checks.Must(errors.Join(err, listed.Error), "list groups")
		isThere := func(each kafka.ListGroupsResponseGroup) bool { return each.GroupID == group }
		if slices.ContainsFunc(listed.Groups, isThere) {
			return true
		}
	}
	return false
}

func offsets(api *kafka.Client, group, topic string) {
	ctx := checks.Context
	stored := func() (found []int64) {
		asked := map[string][]int{topic: {0, 1}}
		answer, err := api.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: asked})
		checks.Must(errors.Join(err, answer.Error), "fetch offsets")
		for _, each := range answer.Topics[topic] {
			found = append(found, each.CommittedOffset)
		}
		return found
	}
	each := int64(checks.FillCount / 4)
	checks.Equal("the offsets", stored(), []int64{each, each})
	altered := map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: 7}, {Partition: 1, Offset: 8}}}
	committed, err := api.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: altered})
	checks.Must(errors.Join(err, committed.Topics[topic][0].Error, committed.Topics[topic][1].Error), "alter offsets")
	checks.Equal("altered offsets", stored(), []int64{7, 8})
	gone, err := api.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{GroupID: group, Topics: map[string][]int{topic: {0}}})
	checks.Must(errors.Join(err, gone.Error, gone.Topics[topic][0].Error), "delete an offset")
	checks.Equal("offsets", stored(), []int64{-1, 8})
}
