package checks

import "strings"

// Secured produces, and reads in a group, as a user.
func Secured(client Client, given Given) {
	as, sent := grouping(given), records(0, count, partitions)
	client.Write(Plain, as.Topic, sent)
	member := client.Join(as)
	seen := poll("records", []Member{member}, func(seen []Record) bool { return len(seen) >= count })
	Equal("what a member reads", Values(seen), Values(sent))
	member.Commit()
	member.Close()
}

// Refused has a wrong password: no broker lets the client in, and its error names the reason.
func Refused(client Client, given Given) {
	defer func() {
		failure, isExpected := recover().(Failure)
		if !isExpected || !strings.Contains(strings.ToLower(failure.Error()), "authentication failed") {
			Fail("not refused for the password: %v", failure)
		}
	}()
	client.Ends(given.Values["topic"], 0)
}
