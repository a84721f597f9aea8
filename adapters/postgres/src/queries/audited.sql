UPDATE inbox_floor SET audited = date '1970-01-01' + $1 WHERE audited < date '1970-01-01' + $1
