// Package checks has the checks that every client goes through, and what a client brings along for them.
package checks

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// Context ends when the program has to have ended.
var Context = context.Background()

const (
	awaitMax = 60 * time.Second
	lookAt   = 50 * time.Millisecond
)

// Failure is the panic of a check that does not hold.
type Failure struct{ error }

// Fail ends the check.
func Fail(format string, arguments ...any) {
	panic(Failure{fmt.Errorf(format, arguments...)})
}

// Must ends the check at an error.
func Must(err error, doing string) {
	if err != nil {
		Fail("%s: %w", doing, err)
	}
}

// Equal ends the check when two values differ.
func Equal(what string, got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		Fail("%s: %v, not %v", what, short(got), short(wanted))
	}
}

// True ends the check when something does not hold.
func True(holds bool, format string, arguments ...any) {
	if !holds {
		Fail(format, arguments...)
	}
}

// Await returns when something holds, and ends the check after a minute.
func Await(what string, holds func() bool) {
	end := time.Now().Add(awaitMax)
	for !holds() {
		if time.Now().After(end) {
			Fail("no %s within %v", what, awaitMax)
		}
		time.Sleep(lookAt)
	}
}

func short(value any) string {
	text := fmt.Sprintf("%+v", value)
	if len(text) > 600 {
		return text[:600] + "..."
	}
	return text
}
