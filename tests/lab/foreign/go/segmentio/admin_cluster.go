package segmentio

import (
	"errors"
	"fmt"
	"net"

	"github.com/segmentio/kafka-go"

	"stratalog/clients/checks"
)

func address(broker kafka.Broker) net.Addr {
	return kafka.TCP(fmt.Sprintf("%s:%d", broker.Host, broker.Port))
}

// Cluster describes brokers and their versions, finds a coordinator, elects leaders, moves replicas.
func Cluster(given checks.Given) {
	ctx, api, topic := checks.Context, New(given).api(), given.Values["topic"]
	metadata, err := api.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	checks.Must(err, "metadata")
	checks.Equal("brokers", len(metadata.Brokers), replicas)
	checks.True(metadata.ClusterID != "" && metadata.Controller.ID > 0, "cluster %s", metadata.ClusterID)
	for _, each := range metadata.Brokers {
		versions, err := api.ApiVersions(ctx, &kafka.ApiVersionsRequest{Addr: address(each)})
		checks.Must(errors.Join(err, versions.Error), "API versions")
		checks.True(len(versions.ApiKeys) > 40, "%d API keys", len(versions.ApiKeys))
	}
	found, err := api.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{
		Key: given.Values["group"], KeyType: kafka.CoordinatorKeyTypeConsumer,
	})
	checks.Must(errors.Join(err, found.Error), "find the coordinator")
	checks.True(found.Coordinator.NodeID > 0, "coordinator %d", found.Coordinator.NodeID)
	elected, err := api.ElectLeaders(ctx, &kafka.ElectLeadersRequest{Topic: topic, Partitions: []int{0}, Timeout: dialMax})
	checks.Must(errors.Join(err, elected.Error), "elect leaders")
	for _, each := range elected.PartitionResults {
		checks.True(each.Error == nil || errors.Is(each.Error, kafka.ElectionNotNeeded), "elect a leader: %v", each.Error)
	}
	move(api, topic)
}

func move(api *kafka.Client, topic string) {
	ctx := checks.Context
	altered, err := api.AlterPartitionReassignments(ctx, &kafka.AlterPartitionReassignmentsRequest{
		Topic:       topic,
		Assignments: []kafka.AlterPartitionReassignmentsRequestAssignment{{PartitionID: 0, BrokerIDs: []int{2, 1}}},
		Timeout:     dialMax,
	})
	checks.Must(errors.Join(err, altered.Error), "move replicas")
	checks.Await("end of the move", func() bool {
		under, err := api.ListPartitionReassignments(ctx, &kafka.ListPartitionReassignmentsRequest{
			Topics:  map[string]kafka.ListPartitionReassignmentsRequestTopic{topic: {PartitionIndexes: []int{0}}},
			Timeout: dialMax,
		})
		checks.Must(errors.Join(err, under.Error), "list reassignments")
		return len(under.Topics[topic].Partitions) == 0
	})
	checks.Await("two replicas", func() bool {
		metadata, err := api.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		checks.Must(err, "metadata")
		for _, each := range metadata.Topics[0].Partitions {
			if each.ID == 0 {
				return len(each.Replicas) == 2
			}
		}
		return false
	})
}

// Transactions are requests in kafka-go, without records: offsets of a group are aborted, and committed.
func Transactions(given checks.Given) {
	ctx, client, topic, group := checks.Context, New(given), given.Values["topic"], given.Values["group"]
	api, id := client.api(), given.Values["id"]
	found, err := api.InitProducerID(ctx, &kafka.InitProducerIDRequest{TransactionalID: id, TransactionTimeoutMs: 30_000})
	checks.Must(errors.Join(err, found.Error), "init a producer id")
	producer := found.Producer
	for _, isCommit := range []bool{false, true} {
		checks.Await("end of the transaction before", func() bool {
			added, err := api.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
				TransactionalID: id, ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch, GroupID: group,
			})
			checks.Must(err, "add offsets to the transaction")
			if errors.Is(added.Error, kafka.ConcurrentTransactions) {
				return false
			}
			checks.Must(added.Error, "add offsets to the transaction")
			return true
		})
		committed, err := api.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
			TransactionalID: id, GroupID: group, ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch,
			GenerationID: -1, Topics: map[string][]kafka.TxnOffsetCommit{topic: {{Partition: 0, Offset: 5}}},
		})
		checks.Must(errors.Join(err, committed.Topics[topic][0].Error), "commit offsets in the transaction")
		ended, err := api.EndTxn(ctx, &kafka.EndTxnRequest{
			TransactionalID: id, ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch, Committed: isCommit,
		})
		checks.Must(errors.Join(err, ended.Error), "end the transaction")
		wanted := int64(-1)
		if isCommit {
			wanted = 5
		}
		checks.Await(fmt.Sprintf("offset %d", wanted), func() bool {
			asked := map[string][]int{topic: {0}}
			stored, err := api.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: asked})
			checks.Must(errors.Join(err, stored.Error), "fetch offsets")
			return stored.Topics[topic][0].CommittedOffset == wanted
		})
	}
}

// Users creates, describes and deletes a SCRAM credential.
func Users(given checks.Given) {
	ctx, api, user := checks.Context, New(given).api(), given.Values["new"]
	upserted, err := api.AlterUserScramCredentials(ctx, &kafka.AlterUserScramCredentialsRequest{
		Upsertions: []kafka.UserScramCredentialsUpsertion{{
			Name: user, Mechanism: kafka.ScramMechanismSha512, Iterations: 8192, Salt: []byte("salt"), SaltedPassword: []byte("salted"),
		}},
	})
	checks.Must(errors.Join(err, upserted.Results[0].Error), "upsert a credential")
	iterations := func() int {
		described, err := api.DescribeUserScramCredentials(ctx, &kafka.DescribeUserScramCredentialsRequest{
			Users: []kafka.UserScramCredentialsUser{{Name: user}},
		})
		checks.Must(errors.Join(err, described.Error), "describe credentials")
		if len(described.Results[0].CredentialInfos) == 0 {
			return 0
		}
		return described.Results[0].CredentialInfos[0].Iterations
	}
	checks.Await("credential", func() bool { return iterations() == 8192 })
	deleted, err := api.AlterUserScramCredentials(ctx, &kafka.AlterUserScramCredentialsRequest{
		Deletions: []kafka.UserScramCredentialsDeletion{{Name: user, Mechanism: kafka.ScramMechanismSha512}},
	})
	checks.Must(errors.Join(err, deleted.Results[0].Error), "delete a credential")
	checks.Await("end of the credential", func() bool { return iterations() == 0 })
}

// Acls creates, describes and deletes one.
func Acls(given checks.Given) {
	ctx, api, topic := checks.Context, New(given).api(), given.Values["new"]
	created, err := api.CreateACLs(ctx, &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ResourcePatternType: kafka.PatternTypeLiteral,
		Principal: "User:alice", Host: "*", Operation: kafka.ACLOperationTypeRead, PermissionType: kafka.ACLPermissionTypeAllow,
	}}})
	checks.Must(errors.Join(err, created.Errors[0]), "create an ACL")
	found := func() int {
		described, err := api.DescribeACLs(ctx, &kafka.DescribeACLsRequest{Filter: kafka.ACLFilter{
			ResourceTypeFilter: kafka.ResourceTypeTopic, ResourceNameFilter: topic, ResourcePatternTypeFilter: kafka.PatternTypeLiteral,
			Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny,
		}})
		checks.Must(errors.Join(err, described.Error), "describe ACLs")
		return len(described.Resources)
	}
	checks.Await("ACL", func() bool { return found() == 1 })
	deleted, err := api.DeleteACLs(ctx, &kafka.DeleteACLsRequest{Filters: []kafka.DeleteACLsFilter{{
		ResourceTypeFilter: kafka.ResourceTypeTopic, ResourceNameFilter: topic, ResourcePatternTypeFilter: kafka.PatternTypeLiteral,
		Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny,
	}}})
	checks.Must(errors.Join(err, deleted.Results[0].Error), "delete ACLs")
	checks.Await("end of the ACL", func() bool { return found() == 0 })
}
