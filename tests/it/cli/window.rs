//! `oneffect window`.

use oneffect_cli::Code;
use serde_json::Value;

use super::{Ran, run_with};

async fn window(options: &[&str]) -> Ran {
    let command = [&["window", "--rate", "1000", "--days", "7"], options].concat();
    run_with(Vec::new(), &command, None).await
}

async fn size(options: &[&str]) -> Value {
    let ran = window(&[options, &["--json"]].concat()).await;
    assert_eq!(ran.code, Code::Fine, "{ran:?}");
    ran.json()
}

/// No database is needed.
#[tokio::test]
async fn the_size_of_an_inbox_is_told_before_there_is_one() {
    let postgres = size(&[]).await;
    let sqlite = size(&["--database", "no-such-file.db"]).await;
    let text = window(&[]).await;

    assert_eq!(postgres["store"], "postgres");
    assert_eq!(sqlite["store"], "sqlite");
    for size in [&postgres, &sqlite] {
        let number = |field: &str| size[field].as_u64().unwrap();
        assert_eq!(number("rows_a_day"), 86_400_000);
        assert!(number("days_kept") >= 7);
        assert_eq!(number("rows"), 86_400_000 * number("days_kept"));
        let row = number("table_bytes_per_row") + number("index_bytes_per_row");
        assert!((40..400).contains(&row), "{size}");
        assert!(number("bytes") > number("bytes_a_day"));
    }
    assert!(
        text.out.contains("1000 events a second for 7 days"),
        "{}",
        text.out
    );
    assert!(text.out.contains("indexes"), "{}", text.out);
}

#[tokio::test]
async fn what_is_stored_makes_an_inbox_larger() {
    let plain = size(&[]).await["bytes"].as_u64().unwrap();
    for more in [
        &["--id", "an-id-of-more-bytes-than-a-uuid-has"][..],
        &["--tenant-bytes", "40"],
        &["--fingerprints"],
        &["--reply-bytes", "300", "--reply-share", "0.5"],
    ] {
        let larger = size(more).await["bytes"].as_u64().unwrap();
        assert!(larger > plain, "{more:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_is_a_usage_error() {
    for wrong in [
        &["--reply-share", "2"][..],
        &["--tenant-bytes", "4096"],
        &["--id", ""],
        &["--database", "mysql://h/d"],
    ] {
        let ran = window(wrong).await;
        assert_eq!(ran.code, Code::Usage, "{wrong:?} {ran:?}");
    }
}
