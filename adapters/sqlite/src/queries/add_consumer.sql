INSERT INTO consumer (name, days) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING
