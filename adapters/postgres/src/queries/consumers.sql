SELECT id, name, days_from FROM consumer ORDER BY name
