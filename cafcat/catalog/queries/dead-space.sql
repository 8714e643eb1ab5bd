-- Which chunks have the most dead space?
-- Bytes of files that were replaced, removed or moved, or of which a failed or interrupted ingest wrote a part: repack regains
-- them.
-- The twenty with most; `cafcat stats` has the total. dead_percent is their share in the bytes of all files of the chunk, without its index.
SELECT chunk, store, size_bytes, dead_bytes, 100 - live_percent AS dead_percent FROM cafcat_ops.chunk_health
WHERE state = 'committed' AND dead_bytes > 0 ORDER BY dead_bytes DESC LIMIT 20;
