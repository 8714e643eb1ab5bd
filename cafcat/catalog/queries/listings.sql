-- Which listings of buckets were interrupted, and where do they continue?
SELECT source, position, started_at, advanced_at, run_id FROM listings WHERE finished_at IS NULL ORDER BY id;
