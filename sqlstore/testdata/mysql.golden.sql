-- schema
CREATE TABLE IF NOT EXISTS `outbox` (
	id char(36) NOT NULL DEFAULT (uuid()) PRIMARY KEY,
	`organizacion_id` char(36) NOT NULL,
	canal varchar(63) NOT NULL,
	destino varchar(320) NOT NULL,
	plantilla varchar(200) NOT NULL,
	datos longtext NOT NULL DEFAULT ('{}') CHECK (json_valid(datos)),
	clave_idempotencia varchar(200) NOT NULL,
	estado varchar(10) NOT NULL DEFAULT 'pendiente' CHECK (estado IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado')),
	intentos int NOT NULL DEFAULT 0,
	max_intentos int NOT NULL DEFAULT 5,
	programado_para datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
	proximo_intento_en datetime(6),
	bloqueado_hasta datetime(6),
	ultimo_error_categoria varchar(64),
	ultimo_error_codigo varchar(64),
	id_externo varchar(255),
	enviado_en datetime(6),
	creado_en datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
	actualizado_en datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
	reclamo char(36),
	cabeceras longtext,
	dudas smallint NOT NULL DEFAULT 0,
	vence_en datetime(6),
	turno datetime(6) GENERATED ALWAYS AS (CASE WHEN estado IN ('pendiente', 'procesando') THEN greatest(programado_para, coalesce(proximo_intento_en, programado_para)) END) STORED,
	terminado datetime(6) GENERATED ALWAYS AS (CASE WHEN estado IN ('enviado', 'fallido', 'descartado') THEN actualizado_en END) STORED,
	UNIQUE KEY `outbox_tenant_clave_idem_key` (`organizacion_id`, clave_idempotencia),
	KEY `outbox_turno_idx` (canal, turno),
	KEY `outbox_terminado_idx` (terminado)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- insert
INSERT INTO `outbox` (id, `organizacion_id`, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, coalesce(cast(? AS datetime(6)), coalesce(cast(? AS datetime(6)), utc_timestamp(6))), ?, ?, coalesce(cast(? AS datetime(6)), utc_timestamp(6)), coalesce(cast(? AS datetime(6)), utc_timestamp(6)));

-- insertMany
INSERT INTO `outbox` (id, `organizacion_id`, canal, destino, plantilla, datos, clave_idempotencia, max_intentos,
	programado_para, vence_en, cabeceras, creado_en, actualizado_en)
SELECT d.uid, d.inquilino, d.canal_, d.destino_, d.plantilla_, concat(d.datos_), d.clave, d.maximo,
	coalesce(cast(nullif(d.programado, '') AS datetime(6)), coalesce(cast(? AS datetime(6)), utc_timestamp(6))), cast(nullif(d.vence, '') AS datetime(6)), concat(nullif(d.cabeceras_, '')), coalesce(cast(? AS datetime(6)), utc_timestamp(6)), coalesce(cast(? AS datetime(6)), utc_timestamp(6))
FROM JSON_TABLE(?, '$[*]' COLUMNS (uid char(36) CHARACTER SET utf8mb4 PATH '$[0]', inquilino varchar(200) CHARACTER SET utf8mb4 PATH '$[1]',
	canal_ varchar(63) CHARACTER SET utf8mb4 PATH '$[2]', destino_ varchar(320) CHARACTER SET utf8mb4 PATH '$[3]', plantilla_ varchar(200) CHARACTER SET utf8mb4 PATH '$[4]',
	datos_ longtext CHARACTER SET utf8mb4 PATH '$[5]', clave varchar(200) CHARACTER SET utf8mb4 PATH '$[6]', maximo int PATH '$[7]', programado char(26) CHARACTER SET utf8mb4 PATH '$[8]',
	vence char(26) CHARACTER SET utf8mb4 PATH '$[9]', cabeceras_ longtext CHARACTER SET utf8mb4 PATH '$[10]')) AS d;

-- find
SELECT id, canal, destino, plantilla, datos FROM `outbox` WHERE `organizacion_id` = ? AND clave_idempotencia = ?
LOCK IN SHARE MODE;

-- findMany
SELECT o.id, o.`organizacion_id`, o.clave_idempotencia, o.canal, o.destino, o.plantilla, o.datos
FROM (SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (inquilino varchar(200) CHARACTER SET utf8mb4 PATH '$[0]', clave varchar(200) CHARACTER SET utf8mb4 PATH '$[1]')) AS j) AS d
STRAIGHT_JOIN `outbox` AS o FORCE INDEX (`outbox_tenant_clave_idem_key`) ON o.`organizacion_id` = d.inquilino AND o.clave_idempotencia = d.clave
LOCK IN SHARE MODE;

-- claim
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', cargo int PATH '$[1]', fin varchar(64) CHARACTER SET utf8mb4 PATH '$[2]')) AS d
STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid SET
	o.estado = CASE WHEN d.fin = '' THEN 'procesando' ELSE 'fallido' END,
	o.intentos = o.intentos + d.cargo,
	o.bloqueado_hasta = CASE WHEN d.fin = '' THEN cast(? AS datetime(6)) END,
	o.reclamo = CASE WHEN d.fin = '' THEN ? END,
	o.ultimo_error_categoria = CASE WHEN d.fin = '' THEN o.ultimo_error_categoria ELSE 'red' END,
	o.ultimo_error_codigo = CASE WHEN d.fin = '' THEN o.ultimo_error_codigo ELSE d.fin END,
	o.actualizado_en = coalesce(cast(? AS datetime(6)), utc_timestamp(6));

-- lockClaim
SELECT id, `organizacion_id`, canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos,
	cast(programado_para AS char), cast(proximo_intento_en AS char), cast(bloqueado_hasta AS char), reclamo, cast(vence_en AS char),
	ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo,
	cast(enviado_en AS char), cast(creado_en AS char), cast(actualizado_en AS char), cabeceras, cast(coalesce(cast(? AS datetime(6)), utc_timestamp(6)) AS char) FROM `outbox` FORCE INDEX (`outbox_turno_idx`)
WHERE canal = ? AND turno <= coalesce(cast(? AS datetime(6)), utc_timestamp(6)) AND (estado = 'pendiente' OR bloqueado_hasta IS NULL OR bloqueado_hasta <= coalesce(cast(? AS datetime(6)), utc_timestamp(6))) AND (turno > coalesce(?, '1000-01-01 00:00:00') OR (turno = coalesce(?, '1000-01-01 00:00:00') AND id > ?))
ORDER BY turno, id LIMIT ?
FOR UPDATE SKIP LOCKED;

-- peek
SELECT cast(turno AS char), id FROM `outbox` FORCE INDEX (`outbox_turno_idx`)
WHERE canal = ? AND turno <= coalesce(cast(? AS datetime(6)), utc_timestamp(6)) AND (estado = 'pendiente' OR bloqueado_hasta IS NULL OR bloqueado_hasta <= coalesce(cast(? AS datetime(6)), utc_timestamp(6))) AND (turno > coalesce(?, '1000-01-01 00:00:00') OR (turno = coalesce(?, '1000-01-01 00:00:00') AND id > ?))
ORDER BY turno, id LIMIT 1;

-- readBack
SELECT id, `organizacion_id`, canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos,
	cast(programado_para AS char), cast(proximo_intento_en AS char), cast(bloqueado_hasta AS char), reclamo, cast(vence_en AS char),
	ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo,
	cast(enviado_en AS char), cast(creado_en AS char), cast(actualizado_en AS char), cabeceras FROM `outbox` FORCE INDEX (`outbox_turno_idx`)
WHERE canal = ? AND turno IS NOT NULL AND estado = 'procesando' AND reclamo = ?
ORDER BY turno, id LIMIT ?;

-- lockFenced
SELECT o.id FROM (SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', token char(36) CHARACTER SET utf8mb4 PATH '$[1]',
	plazo char(26) CHARACTER SET utf8mb4 PATH '$[2]', estado_ varchar(10) CHARACTER SET utf8mb4 PATH '$[3]', devuelto int PATH '$[4]', cuenta int PATH '$[5]',
	espera bigint PATH '$[6]', conserva int PATH '$[7]', categoria varchar(64) CHARACTER SET utf8mb4 PATH '$[8]',
	codigo varchar(64) CHARACTER SET utf8mb4 PATH '$[9]', externo varchar(255) CHARACTER SET utf8mb4 PATH '$[10]', duda int PATH '$[11]')) AS j) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid
WHERE o.reclamo = d.token AND o.estado = 'procesando'
	AND o.bloqueado_hasta IN (cast(d.plazo AS datetime(6)), cast(d.plazo AS datetime(6)) + INTERVAL ? MICROSECOND)
FOR UPDATE SKIP LOCKED;

-- settle
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', token char(36) CHARACTER SET utf8mb4 PATH '$[1]',
	plazo char(26) CHARACTER SET utf8mb4 PATH '$[2]', estado_ varchar(10) CHARACTER SET utf8mb4 PATH '$[3]', devuelto int PATH '$[4]', cuenta int PATH '$[5]',
	espera bigint PATH '$[6]', conserva int PATH '$[7]', categoria varchar(64) CHARACTER SET utf8mb4 PATH '$[8]',
	codigo varchar(64) CHARACTER SET utf8mb4 PATH '$[9]', externo varchar(255) CHARACTER SET utf8mb4 PATH '$[10]', duda int PATH '$[11]')) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid SET
	o.estado = d.estado_,
	o.intentos = o.intentos - d.devuelto,
	o.proximo_intento_en = CASE WHEN d.espera < 0 THEN o.proximo_intento_en ELSE coalesce(cast(? AS datetime(6)), utc_timestamp(6)) + INTERVAL d.espera MICROSECOND END,
	o.bloqueado_hasta = NULL,
	o.ultimo_error_categoria = CASE WHEN d.conserva THEN o.ultimo_error_categoria ELSE nullif(d.categoria, '') END,
	o.ultimo_error_codigo = CASE WHEN d.conserva THEN o.ultimo_error_codigo ELSE nullif(d.codigo, '') END,
	o.id_externo = CASE WHEN d.estado_ = 'enviado' THEN nullif(d.externo, '') ELSE o.id_externo END,
	o.enviado_en = CASE WHEN d.estado_ = 'enviado' THEN coalesce(cast(? AS datetime(6)), utc_timestamp(6)) ELSE o.enviado_en END,
	o.dudas = least(o.dudas + d.duda, 32767),
	o.actualizado_en = coalesce(cast(? AS datetime(6)), utc_timestamp(6));

-- repeated
SELECT o.id FROM JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', token char(36) CHARACTER SET utf8mb4 PATH '$[1]',
	plazo char(26) CHARACTER SET utf8mb4 PATH '$[2]', estado_ varchar(10) CHARACTER SET utf8mb4 PATH '$[3]', devuelto int PATH '$[4]', cuenta int PATH '$[5]',
	espera bigint PATH '$[6]', conserva int PATH '$[7]', categoria varchar(64) CHARACTER SET utf8mb4 PATH '$[8]',
	codigo varchar(64) CHARACTER SET utf8mb4 PATH '$[9]', externo varchar(255) CHARACTER SET utf8mb4 PATH '$[10]', duda int PATH '$[11]')) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid
WHERE o.reclamo = d.token AND o.estado = d.estado_ AND o.intentos = d.cuenta AND o.bloqueado_hasta IS NULL
	AND (d.espera < 0 OR o.proximo_intento_en = o.actualizado_en + INTERVAL d.espera MICROSECOND)
	AND (NOT d.conserva OR coalesce(o.proximo_intento_en <= o.actualizado_en, true)) -- given back, not put off
	AND (d.conserva OR (coalesce(o.ultimo_error_categoria, '') = d.categoria AND coalesce(o.ultimo_error_codigo, '') = d.codigo))
	AND (d.estado_ <> 'enviado' OR coalesce(o.id_externo, '') = d.externo);

-- renew
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', token char(36) CHARACTER SET utf8mb4 PATH '$[1]',
	plazo char(26) CHARACTER SET utf8mb4 PATH '$[2]', estado_ varchar(10) CHARACTER SET utf8mb4 PATH '$[3]', devuelto int PATH '$[4]', cuenta int PATH '$[5]',
	espera bigint PATH '$[6]', conserva int PATH '$[7]', categoria varchar(64) CHARACTER SET utf8mb4 PATH '$[8]',
	codigo varchar(64) CHARACTER SET utf8mb4 PATH '$[9]', externo varchar(255) CHARACTER SET utf8mb4 PATH '$[10]', duda int PATH '$[11]')) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid SET
	o.bloqueado_hasta = cast(d.plazo AS datetime(6)) + INTERVAL ? MICROSECOND, o.actualizado_en = coalesce(cast(? AS datetime(6)), utc_timestamp(6));

-- fenced
SELECT o.id FROM (SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$[0]', token char(36) CHARACTER SET utf8mb4 PATH '$[1]',
	plazo char(26) CHARACTER SET utf8mb4 PATH '$[2]', estado_ varchar(10) CHARACTER SET utf8mb4 PATH '$[3]', devuelto int PATH '$[4]', cuenta int PATH '$[5]',
	espera bigint PATH '$[6]', conserva int PATH '$[7]', categoria varchar(64) CHARACTER SET utf8mb4 PATH '$[8]',
	codigo varchar(64) CHARACTER SET utf8mb4 PATH '$[9]', externo varchar(255) CHARACTER SET utf8mb4 PATH '$[10]', duda int PATH '$[11]')) AS j) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid
WHERE o.reclamo = d.token AND o.estado = 'procesando'
	AND o.bloqueado_hasta IN (cast(d.plazo AS datetime(6)), cast(d.plazo AS datetime(6)) + INTERVAL ? MICROSECOND);

-- lockPurge
SELECT id, cast(terminado AS char) FROM `outbox` FORCE INDEX (`outbox_terminado_idx`)
WHERE terminado < ? AND terminado >= coalesce(?, '1000-01-01 00:00:00') AND locate(json_quote(estado), ?)
ORDER BY terminado, id LIMIT ?
FOR UPDATE SKIP LOCKED;

-- purge
DELETE o FROM JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$')) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid;

-- clock
SELECT cast(coalesce(cast(? AS datetime(6)), utc_timestamp(6)) AS char);

-- get
SELECT id, `organizacion_id`, canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos,
	cast(programado_para AS char), cast(proximo_intento_en AS char), cast(bloqueado_hasta AS char), reclamo, cast(vence_en AS char),
	ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo,
	cast(enviado_en AS char), cast(creado_en AS char), cast(actualizado_en AS char), cabeceras FROM `outbox` WHERE id = ?;

-- getByKey
SELECT id, `organizacion_id`, canal, destino, plantilla, datos, clave_idempotencia, estado, intentos, max_intentos,
	cast(programado_para AS char), cast(proximo_intento_en AS char), cast(bloqueado_hasta AS char), reclamo, cast(vence_en AS char),
	ultimo_error_categoria, ultimo_error_codigo, dudas, id_externo,
	cast(enviado_en AS char), cast(creado_en AS char), cast(actualizado_en AS char), cabeceras FROM `outbox` WHERE `organizacion_id` = ? AND clave_idempotencia = ?;

-- nextDue
SELECT cast(turno AS char), cast(coalesce(cast(? AS datetime(6)), utc_timestamp(6)) AS char) FROM `outbox` FORCE INDEX (`outbox_turno_idx`)
WHERE canal = ? AND turno > coalesce(cast(? AS datetime(6)), utc_timestamp(6)) ORDER BY turno LIMIT 1;

-- nextChannel
SELECT c.canal, (
	SELECT t.turno FROM `outbox` AS t FORCE INDEX (`outbox_turno_idx`) WHERE t.canal = c.canal ORDER BY t.turno DESC LIMIT 1
) IS NOT NULL
FROM (SELECT min(canal) AS canal FROM `outbox` FORCE INDEX (`outbox_turno_idx`) WHERE canal > ?) AS c WHERE c.canal IS NOT NULL;

-- oldestDue
SELECT cast(turno AS char) FROM `outbox` FORCE INDEX (`outbox_turno_idx`) WHERE canal = ? AND turno <= coalesce(cast(? AS datetime(6)), utc_timestamp(6)) AND (estado = 'pendiente' OR bloqueado_hasta IS NULL OR bloqueado_hasta <= coalesce(cast(? AS datetime(6)), utc_timestamp(6))) ORDER BY turno, id LIMIT 1;

-- liveCounts
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM `outbox` FORCE INDEX (`outbox_turno_idx`) WHERE canal = ? AND turno IS NOT NULL LIMIT ?) AS t
GROUP BY canal, estado;

-- endedCounts
SELECT canal, estado, count(*) FROM (
	SELECT canal, estado FROM `outbox` FORCE INDEX (`outbox_terminado_idx`) WHERE terminado >= ? ORDER BY terminado DESC LIMIT ?) AS t
GROUP BY canal, estado;

-- unknown
SELECT estado, count(*) FROM (SELECT estado FROM `outbox` WHERE estado NOT IN ('pendiente', 'procesando', 'enviado', 'fallido', 'descartado') LIMIT 1000) AS t
GROUP BY estado ORDER BY count(*) DESC, estado;

-- requeue, lock
SELECT o.id FROM (SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$')) AS j) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid WHERE o.estado IN ('fallido', 'descartado')
FOR UPDATE;

-- requeue
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$')) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid SET
	o.estado = 'pendiente', o.intentos = 0, o.programado_para = coalesce(cast(? AS datetime(6)), utc_timestamp(6)), o.proximo_intento_en = coalesce(cast(? AS datetime(6)), utc_timestamp(6)),
	o.bloqueado_hasta = NULL, o.reclamo = NULL, o.actualizado_en = coalesce(cast(? AS datetime(6)), utc_timestamp(6));

-- cancel, lock
SELECT o.id FROM (SELECT * FROM JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$')) AS j) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid WHERE o.estado IN ('pendiente')
FOR UPDATE;

-- cancel
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (uid varchar(255) CHARACTER SET utf8mb4 PATH '$')) AS d STRAIGHT_JOIN `outbox` AS o FORCE INDEX (PRIMARY) ON o.id = d.uid SET
	o.estado = 'descartado', o.ultimo_error_categoria = 'rechazado', o.ultimo_error_codigo = 'cancelado',
	o.bloqueado_hasta = NULL, o.reclamo = NULL, o.actualizado_en = coalesce(cast(? AS datetime(6)), utc_timestamp(6));

