SELECT count(*) FROM dead_letter JOIN consumer ON consumer.id = dead_letter.consumer WHERE name = ?1
