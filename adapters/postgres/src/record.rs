//! Outcomes of claimed keys, and claims given back.

use oneffect_core::{EventKey, Settled, StoreError};

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
        let mut ids = Vec::with_capacity(outcomes.len());
        let mut tenants = Vec::with_capacity(outcomes.len());
        let mut codes = Vec::with_capacity(outcomes.len());
        let mut replies = Vec::with_capacity(outcomes.len());
        for (key, settled) in outcomes {
            let (id, tenant) = columns(key);
            let (code, reply) = settled_to(settled)?;
            ids.push(id);
            tenants.push(tenant);
            codes.push(code);
            replies.push(reply);
        }
        sqlx::query(include_str!("queries/record.sql"))
            .bind(ids)
            .bind(tenants)
            .bind(codes)
            .bind(replies)
            .bind(self.consumer.0)
            .persistent(self.named)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(())
    }

    pub(crate) async fn delete_claims(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        let keys = Keys::of(keys);
        sqlx::query(include_str!("queries/unclaim.sql"))
            .bind(keys.ids())
            .bind(keys.pairs())
            .bind(self.consumer.0)
            .persistent(self.named)
            .execute(&mut *self.transaction)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        Ok(())
    }
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
