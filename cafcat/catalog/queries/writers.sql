-- Who is writing now, and which writers are dead?
SELECT kind, name, owner, store, begun_at, lease_expires_at, is_stale FROM cafcat_ops.writers ORDER BY begun_at;
