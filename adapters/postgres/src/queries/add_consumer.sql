INSERT INTO consumer (name, days_from) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
