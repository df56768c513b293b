package franzgo

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"stratalog/clients/checks"
)

const brokers = 3

// Cluster describes brokers, their versions and log dirs; finds coordinators, elects leaders, moves replicas.
var Cluster = withAdmin(func(_ Client, admin *kadm.Client, given checks.Given) {
	ctx, topic := checks.Context, given.Values["topic"]
	metadata, err := admin.BrokerMetadata(ctx)
	checks.Must(err, "describe the cluster")
	checks.Equal("the brokers", metadata.Brokers.NodeIDs(), []int32{1, 2, 3})
	checks.True(metadata.Cluster != "" && metadata.Controller > 0, "cluster %s", metadata.Cluster)
	versions, err := admin.ApiVersions(ctx)
	checks.Must(err, "API versions")
	checks.Equal("brokers with versions", len(versions), brokers)
	versions.Each(func(each kadm.BrokerApiVersions) { checks.Must(each.Err, "API versions of a broker") })
	set := kadm.TopicsSet{}
	set.Add(topic, 0)
	described, err := admin.DescribeAllLogDirs(ctx, set)
	checks.Must(err, "describe log dirs")
	holders := 0
	described.Each(func(each kadm.DescribedLogDir) {
		checks.Must(each.Err, "describe a log dir")
		if _, ok := each.Topics.Lookup(topic, 0); ok {
			holders++
		}
	})
	checks.Equal("brokers that hold the partition", holders, brokers)
	found := admin.FindGroupCoordinators(ctx, "some group")
	checks.Must(found.Error(), "find a coordinator")
	checks.True(found["some group"].NodeID > 0, "coordinator %d", found["some group"].NodeID)
	elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	checks.Must(err, "elect leaders")
	result := elected[topic][0].Err
	checks.True(result == nil || errors.Is(result, kerr.ElectionNotNeeded), "elect a leader: %v", result)
	move(admin, topic, set)
})

func move(admin *kadm.Client, topic string, set kadm.TopicsSet) {
	ctx, assigned := checks.Context, kadm.AlterPartitionAssignmentsReq{}
	assigned.Assign(topic, 0, []int32{2, 1})
	altered, err := admin.AlterPartitionAssignments(ctx, assigned)
	checks.Must(errors.Join(err, altered.Error()), "move replicas")
	checks.Await("end of the move", func() bool {
		under, err := admin.ListPartitionReassignments(ctx, set)
		checks.Must(err, "list reassignments")
		return len(under[topic]) == 0
	})
	checks.Await("two replicas", func() bool {
		listed, err := admin.ListTopics(ctx, topic)
		checks.Must(err, "list topics")
		return slices.Equal(listed[topic].Partitions[0].Replicas, []int32{2, 1})
	})
}

// Transactional describes an open transaction and its producer.
var Transactional = withAdmin(func(client Client, admin *kadm.Client, given checks.Given) {
	ctx, topic, id := checks.Context, given.Values["topic"], given.Values["id"]
	producer := client.open(kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	checks.Must(producer.BeginTransaction(), "begin")
	checks.Must(producer.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr(), "produce")
	producerId, epoch, err := producer.ProducerID(ctx)
	checks.Must(err, "the producer's id")
	listed, err := admin.ListTransactions(ctx, []int64{producerId}, []string{"Ongoing"})
	checks.Must(err, "list transactions")
	checks.Equal("transactions under way", listed.TransactionalIDs(), []string{id})
	found, err := admin.DescribeTransactions(ctx, id)
	checks.Must(errors.Join(err, found[id].Err), "describe the transaction")
	checks.Equal("its state", found[id].State, "Ongoing")
	checks.True(found[id].Topics.Lookup(topic, 0), "its partitions: %v", found[id].Topics)
	set := kadm.TopicsSet{}
	set.Add(topic, 0)
	described, err := admin.DescribeProducers(ctx, set)
	checks.Must(err, "describe producers")
	all := described.SortedProducers()
	checks.Equal("producers", len(all), 1)
	checks.Equal("the producer", []int64{all[0].ProducerID, int64(all[0].ProducerEpoch), all[0].CurrentTxnStartOffset},
		[]int64{producerId, int64(epoch), 0})
	coordinators := admin.FindTxnCoordinators(ctx, id)
	checks.Must(coordinators.Error(), "find the coordinator")
	checks.Equal("the coordinator", coordinators[id].NodeID, found[id].Coordinator)
	checks.Must(producer.EndTransaction(ctx, kgo.TryAbort), "abort")
	_, err = admin.DescribeTransactions(ctx, id+" that is not there")
	checks.Must(err, "describe a transaction that is not there")
})

// Acls creates, describes and deletes one.
var Acls = withAdmin(func(_ Client, admin *kadm.Client, given checks.Given) {
	ctx, topic := checks.Context, given.Values["new"]
	made := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
			Operations(kadm.OpRead).Allow("User:alice").AllowHosts("*")
	}
	created, err := admin.CreateACLs(ctx, made())
	checks.Must(err, "create an ACL")
	checks.Must(created[0].Err, "create an ACL")
	count := func() int {
		described, err := admin.DescribeACLs(ctx, made())
		checks.Must(errors.Join(err, described[0].Err), "describe ACLs")
		return len(described[0].Described)
	}
	checks.Await("ACL", func() bool { return count() == 1 })
	deleted, err := admin.DeleteACLs(ctx, made())
	checks.Must(errors.Join(err, deleted[0].Err), "delete ACLs")
	checks.Equal("deleted ACLs", len(deleted[0].Deleted), 1)
	checks.Await("end of the ACL", func() bool { return count() == 0 })
})

// Users creates, describes and deletes a SCRAM credential, and a quota.
var Users = withAdmin(func(_ Client, admin *kadm.Client, given checks.Given) {
	ctx, user := checks.Context, given.Values["new"]
	upsert := kadm.UpsertSCRAM{User: user, Mechanism: kadm.ScramSha512, Iterations: 8192, Password: "secret"}
	altered, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{upsert})
	checks.Must(errors.Join(err, altered[user].Err), "upsert a credential")
	iterations := func() int32 {
		described, err := admin.DescribeUserSCRAMs(ctx, user)
		checks.Must(err, "describe credentials")
		if len(described[user].CredInfos) == 0 {
			return 0
		}
		return described[user].CredInfos[0].Iterations
	}
	checks.Await("credential", func() bool { return iterations() == 8192 })
	deletion := kadm.DeleteSCRAM{User: user, Mechanism: kadm.ScramSha512}
	altered, err = admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{deletion}, nil)
	checks.Must(errors.Join(err, altered[user].Err), "delete a credential")
	checks.Await("end of the credential", func() bool { return iterations() == 0 })
	quota(admin, user)
})

func quota(admin *kadm.Client, user string) {
	ctx, entity := checks.Context, kadm.ClientQuotaEntity{{Type: "user", Name: &user}}
	alter := func(op kadm.AlterClientQuotaOp) {
		altered, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: entity, Ops: []kadm.AlterClientQuotaOp{op}}})
		checks.Must(errors.Join(err, altered[0].Err), "alter a quota")
	}
	rate := func() float64 {
		asked := []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: &user}}
		described, err := admin.DescribeClientQuotas(ctx, true, asked)
		checks.Must(err, "describe quotas")
		if len(described) == 0 {
			return 0
		}
		return described[0].Values[0].Value
	}
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 1_000_000})
	checks.Await("quota", func() bool { return rate() == 1_000_000 })
	alter(kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Remove: true})
	checks.Await("end of the quota", func() bool { return rate() == 0 })
}
