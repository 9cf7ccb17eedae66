package mutants

// The conformance kit on one store each.
const (
	onMemory   = "TestConformance/uuid"
	onSQLite   = "TestConformance$/sqlite/modernc/uuid"
	onPostgres = "TestConformance$/postgres/pq/uuid"
	onMariaDB  = "TestConformance$/mariadb/uuid"
)

var table = []suite{
	{"state/machine.go", "./store/memstore", onMemory + "/Operate", []mutant{
		{
			promise: "a message that was sent is never sent again",
			old:     `{Name: string(EventRequeue), Src: []string{string(Failed), string(Discarded)}`,
			new:     `{Name: string(EventRequeue), Src: []string{string(Failed), string(Discarded), string(Sent)}`,
		},
		{
			promise: "what a worker has in hand cannot be cancelled",
			old:     `{Name: string(EventCancel), Src: []string{string(Pending)}`,
			new:     `{Name: string(EventCancel), Src: []string{string(Pending), string(Processing)}`,
		},
	}},

	{"state/decide.go", "./state", "TestDecide|TestTurnAndAge", []mutant{
		{
			promise: "a row is due at its very time",
			old:     `case r.ScheduledAt.After(now):`,
			new:     `case !r.ScheduledAt.Before(now):`,
		},
		{
			promise: "a retry is due at its very time",
			old:     `case r.NextAttemptAt.After(now):`,
			new:     `case !r.NextAttemptAt.Before(now):`,
		},
		{
			promise: "a lease ends at its very time",
			old:     `case r.LeasedUntil.After(now):`,
			new:     `case !r.LeasedUntil.Before(now):`,
		},
		{
			promise: "a message expires at its very time",
			old:     `!r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)`,
			new:     `!r.ExpiresAt.IsZero() && now.After(r.ExpiresAt)`,
		},
		{
			promise: "nothing is done about a state that nobody knows",
			old:     "return DecisionSend\n\t}\n\treturn DecisionWait",
			new:     "return DecisionSend\n\t}\n\treturn DecisionSend",
		},
		{
			promise: "no call is made once the attempts are used up",
			old:     `return r.Attempts >= r.MaxAttempts`,
			new:     `return r.Attempts > r.MaxAttempts`,
		},
		{
			promise: "a row's turn is the later of its dates",
			old:     `case r.NextAttemptAt.After(r.ScheduledAt):`,
			new:     `case !r.NextAttemptAt.IsZero():`,
		},
	}},

	{"state/backoff.go", "./state", "TestBackoff", []mutant{
		{
			promise: "waits are capped",
			old:     `min(float64(b.Base)*math.Pow(b.Factor, float64(attempt)), float64(b.Max))`,
			new:     `float64(b.Base) * math.Pow(b.Factor, float64(attempt))`,
		},
		{
			promise: "jitter stays in its band",
			old:     `wait *= 1 + (2*r-1)*b.Jitter`,
			new:     `wait *= 1 + 2*(2*r-1)*b.Jitter`,
		},
	}},

	{"state/outcome.go", "./state", "TestClassify", []mutant{
		{
			promise: "what nobody has heard of may pass",
			old:     "return ClassPermanent\n\t}\n\treturn ClassTransient",
			new:     "return ClassPermanent\n\t}\n\treturn ClassPermanent",
		},
	}},

	{"state/resolve.go", "./state", "TestResolve|TestTransition", []mutant{
		{
			promise: "a provider's wait only lengthens ours",
			old:     `t.Event, t.Wait = EventRetry, max(wait, hint)`,
			new:     `t.Event, t.Wait = EventRetry, min(wait, hint)`,
		},
		{
			promise: "a provider's wait is capped",
			old:     `min(max(0, o.RetryAfter), max(0, p.MaxRetryAfter))`,
			new:     `max(0, o.RetryAfter)`,
		},
		{
			promise: "an attempt is given back only where nothing was called",
			old:     `case o.NotCalled && o.Category == CategoryNetwork:`,
			new:     `case o.Category == CategoryNetwork:`,
		},
		{
			promise: "who cannot name what happened is not believed that nothing was called",
			old:     `o.Category, o.Code, o.NotCalled = CategoryNetwork, CodeMalformed, false`,
			new:     `o.Category, o.Code = CategoryNetwork, CodeMalformed`,
		},
		{
			promise: "putting off is not charged",
			old:     `return t.Event != EventRelease && t.Event != EventDefer`,
			new:     `return t.Event != EventRelease`,
		},
		{
			promise: "the first refused connection never closes a row",
			old:     `p.MaxAge > 0 && age > p.MaxAge && r.unreachable()`,
			new:     `p.MaxAge > 0 && age > p.MaxAge`,
		},
		{
			promise: "a provider that is busy with the first call is left alone for a minute",
			old:     `hint = max(hint, MinConflictWait)`,
			new:     `_ = hint`,
		},
		{
			promise: "a row that is closed says why",
			old:     `Transition{Event: EventFail, To: Failed, Category: CategoryNetwork, Code: code}`,
			new:     `Transition{Event: EventFail, To: Failed, Category: CategoryNetwork}`,
		},
		{
			promise: "ambiguous outcomes are held where that is asked for",
			old:     `case o.Ambiguous && p.HoldAmbiguous:`,
			new:     `case false:`,
		},
		{
			promise: "no telephone number is stored as a code",
			old:     `if digits > 8 {`,
			new:     `if false {`,
		},
		{
			promise: "a settlement comes from the hands of a worker",
			old:     `if r.State != Processing {`,
			new:     `if false {`,
		},
	}},

	{"store/newmessage.go", "./store", "", []mutant{
		{
			promise: "no two messages of different tenants share a provider's key",
			old:     `if strings.Contains(tenant, ":") {`,
			new:     `if false {`,
			run:     "TestTenants",
		},
		{
			promise: "a provider's key is short enough for the provider",
			old:     `if len(m.TenantID)+1+len(m.IdempotencyKey) > MaxProviderKeyLength {`,
			new:     `if false {`,
		},
		{
			promise: "no text has a NUL or begins another header",
			old:     `case strings.ContainsFunc(s, unicode.IsControl):`,
			new:     `case false:`,
			run:     "TestTexts",
		},
		{
			promise: "keys that a database takes for equal are refused",
			old:     `case strings.TrimSpace(s) != s:`,
			new:     `case false:`,
			run:     "TestTexts",
		},
		{
			promise: "other content under a known key is told",
			old:     ` && sameJSON(e.DataJSON, data)`,
			new:     ``,
			run:     "TestSameContent",
		},
		{
			promise: "the same JSON in another spelling is the same content",
			old:     `sameJSON(e.DataJSON, data)`,
			new:     `string(e.DataJSON) == string(data)`,
			run:     "TestSameJSON",
		},
	}},

	{"store/json.go", "./store", "", []mutant{
		{
			promise: "no data that an engine's JSON cannot hold are accepted",
			old:     `case escape && unit == 0:`,
			new:     `case false:`,
		},
	}},

	{"store/store.go", "./store", "", []mutant{
		{
			promise: "no purge is asked for live rows",
			old:     `if !s.Terminal() {`,
			new:     `if !s.Terminal() && false {`,
		},
	}},

	{"store/rows.go", "./store/memstore", onMemory + "/Settle", []mutant{
		{
			promise: "a fence is of one claim, not of one instant",
			old:     `f.Token != (Token{}) && m.Token == f.Token &&`,
			new:     ``,
		},
		{
			promise: "a foreign worker's claim breaks the fence",
			old:     `!f.LeasedUntil.IsZero() && m.LeasedUntil.Equal(Microsecond(f.LeasedUntil))`,
			new:     `true`,
		},
		{
			promise: "only a row in procesando is settled",
			old:     `return m.State == state.Processing &&`,
			new:     `return true &&`,
		},
		{
			promise: "an attempt is charged before the call",
			old:     `m.Attempts++`,
			new:     `_ = m.Attempts`,
			run:     onMemory + "/Claim",
		},
		{
			promise: "what will not be called is not charged",
			old:     `if code == "" { // what`,
			new:     `if true { // what`,
			run:     onMemory + "/Claim",
		},
		{
			promise: "a row that the claim closed is nobody's",
			old:     `m.Token = Token{} // no worker`,
			new:     `// no worker`,
			run:     onMemory + "/Claim",
		},
		{
			promise: "an attempt that was not made is given back",
			old:     `m.Attempts--`,
			new:     `_ = m.Attempts`,
		},
		{
			promise: "a released row keeps its place",
			old:     `if t.Waits() {`,
			new:     `if t.Waits() || t.Event == state.EventRelease {`,
		},
		{
			promise: "a settlement whose reply was lost is not lost",
			old:     "case m.settledBy(s):\n\t\treturn Applied,",
			new:     "case m.settledBy(s):\n\t\treturn Lost,",
		},
		{
			promise: "of two settlements of a claim one is applied",
			old:     "\treturn sameError\n",
			new:     "\treturn true\n",
		},
		{
			promise: "a doubtful attempt is counted",
			old:     `m.Doubts++`,
			new:     `_ = m.Doubts`,
		},
		{
			promise: "a requeued row has all its attempts again",
			old:     `m.Attempts, m.ScheduledAt, m.NextAttemptAt = 0, now, now`,
			new:     `m.ScheduledAt, m.NextAttemptAt = now, now`,
			run:     onMemory + "/Operate",
		},
		{
			promise: "a lease is prolonged from its own end",
			old:     `renewed.LeasedUntil = Microsecond(f.LeasedUntil.Add(d))`,
			new:     `renewed.LeasedUntil = Microsecond(now.Add(d))`,
			run:     onMemory + "/Renew",
		},
		{
			promise: "a renewal whose reply was lost is not lost",
			old:     `case m.heldBy(renewed): // a repeat`,
			new:     `case false:`,
			run:     onMemory + "/Renew",
		},
		{
			promise: "the mark leaves room for transactions that commit late",
			old:     `if latest := now.Add(-markLag); !turn.Before(latest) {`,
			new:     `if latest := now; !turn.Before(latest) {`,
			run:     onMemory + "/Claim",
		},
	}},

	{"store/memstore/claim.go", "./store/memstore", onMemory + "/Claim", []mutant{
		{
			promise: "the oldest is claimed first",
			old:     `return compare(place(a), place(b))`,
			new:     `return compare(place(b), place(a))`,
		},
		{
			promise: "a mark parts rows of one turn by their ids",
			old:     `compare(place(m), p.From) <= 0`,
			new:     `!m.Row().Turn().After(p.From.Turn)`,
		},
		{
			promise: "a row that is being settled is not claimed",
			old:     ` || s.lockedRows[id] != nil`,
			new:     ``,
			run:     "TestSettleTxHoldsItsRow",
		},
	}},

	{"store/memstore/memstore.go", "./store/memstore", onMemory + "/Purge", []mutant{
		{
			promise: "only rows in the states that were asked for are purged",
			old:     `slices.Contains(p.States, m.State) && m.UpdatedAt`,
			new:     `m.UpdatedAt`,
		},
		{
			promise: "only old rows are purged",
			old:     ` && m.UpdatedAt.Before(p.Before)`,
			new:     ``,
		},
	}},

	{"store/memstore/settle.go", "./store/memstore", onMemory + "/SettleTx", []mutant{
		{
			promise: "work that failed leaves no settlement",
			old:     "if err := fn(ctx, tx); err != nil {",
			new:     "if err := fn(ctx, tx); err != nil {\n\t\t_ = tx.Commit()",
		},
		{
			promise: "work is not done a second time",
			old:     `if !written {`,
			new:     `if !written && verdict == store.Lost {`,
		},
	}},

	{"store/memstore/tx.go", "./store/memstore", onMemory + "/(Enqueue|SettleTx)", []mutant{
		{
			promise: "a repeated key is not told as new",
			old:     `store.EnqueueResult{ID: row.ID, Differs: !same}`,
			new:     `store.EnqueueResult{ID: row.ID, Differs: !same, Inserted: true}`,
		},
		{
			promise: "what was rolled back does not exist",
			old:     "if commit {\n\t\t\ts.insert(m)\n\t\t}",
			new:     "s.insert(m)",
		},
	}},

	{"sqlstore/claim.go", "./sqlstore", "TestClaimFaults", []mutant{
		{
			promise: "a claim whose reply was lost is read back",
			old:     `if errors.Is(err, errCommit) {`,
			new:     `if false && errors.Is(err, errCommit) {`,
		},
		{
			promise: "a claim's rows come in order",
			old:     `return cmp.Or(a.Row().Turn().Compare(b.Row().Turn()), cmp.Compare(a.ID, b.ID))`,
			new:     `return cmp.Or(b.Row().Turn().Compare(a.Row().Turn()), cmp.Compare(b.ID, a.ID))`,
			run:     onSQLite + "/Claim",
		},
		{
			promise: "a row that the database refuses stops no other",
			old:     `if store.Refused(err) && !denied`,
			new:     `if false && !denied`,
			run:     "TestRefusedRows/sqlite",
		},
	}},

	{"sqlstore/store.go", "./sqlstore", "Faults", []mutant{
		{
			promise: "a deadlock or a serialization failure is tried again",
			old:     `case try < maxTries && repeatable(s.errorCode(err)):`,
			new:     `case false:`,
		},
		{
			promise: "a COMMIT without a reply is not taken for one that was kept",
			old:     `return errors.Join(errCommit, err)`,
			new:     `return nil`,
		},
		{
			promise: "a failed statement's transaction is rolled back",
			old:     "_ = tx.Rollback()\n\t\treturn err",
			new:     "_ = tx.Commit()\n\t\treturn err",
		},
	}},

	{"sqlstore/errors.go", "./sqlstore", "Faults", []mutant{
		{
			promise: "a serialization failure is tried again",
			old:     `case "40001", "40P01",`,
			new:     `case "40P01",`,
		},
		{
			promise: "a violated constraint is not tried for ever",
			old:     `[]string{"0A", "22", "23", "42", "54", "P0"}`,
			new:     `[]string{"0A", "22", "42", "54", "P0"}`,
		},
	}},

	{"sqlstore/enqueue.go", "./sqlstore", onSQLite + "/Enqueue", []mutant{
		{
			promise: "a repeated key is not told as new",
			old:     "if err != nil || found.ID != \"\" {\n",
			new:     "if err != nil || found.ID != \"\" {\n\t\t\tfound.Inserted = true\n",
		},
		{
			promise: "other content under a known key is told",
			old:     `result.Differs = data.Valid && !row`,
			new:     `result.Differs = false && !row`,
		},
		{
			promise: "a duplicate of something else is not taken for one of the key",
			old:     `if made.conflict != nil {`,
			new:     `if false {`,
			run:     "TestErrorCodes/constraint/mariadb",
		},
	}},

	{"sqlstore/purge.go", "./sqlstore", onSQLite + "/Purge", []mutant{
		{
			promise: "a purge goes on behind its first batch",
			old:     `if n < p.Batch {`,
			new:     `if n <= p.Batch {`,
		},
	}},

	{"sqlstore/settle.go", "./sqlstore", onSQLite + "/Settle", []mutant{
		{
			promise: "a settlement whose reply was lost is not lost",
			old:     `written[at[i]] = ok`,
			new:     `_, _ = at, ok`,
		},
		{
			promise: "a settlement's verdict is that of its own row",
			old:     `verdicts[places[start+i]] = store.Applied`,
			new:     `verdicts[start+i] = store.Applied`,
		},
		{
			promise: "a released row keeps its place",
			old:     `if s.Waits() {`,
			new:     `if s.Waits() || s.KeepsError() {`,
		},
		{
			promise: "putting off is not charged",
			old:     `if !s.Charged() {`,
			new:     `if s.KeepsError() {`,
		},
		{
			promise: "a doubtful attempt is counted",
			old:     `w.doubt = 1`,
			new:     `w.doubt = 0`,
		},
		{
			promise: "work that failed leaves no settlement",
			old:     "if err := fn(ctx, tx); err != nil {",
			new:     "if err := fn(ctx, tx); err != nil {\n\t\t_ = tx.Commit()",
		},
		{
			promise: "work and settlement are kept together or not at all",
			old:     "if err := fn(ctx, tx); err != nil {\n\t\treturn store.Lost, err\n\t}\n\tif err := tx.Commit(); err != nil {",
			new: "if err := s.inTx(ctx, \"work\", func(tx *sql.Tx) error { return fn(ctx, tx) }); err != nil {\n\t\treturn store.Lost, err\n\t}\n" +
				"\tif err := tx.Commit(); err != nil {",
			run: onPostgres + "/SettleTx",
		},
		{
			promise: "work is not done where the fence is lost",
			old:     `if !written[0] {`,
			new:     `if false {`,
		},
		{
			promise: "work is not done a second time",
			old:     "\t\treturn store.Applied, nil\n\t}\n\tif s.sql.afterSettle",
			new:     "\t\treturn store.Applied, fn(ctx, tx)\n\t}\n\tif s.sql.afterSettle",
		},
	}},

	{"sqlstore/dialect.go", "./sqlstore", onSQLite + "/(Claim|Agreement)", []mutant{
		{
			promise: "a message expires at its very time",
			old:     `coalesce(o.vence_en <= {now}, false)`,
			new:     `coalesce(o.vence_en < {now}, false)`,
		},
		{
			promise: "no call is made once the attempts are used up",
			old:     `(o.intentos >= o.max_intentos OR`,
			new:     `(o.intentos > o.max_intentos OR`,
		},
		{
			promise: "a row that is closed says why",
			old:     `THEN CASE o.estado WHEN {procesando} THEN {lease_agotado} ELSE {intentos_agotados} END`,
			new:     `THEN {intentos_agotados}`,
		},
	}},

	{"sqlstore/dialect_sqlite.go", "./sqlstore", onSQLite, []mutant{
		{
			promise: "a fence is of one claim, not of one instant",
			old:     `WHERE o.id = d.id AND o.reclamo = d.reclamo AND o.estado = {procesando} AND o.bloqueado_hasta = d.lease`,
			new:     `WHERE o.id = d.id AND o.estado = {procesando} AND o.bloqueado_hasta = d.lease`,
		},
		{
			promise: "a foreign worker's claim breaks the fence",
			old:     ` AND o.estado = {procesando} AND o.bloqueado_hasta = d.lease`,
			new:     ` AND o.estado = {procesando}`,
		},
		{
			promise: "only a row in procesando is settled",
			old:     ` AND o.estado = {procesando} AND o.bloqueado_hasta = d.lease`,
			new:     ` AND o.bloqueado_hasta = d.lease`,
		},
		{
			promise: "a row is due at its very time",
			old:     `canal = ?2 AND turno IS NOT NULL AND turno <= {now}`,
			new:     `canal = ?2 AND turno IS NOT NULL AND turno < {now}`,
		},
		{
			promise: "a lease ends at its very time",
			old:     `bloqueado_hasta IS NULL OR bloqueado_hasta <= {now}`,
			new:     `bloqueado_hasta IS NULL OR bloqueado_hasta < {now}`,
		},
		{
			promise: "a row without a lease does not stay for ever",
			old:     `bloqueado_hasta IS NULL OR `,
			new:     ``,
		},
		{
			promise: "the oldest is claimed first",
			old:     "> (coalesce(?3, {first}), ?4)\n\tORDER BY turno, id",
			new:     "> (coalesce(?3, {first}), ?4)\n\tORDER BY turno DESC, id DESC",
		},
		{
			promise: "a mark parts rows of one turn by their ids",
			old:     `(turno, id) > (coalesce(?3, {first}), ?4)`,
			new:     `turno > coalesce(?3, {first}) AND ?4 IS NOT NULL`,
		},
		{
			promise: "an attempt is charged before the call",
			old:     `intentos = o.intentos + CASE WHEN {at_end} THEN 0 ELSE 1 END`,
			new:     `intentos = o.intentos`,
		},
		{
			promise: "an attempt that was not made is given back",
			old:     `intentos = o.intentos - d.devuelto`,
			new:     `intentos = o.intentos`,
		},
		{
			promise: "a row that is closed says why",
			old:     `THEN {end_code} ELSE`,
			new:     `THEN NULL ELSE`,
		},
		{
			promise: "a row that the claim closed is nobody's",
			old:     `reclamo = CASE WHEN {closed} THEN NULL ELSE ?7 END`,
			new:     `reclamo = ?7`,
		},
		{
			promise: "of two settlements of a claim one is applied",
			old:     ` AND o.intentos = d.intentos AND`,
			new:     ` AND`,
		},
		{
			promise: "a renewal whose reply was lost is not lost",
			old:     `IN (d.lease, d.lease + ?3)`,
			new:     `IN (d.lease)`,
		},
		{
			promise: "a lease is prolonged from its own end",
			old:     `bloqueado_hasta = d.lease + ?3,`,
			new:     `bloqueado_hasta = {now} + ?3,`,
		},
		{
			promise: "live rows are not purged",
			old:     `terminado < ?1 AND terminado >= coalesce(?2, {first})` + "\n\t\tAND estado IN (SELECT value FROM json_each(?3))",
			new:     `true OR ?1 = ?2 = ?3`,
		},
		{
			promise: "only rows in the states that were asked for are purged",
			old:     "\t\tAND estado IN (SELECT value FROM json_each(?3))",
			new:     "\t\tAND ?3 IS NOT NULL",
		},
		{
			promise: "only old rows are purged",
			old:     `terminado < ?1 AND`,
			new:     `?1 IS NOT NULL AND`,
		},
		{
			promise: "a requeued row has all its attempts again",
			old:     `intentos = 0,`,
			new:     `intentos = intentos,`,
		},
		{
			promise: "what a worker has in hand cannot be cancelled",
			old:     `estado IN ({cancellable})`,
			new:     `estado IN ({live})`,
		},
	}},

	{"sqlstore/dialect_postgres.go", "./sqlstore", onPostgres, []mutant{
		{
			promise: "a fence is of one claim, not of one instant",
			old:     "o.id = d.id AND o.reclamo = d.reclamo\n\tAND (CASE o.estado WHEN {procesando} THEN o.bloqueado_hasta END) = d.lease",
			new:     "o.id = d.id\n\tAND (CASE o.estado WHEN {procesando} THEN o.bloqueado_hasta END) = d.lease",
			run:     onPostgres + "/Settle",
		},
		{
			promise: "a foreign worker's claim breaks the fence",
			old:     `(CASE o.estado WHEN {procesando} THEN o.bloqueado_hasta END) = d.lease`,
			new:     `o.estado = {procesando}`,
			run:     onPostgres + "/Settle",
		},
		{
			promise: "only a row in procesando is settled",
			old:     `(CASE o.estado WHEN {procesando} THEN o.bloqueado_hasta END) = d.lease`,
			new:     `o.bloqueado_hasta = d.lease`,
			run:     onPostgres + "/Settle",
		},
		{
			promise: "a row is due at its very time",
			old:     `s.turno <= {now}`,
			new:     `s.turno < {now}`,
			run:     onPostgres + "/(Claim|Agreement)",
		},
		{
			promise: "a lease ends at its very time",
			old:     `s.bloqueado_hasta <= {now}`,
			new:     `s.bloqueado_hasta < {now}`,
			run:     onPostgres + "/(Claim|Agreement)",
		},
		{
			promise: "the oldest is claimed first",
			old:     "ORDER BY s.turno, s.id\n\tLIMIT $5",
			new:     "ORDER BY s.turno DESC, s.id DESC\n\tLIMIT $5",
			run:     onPostgres + "/Claim",
		},
		{
			promise: "a mark parts rows of one turn by their ids",
			old:     `(s.turno, s.id) > (coalesce($3::timestamptz, '-infinity'), $4::uuid)`,
			new:     `s.turno > coalesce($3::timestamptz, '-infinity') AND $4::uuid IS NOT NULL`,
			run:     onPostgres + "/Claim",
		},
		{
			promise: "claims do not wait for each other",
			old:     "LIMIT $5\n\tFOR UPDATE SKIP LOCKED",
			new:     "LIMIT $5\n\tFOR UPDATE",
			run:     "TestARowThatIsHeld/postgres/pq",
		},
		{
			promise: "an attempt is charged before the call",
			old:     `intentos = o.intentos + CASE WHEN {at_end} THEN 0 ELSE 1 END`,
			new:     `intentos = o.intentos`,
			run:     onPostgres + "/Claim",
		},
		{
			promise: "an attempt that was not made is given back",
			old:     `intentos = o.intentos - d.devuelto`,
			new:     `intentos = o.intentos`,
			run:     onPostgres + "/Settle",
		},
		{
			promise: "a row that is closed says why",
			old:     `THEN {end_code} ELSE`,
			new:     `THEN NULL ELSE`,
			run:     onPostgres + "/Claim",
		},
		{
			promise: "of two settlements of a claim one is applied",
			old:     ` AND o.intentos = d.intentos AND`,
			new:     ` AND`,
			run:     onPostgres + "/Settle",
		},
		{
			promise: "the first message of a key is kept as it is",
			old:     "cabeceras, creado_en, actualizado_en)\nVALUES ($2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::timestamptz, {now}), $11, $12, {now}, {now})\nON CONFLICT ({tenant}, clave_idempotencia) DO NOTHING",
			new:     "cabeceras, creado_en, actualizado_en)\nVALUES ($2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::timestamptz, {now}), $11, $12, {now}, {now})\nON CONFLICT ({tenant}, clave_idempotencia) DO UPDATE SET destino = excluded.destino",
			run:     onPostgres + "/Enqueue",
		},
		{
			promise: "our transactions need not what the database's default is",
			old:     `return &sql.TxOptions{Isolation: sql.LevelReadCommitted}`,
			new:     `return nil`,
			run:     "TestIsolation",
		},
		{
			promise: "a worker that is frozen in a transaction does not keep its rows for ever",
			old:     `set_config('idle_in_transaction_session_timeout', '30s', true) || `,
			new:     ``,
			run:     "TestFrozenTransaction",
		},
		{
			promise: "live rows are not purged",
			old:     `s.terminado < $1 AND s.terminado >= coalesce($2::timestamptz, '-infinity') AND s.estado = ANY ($3::text[])`,
			new:     `s.actualizado_en < $1 AND $2::timestamptz IS NULL AND $3::text[] IS NOT NULL`,
			run:     onPostgres + "/Purge",
		},
		{
			promise: "only old rows are purged",
			old:     `s.terminado < $1 AND`,
			new:     `$1::timestamptz IS NOT NULL AND`,
			run:     onPostgres + "/Purge",
		},
		{
			promise: "a requeued row has all its attempts again",
			old:     `intentos = 0,`,
			new:     `intentos = intentos,`,
			run:     onPostgres + "/Operate",
		},
		{
			promise: "what a worker has in hand cannot be cancelled",
			old:     `estado IN ({cancellable})`,
			new:     `estado IN ({live})`,
			run:     onPostgres + "/Operate",
		},
	}},

	{"sqlstore/dialect_mysql.go", "./sqlstore", onMariaDB, []mutant{
		{
			promise: "a fence is of one claim, not of one instant",
			old:     "WHERE o.reclamo = d.token AND o.estado = {procesando}\n",
			new:     "WHERE o.estado = {procesando}\n",
			run:     onMariaDB + "/Settle",
		},
		{
			promise: "a foreign worker's claim breaks the fence",
			old:     "\tAND o.bloqueado_hasta IN (cast(d.plazo AS datetime(6)), cast(d.plazo AS datetime(6)) + INTERVAL ?3 MICROSECOND)",
			new:     "\tAND ?3 IS NOT NULL",
			run:     onMariaDB + "/Settle",
		},
		{
			promise: "only a row in procesando is settled",
			old:     "WHERE o.reclamo = d.token AND o.estado = {procesando}\n",
			new:     "WHERE o.reclamo = d.token\n",
			run:     onMariaDB + "/Settle",
		},
		{
			promise: "a row is due at its very time",
			old:     `AND turno <= {now} AND`,
			new:     `AND turno < {now} AND`,
			run:     onMariaDB + "/(Claim|Agreement)",
		},
		{
			promise: "a lease ends at its very time",
			old:     `bloqueado_hasta <= {now})`,
			new:     `bloqueado_hasta < {now})`,
			run:     onMariaDB + "/(Claim|Agreement)",
		},
		{
			promise: "the oldest is claimed first",
			old:     "ORDER BY turno, id LIMIT ?5",
			new:     "ORDER BY turno DESC, id DESC LIMIT ?5",
			run:     onMariaDB + "/Claim",
		},
		{
			promise: "a mark parts rows of one turn by their ids",
			old:     `(turno = coalesce(?3, {first}) AND id > ?4)`,
			new:     `(?3 = ?4)`,
			run:     onMariaDB + "/Claim",
		},
		{
			promise: "claims do not wait for each other",
			old:     "ORDER BY turno, id LIMIT ?5\nFOR UPDATE SKIP LOCKED",
			new:     "ORDER BY turno, id LIMIT ?5\nFOR UPDATE",
			run:     "TestARowThatIsHeld/mariadb",
		},
		{
			promise: "no two claims take one row",
			old:     "ORDER BY turno, id LIMIT ?5\nFOR UPDATE SKIP LOCKED",
			new:     "ORDER BY turno, id LIMIT ?5",
			run:     onMariaDB + "/Concurrency",
		},
		{
			promise: "an attempt is charged before the call",
			old:     `o.intentos = o.intentos + d.cargo`,
			new:     `o.intentos = o.intentos`,
			run:     onMariaDB + "/Claim",
		},
		{
			promise: "an attempt that was not made is given back",
			old:     `o.intentos = o.intentos - d.devuelto`,
			new:     `o.intentos = o.intentos`,
			run:     onMariaDB + "/Settle",
		},
		{
			promise: "a row that is closed says why",
			old:     `ELSE d.fin END`,
			new:     `ELSE NULL END`,
			run:     onMariaDB + "/Claim",
		},
		{
			promise: "a locked row is no lost one",
			old:     `return nil, errHeld`,
			new:     `_ = errHeld`,
			run:     "TestARowThatIsHeld/mariadb",
		},
		{
			promise: "an error of an insert is not passed over",
			old:     "insert: `\nINSERT INTO",
			new:     "insert: `\nINSERT IGNORE INTO",
			run:     "TestErrorCodes/constraint/mariadb",
		},
		{
			promise: "times are in UTC whatever the session's zone is",
			old:     `"coalesce(cast(?1 AS datetime(6)), utc_timestamp(6))"`,
			new:     `"coalesce(cast(?1 AS datetime(6)), now(6))"`,
			run:     "TestSettingsOfMySQL/time",
		},
		{
			promise: "our transactions need not what the database's default is",
			old:     `return &sql.TxOptions{Isolation: sql.LevelReadCommitted}`,
			new:     `return nil`,
			run:     "TestAClaimHoldsUpNoEnqueue/mariadb",
		},
		{
			promise: "live rows are not purged",
			old:     `terminado < ?1 AND terminado >= coalesce(?2, {first}) AND locate(json_quote(estado), ?3)`,
			new:     `actualizado_en < ?1 AND ?2 IS NULL AND ?3 IS NOT NULL`,
			run:     onMariaDB + "/Purge",
		},
		{
			promise: "only old rows are purged",
			old:     `WHERE terminado < ?1 AND`,
			new:     `WHERE ?1 IS NOT NULL AND`,
			run:     onMariaDB + "/Purge",
		},
		{
			promise: "a requeued row has all its attempts again",
			old:     `o.intentos = 0,`,
			new:     `o.intentos = o.intentos,`,
			run:     onMariaDB + "/Operate",
		},
		{
			promise: "what a worker has in hand cannot be cancelled",
			old:     `o.estado IN ({cancellable})`,
			new:     `o.estado IN ({live})`,
			run:     onMariaDB + "/Operate",
		},
	}},

	{"dispatch/attempt.go", "./dispatch", "", []mutant{
		{
			promise: "a panic of a transport stops nobody",
			old:     `if r := recover(); r != nil {`,
			new:     `if r := any(nil); r != nil {`,
			run:     "TestPanics",
		},
		{
			promise: "a panic is no success",
			old:     `o := state.Outcome{Category: state.CategoryNetwork, Code: state.CodePanic, Ambiguous: true}`,
			new:     `o := state.Outcome{OK: true}`,
			run:     "TestPanics",
		},
		{
			promise: "a panic's value is not logged",
			old:     `fmt.Sprintf("%T", r)`,
			new:     `fmt.Sprintf("%v", r)`,
			run:     "TestNothingPersonalGetsOut",
		},
		{
			promise: "a timeout counts as doubtful",
			old:     `Code: state.CodeTimeout, Ambiguous: true}`,
			new:     `Code: state.CodeTimeout}`,
			run:     "TestTimeout",
		},
		{
			promise: "a call is given its timeout",
			old:     `ctx, cancel := context.WithTimeout(p.calls, p.Timeout)`,
			new:     `ctx, cancel := context.WithTimeout(p.calls, 2*p.Timeout)`,
			run:     "TestTimeout",
		},
		{
			promise: "no two messages of different tenants share a provider's key",
			old:     `IdempotencyKey: j.ProviderKey()`,
			new:     `IdempotencyKey: j.IdempotencyKey`,
			run:     "TestWhatATransportIsGiven",
		},
		{
			promise: "a key that cannot travel is not sent",
			old:     `case !store.TravellingKey(m.ProviderKey()):`,
			new:     `case false:`,
			run:     "TestForeignRows",
		},
		{
			promise: "a provider that refuses the account is told to the operator",
			old:     `if o.Account == p.refusedAccount {`,
			new:     `if true {`,
			run:     "TestARefusedAccountIsLogged",
		},
		{
			promise: "a call that ignores its end keeps its slot",
			old:     "p.do(func() { observe(p.resolve(j, timedOut)) })",
			new:     "p.do(func() {\n\t\t\tp.idle++\n\t\t\tobserve(p.resolve(j, timedOut))\n\t\t})",
			run:     "TestACallThatIgnoresItsContext",
		},
	}},

	{"dispatch/lane.go", "./dispatch", "", []mutant{
		{
			promise: "a call starts only where the lease outlasts its timeout and a margin",
			old:     `sent.Add(p.Lease - p.Timeout - LeaseMargin)`,
			new:     `sent.Add(p.Lease)`,
			run:     "TestMargin",
		},
		{
			promise: "a lease is measured from before the claim was sent",
			old:     `startBy: sent.Add(`,
			new:     `startBy: now.Add(`,
			run:     "TestASlowClaimUsesUpTheLease",
		},
		{
			promise: "nothing is started after the end",
			old:     `case p.ctx.Err() != nil || now.After(j.startBy):`,
			new:     `case now.After(j.startBy):`,
			run:     "TestStop$",
		},
		{
			promise: "no more calls than slots",
			old:     `case p.idle > 0:`,
			new:     `case true:`,
			run:     "TestNeverMoreCallsThanSlots",
		},
		{
			promise: "results that cannot be stored stop claims",
			old:     `return p.BatchSize - len(p.waiting) - p.unsettled`,
			new:     `return p.BatchSize - len(p.waiting)`,
			run:     "TestUnsettledResultsStopClaims",
		},
		{
			promise: "a sweep finds the rows below the mark",
			old:     `sent.Sub(p.swept) >= sweepEvery {`,
			new:     `p.swept.IsZero() {`,
			run:     "TestSweepsFindRowsBelowTheMark",
		},
		{
			promise: "a claim that was sent is waited for",
			old:     "context.WithTimeout(context.WithoutCancel(p.ctx), dbTimeout)\n\t\tdefer cancel()\n\t\tc, err",
			new:     "context.WithTimeout(p.ctx, dbTimeout)\n\t\tdefer cancel()\n\t\tc, err",
			run:     "TestStopDuringAClaim",
		},
		{
			promise: "rows that the claim closed are reported",
			old:     `p.report.count(state.EventFail, store.Applied)`,
			new:     `_ = closed`,
			run:     "TestRowsAtTheirLimitAreClosedWithoutACall",
		},
	}},

	{"dispatch/settle.go", "./dispatch", "", []mutant{
		{
			promise: "a group is written whole",
			old:     "p.settle(group)\n\t\tp.do(",
			new:     "p.settle(group[:max(1, len(group)-1)])\n\t\tp.do(",
			run:     "TestGroupCommit",
		},
		{
			promise: "a result is stored although the worker is to stop",
			old:     "context.WithTimeout(context.WithoutCancel(p.ctx), dbTimeout)\n\t\tverdicts",
			new:     "context.WithTimeout(p.ctx, dbTimeout)\n\t\tverdicts",
			run:     "TestStopRecordsWhatWasAccepted",
		},
		{
			promise: "storing a result is tried again",
			old:     `if final || late || p.grace.Err() != nil {`,
			new:     `if true {`,
			run:     "TestSettleIsRepeatedWithGrowingPauses",
		},
		{
			promise: "a result that the database refuses takes no other with it",
			old:     `if (final || locked) && len(group) > 1 {`,
			new:     `if false {`,
			run:     "TestARefusedResultStandsAlone",
		},
	}},

	{"dispatch/report.go", "./dispatch", "", []mutant{
		{
			promise: "a report adds up",
			old:     "r.Claimed++\n\tif v",
			new:     "if v",
			run:     "TestEventsAddUpToTheReport",
		},
		{
			promise: "a lost row is not told as sent",
			old:     `if v != store.Applied {`,
			new:     `if false {`,
			run:     "TestZombie",
		},
	}},

	{"dispatch/worker.go", "./dispatch", "", []mutant{
		{
			promise: "channels that nobody here serves are left alone",
			old:     `if !w.cfg.DiscardUnserved {`,
			new:     `if false {`,
			run:     "TestUnservedChannelsAreLeftAlone",
		},
	}},

	{"transports/email/email.go", "./transports/email", "", []mutant{
		{
			promise: "no subject begins another header",
			old:     ` && !strings.ContainsFunc(c.Subject, unicode.IsControl)`,
			new:     ``,
		},
		{
			promise: "a message goes to one address",
			old:     `parsed.Address == bare`,
			new:     `parsed.Address != ""`,
		},
	}},

	{"transports/whatsapp/whatsapp.go", "./transports/whatsapp", "", []mutant{
		{
			promise: "a tenant without credentials sends nothing",
			old:     `case credentials == nil || *credentials == Credentials{}:`,
			new:     `case credentials == nil:`,
		},
	}},
}
