//! `oneffect migrate`.

use oneffect_cli::Code;

use super::{Operated, on_each_database, oneffect, oneffect_asked};

on_each_database! {
    the_schema_is_made_and_its_state_told,
    going_back_is_refused_unless_somebody_agrees,
    the_printed_sql_does_what_migrate_does,
    the_printed_sql_refuses_another_version,
}

async fn version(database: &impl Operated) -> i64 {
    let status = oneffect(database, &["migrate", "status", "--json"]).await;
    status.json()["version"].as_i64().unwrap()
}

async fn the_schema_is_made_and_its_state_told<D: Operated>() {
    let Some(database) = D::unmigrated().await else {
        return;
    };

    let before = oneffect(&database, &["migrate", "status", "--json"]).await;
    assert_eq!(before.code, Code::Problems);
    assert_eq!(before.json()["state"], "behind");
    assert_eq!(before.json()["version"], 0);
    let known = before.json()["known"].as_i64().unwrap();

    let up = oneffect(&database, &["migrate", "up", "--json"]).await;
    assert_eq!(up.code, Code::Fine);
    assert_eq!(
        (&up.json()["from"], &up.json()["to"]),
        (&0.into(), &known.into())
    );

    let after = oneffect(&database, &["migrate", "status", "--json"]).await;
    assert_eq!(after.code, Code::Fine);
    assert_eq!(after.json()["state"], "current");
    let json = after.json();
    let applied = json["applied"].as_array().unwrap();
    assert_eq!(applied[0]["version"], 1);
    let last = applied.last().unwrap();
    assert_eq!(last["version"], known);
    assert!(last["at"].as_str().unwrap().starts_with("20"), "{last}");

    let again = oneffect(&database, &["migrate", "up"]).await;
    assert_eq!(again.code, Code::Fine);
    assert!(again.out.contains("already"), "{again:?}");

    database
        .execute("INSERT INTO oneffect_migration (version) VALUES (99)")
        .await
        .unwrap();
    let newer = oneffect(&database, &["migrate", "status"]).await;
    assert_eq!(newer.code, Code::Problems);
    assert!(newer.out.contains("ahead"), "{newer:?}");
    let refused = oneffect(&database, &["inspect", "x"]).await;
    assert_eq!(refused.code, Code::Failed);
    assert!(refused.err.contains("99"), "{refused:?}");
}

async fn going_back_is_refused_unless_somebody_agrees<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let known = version(&database).await;
    let down = ["migrate", "down", "--to", "0"];

    let alone = oneffect(&database, &down).await;
    assert_eq!(alone.code, Code::Usage);
    assert!(alone.err.contains("--yes"), "{alone:?}");
    for answer in ["n\n", "\n", "", "yess\n"] {
        let declined = oneffect_asked(&database, &down, answer).await;
        assert_eq!(declined.code, Code::Usage, "{answer:?}");
        assert!(declined.err.contains("Go on? [y/N]"), "{declined:?}");
        assert!(declined.err.contains("nothing was changed"), "{declined:?}");
    }
    assert_eq!(version(&database).await, known);

    let agreed = oneffect_asked(&database, &down, "y\n").await;
    assert_eq!(agreed.code, Code::Fine, "{agreed:?}");
    assert_eq!(version(&database).await, 0);

    oneffect(&database, &["migrate", "up"]).await;
    let agreed = oneffect(&database, &["migrate", "down", "--to", "0", "--yes"]).await;
    assert_eq!(agreed.code, Code::Fine, "{agreed:?}");
    assert_eq!(version(&database).await, 0);

    let nothing = oneffect(&database, &["migrate", "down", "--to", "0"]).await;
    assert_eq!(
        nothing.code,
        Code::Fine,
        "nothing is lost, so nobody is asked"
    );
    let up = oneffect(&database, &["migrate", "down", "--to", "1", "--yes"]).await;
    assert_eq!(up.code, Code::Usage, "{up:?}");
}

async fn the_printed_sql_does_what_migrate_does<D: Operated>() {
    let Some(database) = D::unmigrated().await else {
        return;
    };

    let up = oneffect(&database, &["migrate", "sql"]).await;
    assert_eq!(up.code, Code::Fine);
    assert_eq!(version(&database).await, 0, "printing runs nothing");
    database.execute(&up.out).await.unwrap();
    let status = oneffect(&database, &["migrate", "status"]).await;
    assert_eq!(status.code, Code::Fine, "{status:?}");
    let known = oneffect(&database, &["inspect", "x"]).await;
    assert_eq!(known.code, Code::NotFound, "{known:?}");

    let down = oneffect(&database, &["migrate", "sql", "--to", "0", "--json"]).await;
    assert_eq!(down.json()["to"], 0);
    database
        .execute(down.json()["sql"].as_str().unwrap())
        .await
        .unwrap();
    assert_eq!(version(&database).await, 0);
    let again = oneffect(&database, &["migrate", "up"]).await;
    assert_eq!(again.code, Code::Fine, "{again:?}");
}

async fn the_printed_sql_refuses_another_version<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let known = version(&database).await;

    let up = oneffect(&database, &["migrate", "sql", "--from", "0"]).await;
    let error = database.execute(&up.out).await.unwrap_err().to_string();
    assert!(error.contains("not of version 0"), "{error}");
    assert_eq!(version(&database).await, known);

    let unknown = oneffect(&database, &["migrate", "sql", "--from", "99"]).await;
    assert_eq!(unknown.code, Code::Failed);
    assert!(unknown.err.contains("99"), "{unknown:?}");
}
