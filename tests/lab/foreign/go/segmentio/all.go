package segmentio

import "stratalog/clients/checks"

// Programs of this client by their names, besides those of every client, or in their place.
var Programs = map[string]func(checks.Given){
	"go-on":         GoOn,
	"transactions":  Transactions,
	"admin-topics":  Topics,
	"admin-configs": Configs,
	"admin-groups":  Groups,
	"admin-cluster": Cluster,
	"admin-acls":    Acls,
	"admin-users":   Users,
}
