-- Who is writing now, and which writers are dead?
-- The owner is "host:process:what [boot/start]". A killed writer has a lease for up to 15 minutes, and is stale then.
SELECT kind, name, run_id, owner, store, begun_at, lease_expires_at, is_stale
FROM cafcat_ops.writers ORDER BY begun_at;
