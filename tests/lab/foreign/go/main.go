// Go's Kafka clients: `clients CLIENT PROGRAM HOST:PORT,... NAME=VALUE ...` does one thing, with exit code 1 when it fails.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"stratalog/clients/checks"
	"stratalog/clients/franzgo"
	"stratalog/clients/saramago"
	"stratalog/clients/segmentio"
)

const longest = 150 * time.Second

type library struct {
	open     func(checks.Given) checks.Client
	programs map[string]func(checks.Given)
}

var libraries = map[string]library{
	"franz-go": {func(given checks.Given) checks.Client { return franzgo.New(given) }, franzgo.Programs},
	"sarama":   {func(given checks.Given) checks.Client { return saramago.New(given) }, saramago.Programs},
	"kafka-go": {func(given checks.Given) checks.Client { return segmentio.New(given) }, segmentio.Programs},
}

var ofAll = map[string]func(checks.Client, checks.Given){
	"produce":    checks.Produce,
	"idempotent": checks.ProduceIdempotently,
	"assign":     checks.ReadByAssignment,
	"share":      checks.Share,
	"come-back":  checks.ComeBack,
	"go-on":      checks.GoOn,
	"secured":    checks.Secured,
	"refused":    checks.Refused,
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	checks.Context = ctx
	code := run(os.Args[1], os.Args[2], checks.Parse(os.Args[3:]))
	cancel()
	os.Exit(code)
}

func run(client, program string, given checks.Given) (code int) {
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Fprintf(os.Stderr, "%v\n", failure)
			if _, isExpected := failure.(checks.Failure); !isExpected {
				debug.PrintStack()
			}
			code = 1
		}
	}()
	library := libraries[client]
	if own, ok := library.programs[program]; ok {
		own(given)
	} else {
		ofAll[program](library.open(given), given)
	}
	return 0
}
