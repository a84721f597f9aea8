SELECT id, name FROM consumer ORDER BY name
