//! The commit, verified.

use oneffect_core::StoreError;

use crate::blame::{is_plain_error, is_refused_commit};
use crate::transaction::Transaction;

/// Commits the transaction that began with its savepoint. If a handler has ended that one, or the
/// database has (a full disk ends it), the savepoint is gone, and COMMIT would commit whatever is
/// open by then.
pub(crate) async fn commit(mut transaction: Transaction) -> Result<(), StoreError> {
    if let Err(error) = sqlx::raw_sql("RELEASE oneffect_unit")
        .execute(&mut *transaction)
        .await
    {
        if is_plain_error(&error) {
            return Err(StoreError::HandlerEndedTransaction);
        }
        transaction.rollback().await;
        return Err(StoreError::rolled_back(error));
    }
    transaction.commit().await.map_err(|error| {
        if is_refused_commit(&error) {
            // A deferred constraint. The connection is closed, which rolls back.
            StoreError::rolled_back(error)
        } else {
            StoreError::indeterminate(error)
        }
    })
}
