DROP TABLE started;
