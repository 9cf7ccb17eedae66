-- Three roles, each with no more than it needs: name them, and the users that get them, as you like. A user takes on a
-- role by SET DEFAULT ROLE.

-- The application, which enqueues. It reads back what holds a key; before MySQL 8.0.22 the lock that
-- this takes wants the right to LOCK TABLES as well.
CREATE ROLE recado_enqueue;
GRANT INSERT, SELECT ON `outbox` TO recado_enqueue;

-- The worker. One with transactional lanes enqueues too.
CREATE ROLE recado_worker;
GRANT SELECT, UPDATE ON `outbox` TO recado_worker;

-- Whoever purges.
CREATE ROLE recado_purge;
GRANT SELECT, DELETE ON `outbox` TO recado_purge;
