-- The schema at the newest migration, for reading. Written by `make schema`; a test keeps it true.

CREATE TABLE public.chunks (
    id bigint NOT NULL,
    run_id bigint,
    size_bytes bigint,
    data_bytes bigint,
    index_start_byte bigint,
    index_end_byte bigint,
    file_count bigint DEFAULT 0 NOT NULL,
    live_file_count bigint DEFAULT 0 NOT NULL,
    live_bytes bigint DEFAULT 0 NOT NULL,
    begun_at timestamp with time zone DEFAULT now() NOT NULL,
    committed_at timestamp with time zone,
    abandoned_at timestamp with time zone,
    retired_at timestamp with time zone,
    deleted_at timestamp with time zone,
    lease_expires_at timestamp with time zone,
    uuid uuid NOT NULL,
    state text DEFAULT 'writing'::text NOT NULL,
    format text NOT NULL,
    store text NOT NULL,
    object_key text NOT NULL,
    lease_owner text,
    crc64nvme text,
    etag text,
    upload_id text,
    index_crc32c bigint,
    moves_from bigint[],
    adopted_prefix text,
    CONSTRAINT chunks_live_check CHECK (((live_file_count >= 0) AND (live_bytes >= 0))),
    CONSTRAINT chunks_state_check CHECK ((state = ANY (ARRAY['writing'::text, 'committed'::text, 'abandoned'::text, 'retired'::text, 'deleted'::text]))),
    CONSTRAINT chunks_whole_check CHECK (((state = ANY (ARRAY['writing'::text, 'abandoned'::text])) OR ((size_bytes IS NOT NULL) AND (data_bytes IS NOT NULL) AND (index_start_byte IS NOT NULL) AND (index_end_byte IS NOT NULL) AND (committed_at IS NOT NULL))))
);

COMMENT ON TABLE public.chunks IS 'One row per archive object (chunk), through its whole life.';

COMMENT ON COLUMN public.chunks.id IS 'Number of the chunk; file_locations.caf_file_id points here.';

COMMENT ON COLUMN public.chunks.run_id IS 'The run that wrote or adopted the chunk.';

COMMENT ON COLUMN public.chunks.size_bytes IS 'Size of the whole object: data, index and footer.';

COMMENT ON COLUMN public.chunks.data_bytes IS 'Bytes of the files in it, live or not; in CAF all before the index.';

COMMENT ON COLUMN public.chunks.index_start_byte IS 'Where the object''s own index begins.';

COMMENT ON COLUMN public.chunks.index_end_byte IS 'One past the end of the object''s own index.';

COMMENT ON COLUMN public.chunks.file_count IS 'Files in the object''s own index.';

COMMENT ON COLUMN public.chunks.live_file_count IS 'Rows of file_locations that point here.';

COMMENT ON COLUMN public.chunks.live_bytes IS 'Bytes of the files that file_locations points to here.';

COMMENT ON COLUMN public.chunks.begun_at IS 'When the row was made, before the first byte was written.';

COMMENT ON COLUMN public.chunks.committed_at IS 'When the object was durable and all its mappings were committed.';

COMMENT ON COLUMN public.chunks.abandoned_at IS 'When the writer, or recover, gave the chunk up.';

COMMENT ON COLUMN public.chunks.retired_at IS 'When the last live file left the chunk; NULL again if one is undeleted.';

COMMENT ON COLUMN public.chunks.deleted_at IS 'When the store had nothing of it any more, neither object nor upload.';

COMMENT ON COLUMN public.chunks.lease_expires_at IS 'While writing: the writer is taken for dead after this time.';

COMMENT ON COLUMN public.chunks.uuid IS 'Name of the chunk everywhere outside SQL.';

COMMENT ON COLUMN public.chunks.state IS 'writing -> committed or abandoned; committed <-> retired -> deleted.';

COMMENT ON COLUMN public.chunks.format IS 'Format of the archive: caf, car, chunkio, ...';

COMMENT ON COLUMN public.chunks.store IS 'URL of the store that holds the object.';

COMMENT ON COLUMN public.chunks.object_key IS 'Key of the object in its store.';

COMMENT ON COLUMN public.chunks.lease_owner IS 'While writing: host, process id and run of the writer.';

COMMENT ON COLUMN public.chunks.crc64nvme IS 'CRC-64/NVME of the whole object in base64, as S3 shows it.';

COMMENT ON COLUMN public.chunks.etag IS 'Entity tag that the store gave the object; NULL for folders.';

COMMENT ON COLUMN public.chunks.upload_id IS 'Multipart upload that writes the object: what recover aborts; NULL for folders.';

COMMENT ON COLUMN public.chunks.index_crc32c IS 'CRC-32C of the object from index_start_byte to its end; NULL if nobody noted it.';

COMMENT ON COLUMN public.chunks.moves_from IS 'chunks.id of those whose files were copied into it, by repack or repair; NULL for an ingest.';

COMMENT ON COLUMN public.chunks.adopted_prefix IS 'Of an archive that was adopted in place: what its paths begin with before the names that it has for them itself. NULL for cafcat''s own. An adopted object is never written to or deleted.';

CREATE TABLE public.file_locations (
    caf_file_id bigint NOT NULL,
    start_byte bigint NOT NULL,
    end_byte bigint NOT NULL,
    crc32c bigint NOT NULL,
    modified_at timestamp with time zone,
    file_path text NOT NULL COLLATE pg_catalog."C",
    source_etag text,
    content_bytes bigint,
    decoding text,
    source_id integer,
    ingest_run_id bigint,
    current_since timestamp with time zone,
    CONSTRAINT file_locations_crc32c_check CHECK (((crc32c >= 0) AND (crc32c <= '4294967295'::bigint))),
    CONSTRAINT file_locations_file_path_check CHECK (((octet_length(file_path) >= 1) AND (octet_length(file_path) <= 2048))),
    CONSTRAINT file_locations_span_check CHECK (((start_byte >= 0) AND (end_byte >= start_byte)))
)
WITH (autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='1000000', autovacuum_vacuum_scale_factor='0.05', autovacuum_freeze_min_age='0');

COMMENT ON TABLE public.file_locations IS 'Where each file is now: bytes [start_byte, end_byte) of a committed chunk.';

COMMENT ON COLUMN public.file_locations.caf_file_id IS 'The chunk: chunks.id. See docs/decisions/0003.';

COMMENT ON COLUMN public.file_locations.start_byte IS 'First byte of the file in the chunk.';

COMMENT ON COLUMN public.file_locations.end_byte IS 'One past its last byte: size is end_byte - start_byte, unless there is content_bytes.';

COMMENT ON COLUMN public.file_locations.crc32c IS 'CRC-32C (Castagnoli) of the file, unsigned.';

COMMENT ON COLUMN public.file_locations.modified_at IS 'Modification time at the source, cut to microseconds; NULL where the source has none.';

COMMENT ON COLUMN public.file_locations.file_path IS 'Name of the file: valid UTF-8, no NUL, 1 to 2048 bytes, sorted bytewise.';

COMMENT ON COLUMN public.file_locations.source_etag IS 'Entity tag of the file at its source, without quotes; NULL where the source has none.';

COMMENT ON COLUMN public.file_locations.content_bytes IS 'Size of the file where it has to be decoded; NULL where the bytes in the chunk are the file.';

COMMENT ON COLUMN public.file_locations.decoding IS 'How the chunk''s format makes the file of the bytes, in its own words; NULL where they are it.';

COMMENT ON COLUMN public.file_locations.source_id IS 'Source that the file was read from: sources.id. NULL if unknown; then size and time decide whether it changed.';

COMMENT ON COLUMN public.file_locations.ingest_run_id IS 'Run that brought the file, if that is not chunks.run_id of its chunk: repack and repair move files to chunks without a run. The view files in cafcat_ops has the run of every file.';

COMMENT ON COLUMN public.file_locations.current_since IS 'Since when the path has this content, if that is not chunks.committed_at of its chunk: the file was moved or undeleted since then.';

CREATE TABLE public.ingest_runs (
    id bigint NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    files_added bigint DEFAULT 0 NOT NULL,
    files_replaced bigint DEFAULT 0 NOT NULL,
    files_unchanged bigint DEFAULT 0 NOT NULL,
    files_skipped bigint DEFAULT 0 NOT NULL,
    files_failed bigint DEFAULT 0 NOT NULL,
    bytes_added bigint DEFAULT 0 NOT NULL,
    chunks_committed bigint DEFAULT 0 NOT NULL,
    process_id integer NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    host text NOT NULL,
    cafcat_version text NOT NULL,
    sources text[] NOT NULL,
    options jsonb NOT NULL,
    error text,
    owner text,
    request text,
    paused_at timestamp with time zone,
    files_removed bigint DEFAULT '0'::bigint NOT NULL,
    CONSTRAINT ingest_runs_request_check CHECK ((request = ANY (ARRAY['stop'::text, 'abort'::text]))),
    CONSTRAINT ingest_runs_state_check CHECK ((state = ANY (ARRAY['running'::text, 'finished'::text, 'interrupted'::text, 'failed'::text, 'rebuilt'::text])))
);

COMMENT ON TABLE public.ingest_runs IS 'Every ingest and adoption: what it was asked, what it brought, how it ended.';

COMMENT ON COLUMN public.ingest_runs.id IS 'Number of the run.';

COMMENT ON COLUMN public.ingest_runs.started_at IS 'When the run began.';

COMMENT ON COLUMN public.ingest_runs.finished_at IS 'When it ended; NULL while it runs, or if its process died.';

COMMENT ON COLUMN public.ingest_runs.files_added IS 'Files committed under a path that the catalog did not have.';

COMMENT ON COLUMN public.ingest_runs.files_replaced IS 'Files committed over an older location of the same path.';

COMMENT ON COLUMN public.ingest_runs.files_unchanged IS 'Files left alone: same size and modification time as the catalog has.';

COMMENT ON COLUMN public.ingest_runs.files_skipped IS 'Symlinks, sockets, devices, and conflicts under --on-conflict skip.';

COMMENT ON COLUMN public.ingest_runs.files_failed IS 'Files refused by name or size, changed while read, vanished, or unreadable.';

COMMENT ON COLUMN public.ingest_runs.bytes_added IS 'Bytes of the files added and replaced.';

COMMENT ON COLUMN public.ingest_runs.chunks_committed IS 'Chunks that the run committed.';

COMMENT ON COLUMN public.ingest_runs.process_id IS 'Process id of the writer on its host.';

COMMENT ON COLUMN public.ingest_runs.state IS 'running, finished, interrupted (by the user; what was packed is committed), failed, or rebuilt (from the journals of the stores, which do not have its end, its sources and its counts).';

COMMENT ON COLUMN public.ingest_runs.host IS 'Host name of the writer.';

COMMENT ON COLUMN public.ingest_runs.cafcat_version IS 'Version of the program.';

COMMENT ON COLUMN public.ingest_runs.sources IS 'What was ingested, as typed.';

COMMENT ON COLUMN public.ingest_runs.options IS 'Options of the run: prefix, include, exclude, ...';

COMMENT ON COLUMN public.ingest_runs.error IS 'Why the run failed; NULL otherwise.';

COMMENT ON COLUMN public.ingest_runs.owner IS 'Process of the run, as in chunks.lease_owner: recover sees by it that it died.';

COMMENT ON COLUMN public.ingest_runs.request IS 'What the workers of a run with shards are asked to do: stop after the commit of their open chunks, or abort at once; NULL: go on.';

COMMENT ON COLUMN public.ingest_runs.paused_at IS 'Since when the run is to be paused; NULL if it is not. Its processes look every 5 seconds.';

COMMENT ON COLUMN public.ingest_runs.files_removed IS 'Files that --delete removed from the catalog, because they were gone at the source.';

CREATE TABLE public.restored_locations (
    id bigint NOT NULL,
    caf_file_id bigint NOT NULL,
    start_byte bigint NOT NULL,
    end_byte bigint NOT NULL,
    crc32c bigint NOT NULL,
    modified_at timestamp with time zone,
    removed_at timestamp with time zone,
    restored_at timestamp with time zone DEFAULT now() NOT NULL,
    removed_by_run_id bigint,
    file_path text NOT NULL COLLATE pg_catalog."C",
    source_etag text,
    content_bytes bigint,
    decoding text,
    source_id integer,
    ingest_run_id bigint,
    current_since timestamp with time zone
);

COMMENT ON TABLE public.restored_locations IS 'A removal that undelete took back: since when, and until when, the file was current before.';

COMMENT ON COLUMN public.restored_locations.id IS 'Order of restoration.';

COMMENT ON COLUMN public.restored_locations.caf_file_id IS 'The chunk: chunks.id. See docs/decisions/0003.';

COMMENT ON COLUMN public.restored_locations.start_byte IS 'First byte of the file in the chunk.';

COMMENT ON COLUMN public.restored_locations.end_byte IS 'One past its last byte: size is end_byte - start_byte, unless there is content_bytes.';

COMMENT ON COLUMN public.restored_locations.crc32c IS 'CRC-32C (Castagnoli) of the file, unsigned.';

COMMENT ON COLUMN public.restored_locations.modified_at IS 'Modification time at the source, cut to microseconds; NULL where the source has none.';

COMMENT ON COLUMN public.restored_locations.removed_at IS 'When the file was removed.';

COMMENT ON COLUMN public.restored_locations.restored_at IS 'When undelete brought the file back.';

COMMENT ON COLUMN public.restored_locations.removed_by_run_id IS 'Run that removed it with --delete; NULL for rm.';

COMMENT ON COLUMN public.restored_locations.file_path IS 'Path of the file.';

COMMENT ON COLUMN public.restored_locations.source_etag IS 'Entity tag of the file at its source, without quotes; NULL where the source has none.';

COMMENT ON COLUMN public.restored_locations.content_bytes IS 'Size of the file where it has to be decoded; NULL where the bytes in the chunk are the file.';

COMMENT ON COLUMN public.restored_locations.decoding IS 'How the chunk''s format makes the file of the bytes, in its own words; NULL where they are it.';

COMMENT ON COLUMN public.restored_locations.source_id IS 'Source that the file was read from: sources.id. NULL if unknown; then size and time decide whether it changed.';

COMMENT ON COLUMN public.restored_locations.ingest_run_id IS 'Run that brought the file, if that is not chunks.run_id of its chunk: repack and repair move files to chunks without a run. The view files in cafcat_ops has the run of every file.';

COMMENT ON COLUMN public.restored_locations.current_since IS 'Since when the path has this content, if that is not chunks.committed_at of its chunk: the file was moved or undeleted since then.';

CREATE TABLE public.retired_locations (
    id bigint NOT NULL,
    caf_file_id bigint NOT NULL,
    start_byte bigint NOT NULL,
    end_byte bigint NOT NULL,
    crc32c bigint NOT NULL,
    modified_at timestamp with time zone,
    run_id bigint,
    retired_at timestamp with time zone DEFAULT now() NOT NULL,
    file_path text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL,
    source_etag text,
    content_bytes bigint,
    decoding text,
    source_id integer,
    ingest_run_id bigint,
    current_since timestamp with time zone,
    CONSTRAINT retired_locations_reason_check CHECK ((reason = ANY (ARRAY['replaced'::text, 'skipped'::text, 'removed'::text, 'moved'::text])))
)
WITH (autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='5000000', autovacuum_freeze_min_age='0');

COMMENT ON TABLE public.retired_locations IS 'What paths pointed to before: every entry of a chunk is either here or in file_locations.';

COMMENT ON COLUMN public.retired_locations.id IS 'Order of retirement.';

COMMENT ON COLUMN public.retired_locations.caf_file_id IS 'The chunk: chunks.id. See docs/decisions/0003.';

COMMENT ON COLUMN public.retired_locations.start_byte IS 'First byte of the file in the chunk.';

COMMENT ON COLUMN public.retired_locations.end_byte IS 'One past its last byte: size is end_byte - start_byte, unless there is content_bytes.';

COMMENT ON COLUMN public.retired_locations.crc32c IS 'CRC-32C (Castagnoli) of the file, unsigned.';

COMMENT ON COLUMN public.retired_locations.modified_at IS 'Modification time at the source, cut to microseconds; NULL where the source has none.';

COMMENT ON COLUMN public.retired_locations.run_id IS 'The run that retired it.';

COMMENT ON COLUMN public.retired_locations.retired_at IS 'When it was retired.';

COMMENT ON COLUMN public.retired_locations.file_path IS 'Name that pointed there.';

COMMENT ON COLUMN public.retired_locations.reason IS 'replaced (a newer version was committed), skipped (packed, but another version stayed), removed (by rm) or moved (into another chunk, by repack or repair).';

COMMENT ON COLUMN public.retired_locations.source_etag IS 'Entity tag of the file at its source, without quotes; NULL where the source has none.';

COMMENT ON COLUMN public.retired_locations.content_bytes IS 'Size of the file where it has to be decoded; NULL where the bytes in the chunk are the file.';

COMMENT ON COLUMN public.retired_locations.decoding IS 'How the chunk''s format makes the file of the bytes, in its own words; NULL where they are it.';

COMMENT ON COLUMN public.retired_locations.source_id IS 'Source that the file was read from: sources.id. NULL if unknown; then size and time decide whether it changed.';

COMMENT ON COLUMN public.retired_locations.ingest_run_id IS 'Run that brought the file, if that is not chunks.run_id of its chunk: repack and repair move files to chunks without a run. The view files in cafcat_ops has the run of every file.';

COMMENT ON COLUMN public.retired_locations.current_since IS 'Since when the path has this content, if that is not chunks.committed_at of its chunk: the file was moved or undeleted since then.';

CREATE TABLE public.sources (
    id integer NOT NULL,
    added_at timestamp with time zone DEFAULT now() NOT NULL,
    url text NOT NULL COLLATE pg_catalog."C"
);

COMMENT ON TABLE public.sources IS 'Roots that files were ingested from.';

COMMENT ON COLUMN public.sources.id IS 'Number of the source.';

COMMENT ON COLUMN public.sources.added_at IS 'When the catalog first met the source.';

COMMENT ON COLUMN public.sources.url IS 'Folder, bucket or server that the names of files are relative to.';

CREATE TABLE public.verifications (
    id bigint NOT NULL,
    run_id bigint NOT NULL,
    chunk_id bigint,
    copy_id bigint,
    files_checked bigint DEFAULT 0 NOT NULL,
    bytes_read bigint DEFAULT 0 NOT NULL,
    finding_count bigint DEFAULT 0 NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    level text NOT NULL,
    verdict text NOT NULL,
    checked_by text NOT NULL,
    CONSTRAINT verifications_level_check CHECK ((level = ANY (ARRAY['catalog'::text, 'index'::text, 'data'::text, 'source'::text]))),
    CONSTRAINT verifications_verdict_check CHECK ((verdict = ANY (ARRAY['ok'::text, 'damaged'::text, 'missing'::text, 'unreadable'::text])))
);

COMMENT ON TABLE public.verifications IS 'History of checks: which chunk was checked when, at which level, with what verdict.';

COMMENT ON COLUMN public.verifications.id IS 'Number of the check.';

COMMENT ON COLUMN public.verifications.run_id IS 'The verify that made it.';

COMMENT ON COLUMN public.verifications.chunk_id IS 'The chunk; NULL for the catalog as a whole.';

COMMENT ON COLUMN public.verifications.copy_id IS 'Which copy; NULL for the chunk itself.';

COMMENT ON COLUMN public.verifications.files_checked IS 'Files whose bytes, or rows, were looked at.';

COMMENT ON COLUMN public.verifications.bytes_read IS 'Bytes read from the store or the source.';

COMMENT ON COLUMN public.verifications.finding_count IS 'Rows in findings.';

COMMENT ON COLUMN public.verifications.started_at IS 'When it began.';

COMMENT ON COLUMN public.verifications.finished_at IS 'When it was done.';

COMMENT ON COLUMN public.verifications.level IS 'catalog, index, data or source: each looks at more.';

COMMENT ON COLUMN public.verifications.verdict IS 'ok, damaged (see findings), missing (no object) or unreadable (the store did not give it).';

COMMENT ON COLUMN public.verifications.checked_by IS 'Host and process that checked.';

CREATE TABLE public.chunk_copies (
    id bigint NOT NULL,
    chunk_id bigint NOT NULL,
    begun_at timestamp with time zone DEFAULT now() NOT NULL,
    committed_at timestamp with time zone,
    abandoned_at timestamp with time zone,
    deleted_at timestamp with time zone,
    lease_expires_at timestamp with time zone,
    state text DEFAULT 'writing'::text NOT NULL,
    store text NOT NULL,
    object_key text NOT NULL,
    lease_owner text,
    etag text,
    upload_id text,
    retired_at timestamp with time zone,
    CONSTRAINT chunk_copies_state_check CHECK ((state = ANY (ARRAY['writing'::text, 'committed'::text, 'abandoned'::text, 'deleted'::text])))
);

COMMENT ON TABLE public.chunk_copies IS 'Further objects with the very bytes of a chunk: reads go there when the first one fails.';

COMMENT ON COLUMN public.chunk_copies.id IS 'Number of the copy.';

COMMENT ON COLUMN public.chunk_copies.chunk_id IS 'The chunk that it is a copy of.';

COMMENT ON COLUMN public.chunk_copies.begun_at IS 'When the row was made, before the first byte was written.';

COMMENT ON COLUMN public.chunk_copies.committed_at IS 'When the copy was durable and whole.';

COMMENT ON COLUMN public.chunk_copies.abandoned_at IS 'When the writer, or recover, gave the copy up.';

COMMENT ON COLUMN public.chunk_copies.deleted_at IS 'When the store had nothing of it any more, neither object nor upload.';

COMMENT ON COLUMN public.chunk_copies.lease_expires_at IS 'While writing: the writer is taken for dead after this time.';

COMMENT ON COLUMN public.chunk_copies.state IS 'writing -> committed or abandoned; committed -> deleted.';

COMMENT ON COLUMN public.chunk_copies.store IS 'URL of the store that holds the object.';

COMMENT ON COLUMN public.chunk_copies.object_key IS 'Key of the object in that store.';

COMMENT ON COLUMN public.chunk_copies.lease_owner IS 'While writing: host and process of the writer.';

COMMENT ON COLUMN public.chunk_copies.etag IS 'Entity tag that the store gave the object; NULL for folders.';

COMMENT ON COLUMN public.chunk_copies.upload_id IS 'Multipart upload that writes the object; NULL for folders.';

COMMENT ON COLUMN public.chunk_copies.retired_at IS 'When a migration of the store replaced this copy as the place to read from; prune removes the copy later.';

CREATE FUNCTION public.chunks_are_kept() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'rows of chunks are never deleted: file_locations.caf_file_id points to them';
END $$;

COMMENT ON FUNCTION public.chunks_are_kept() IS 'Refuses DELETE and TRUNCATE on chunks.';

CREATE TABLE public.events (
    id bigint NOT NULL,
    run_id bigint,
    chunk_id bigint,
    happened_at timestamp with time zone DEFAULT now() NOT NULL,
    kind text NOT NULL,
    file_path text,
    detail text,
    actor text,
    options jsonb,
    files_change bigint,
    bytes_change bigint
);

COMMENT ON TABLE public.events IS 'Append-only log of what happened to runs, chunks and single files, and of who did what.';

COMMENT ON COLUMN public.events.id IS 'Order of the events.';

COMMENT ON COLUMN public.events.run_id IS 'The run it belongs to.';

COMMENT ON COLUMN public.events.chunk_id IS 'The chunk it is about.';

COMMENT ON COLUMN public.events.happened_at IS 'When it was recorded; of chunk_rebuilt, since when the files are current.';

COMMENT ON COLUMN public.events.kind IS 'chunk_begun, chunk_committed, chunk_abandoned, file_failed, ...';

COMMENT ON COLUMN public.events.file_path IS 'The file it is about, with undecodable bytes escaped.';

COMMENT ON COLUMN public.events.detail IS 'What happened, in one line.';

COMMENT ON COLUMN public.events.actor IS 'Who did it: user and host of the process; NULL in events of earlier versions.';

COMMENT ON COLUMN public.events.options IS 'Options of the command, of events of the kind command.';

COMMENT ON COLUMN public.events.files_change IS 'By how much the event changed the number of live files; NULL if not.';

COMMENT ON COLUMN public.events.bytes_change IS 'By how much the event changed the total size of all live files.';

CREATE TABLE public.folder_deltas (
    id bigint NOT NULL,
    files bigint NOT NULL,
    bytes bigint NOT NULL,
    depth integer NOT NULL,
    folder_path text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='50000');

COMMENT ON TABLE public.folder_deltas IS 'Changes of folder_totals: each commit adds rows, so that no two commits wait for one row.';

COMMENT ON COLUMN public.folder_deltas.id IS 'Order of the changes.';

COMMENT ON COLUMN public.folder_deltas.files IS 'Number of live files in the folder and all below it.';

COMMENT ON COLUMN public.folder_deltas.bytes IS 'Total size of these files in bytes.';

COMMENT ON COLUMN public.folder_deltas.depth IS 'Number of slashes in folder_path; 0 for the whole catalog.';

COMMENT ON COLUMN public.folder_deltas.folder_path IS 'The folder, with a slash at its end; empty for the whole catalog.';

CREATE TABLE public.folder_totals (
    files bigint NOT NULL,
    bytes bigint NOT NULL,
    depth integer NOT NULL,
    folder_path text NOT NULL COLLATE pg_catalog."C"
);

COMMENT ON TABLE public.folder_totals IS 'Files and bytes in each folder. Changes in folder_deltas are not added yet: see the view folders.';

COMMENT ON COLUMN public.folder_totals.files IS 'Number of live files in the folder and all below it.';

COMMENT ON COLUMN public.folder_totals.bytes IS 'Total size of these files in bytes.';

COMMENT ON COLUMN public.folder_totals.depth IS 'Number of slashes in folder_path; 0 for the whole catalog.';

COMMENT ON COLUMN public.folder_totals.folder_path IS 'The folder, with a slash at its end; empty for the whole catalog.';

CREATE TABLE public.backups (
    id bigint NOT NULL,
    journal_id bigint,
    size_bytes bigint,
    begun_at timestamp with time zone DEFAULT now() NOT NULL,
    committed_at timestamp with time zone,
    abandoned_at timestamp with time zone,
    deleted_at timestamp with time zone,
    lease_expires_at timestamp with time zone,
    state text DEFAULT 'writing'::text NOT NULL,
    store text NOT NULL,
    object_key text NOT NULL,
    lease_owner text,
    etag text,
    upload_id text,
    CONSTRAINT backups_state_check CHECK ((state = ANY (ARRAY['writing'::text, 'committed'::text, 'abandoned'::text, 'deleted'::text])))
);

COMMENT ON TABLE public.backups IS 'Backups of the catalog, as objects in a store.';

COMMENT ON COLUMN public.backups.id IS 'Number of the backup.';

COMMENT ON COLUMN public.backups.journal_id IS 'The last change (journal.id) that is in it.';

COMMENT ON COLUMN public.backups.size_bytes IS 'Size of the object.';

COMMENT ON COLUMN public.backups.begun_at IS 'When the row was made, before the first byte was written.';

COMMENT ON COLUMN public.backups.committed_at IS 'When the backup was durable and whole.';

COMMENT ON COLUMN public.backups.abandoned_at IS 'When the writer, or recover, gave the backup up.';

COMMENT ON COLUMN public.backups.deleted_at IS 'When the store had nothing of it any more, neither object nor upload.';

COMMENT ON COLUMN public.backups.lease_expires_at IS 'While writing: the writer is taken for dead after this time.';

COMMENT ON COLUMN public.backups.state IS 'writing -> committed or abandoned; committed -> deleted.';

COMMENT ON COLUMN public.backups.store IS 'URL of the store that holds the object.';

COMMENT ON COLUMN public.backups.object_key IS 'Key of the object in that store.';

COMMENT ON COLUMN public.backups.lease_owner IS 'While writing: host and process of the writer.';

COMMENT ON COLUMN public.backups.etag IS 'Entity tag that the store gave the object; NULL for folders.';

COMMENT ON COLUMN public.backups.upload_id IS 'Multipart upload that writes the object; NULL for folders.';

CREATE TABLE public.access_keys (
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    access_key_id text NOT NULL COLLATE pg_catalog."C",
    prefix text NOT NULL COLLATE pg_catalog."C",
    sealed_secret bytea,
    CONSTRAINT access_keys_sealed_secret_check CHECK (((sealed_secret IS NULL) = (revoked_at IS NOT NULL)))
);

COMMENT ON TABLE public.access_keys IS 'Keys with which programs read files through the S3 server.';

COMMENT ON COLUMN public.access_keys.created_at IS 'When the key was made.';

COMMENT ON COLUMN public.access_keys.expires_at IS 'From when on the key is refused; NULL if it does not expire.';

COMMENT ON COLUMN public.access_keys.revoked_at IS 'When the key was revoked; NULL if it was not.';

COMMENT ON COLUMN public.access_keys.access_key_id IS 'Name of the key, which every request of its user has.';

COMMENT ON COLUMN public.access_keys.prefix IS 'Folder of the catalog that the key can read, with a slash at its end; empty for all files.';

COMMENT ON COLUMN public.access_keys.sealed_secret IS 'The secret, encrypted with the sealing key, which the database does not have; NULL once revoked.';

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);

COMMENT ON TABLE public.alembic_version IS 'Revision of this schema: see cafcat db current.';

COMMENT ON COLUMN public.alembic_version.version_num IS 'Revision of this schema.';

ALTER TABLE public.backups ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.backups_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.catalog_identity (
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    uuid uuid DEFAULT gen_random_uuid() NOT NULL,
    only_row boolean DEFAULT true NOT NULL,
    home text,
    CONSTRAINT catalog_identity_only_row_check CHECK (only_row)
);

COMMENT ON TABLE public.catalog_identity IS 'Identity of this catalog: one row.';

COMMENT ON COLUMN public.catalog_identity.created_at IS 'When the catalog was created.';

COMMENT ON COLUMN public.catalog_identity.uuid IS 'Identity of the catalog: the marker object of each store names the catalogs that write there.';

COMMENT ON COLUMN public.catalog_identity.only_row IS 'Always true: the primary key allows one row only.';

COMMENT ON COLUMN public.catalog_identity.home IS 'URL of CAFCAT_HOME at the last use, with the embedded database; else NULL.';

ALTER TABLE public.chunk_copies ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.chunk_copies_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.chunk_times (
    chunk_id bigint NOT NULL,
    begin_ms numeric,
    end_ms numeric,
    timestamp_key text NOT NULL COLLATE pg_catalog."C"
);

COMMENT ON TABLE public.chunk_times IS 'Which times the records of an archive of logs (clp-s) span: what a search by time looks at first.';

COMMENT ON COLUMN public.chunk_times.chunk_id IS 'The archive: chunks.id.';

COMMENT ON COLUMN public.chunk_times.begin_ms IS 'Earliest time, milliseconds since 1970 UTC; NULL if unknown.';

COMMENT ON COLUMN public.chunk_times.end_ms IS 'Latest time, inclusive.';

COMMENT ON COLUMN public.chunk_times.timestamp_key IS 'Key of the records that has the time.';

ALTER TABLE public.chunks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.chunks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE public.events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.findings (
    id bigint NOT NULL,
    verification_id bigint NOT NULL,
    start_byte bigint,
    end_byte bigint,
    kind text NOT NULL,
    file_path text COLLATE pg_catalog."C",
    detail text NOT NULL,
    file_count bigint DEFAULT 0 NOT NULL,
    is_live boolean DEFAULT true NOT NULL
);

COMMENT ON TABLE public.findings IS 'What checks found to be wrong.';

COMMENT ON COLUMN public.findings.id IS 'Number of the finding.';

COMMENT ON COLUMN public.findings.verification_id IS 'The check that found it.';

COMMENT ON COLUMN public.findings.start_byte IS 'First byte of what is wrong, in the chunk, if it is about bytes.';

COMMENT ON COLUMN public.findings.end_byte IS 'One past its last byte.';

COMMENT ON COLUMN public.findings.kind IS 'file (its bytes), index, gap (bytes of no file), size, missing, mapping (index and rows differ), catalog (rows contradict each other), source (differs at its source), absent (gone at its source), unpacked (only at its source), unreadable (not given).';

COMMENT ON COLUMN public.findings.file_path IS 'The file it is about.';

COMMENT ON COLUMN public.findings.detail IS 'What is wrong, in one line.';

COMMENT ON COLUMN public.findings.file_count IS 'Number of files that the finding concerns, file_path being the first; 0 if the finding concerns no file.';

COMMENT ON COLUMN public.findings.is_live IS 'True if a live file needs the damaged bytes; false if only replaced or removed files do, or none. True for all findings at a source.';

ALTER TABLE public.findings ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.findings_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE public.folder_deltas ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.folder_deltas_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE public.ingest_runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.ingest_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.ingestion_units (
    chunk_id bigint NOT NULL,
    first_record bigint NOT NULL,
    end_record bigint NOT NULL,
    source_bytes bigint,
    modified_at timestamp with time zone,
    number integer NOT NULL,
    file_name text NOT NULL COLLATE pg_catalog."C",
    fields jsonb NOT NULL,
    CONSTRAINT ingestion_units_file_name_check CHECK ((octet_length(file_name) <= 2048)),
    CONSTRAINT ingestion_units_span_check CHECK (((first_record >= 0) AND (end_record >= first_record)))
);

COMMENT ON TABLE public.ingestion_units IS 'Log files in archives of logs (clp-s): which records of which archive are those of which file.';

COMMENT ON COLUMN public.ingestion_units.chunk_id IS 'The archive: chunks.id.';

COMMENT ON COLUMN public.ingestion_units.first_record IS 'First record of the log file in the archive.';

COMMENT ON COLUMN public.ingestion_units.end_record IS 'One past its last record.';

COMMENT ON COLUMN public.ingestion_units.source_bytes IS 'Size of the log file when it was ingested; NULL if unknown.';

COMMENT ON COLUMN public.ingestion_units.modified_at IS 'Modification time of the log file when it was ingested; NULL if unknown.';

COMMENT ON COLUMN public.ingestion_units.number IS 'Place in the archive''s own list, from 0.';

COMMENT ON COLUMN public.ingestion_units.file_name IS 'The log file, by the name that the archive has for it; empty if it has none.';

COMMENT ON COLUMN public.ingestion_units.fields IS 'What else the archive says of the log file.';

CREATE TABLE public.journal (
    id bigint NOT NULL,
    chunk_id bigint,
    happened_at timestamp with time zone DEFAULT now() NOT NULL,
    uuid uuid NOT NULL,
    kind text NOT NULL,
    unwritten text[] NOT NULL,
    CONSTRAINT journal_kind_check CHECK ((kind = ANY (ARRAY['commit'::text, 'move'::text, 'remove'::text, 'restore'::text])))
);

COMMENT ON TABLE public.journal IS 'Every change of file_locations, in order. Stores keep it beside the chunks, for a rebuild.';

COMMENT ON COLUMN public.journal.id IS 'Order of the changes: of two that concern the same path, the later one has the higher number.';

COMMENT ON COLUMN public.journal.chunk_id IS 'The chunk that was committed, if it was that.';

COMMENT ON COLUMN public.journal.happened_at IS 'When it was committed.';

COMMENT ON COLUMN public.journal.uuid IS 'Part of the object key, so that it is never taken.';

COMMENT ON COLUMN public.journal.kind IS 'commit (of a chunk), move (the same, by repack or repair), remove (rm) or restore (undelete).';

COMMENT ON COLUMN public.journal.unwritten IS 'URLs of the stores that do not have it yet: recover writes it there.';

CREATE TABLE public.journal_files (
    journal_id bigint NOT NULL,
    caf_file_id bigint NOT NULL,
    start_byte bigint NOT NULL,
    file_path text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='100000');

COMMENT ON TABLE public.journal_files IS 'Files that a change is about, until it is in every store. Of a commit: those that were skipped.';

COMMENT ON COLUMN public.journal_files.journal_id IS 'The change: journal.id.';

COMMENT ON COLUMN public.journal_files.caf_file_id IS 'The chunk: chunks.id.';

COMMENT ON COLUMN public.journal_files.start_byte IS 'First byte of the file in the chunk.';

COMMENT ON COLUMN public.journal_files.file_path IS 'Name of the file.';

ALTER TABLE public.journal ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.journal_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.limit_shares (
    expires_at timestamp with time zone NOT NULL,
    in_flight_bytes bigint,
    bytes_per_second bigint,
    requests integer,
    url text NOT NULL COLLATE pg_catalog."C",
    worker text NOT NULL COLLATE pg_catalog."C"
);

COMMENT ON TABLE public.limit_shares IS 'Shares of limits that processes use. The shares of a limit never exceed it.';

COMMENT ON COLUMN public.limit_shares.expires_at IS 'When the share ends, unless its process renews it before.';

COMMENT ON COLUMN public.limit_shares.in_flight_bytes IS 'Share of limits.in_flight_bytes; NULL for no limit.';

COMMENT ON COLUMN public.limit_shares.bytes_per_second IS 'Share of limits.bytes_per_second; NULL for no limit.';

COMMENT ON COLUMN public.limit_shares.requests IS 'Share of limits.requests; NULL for no limit.';

COMMENT ON COLUMN public.limit_shares.url IS 'The limit.';

COMMENT ON COLUMN public.limit_shares.worker IS 'Process that has the share.';

CREATE TABLE public.limits (
    set_at timestamp with time zone DEFAULT now() NOT NULL,
    in_flight_bytes bigint,
    bytes_per_second bigint,
    requests integer,
    url text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT limits_positive_check CHECK (((requests > 0) AND (in_flight_bytes > 0) AND (bytes_per_second > 0)))
);

COMMENT ON TABLE public.limits IS 'Limits of requests and bytes, for all processes together.';

COMMENT ON COLUMN public.limits.set_at IS 'When the limit was set.';

COMMENT ON COLUMN public.limits.in_flight_bytes IS 'Most bytes of requests at the same time; NULL for no limit.';

COMMENT ON COLUMN public.limits.bytes_per_second IS 'Most bytes per second; NULL for no limit.';

COMMENT ON COLUMN public.limits.requests IS 'Most requests at the same time; NULL for no limit.';

COMMENT ON COLUMN public.limits.url IS 'URL of a store or source, or of a folder of one. The limit is for all objects at or below it.';

CREATE TABLE public.listings (
    id bigint NOT NULL,
    run_id bigint,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    advanced_at timestamp with time zone,
    finished_at timestamp with time zone,
    source text NOT NULL,
    scope text NOT NULL,
    "position" text
);

COMMENT ON TABLE public.listings IS 'Listings of remote sources: where an interrupted one goes on.';

COMMENT ON COLUMN public.listings.id IS 'Number of the listing.';

COMMENT ON COLUMN public.listings.run_id IS 'The run that went on with it last.';

COMMENT ON COLUMN public.listings.started_at IS 'When the listing began.';

COMMENT ON COLUMN public.listings.advanced_at IS 'When its position was last written; NULL if never.';

COMMENT ON COLUMN public.listings.finished_at IS 'When it came to its end; NULL while it can go on.';

COMMENT ON COLUMN public.listings.source IS 'URL of what is listed.';

COMMENT ON COLUMN public.listings.scope IS 'What else the listing depends on: server, prefix, patterns, what happens to conflicts.';

COMMENT ON COLUMN public.listings."position" IS 'Every object up to this key was dealt with: committed, unchanged, or refused.';

ALTER TABLE public.listings ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.listings_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE public.restored_locations ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.restored_locations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE public.retired_locations ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.retired_locations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.shards (
    id bigint NOT NULL,
    run_id bigint NOT NULL,
    planned_at timestamp with time zone DEFAULT now() NOT NULL,
    begun_at timestamp with time zone,
    finished_at timestamp with time zone,
    lease_expires_at timestamp with time zone,
    source_number integer NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    source text NOT NULL,
    scope text NOT NULL,
    after_position text COLLATE pg_catalog."C",
    through_position text COLLATE pg_catalog."C",
    "position" text COLLATE pg_catalog."C",
    owner text,
    host text,
    error text,
    report jsonb DEFAULT '{}'::jsonb NOT NULL,
    progress jsonb,
    CONSTRAINT shards_shards_state_check_check CHECK ((state = ANY (ARRAY['waiting'::text, 'running'::text, 'finished'::text, 'cancelled'::text])))
);

COMMENT ON TABLE public.shards IS 'Parts of the sources of ingests by many workers: which part is done, and who works on it.';

COMMENT ON COLUMN public.shards.id IS 'Number of the shard.';

COMMENT ON COLUMN public.shards.run_id IS 'The run that works on it, or was the last one to do so.';

COMMENT ON COLUMN public.shards.planned_at IS 'When the source was cut into shards.';

COMMENT ON COLUMN public.shards.begun_at IS 'When a worker first took it; NULL if none has.';

COMMENT ON COLUMN public.shards.finished_at IS 'When all its files were dealt with; NULL before.';

COMMENT ON COLUMN public.shards.lease_expires_at IS 'While running: the worker is taken for dead after this time.';

COMMENT ON COLUMN public.shards.source_number IS 'Place of the source in the command, from 0.';

COMMENT ON COLUMN public.shards.attempts IS 'How many times a worker took it.';

COMMENT ON COLUMN public.shards.state IS 'waiting -> running -> finished; running -> waiting if its worker failed; cancelled if the source was cut anew.';

COMMENT ON COLUMN public.shards.source IS 'The source: a URL, or an absolute path.';

COMMENT ON COLUMN public.shards.scope IS 'What else the shard depends on: prefix, patterns, inventory, ...';

COMMENT ON COLUMN public.shards.after_position IS 'The shard begins after this position (key, path, offset); NULL for the beginning of the source.';

COMMENT ON COLUMN public.shards.through_position IS 'The shard ends with this position; NULL for the end of the source.';

COMMENT ON COLUMN public.shards."position" IS 'Every file up to this position was dealt with: committed, unchanged, or refused.';

COMMENT ON COLUMN public.shards.owner IS 'The worker, as in chunks.lease_owner; NULL while nobody has it.';

COMMENT ON COLUMN public.shards.host IS 'Host name of the worker that had it last.';

COMMENT ON COLUMN public.shards.error IS 'Why the last attempt failed; NULL otherwise.';

COMMENT ON COLUMN public.shards.report IS 'Counts up to the position: files seen, unchanged, skipped, failed; files and bytes handled.';

COMMENT ON COLUMN public.shards.progress IS 'While running: files and bytes handled after the position.';

ALTER TABLE public.shards ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.shards_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE public.sources ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.sources_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.stores (
    id bigint NOT NULL,
    added_at timestamp with time zone DEFAULT now() NOT NULL,
    uuid uuid,
    url text NOT NULL,
    name text,
    home_path text,
    checks jsonb
);

COMMENT ON TABLE public.stores IS 'Folders and buckets that hold chunks, copies, backups or adopted archives.';

COMMENT ON COLUMN public.stores.id IS 'Number of the store.';

COMMENT ON COLUMN public.stores.added_at IS 'When the catalog first used the store.';

COMMENT ON COLUMN public.stores.uuid IS 'Identity in the store''s marker object; NULL while it has none.';

COMMENT ON COLUMN public.stores.url IS 'URL of the store: chunks.store, chunk_copies.store and backups.store refer to it.';

COMMENT ON COLUMN public.stores.name IS 'Short name of the store; NULL if nobody has named it.';

COMMENT ON COLUMN public.stores.home_path IS 'What follows the home in url, for a store inside the home; NULL for every other store.';

COMMENT ON COLUMN public.stores.checks IS 'Which of the server''s answers were found to be wrong or missing; NULL if not tried.';

ALTER TABLE public.stores ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.stores_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW public.units AS
 SELECT u.file_name AS log_file,
    (u.end_record - u.first_record) AS records,
    u.first_record,
    u.end_record,
    c.uuid AS chunk,
    c.state,
    c.store,
    c.object_key,
    t.begin_at,
    t.end_at,
    u.source_bytes,
    u.modified_at
   FROM ((public.ingestion_units u
     JOIN public.chunks c ON ((c.id = u.chunk_id)))
     LEFT JOIN ( SELECT chunk_times.chunk_id,
            min(
                CASE
                    WHEN ((chunk_times.begin_ms >= ('-62135596800000'::bigint)::numeric) AND (chunk_times.begin_ms <= ('253402300799999'::bigint)::numeric)) THEN to_timestamp(((chunk_times.begin_ms / (1000)::numeric))::double precision)
                    ELSE NULL::timestamp with time zone
                END) AS begin_at,
            max(
                CASE
                    WHEN ((chunk_times.end_ms >= ('-62135596800000'::bigint)::numeric) AND (chunk_times.end_ms <= ('253402300799999'::bigint)::numeric)) THEN to_timestamp(((chunk_times.end_ms / (1000)::numeric))::double precision)
                    ELSE NULL::timestamp with time zone
                END) AS end_at
           FROM public.chunk_times
          GROUP BY chunk_times.chunk_id) t ON ((t.chunk_id = u.chunk_id)))
  WHERE (c.state <> 'deleted'::text);

COMMENT ON VIEW public.units IS 'Log files in archives of logs, and where these archives are.';

COMMENT ON COLUMN public.units.log_file IS 'The log file, by the name that the archive has for it.';

COMMENT ON COLUMN public.units.records IS 'How many of its records the archive has.';

COMMENT ON COLUMN public.units.first_record IS 'First record of the log file in the archive, from 0.';

COMMENT ON COLUMN public.units.end_record IS 'One past its last record.';

COMMENT ON COLUMN public.units.chunk IS 'Name of the archive: chunks.uuid.';

COMMENT ON COLUMN public.units.state IS 'State of the archive: chunks.state.';

COMMENT ON COLUMN public.units.store IS 'URL of the store that holds the archive.';

COMMENT ON COLUMN public.units.object_key IS 'Key of the archive in its store.';

COMMENT ON COLUMN public.units.begin_at IS 'Earliest time of any record of the archive.';

COMMENT ON COLUMN public.units.end_at IS 'Latest time of any record of the archive.';

COMMENT ON COLUMN public.units.source_bytes IS 'Size of the log file when it was ingested; NULL if unknown.';

COMMENT ON COLUMN public.units.modified_at IS 'Modification time of the log file when it was ingested; NULL if unknown.';

ALTER TABLE public.verifications ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.verifications_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.verify_runs (
    id bigint NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    process_id integer NOT NULL,
    level text NOT NULL,
    host text NOT NULL,
    scope jsonb NOT NULL,
    CONSTRAINT verify_runs_level_check CHECK ((level = ANY (ARRAY['catalog'::text, 'index'::text, 'data'::text, 'source'::text])))
);

COMMENT ON TABLE public.verify_runs IS 'Every verify: what it was asked.';

COMMENT ON COLUMN public.verify_runs.id IS 'Number of the run.';

COMMENT ON COLUMN public.verify_runs.started_at IS 'When it began.';

COMMENT ON COLUMN public.verify_runs.finished_at IS 'When it had checked all it was to check; NULL while it can go on.';

COMMENT ON COLUMN public.verify_runs.process_id IS 'Process id on its host, of the one that went on last.';

COMMENT ON COLUMN public.verify_runs.level IS 'catalog, index, data or source.';

COMMENT ON COLUMN public.verify_runs.host IS 'Host name, of the one that went on last.';

COMMENT ON COLUMN public.verify_runs.scope IS 'What it was to check: chunks, prefix, older_than, sample, ...; a run of the same scope goes on.';

ALTER TABLE public.verify_runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.verify_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY public.access_keys
    ADD CONSTRAINT access_keys_pkey PRIMARY KEY (access_key_id);

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY public.backups
    ADD CONSTRAINT backups_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.backups
    ADD CONSTRAINT backups_store_key UNIQUE (store, object_key);

ALTER TABLE ONLY public.catalog_identity
    ADD CONSTRAINT catalog_identity_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY public.chunk_copies
    ADD CONSTRAINT chunk_copies_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.chunk_times
    ADD CONSTRAINT chunk_times_pkey PRIMARY KEY (chunk_id, timestamp_key);

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_uuid_key UNIQUE (uuid);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.file_locations
    ADD CONSTRAINT file_locations_pkey PRIMARY KEY (file_path);

ALTER TABLE ONLY public.findings
    ADD CONSTRAINT findings_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.folder_deltas
    ADD CONSTRAINT folder_deltas_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.folder_totals
    ADD CONSTRAINT folder_totals_pkey PRIMARY KEY (depth, folder_path);

ALTER TABLE ONLY public.ingest_runs
    ADD CONSTRAINT ingest_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.ingestion_units
    ADD CONSTRAINT ingestion_units_pkey PRIMARY KEY (chunk_id, number);

ALTER TABLE ONLY public.journal_files
    ADD CONSTRAINT journal_files_pkey PRIMARY KEY (journal_id, file_path);

ALTER TABLE ONLY public.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.journal
    ADD CONSTRAINT journal_uuid_key UNIQUE (uuid);

ALTER TABLE ONLY public.limit_shares
    ADD CONSTRAINT limit_shares_pkey PRIMARY KEY (url, worker);

ALTER TABLE ONLY public.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (url);

ALTER TABLE ONLY public.listings
    ADD CONSTRAINT listings_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.restored_locations
    ADD CONSTRAINT restored_locations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.retired_locations
    ADD CONSTRAINT retired_locations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.shards
    ADD CONSTRAINT shards_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_url_key UNIQUE (url);

ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_name_key UNIQUE (name);

ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_url_key UNIQUE (url);

ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_uuid_key UNIQUE (uuid);

ALTER TABLE ONLY public.verifications
    ADD CONSTRAINT verifications_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.verify_runs
    ADD CONSTRAINT verify_runs_pkey PRIMARY KEY (id);

CREATE INDEX chunk_copies_chunk_id_idx ON public.chunk_copies USING btree (chunk_id);

CREATE UNIQUE INDEX chunk_copies_object_key ON public.chunk_copies USING btree (store, object_key) WHERE (deleted_at IS NULL);

CREATE INDEX chunks_left_idx ON public.chunks USING btree (id) WHERE ((state = ANY (ARRAY['abandoned'::text, 'deleted'::text])) AND (deleted_at IS NULL));

CREATE UNIQUE INDEX chunks_object_idx ON public.chunks USING btree (store, object_key) WHERE ((adopted_prefix IS NULL) OR (state <> 'deleted'::text));

CREATE INDEX chunks_open_idx ON public.chunks USING btree (lease_expires_at) WHERE (state = 'writing'::text);

CREATE INDEX chunks_retired_idx ON public.chunks USING btree (retired_at) WHERE (state = 'retired'::text);

CREATE INDEX chunks_run_id_idx ON public.chunks USING btree (run_id);

CREATE INDEX events_chunk_id_idx ON public.events USING btree (chunk_id);

CREATE INDEX events_commands_idx ON public.events USING btree (id) WHERE (kind = 'command'::text);

CREATE INDEX events_growth_idx ON public.events USING btree (happened_at) WHERE (files_change IS NOT NULL);

CREATE INDEX events_run_id_idx ON public.events USING btree (run_id);

CREATE INDEX file_locations_caf_file_id_idx ON public.file_locations USING brin (caf_file_id int8_minmax_multi_ops) WITH (autosummarize='on');

CREATE INDEX file_locations_current_since_idx ON public.file_locations USING btree (current_since) WHERE (current_since IS NOT NULL);

CREATE INDEX file_locations_ingest_run_id_idx ON public.file_locations USING btree (ingest_run_id) WHERE (ingest_run_id IS NOT NULL);

CREATE INDEX findings_verification_id_idx ON public.findings USING btree (verification_id);

CREATE INDEX folder_deltas_depth_idx ON public.folder_deltas USING btree (depth, folder_path);

CREATE INDEX folder_totals_empty_idx ON public.folder_totals USING btree (depth) WHERE (files = 0);

CREATE INDEX ingestion_units_file_name_idx ON public.ingestion_units USING btree (file_name, chunk_id, number);

CREATE INDEX journal_chunk_id_idx ON public.journal USING btree (chunk_id);

CREATE INDEX journal_unwritten_idx ON public.journal USING btree (id) WHERE (unwritten <> '{}'::text[]);

CREATE UNIQUE INDEX listings_open_key ON public.listings USING btree (source, scope) WHERE (finished_at IS NULL);

CREATE INDEX listings_run_id_idx ON public.listings USING btree (run_id);

CREATE INDEX restored_locations_file_path_idx ON public.restored_locations USING btree (file_path);

CREATE INDEX restored_locations_removed_at_idx ON public.restored_locations USING btree (removed_at);

CREATE INDEX retired_locations_caf_file_id_idx ON public.retired_locations USING btree (caf_file_id);

CREATE INDEX retired_locations_file_path_idx ON public.retired_locations USING btree (file_path);

CREATE INDEX retired_locations_retired_at_idx ON public.retired_locations USING brin (retired_at);

CREATE INDEX shards_open_idx ON public.shards USING btree (run_id, id) WHERE (state = ANY (ARRAY['waiting'::text, 'running'::text]));

CREATE INDEX shards_run_id_idx ON public.shards USING btree (run_id);

CREATE INDEX verifications_chunk_id_idx ON public.verifications USING btree (chunk_id, id);

CREATE INDEX verifications_run_id_idx ON public.verifications USING btree (run_id);

CREATE INDEX verify_runs_open_idx ON public.verify_runs USING btree (id) WHERE (finished_at IS NULL);

CREATE TRIGGER chunks_are_kept BEFORE DELETE OR TRUNCATE ON public.chunks FOR EACH STATEMENT EXECUTE FUNCTION public.chunks_are_kept();

ALTER TABLE ONLY public.backups
    ADD CONSTRAINT backups_store_fkey FOREIGN KEY (store) REFERENCES public.stores(url) ON UPDATE CASCADE;

ALTER TABLE ONLY public.chunk_copies
    ADD CONSTRAINT chunk_copies_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES public.chunks(id);

ALTER TABLE ONLY public.chunk_copies
    ADD CONSTRAINT chunk_copies_store_fkey FOREIGN KEY (store) REFERENCES public.stores(url) ON UPDATE CASCADE;

ALTER TABLE ONLY public.chunk_times
    ADD CONSTRAINT chunk_times_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES public.chunks(id);

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.ingest_runs(id);

ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_store_fkey FOREIGN KEY (store) REFERENCES public.stores(url) ON UPDATE CASCADE;

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES public.chunks(id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.ingest_runs(id);

ALTER TABLE ONLY public.findings
    ADD CONSTRAINT findings_verification_id_fkey FOREIGN KEY (verification_id) REFERENCES public.verifications(id);

ALTER TABLE ONLY public.ingestion_units
    ADD CONSTRAINT ingestion_units_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES public.chunks(id);

ALTER TABLE ONLY public.journal
    ADD CONSTRAINT journal_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES public.chunks(id);

ALTER TABLE ONLY public.journal_files
    ADD CONSTRAINT journal_files_journal_id_fkey FOREIGN KEY (journal_id) REFERENCES public.journal(id);

ALTER TABLE ONLY public.limit_shares
    ADD CONSTRAINT limit_shares_url_fkey FOREIGN KEY (url) REFERENCES public.limits(url) ON DELETE CASCADE;

ALTER TABLE ONLY public.listings
    ADD CONSTRAINT listings_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.ingest_runs(id);

ALTER TABLE ONLY public.retired_locations
    ADD CONSTRAINT retired_locations_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.ingest_runs(id);

ALTER TABLE ONLY public.shards
    ADD CONSTRAINT shards_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.ingest_runs(id);

ALTER TABLE ONLY public.verifications
    ADD CONSTRAINT verifications_chunk_id_fkey FOREIGN KEY (chunk_id) REFERENCES public.chunks(id);

ALTER TABLE ONLY public.verifications
    ADD CONSTRAINT verifications_copy_id_fkey FOREIGN KEY (copy_id) REFERENCES public.chunk_copies(id);

ALTER TABLE ONLY public.verifications
    ADD CONSTRAINT verifications_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.verify_runs(id);
