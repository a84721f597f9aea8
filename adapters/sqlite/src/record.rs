//! Outcomes of claimed keys, and claims given back.

use oneffect_core::{EventKey, Settled, StoreError};

use crate::keys::{Keys, columns, json_rows, push_hex};
use crate::unit::SqliteUnit;

const DONE: i64 = 0;
pub(crate) const REJECTED: i64 = 1;
pub(crate) const DEAD: i64 = 2;

impl SqliteUnit {
    pub(crate) async fn record_outcomes(
        &mut self,
        outcomes: &[(EventKey, Settled)],
    ) -> Result<(), StoreError> {
        let mut rows = Vec::with_capacity(outcomes.len());
        for (key, settled) in outcomes {
            rows.push((columns(key), settled_to(settled)?));
        }
        let json = json_rows(&rows, |json, ((id, tenant), (code, reply))| {
            push_hex(json, Some(id));
            json.push(',');
            push_hex(json, Some(tenant));
            json.push(',');
            json.push_str(&code.to_string());
            json.push(',');
            push_hex(json, *reply);
        });
        sqlx::query(include_str!("queries/record.sql"))
            .bind(json)
            .bind(self.consumer.0)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(())
    }

    pub(crate) async fn delete_claims(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        sqlx::query(include_str!("queries/unclaim.sql"))
            .bind(Keys::of(keys).to_json())
            .bind(self.consumer.0)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(())
    }
}

fn settled_to(settled: &Settled) -> Result<(i64, Option<&[u8]>), StoreError> {
    match settled {
        Settled::Done { reply } => Ok((DONE, reply.as_deref())),
        Settled::Rejected { reason } => Ok((REJECTED, Some(reason.as_bytes()))),
        Settled::Dead => Ok((DEAD, None)),
        other => Err(StoreError::misconfigured(format!(
            "this version of oneffect-sqlite cannot store the outcome {other:?}: give all oneffect \
             crates the same version"
        ))),
    }
}

pub(crate) fn settled_from(outcome: i64, reply: Option<&[u8]>) -> sqlx::Result<Settled> {
    match outcome {
        DONE => Ok(Settled::Done {
            reply: reply.map(|reply| reply.to_vec().into()),
        }),
        REJECTED => Ok(Settled::Rejected {
            reason: String::from_utf8_lossy(reply.unwrap_or_default()).into(),
        }),
        DEAD => Ok(Settled::Dead),
        other => Err(sqlx::Error::Decode(
            format!("the inbox has the outcome {other}, which this version does not know").into(),
        )),
    }
}
