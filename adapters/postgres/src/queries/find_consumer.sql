SELECT id FROM consumer WHERE name = $1
