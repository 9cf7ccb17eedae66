package sqlstore

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"

	"github.com/recado-dev/recado/store"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// names are the identifiers from configuration, checked and quoted.
type names struct {
	plainSchema, plainTable, plainTenant string

	table      string // qualified
	localTable string // unqualified: where the statement itself says the schema
	tenant     string
	tenantType string
	keyIndex   string // index names, unqualified
	turnIndex  string
	endIndex   string
	schema     string // quoted and with its dot, or ""
	highVolume bool
}

func newNames(cfg Config, d Dialect) (names, error) {
	n := names{plainSchema: cfg.Schema, plainTable: cfg.Table, plainTenant: cfg.TenantColumn, highVolume: cfg.HighVolume}
	if n.plainTable == "" {
		n.plainTable = "outbox"
	}
	if n.plainTenant == "" {
		n.plainTenant = "organizacion_id"
	}
	for _, f := range []struct{ field, name string }{
		{"Config.Table", n.plainTable}, {"Config.TenantColumn", n.plainTenant}, {"Config.Schema", n.plainSchema},
	} {
		if f.field == "Config.Schema" && f.name == "" {
			continue
		}
		if !identifier.MatchString(f.name) {
			return names{}, &store.InvalidError{Field: f.field, Reason: "does not match " + identifier.String()}
		}
	}
	if slices.ContainsFunc(columns, func(c string) bool { return strings.EqualFold(c, n.plainTenant) }) {
		return names{}, &store.InvalidError{Field: "Config.TenantColumn", Reason: "is the name of another column"}
	}
	if n.plainSchema != "" {
		n.schema = d.quote(n.plainSchema) + "."
	}
	n.localTable = d.quote(n.plainTable)
	n.table = n.schema + n.localTable
	n.tenant = d.quote(n.plainTenant)
	n.tenantType = d.tenantType(cfg.TextTenant)
	n.keyIndex = d.quote(d.indexName(n.plainTable, "_tenant_clave_idem_key"))
	n.turnIndex = d.quote(d.indexName(n.plainTable, "_turno_idx"))
	n.endIndex = d.quote(d.indexName(n.plainTable, "_terminado_idx"))
	return n, nil
}

// derived names something after the table. Where that would pass 63 bytes, which engines cut silently, the table's part
// is cut and a hash of it added, so that two tables never share a name.
func derived(table, suffix string) string {
	const limit = 63
	if len(table)+len(suffix) <= limit {
		return table + suffix
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(table))
	hash := fmt.Sprintf("_%08x", h.Sum32())
	return table[:limit-len(suffix)-len(hash)] + hash + suffix
}
