INSERT INTO produced
SELECT unhex(value ->> 'event_id', '-'), value ->> 'from_account', value ->> 'to_account', value ->> 'amount_minor',
       value ->> 'currency', value ->> 'refused'
FROM json_each(?1)
