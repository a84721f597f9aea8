DROP TABLE duplicate_age;
