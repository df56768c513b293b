package saramago

import (
	"slices"

	"github.com/IBM/sarama"

	"stratalog/clients/checks"
)

const brokers = 3

// Cluster describes brokers and log dirs; finds the controller and a coordinator, elects leaders, moves replicas.
var Cluster = withAdmin(func(_ Client, admin sarama.ClusterAdmin, given checks.Given) {
	topic := given.Values["topic"]
	found, controller, err := admin.DescribeCluster()
	checks.Must(err, "describe the cluster")
	var ids []int32
	for _, each := range found {
		ids = append(ids, each.ID())
	}
	checks.Equal("the brokers", checks.Sorted(ids), []int32{1, 2, 3})
	checks.True(slices.Contains(ids, controller), "controller %d", controller)
	directories, err := admin.DescribeLogDirs(ids)
	checks.Must(err, "describe log dirs")
	holders := 0
	for _, each := range directories {
		checks.Equal("an error of a log dir", each[0].ErrorCode, sarama.ErrNoError)
		for _, held := range each[0].Topics {
			if held.Topic == topic {
				holders++
			}
		}
	}
	checks.Equal("brokers that hold the topic", holders, brokers)
	coordinator, err := admin.Coordinator(given.Values["group"])
	checks.Must(err, "find the coordinator")
	checks.True(slices.Contains(ids, coordinator.ID()), "coordinator %d", coordinator.ID())
	elected, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
	checks.Must(err, "elect leaders")
	code := elected[topic][0].ErrorCode
	checks.True(code == sarama.ErrNoError || code == sarama.ErrElectionNotNeeded, "elect a leader: %v", code)
	move(admin, topic)
})

func move(admin sarama.ClusterAdmin, topic string) {
	assignment := [][]int32{{2, 1}, {3, 2}, {1, 3}, {2, 3}}
	checks.Must(admin.AlterPartitionReassignments(topic, assignment), "move replicas")
	checks.Await("end of the move", func() bool {
		under, err := admin.ListPartitionReassignments(topic, []int32{0, 1, 2, 3})
		checks.Must(err, "list reassignments")
		return len(under[topic]) == 0
	})
	checks.Await("two replicas", func() bool {
		described, err := admin.DescribeTopics([]string{topic})
		checks.Must(err, "describe topics")
		for _, each := range described[0].Partitions {
			if !slices.Equal(each.Replicas, assignment[each.ID]) {
				return false
			}
		}
		return true
	})
}

// Acls creates, describes and deletes one.
var Acls = withAdmin(func(_ Client, admin sarama.ClusterAdmin, given checks.Given) {
	topic := given.Values["new"]
	resource := sarama.Resource{
		ResourceType: sarama.AclResourceTopic, ResourceName: topic, ResourcePatternType: sarama.AclPatternLiteral,
	}
	acl := sarama.Acl{
		Principal: "User:alice", Host: "*", Operation: sarama.AclOperationRead, PermissionType: sarama.AclPermissionAllow,
	}
	checks.Must(admin.CreateACL(resource, acl), "create an ACL")
	filter := sarama.AclFilter{
		ResourceType: sarama.AclResourceTopic, ResourceName: &topic, ResourcePatternTypeFilter: sarama.AclPatternLiteral,
		Operation: sarama.AclOperationAny, PermissionType: sarama.AclPermissionAny,
	}
	found := func() int {
		listed, err := admin.ListAcls(filter)
		checks.Must(err, "list ACLs")
		return len(listed)
	}
	checks.Await("ACL", func() bool { return found() == 1 })
	deleted, err := admin.DeleteACL(filter, false)
	checks.Must(err, "delete ACLs")
	checks.Equal("the deleted ACL", deleted[0].Acl, acl)
	checks.Await("end of the ACL", func() bool { return found() == 0 })
})

// Users creates, describes and deletes a SCRAM credential, and a quota.
var Users = withAdmin(func(_ Client, admin sarama.ClusterAdmin, given checks.Given) {
	user := given.Values["new"]
	upserted, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{{
		Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_512, Iterations: 8192, Salt: []byte("salt"), Password: []byte("secret"),
	}})
	checks.Must(err, "upsert a credential")
	checks.Equal("an error of the credential", upserted[0].ErrorCode, sarama.ErrNoError)
	iterations := func() int32 {
		described, err := admin.DescribeUserScramCredentials([]string{user})
		checks.Must(err, "describe credentials")
		if len(described[0].CredentialInfos) == 0 {
			return 0
		}
		return described[0].CredentialInfos[0].Iterations
	}
	checks.Await("credential", func() bool { return iterations() == 8192 })
	deletion := sarama.AlterUserScramCredentialsDelete{Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_512}
	deleted, err := admin.DeleteUserScramCredentials([]sarama.AlterUserScramCredentialsDelete{deletion})
	checks.Must(err, "delete a credential")
	checks.Equal("an error of the deletion", deleted[0].ErrorCode, sarama.ErrNoError)
	checks.Await("end of the credential", func() bool { return iterations() == 0 })
	quota(admin, user)
})

func quota(admin sarama.ClusterAdmin, user string) {
	entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: user}}
	rate := func() float64 {
		asked := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: user}}
		described, err := admin.DescribeClientQuotas(asked, true)
		checks.Must(err, "describe quotas")
		if len(described) == 0 {
			return 0
		}
		return described[0].Values["producer_byte_rate"]
	}
	op := sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1_000_000}
	checks.Must(admin.AlterClientQuotas(entity, op, false), "alter a quota")
	checks.Await("quota", func() bool { return rate() == 1_000_000 })
	op = sarama.ClientQuotasOp{Key: "producer_byte_rate", Remove: true}
	checks.Must(admin.AlterClientQuotas(entity, op, false), "remove a quota")
	checks.Await("end of the quota", func() bool { return rate() == 0 })
}
