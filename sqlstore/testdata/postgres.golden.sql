-- schema
CREATE TABLE IF NOT EXISTS "outbox" (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	"organizacion_id" uuid NOT NULL,
	canal text NOT NULL,
	destino text NOT NULL,
	plantilla text NOT NULL,
	datos jsonb NOT NULL DEFAULT '{}',
	clave_idempotencia text NOT NULL,
	estado text NOT NULL DEFAULT 'pendiente' CHECK (estado IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado')),
	intentos integer NOT NULL DEFAULT 0,
	max_intentos integer NOT NULL DEFAULT 5,
	programado_para timestamptz NOT NULL DEFAULT now(),
	proximo_intento_en timestamptz,
	bloqueado_hasta timestamptz,
	ultimo_error_categoria text,
	ultimo_error_codigo text,
	id_externo text,
	enviado_en timestamptz,
	creado_en timestamptz NOT NULL DEFAULT now(),
	actualizado_en timestamptz NOT NULL DEFAULT now(),
	reclamo uuid,
	cabeceras jsonb,
	dudas smallint NOT NULL DEFAULT 0,
	vence_en timestamptz,
	turno timestamptz GENERATED ALWAYS AS (CASE WHEN estado IN ('pendiente', 'procesando') THEN greatest(programado_para, proximo_intento_en) END) STORED,
	terminado timestamptz GENERATED ALWAYS AS (CASE WHEN estado IN ('enviado', 'fallido', 'descartado') THEN actualizado_en END) STORED
);

-- schema
CREATE UNIQUE INDEX IF NOT EXISTS "outbox_tenant_clave_idem_key" ON "outbox" ("organizacion_id", clave_idempotencia);

-- schema
CREATE INDEX IF NOT EXISTS "outbox_turno_idx" ON "outbox" (canal, turno, id) WHERE turno IS NOT NULL;

-- schema
CREATE INDEX IF NOT EXISTS "outbox_terminado_idx" ON "outbox" (terminado, id) WHERE terminado IS NOT NULL;

-- storage
fillfactor=45, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=20000, autovacuum_vacuum_cost_delay=0;

-- storageOf
SELECT unnest(reloptions) FROM pg_class WHERE oid = to_regclass($1);

-- insert
INSERT INTO "outbox" (id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
VALUES ($2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::timestamptz, coalesce($1::timestamptz, statement_timestamp())), $11, $12, coalesce($1::timestamptz, statement_timestamp()), coalesce($1::timestamptz, statement_timestamp()))
ON CONFLICT ("organizacion_id", clave_idempotencia) DO NOTHING
RETURNING id;

-- insertMany
INSERT INTO "outbox" (id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
SELECT d.id, d.tenant, d.canal, d.destino, d.plantilla, d.datos::jsonb, d.clave, d.max,
	coalesce(d.programado, coalesce($1::timestamptz, statement_timestamp())), d.vence, d.cabeceras::jsonb, coalesce($1::timestamptz, statement_timestamp()), coalesce($1::timestamptz, statement_timestamp())
FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int[],
	$10::timestamptz[], $11::timestamptz[], $12::text[])
	AS d(id, tenant, canal, destino, plantilla, datos, clave, max, programado, vence, cabeceras)
ON CONFLICT ("organizacion_id", clave_idempotencia) DO NOTHING
RETURNING id;

-- find
SELECT id, canal, destino, plantilla, datos FROM "outbox" WHERE "organizacion_id" = $1 AND clave_idempotencia = $2;

-- findMany
SELECT o.id, o."organizacion_id", o.clave_idempotencia, o.canal, o.destino, o.plantilla, o.datos
FROM unnest($1::uuid[], $2::text[]) AS d(tenant, clave)
JOIN "outbox" AS o ON o."organizacion_id" = d.tenant AND o.clave_idempotencia = d.clave;

-- beforeClaim
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true);

-- claim
UPDATE ONLY "outbox" AS o SET
	estado = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= coalesce($1::timestamptz, statement_timestamp()), false)) AND NOT $8::boolean) THEN 'fallido' ELSE 'procesando' END,
	intentos = o.intentos + CASE WHEN (o.intentos >= o.max_intentos OR coalesce(o.vence_en <= coalesce($1::timestamptz, statement_timestamp()), false)) THEN 0 ELSE 1 END,
	bloqueado_hasta = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= coalesce($1::timestamptz, statement_timestamp()), false)) AND NOT $8::boolean) THEN NULL ELSE coalesce($1::timestamptz, statement_timestamp()) + $6 * interval '1 microsecond' END,
	reclamo = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= coalesce($1::timestamptz, statement_timestamp()), false)) AND NOT $8::boolean) THEN NULL ELSE $7::uuid END,
	ultimo_error_categoria = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= coalesce($1::timestamptz, statement_timestamp()), false)) AND NOT $8::boolean) THEN 'red' ELSE o.ultimo_error_categoria END,
	ultimo_error_codigo = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= coalesce($1::timestamptz, statement_timestamp()), false)) AND NOT $8::boolean) THEN CASE WHEN o.intentos >= o.max_intentos
		THEN CASE o.estado WHEN 'procesando' THEN 'lease_agotado' ELSE 'intentos_agotados' END
		WHEN o.vence_en <= coalesce($1::timestamptz, statement_timestamp()) THEN 'vencido' END ELSE o.ultimo_error_codigo END,
	actualizado_en = coalesce($1::timestamptz, statement_timestamp())
WHERE (SELECT set_config('idle_in_transaction_session_timeout', '30s', true) || set_config('lock_timeout', '2s', true)) IS NOT NULL AND o.ctid = ANY (ARRAY(
	SELECT s.ctid FROM ONLY "outbox" AS s
	WHERE s.canal = $2 AND s.turno <= coalesce($1::timestamptz, statement_timestamp()) AND (s.estado = 'pendiente' OR s.bloqueado_hasta IS NULL OR s.bloqueado_hasta <= coalesce($1::timestamptz, statement_timestamp())) AND (s.turno, s.id) > (coalesce($3::timestamptz, '-infinity'), $4::uuid)
	ORDER BY s.turno, s.id
	LIMIT $5
	FOR UPDATE SKIP LOCKED))
RETURNING o.id, o."organizacion_id", o.canal, o.destino, o.plantilla, o.datos, o.clave_idempotencia, o.estado, o.intentos, o.max_intentos, o.programado_para, o.proximo_intento_en, o.bloqueado_hasta, o.reclamo, o.vence_en, o.ultimo_error_categoria, o.ultimo_error_codigo, o.dudas, o.id_externo, o.enviado_en, o.creado_en, o.actualizado_en, o.cabeceras, CASE WHEN $8::boolean THEN (SELECT coalesce(CASE WHEN b.intentos >= b.max_intentos
		THEN CASE b.estado WHEN 'procesando' THEN 'lease_agotado' ELSE 'intentos_agotados' END
		WHEN b.vence_en <= coalesce($1::timestamptz, statement_timestamp()) THEN 'vencido' END, '') FROM "outbox" AS b WHERE b.id = o.id) ELSE '' END;

-- peek
SELECT s.turno, s.id FROM ONLY "outbox" AS s
WHERE s.canal = $2 AND s.turno <= coalesce($1::timestamptz, statement_timestamp()) AND (s.estado = 'pendiente' OR s.bloqueado_hasta IS NULL OR s.bloqueado_hasta <= coalesce($1::timestamptz, statement_timestamp())) AND (s.turno, s.id) > (coalesce($3::timestamptz, '-infinity'), $4::uuid)
ORDER BY s.turno, s.id LIMIT 1;

-- readBack
SELECT id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para, proximo_intento_en, bloqueado_hasta, reclamo, vence_en, ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo, enviado_en, creado_en, actualizado_en, cabeceras FROM "outbox"
WHERE canal = $1 AND turno IS NOT NULL AND estado = 'procesando' AND reclamo = $2
ORDER BY turno, id LIMIT $3;

-- settle
UPDATE "outbox" AS o SET
	estado = d.estado,
	intentos = o.intentos - d.devuelto,
	proximo_intento_en = CASE WHEN d.espera < 0 THEN o.proximo_intento_en ELSE coalesce($1::timestamptz, statement_timestamp()) + d.espera * interval '1 microsecond' END,
	bloqueado_hasta = NULL,
	ultimo_error_categoria = CASE WHEN d.conserva THEN o.ultimo_error_categoria ELSE nullif(d.categoria, '') END,
	ultimo_error_codigo = CASE WHEN d.conserva THEN o.ultimo_error_codigo ELSE nullif(d.codigo, '') END,
	id_externo = CASE WHEN d.estado = 'enviado' THEN nullif(d.externo, '') ELSE o.id_externo END,
	enviado_en = CASE WHEN d.estado = 'enviado' THEN coalesce($1::timestamptz, statement_timestamp()) ELSE o.enviado_en END,
	dudas = least(o.dudas + d.duda, 32767),
	actualizado_en = coalesce($1::timestamptz, statement_timestamp())
FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[], $6::int[], $7::bigint[], $8::bool[], $9::text[],
	$10::text[], $11::text[], $12::int[])
	AS d(id, reclamo, lease, estado, devuelto, espera, conserva, categoria, codigo, externo, duda)
WHERE (SELECT set_config('idle_in_transaction_session_timeout', '30s', true) || set_config('lock_timeout', '2s', true)) IS NOT NULL AND o.id = d.id AND o.reclamo = d.reclamo
	AND (CASE o.estado WHEN 'procesando' THEN o.bloqueado_hasta END) = d.lease
RETURNING o.id;

-- afterSettle
SET LOCAL lock_timeout TO DEFAULT;

-- repeated
SELECT o.id FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::bigint[], $6::bool[], $7::text[], $8::text[],
	$9::text[])
	AS d(id, reclamo, estado, intentos, espera, conserva, categoria, codigo, externo)
JOIN "outbox" AS o ON o.id = d.id
WHERE o.reclamo = d.reclamo AND o.estado = d.estado AND o.intentos = d.intentos AND o.bloqueado_hasta IS NULL
	AND (d.espera < 0 OR o.proximo_intento_en = o.actualizado_en + d.espera * interval '1 microsecond')
	AND (NOT d.conserva OR coalesce(o.proximo_intento_en <= o.actualizado_en, true)) -- given back, not put off
	AND (d.conserva OR (coalesce(o.ultimo_error_categoria, '') = d.categoria AND coalesce(o.ultimo_error_codigo, '') = d.codigo))
	AND (d.estado <> 'enviado' OR coalesce(o.id_externo, '') = d.externo);

-- renew
UPDATE "outbox" AS o SET bloqueado_hasta = d.lease + $5 * interval '1 microsecond', actualizado_en = coalesce($1::timestamptz, statement_timestamp())
FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS d(id, reclamo, lease)
WHERE (SELECT set_config('idle_in_transaction_session_timeout', '30s', true) || set_config('lock_timeout', '2s', true)) IS NOT NULL AND o.id = d.id AND o.reclamo = d.reclamo
	AND (CASE o.estado WHEN 'procesando' THEN o.bloqueado_hasta END) IN (d.lease, d.lease + $5 * interval '1 microsecond')
RETURNING o.id;

-- beforePurge
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true);

-- purge
DELETE FROM ONLY "outbox" WHERE (SELECT set_config('idle_in_transaction_session_timeout', '30s', true) || set_config('lock_timeout', '2s', true)) IS NOT NULL AND ctid = ANY (ARRAY(
	SELECT s.ctid FROM ONLY "outbox" AS s
	WHERE s.terminado < $1 AND s.terminado >= coalesce($2::timestamptz, '-infinity') AND s.estado = ANY ($3::text[])
	ORDER BY s.terminado, s.id
	LIMIT $4
	FOR UPDATE SKIP LOCKED))
RETURNING terminado;

-- clock
SELECT coalesce($1::timestamptz, statement_timestamp());

-- get
SELECT id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para, proximo_intento_en, bloqueado_hasta, reclamo, vence_en, ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo, enviado_en, creado_en, actualizado_en, cabeceras FROM "outbox" WHERE id = $1;

-- getByKey
SELECT id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para, proximo_intento_en, bloqueado_hasta, reclamo, vence_en, ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo, enviado_en, creado_en, actualizado_en, cabeceras FROM "outbox" WHERE "organizacion_id" = $1 AND clave_idempotencia = $2;

-- nextDue
SELECT turno, coalesce($1::timestamptz, statement_timestamp()) FROM "outbox" WHERE canal = $2 AND turno > coalesce($1::timestamptz, statement_timestamp()) ORDER BY turno LIMIT 1;

-- nextChannel
SELECT canal, true FROM (SELECT min(canal) AS canal FROM "outbox" WHERE turno IS NOT NULL AND canal > $1) AS c WHERE canal IS NOT NULL;

-- oldestDue
SELECT s.turno FROM "outbox" AS s WHERE s.canal = $2 AND s.turno <= coalesce($1::timestamptz, statement_timestamp()) AND (s.estado = 'pendiente' OR s.bloqueado_hasta IS NULL OR s.bloqueado_hasta <= coalesce($1::timestamptz, statement_timestamp())) ORDER BY s.turno, s.id LIMIT 1;

-- liveCounts
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM "outbox" WHERE canal = $1 AND turno IS NOT NULL ORDER BY turno LIMIT $2) AS t
GROUP BY canal, estado;

-- endedCounts
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM "outbox" WHERE terminado >= $1 ORDER BY terminado DESC LIMIT $2) AS t
GROUP BY canal, estado;

-- unknown
SELECT estado, count(*) FROM (SELECT estado FROM "outbox" WHERE estado NOT IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado') LIMIT 1000) AS t
GROUP BY estado ORDER BY count(*) DESC, estado;

-- requeue
UPDATE "outbox" SET estado = 'pendiente', intentos = 0, programado_para = coalesce($1::timestamptz, statement_timestamp()), proximo_intento_en = coalesce($1::timestamptz, statement_timestamp()),
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = coalesce($1::timestamptz, statement_timestamp())
WHERE (SELECT set_config('idle_in_transaction_session_timeout', '30s', true) || set_config('lock_timeout', '2s', true)) IS NOT NULL AND id = ANY ($2::uuid[]) AND estado IN ('fallido', 'descartado')
RETURNING id;

-- cancel
UPDATE "outbox" SET estado = 'descartado', ultimo_error_categoria = 'rechazado', ultimo_error_codigo = 'cancelado',
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = coalesce($1::timestamptz, statement_timestamp())
WHERE (SELECT set_config('idle_in_transaction_session_timeout', '30s', true) || set_config('lock_timeout', '2s', true)) IS NOT NULL AND id = ANY ($2::uuid[]) AND estado IN ('pendiente')
RETURNING id;

