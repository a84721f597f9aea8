SELECT id, days_from FROM consumer WHERE name = $1
