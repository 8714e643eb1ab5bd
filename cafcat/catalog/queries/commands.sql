-- Who changed something, when, and with which options?
SELECT happened_at, actor, detail AS command, options FROM events WHERE kind = 'command' ORDER BY id DESC LIMIT 50;
