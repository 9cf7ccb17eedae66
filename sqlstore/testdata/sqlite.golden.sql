-- schema
CREATE TABLE IF NOT EXISTS "outbox" (
	id text PRIMARY KEY NOT NULL,
	"organizacion_id" text NOT NULL,
	canal text NOT NULL,
	destino text NOT NULL,
	plantilla text NOT NULL,
	datos text NOT NULL DEFAULT '{}' CHECK (json_valid(datos)),
	clave_idempotencia text NOT NULL,
	estado text NOT NULL DEFAULT 'pendiente' CHECK (estado IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado')),
	intentos integer NOT NULL DEFAULT 0,
	max_intentos integer NOT NULL DEFAULT 5,
	programado_para integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)),
	proximo_intento_en integer,
	bloqueado_hasta integer,
	ultimo_error_categoria text,
	ultimo_error_codigo text,
	id_externo text,
	enviado_en integer,
	creado_en integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)),
	actualizado_en integer NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)),
	reclamo text,
	cabeceras text,
	dudas integer NOT NULL DEFAULT 0,
	vence_en integer,
	turno integer GENERATED ALWAYS AS (CASE WHEN estado IN ('pendiente', 'procesando') THEN max(programado_para, coalesce(proximo_intento_en, programado_para)) END) STORED,
	terminado integer GENERATED ALWAYS AS (CASE WHEN estado IN ('enviado', 'fallido', 'descartado') THEN actualizado_en END) STORED
) STRICT;

-- schema
CREATE UNIQUE INDEX IF NOT EXISTS "outbox_tenant_clave_idem_key" ON "outbox" ("organizacion_id", clave_idempotencia);

-- schema
CREATE INDEX IF NOT EXISTS "outbox_turno_idx" ON "outbox" (canal, turno, id) WHERE turno IS NOT NULL;

-- schema
CREATE INDEX IF NOT EXISTS "outbox_terminado_idx" ON "outbox" (terminado, id) WHERE terminado IS NOT NULL;

-- insert
INSERT INTO "outbox" (id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
VALUES (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(?10, ?1), ?11, ?12, ?1, ?1)
ON CONFLICT ("organizacion_id", clave_idempotencia) DO NOTHING
RETURNING id;

-- insertMany
INSERT INTO "outbox" (id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]'), json_extract(value, '$[7]'),
	coalesce(json_extract(value, '$[8]'), ?1), json_extract(value, '$[9]'), json_extract(value, '$[10]'), ?1, ?1
FROM json_each(?2) WHERE true
ON CONFLICT ("organizacion_id", clave_idempotencia) DO NOTHING
RETURNING id;

-- find
SELECT id, canal, destino, plantilla, datos FROM "outbox" WHERE "organizacion_id" = ?1 AND clave_idempotencia = ?2;

-- findMany
SELECT o.id, o."organizacion_id", o.clave_idempotencia, o.canal, o.destino, o.plantilla, o.datos
FROM (SELECT json_extract(value, '$[1]') AS tenant, json_extract(value, '$[6]') AS clave FROM json_each(?1)) AS d
JOIN "outbox" AS o ON o."organizacion_id" = d.tenant AND o.clave_idempotencia = d.clave;

-- beforeClaim
DELETE FROM "outbox" WHERE false;

-- claim
UPDATE "outbox" AS o SET
	estado = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= ?1, false)) AND NOT ?8) THEN 'fallido' ELSE 'procesando' END,
	intentos = o.intentos + CASE WHEN (o.intentos >= o.max_intentos OR coalesce(o.vence_en <= ?1, false)) THEN 0 ELSE 1 END,
	bloqueado_hasta = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= ?1, false)) AND NOT ?8) THEN NULL ELSE ?1 + ?6 END,
	reclamo = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= ?1, false)) AND NOT ?8) THEN NULL ELSE ?7 END,
	ultimo_error_categoria = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= ?1, false)) AND NOT ?8) THEN 'red' ELSE o.ultimo_error_categoria END,
	ultimo_error_codigo = CASE WHEN ((o.intentos >= o.max_intentos OR coalesce(o.vence_en <= ?1, false)) AND NOT ?8) THEN CASE WHEN o.intentos >= o.max_intentos
		THEN CASE o.estado WHEN 'procesando' THEN 'lease_agotado' ELSE 'intentos_agotados' END
		WHEN o.vence_en <= ?1 THEN 'vencido' END ELSE o.ultimo_error_codigo END,
	actualizado_en = ?1
WHERE o.id IN (SELECT id FROM (
	SELECT * FROM "outbox"
	WHERE canal = ?2 AND turno IS NOT NULL AND turno <= ?1
		AND (estado = 'pendiente' OR bloqueado_hasta IS NULL OR bloqueado_hasta <= ?1) AND (turno, id) > (coalesce(?3, -9223372036854775807), ?4)
	ORDER BY turno, id LIMIT ?5))
RETURNING id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para, proximo_intento_en, bloqueado_hasta, reclamo, vence_en, ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo, enviado_en, creado_en, actualizado_en, cabeceras;

-- closing
SELECT o.id, CASE WHEN o.intentos >= o.max_intentos
		THEN CASE o.estado WHEN 'procesando' THEN 'lease_agotado' ELSE 'intentos_agotados' END
		WHEN o.vence_en <= ?1 THEN 'vencido' END FROM (
	SELECT * FROM "outbox"
	WHERE canal = ?2 AND turno IS NOT NULL AND turno <= ?1
		AND (estado = 'pendiente' OR bloqueado_hasta IS NULL OR bloqueado_hasta <= ?1) AND (turno, id) > (coalesce(?3, -9223372036854775807), ?4)
	ORDER BY turno, id LIMIT ?5) AS o WHERE (o.intentos >= o.max_intentos OR coalesce(o.vence_en <= ?1, false));

-- peek
SELECT turno, id FROM (
	SELECT * FROM "outbox"
	WHERE canal = ?2 AND turno IS NOT NULL AND turno <= ?1
		AND (estado = 'pendiente' OR bloqueado_hasta IS NULL OR bloqueado_hasta <= ?1) AND (turno, id) > (coalesce(?3, -9223372036854775807), ?4)
	ORDER BY turno, id LIMIT 1);

-- readBack
SELECT id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para, proximo_intento_en, bloqueado_hasta, reclamo, vence_en, ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo, enviado_en, creado_en, actualizado_en, cabeceras FROM "outbox"
WHERE canal = ?1 AND turno IS NOT NULL AND estado = 'procesando' AND reclamo = ?2
ORDER BY turno, id LIMIT ?3;

-- settle
UPDATE "outbox" AS o SET
	estado = d.estado,
	intentos = o.intentos - d.devuelto,
	proximo_intento_en = CASE WHEN d.espera < 0 THEN o.proximo_intento_en ELSE ?1 + d.espera END,
	bloqueado_hasta = NULL,
	ultimo_error_categoria = CASE WHEN d.conserva THEN o.ultimo_error_categoria ELSE nullif(d.categoria, '') END,
	ultimo_error_codigo = CASE WHEN d.conserva THEN o.ultimo_error_codigo ELSE nullif(d.codigo, '') END,
	id_externo = CASE WHEN d.estado = 'enviado' THEN nullif(d.externo, '') ELSE o.id_externo END,
	enviado_en = CASE WHEN d.estado = 'enviado' THEN ?1 ELSE o.enviado_en END,
	dudas = min(o.dudas + d.duda, 32767),
	actualizado_en = ?1
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS reclamo, json_extract(value, '$[2]') AS lease, json_extract(value, '$[3]') AS estado, json_extract(value, '$[4]') AS devuelto,
	json_extract(value, '$[6]') AS espera, json_extract(value, '$[7]') AS conserva, json_extract(value, '$[8]') AS categoria, json_extract(value, '$[9]') AS codigo, json_extract(value, '$[10]') AS externo,
	json_extract(value, '$[11]') AS duda FROM json_each(?2)) AS d
WHERE o.id = d.id AND o.reclamo = d.reclamo AND o.estado = 'procesando' AND o.bloqueado_hasta = d.lease
RETURNING id;

-- repeated
SELECT o.id
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS reclamo, json_extract(value, '$[3]') AS estado, json_extract(value, '$[5]') AS intentos, json_extract(value, '$[6]') AS espera,
	json_extract(value, '$[7]') AS conserva, json_extract(value, '$[8]') AS categoria, json_extract(value, '$[9]') AS codigo, json_extract(value, '$[10]') AS externo FROM json_each(?1)) AS d
JOIN "outbox" AS o ON o.id = d.id
WHERE o.reclamo = d.reclamo AND o.estado = d.estado AND o.intentos = d.intentos AND o.bloqueado_hasta IS NULL
	AND (d.espera < 0 OR o.proximo_intento_en = o.actualizado_en + d.espera)
	AND (NOT d.conserva OR coalesce(o.proximo_intento_en <= o.actualizado_en, true)) -- given back, not put off
	AND (d.conserva OR (coalesce(o.ultimo_error_categoria, '') = d.categoria AND coalesce(o.ultimo_error_codigo, '') = d.codigo))
	AND (d.estado <> 'enviado' OR coalesce(o.id_externo, '') = d.externo);

-- renew
UPDATE "outbox" AS o SET bloqueado_hasta = d.lease + ?3, actualizado_en = ?1
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS reclamo, json_extract(value, '$[2]') AS lease FROM json_each(?2)) AS d
WHERE o.id = d.id AND o.reclamo = d.reclamo AND o.estado = 'procesando' AND o.bloqueado_hasta IN (d.lease, d.lease + ?3)
RETURNING id;

-- purge
DELETE FROM "outbox" WHERE id IN (
	SELECT id FROM "outbox"
	WHERE terminado IS NOT NULL AND terminado < ?1 AND terminado >= coalesce(?2, -9223372036854775807)
		AND estado IN (SELECT value FROM json_each(?3))
	ORDER BY terminado, id
	LIMIT ?4)
RETURNING terminado;

-- clock
SELECT ?1;

-- get
SELECT id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para, proximo_intento_en, bloqueado_hasta, reclamo, vence_en, ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo, enviado_en, creado_en, actualizado_en, cabeceras FROM "outbox" WHERE id = ?1;

-- getByKey
SELECT id, "organizacion_id", canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos, programado_para, proximo_intento_en, bloqueado_hasta, reclamo, vence_en, ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo, enviado_en, creado_en, actualizado_en, cabeceras FROM "outbox" WHERE "organizacion_id" = ?1 AND clave_idempotencia = ?2;

-- nextDue
SELECT turno, ?1 FROM "outbox" WHERE canal = ?2 AND turno IS NOT NULL AND turno > ?1 ORDER BY turno LIMIT 1;

-- nextChannel
SELECT canal, true FROM "outbox" WHERE turno IS NOT NULL AND canal > ?1 ORDER BY canal LIMIT 1;

-- oldestDue
SELECT turno FROM "outbox" WHERE canal = ?2 AND turno IS NOT NULL AND turno <= ?1
		AND (estado = 'pendiente' OR bloqueado_hasta IS NULL OR bloqueado_hasta <= ?1) ORDER BY turno, id LIMIT 1;

-- liveCounts
SELECT canal, estado, count(*) FROM (SELECT canal, estado FROM "outbox" WHERE canal = ?1 AND turno IS NOT NULL LIMIT ?2)
GROUP BY canal, estado;

-- endedCounts
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM "outbox" WHERE terminado IS NOT NULL AND terminado >= ?1 ORDER BY terminado DESC LIMIT ?2)
GROUP BY canal, estado;

-- unknown
SELECT estado, count(*) FROM (SELECT estado FROM "outbox" WHERE estado NOT IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado') LIMIT 1000) AS t
GROUP BY estado ORDER BY count(*) DESC, estado;

-- requeue
UPDATE "outbox" SET estado = 'pendiente', intentos = 0, programado_para = ?1, proximo_intento_en = ?1,
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = ?1
WHERE id IN (SELECT value FROM json_each(?2)) AND estado IN ('fallido', 'descartado')
RETURNING id;

-- cancel
UPDATE "outbox" SET estado = 'descartado', ultimo_error_categoria = 'rechazado', ultimo_error_codigo = 'cancelado',
	bloqueado_hasta = NULL, reclamo = NULL, actualizado_en = ?1
WHERE id IN (SELECT value FROM json_each(?2)) AND estado IN ('pendiente')
RETURNING id;

