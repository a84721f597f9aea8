SELECT day, count(*) AS rows FROM inbox GROUP BY day ORDER BY day
