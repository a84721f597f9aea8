SELECT id, name, days FROM consumer ORDER BY name
