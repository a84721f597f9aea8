//! The longer texts of `--help`.

pub(super) const ABOUT: &str = "A ledger that is fed a hostile stream of transfers, and balances";

pub(super) const LONG_ABOUT: &str = "\
A double-entry ledger that is fed a hostile stream of transfers (repeated, out of order, some to be \
refused, some unreadable), and balances. At the end the books are checked with SQL against what was \
produced.

Without options that name a broker, a database or a task it is a demonstration that needs nothing: a \
Kafka within this process, SQLite in a temporary file, and consumers that crash in mid-batch. With any \
of --kafka, --sqs, --database, --produce and --consume it is the real thing. Only then the variables \
KAFKA_BROKERS, SQS_ENDPOINT, DATABASE_URL, TOPIC and GROUP count, so that one of them that happens to \
be set never turns a demonstration into writes to a database.

Exit codes: 0 when all went well and the books balance, 1 when they do not or something broke, 2 when \
the options or the set-up cannot work, 3 when a stop was not clean.";

pub(super) const EXAMPLES: &str = "\
Examples:
  The demonstration:
    cargo run --example ledger
  The same stream again, with twice the crashes, and the inbox as the only protection:
    cargo run --example ledger -- --seed 7 --crashes 8 --natural-key off
  Produce to Kafka, consume into PostgreSQL, and compare, all in one:
    cargo run --example ledger -- --kafka localhost:9092 --database postgres://localhost/bank
  In two terminals, with as many consumers as you like (try kill -9 on them):
    cargo run --example ledger -- --kafka localhost:9092 --produce 100000
    cargo run --example ledger -- --kafka localhost:9092 --database sqlite:ledger.db --consume --until 100000
  From an SQS queue:
    cargo run --example ledger -- --sqs http://localhost:4566/000000000000/transfers \\
      --database postgres://localhost/bank --consume";
