package checks

import "strconv"

const abortEvery = 3

// Aborts is true for every third attempt.
func Aborts(attempt int) bool { return attempt%abortEvery == 1 }

// Fill writes FillCount records of these numbers to four partitions; their values are returned.
func Fill(client Client, topic string, begin int) []string { return write(client, topic, begin) }

// FillCount is the number of records that Fill writes.
const FillCount = groupCount

// Compare reads what transactions wrote: committed records once, and the aborted ones only as uncommitted.
func Compare(client Client, topic string, wanted []string, aborted int) {
	from := map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}
	seen := client.Read(Reading{Topic: topic, From: from, Committed: true}, len(wanted))
	Equal("what is committed", Values(seen), wanted)
	seen = client.Read(Reading{Topic: topic, From: from}, len(wanted)+aborted)
	Equal("the number of all", strconv.Itoa(len(seen)), strconv.Itoa(len(wanted)+aborted))
}
