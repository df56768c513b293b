package checks

import (
	"fmt"
	"slices"
)

const (
	groupPartitions = 4
	groupCount      = 200
)

var allOfGroup = []int32{0, 1, 2, 3}

func grouping(given Given) Grouping {
	return Grouping{given.Values["group"], given.Values["topic"], given.Values["balancer"], given.Values["instance"]}
}

// Values are keys and values of records, in order.
func Values(records []Record) []string {
	found := make([]string, 0, len(records))
	for _, each := range records {
		found = append(found, string(each.Key)+string(each.Value))
	}
	slices.Sort(found)
	return found
}

func write(client Client, topic string, begin int) []string {
	sent := records(begin, begin+groupCount, groupPartitions)
	for number := range sent {
		sent[number].Value = value(begin + number)
	}
	client.Write(Plain, topic, sent)
	return Values(sent)
}

// poll the members until something holds of what all of them have read since.
func poll(what string, members []Member, holds func(seen []Record) bool) []Record {
	var seen []Record
	Await(what, func() bool {
		for _, each := range members {
			seen = append(seen, each.Poll()...)
		}
		return holds(seen)
	})
	return seen
}

func areShared(members ...Member) func([]Record) bool {
	return func([]Record) bool {
		var all []int32
		for _, each := range members {
			share := each.Assignment()
			if len(share) != groupPartitions/len(members) {
				return false
			}
			all = append(all, share...)
		}
		return slices.Equal(Sorted(all), allOfGroup)
	}
}

func hasCount(seen []Record) bool { return len(seen) >= groupCount }

// Share has one member, two, and one again.
func Share(client Client, given Given) {
	as := grouping(given)
	first := client.Join(as)
	wanted := write(client, as.Topic, 0)
	Equal("what one member reads", Values(poll("records of one member", []Member{first}, hasCount)), wanted)
	first.Commit()
	second := client.Join(as)
	both := []Member{first, second}
	poll("two shares", both, areShared(both...))
	revoked := allOfGroup
	if given.Values["eager"] == "" {
		revoked = Sorted(second.Assignment())
	}
	Equal("what was revoked", Sorted(first.Revoked()), revoked)
	wanted = write(client, as.Topic, groupCount)
	Equal("what two members read", Values(poll("records of two members", both, hasCount)), wanted)
	first.Commit()
	second.Commit()
	first.Close()
	poll("one share", []Member{second}, areShared(second))
	wanted = write(client, as.Topic, 2*groupCount)
	Equal("what the one that stays reads", Values(poll("records of the one that stays", both[1:], hasCount)), wanted)
	second.Commit()
	second.Close()
}

// ComeBack ends a static member and starts it again: it has its partitions again, and the other one keeps its own.
func ComeBack(client Client, given Given) {
	as, other := grouping(given), grouping(given)
	as.Instance, other.Instance = "member-1", "member-2"
	first, second := client.Join(as), client.Join(other)
	poll("two shares", []Member{first, second}, areShared(first, second))
	share, kept, revoked := Sorted(first.Assignment()), Sorted(second.Assignment()), second.Revoked()
	first.Close()
	again := client.Join(as)
	both := []Member{again, second}
	poll("the member that is back", both, func([]Record) bool { return slices.Equal(Sorted(again.Assignment()), share) })
	wanted := write(client, as.Topic, 0)
	Equal("what both read", Values(poll("records of both", both, hasCount)), wanted)
	Equal("what the other one keeps", Sorted(second.Assignment()), kept)
	Equal("what was revoked from the other one", second.Revoked(), revoked)
	again.Close()
	second.Close()
}

// GoOn ends a member that has committed, then one that has not: the next one begins where the group stood.
func GoOn(client Client, given Given) {
	as := grouping(given)
	wanted := write(client, as.Topic, 0)
	for round, commits := range []bool{true, false, true} {
		member := client.Join(as)
		seen := poll(fmt.Sprintf("records of member %d", round), []Member{member}, hasCount)
		Equal(fmt.Sprintf("what member %d reads", round), Values(seen), wanted)
		if commits {
			member.Commit()
			wanted = write(client, as.Topic, (round+1)*groupCount)
		}
		member.Close()
	}
}
