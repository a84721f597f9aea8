SELECT id, days FROM consumer WHERE name = ?1
