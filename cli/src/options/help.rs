//! The longer texts of `--help`.

pub(super) const ABOUT: &str = "Operates oneffect's inbox: consumers whose effects happen once";

pub(super) const LONG_ABOUT: &str = "\
Operates oneffect's inbox, which consumers of Kafka and SQS keep in the database of their effects:
makes its tables, looks events up, checks that what it remembers is enough, and deals with what
was set aside. Nothing here handles an event: that is the consumers' work, who go on meanwhile.";

macro_rules! codes {
    () => {
        "\
Exit codes:
  0  done
  1  it did not work: the database or the broker is away, or refuses
  2  the command line cannot work as it is, or a command that destroys something was not confirmed
  3  a check has found problems
  4  there is no such event or dead letter"
    };
}
pub(super) const CODES: &str = codes!();

pub(super) const EXAMPLES: &str = concat!(
    codes!(),
    "

Colours are for terminals, and NO_COLOR turns them off. RUST_LOG=info shows what the libraries log.

Examples:
  export ONEFFECT_DATABASE=postgres://app@localhost/bank
  oneffect migrate up
  oneffect inspect 0190163d-8694-739b-aea5-966c26f8ad91"
);

pub(super) const MIGRATE: &str = "\
Examples:
  oneffect migrate up --database postgres://owner@localhost/bank
  oneffect migrate status --json
  oneffect migrate sql > inbox.sql";

pub(super) const MIGRATE_UP: &str = "\
Does nothing where the schema is at that version already. All of it is one transaction, and any
number may run at once. It waits for whoever uses the tables that it changes.

Examples:
  oneffect migrate up --database postgres://owner@localhost/bank --schema ledger
  oneffect migrate up --database ledger.db";

pub(super) const MIGRATE_DOWN: &str = "\
Asks first, on a terminal; elsewhere it needs --yes. An event whose inbox row is deleted takes
effect again when it is delivered again.

Examples:
  oneffect migrate down --to 1
  oneffect migrate down --to 0 --yes";

pub(super) const MIGRATE_STATUS: &str = "\
Examples:
  oneffect migrate status
  oneffect migrate status --json || echo 'migrate before you deploy'";

pub(super) const MIGRATE_SQL: &str = "\
With --from no database is asked, and of --database only its kind counts.

Examples:
  oneffect migrate sql | psql -v ON_ERROR_STOP=1 \"$DATABASE_URL\"
  oneffect migrate sql --from 0 --database postgres:// --schema ledger
  oneffect migrate sql --from 0 --database sqlite: | sqlite3 -bail ledger.db";

pub(super) const INSPECT: &str = "\
Of each consumer that knows the id: what became of the event, its reply or reason, its fingerprint,
its failed attempts, its dead letters. Exit code 4 when no consumer knows it.

Examples:
  oneffect inspect 0190163d-8694-739b-aea5-966c26f8ad91
  oneffect inspect order-17 --tenant acme --json
  oneffect inspect -- --an-id-that-begins-with-a-dash";

pub(super) const MAINTAIN: &str = "\
One round: records the new floor, drops what is older than the window, makes what is needed soon.
Every consumer does the same now and then; by hand it is for databases whose consumers rest. It
waits for no running unit: what has to wait is postponed. Exit code 3 when it finds keys that are
kept under two days.

Examples:
  oneffect maintain
  oneffect maintain --json";

pub(super) const LETTERS: &str = "\
Examples:
  oneffect dead-letters list --consumer ledger
  oneffect dead-letters show 17
  oneffect dead-letters redrive 17";

pub(super) const LETTERS_LIST: &str = "\
Examples:
  oneffect dead-letters list --consumer ledger --kind exhausted --since 2026-12-01
  oneffect dead-letters list --error 'connection refused' --json";

pub(super) const LETTERS_SHOW: &str = "\
Exit code 4 when there is none of that number.

Examples:
  oneffect dead-letters show 17
  oneffect dead-letters show 17 --payload > event.json";

pub(super) const LETTERS_REDRIVE: &str = "\
This marks the letters. The running consumers of their names, which have the handlers, handle them
soon, one at a time and in order; what succeeds is no dead letter any more, and takes effect once.
Letters that are named go at once; of what a filter finds it asks first, on a terminal, and
elsewhere needs --yes. Exit code 3 when some are refused or, with --wait, have failed again.

Examples:
  oneffect dead-letters redrive 17 18 --wait
  oneffect dead-letters redrive --consumer ledger --error 'connection refused' --yes
  oneffect dead-letters redrive --kind too_late --as-new
  oneffect dead-letters redrive --all --cancel";

pub(super) const LETTERS_DISCARD: &str = "\
Asks first, on a terminal; elsewhere it needs --yes. A deleted letter is gone; deliveries of its
event that come later are still duplicates.

Examples:
  oneffect dead-letters discard 17
  oneffect dead-letters discard --kind poison --until 2026-11-01 --yes";

pub(super) const DOCTOR: &str = "\
Only looks: it joins no group, takes no message, and changes nothing. What cannot be looked at, for
want of rights, is a warning that says what was not checked. Exit code 3 when there are problems.

Examples:
  oneffect doctor
  oneffect doctor --kafka localhost:9092 --topic transfers --group ledger
  oneffect doctor --sqs https://sqs.eu-west-1.amazonaws.com/123456789012/orders --json
  oneffect doctor --topic transfers --group ledger --replay-horizon webhooks=3d";

pub(super) const INBOX: &str = "\
Rows are the server's estimate on PostgreSQL, and are counted on SQLite.

Examples:
  oneffect inbox
  oneffect inbox --json";

pub(super) const WINDOW: &str = "\
No database is asked: of --database, only its kind counts, and without one it is PostgreSQL. The
numbers are worked out from what rows were measured to take, within 15 %.

Examples:
  oneffect window --rate 1000 --days 7
  oneffect window --rate 50 --days 15 --id order-2026-000017 --database ledger.db
  oneffect window --rate 200 --days 8 --reply-bytes 300 --reply-share 0.5 --json";
