INSERT INTO produced SELECT * FROM json_populate_recordset(NULL::produced, $1::json)
