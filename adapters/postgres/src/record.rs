//! Outcomes of claimed keys, and claims given back.

use oneffect_core::{EventKey, Settled, StoreError};

use crate::filed::{TABLES, span};
use crate::keys::{Keys, columns};
use crate::unit::PostgresUnit;

const DONE: i16 = 0;
pub(crate) const REJECTED: i16 = 1;
pub(crate) const DEAD: i16 = 2;

impl PostgresUnit {
    pub(crate) async fn record_outcomes(
        &mut self,
        outcomes: &[(EventKey, Settled)],
    ) -> Result<(), StoreError> {
        for table in TABLES {
            let mut ids = Vec::new();
            let mut tenants = Vec::new();
            let mut days = Vec::new();
            let mut codes = Vec::new();
            let mut replies = Vec::new();
            for (key, settled) in outcomes {
                let filed = self.filed.of(key).ok_or_else(|| unclaimed(key))?;
                if filed.table != table {
                    continue;
                }
                let (id, tenant) = columns(key);
                let (code, reply) = settled_to(settled)?;
                ids.push(id);
                tenants.push(tenant);
                days.push(filed.day.number());
                codes.push(code);
                replies.push(reply);
            }
            if ids.is_empty() {
                continue;
            }
            sqlx::query(table.queries().record.as_str())
                .bind(ids)
                .bind(tenants)
                .bind(codes)
                .bind(replies)
                .bind(self.consumer.0)
                .bind(days)
                .persistent(self.named)
                .execute(&mut *self.transaction)
                .await
                .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        }
        Ok(())
    }

    pub(crate) async fn delete_claims(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        for table in TABLES {
            let filed = keys
                .iter()
                .filter_map(|key| Some((key, self.filed.of(key)?)));
            let here = filed.filter(|(_, filed)| filed.table == table);
            let Some(days) = span(here.clone().map(|(_, filed)| filed.day)) else {
                continue;
            };
            let keys = Keys::of(here.map(|(key, _)| key));
            sqlx::query(table.queries().unclaim.as_str())
                .bind(keys.all().ids())
                .bind(keys.all().pairs())
                .bind(self.consumer.0)
                .bind(days.start().number())
                .bind(days.end().number())
                .persistent(self.named)
                .execute(&mut *self.transaction)
                .await
                .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        }
        Ok(())
    }
}

fn unclaimed(key: &EventKey) -> StoreError {
    StoreError::misconfigured(format!(
        "an outcome was recorded for the event key {key}, which this unit has not claimed"
    ))
}

fn settled_to(settled: &Settled) -> Result<(i16, Option<&[u8]>), StoreError> {
    match settled {
        Settled::Done { reply } => Ok((DONE, reply.as_deref())),
        Settled::Rejected { reason } => Ok((REJECTED, Some(reason.as_bytes()))),
        Settled::Dead => Ok((DEAD, None)),
        other => Err(StoreError::misconfigured(format!(
            "this version of oneffect-postgres cannot store the outcome {other:?}: give all \
             oneffect crates the same version"
        ))),
    }
}

pub(crate) fn settled_from(outcome: i16, reply: Option<&[u8]>) -> sqlx::Result<Settled> {
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
