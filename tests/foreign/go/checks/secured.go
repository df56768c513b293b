package checks

// Secured produces, and reads in a group, as a user.
func Secured(client Client, given Given) {
	as := grouping(given)
	wanted := write(client, as.Topic, 0)
	member := client.Join(as)
	seen := poll("records", []Member{member}, hasCount)
	Equal("what a member reads", values(seen), wanted)
	member.Commit()
	member.Close()
}
