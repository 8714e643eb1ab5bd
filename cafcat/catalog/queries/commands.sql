-- Who changed something, when, and with which options?
-- A command whose process was killed is not among them: `cafcat query runs` has killed ingests.
SELECT happened_at, actor, detail AS command, options FROM events WHERE kind = 'command' ORDER BY id DESC LIMIT 50;
