package saramago

import "stratalog/clients/checks"

// Programs of this client by their names, besides those of every client.
var Programs = map[string]func(checks.Given){
	"transactions":  Transactions,
	"fence":         Fence,
	"admin-topics":  Topics,
	"admin-configs": Configs,
	"admin-groups":  Groups,
	"admin-records": Records,
	"admin-cluster": Cluster,
	"admin-acls":    Acls,
	"admin-users":   Users,
}
