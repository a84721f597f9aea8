use std::sync::Arc;

use super::*;
use crate::claim::Claim;
use crate::dead_letter::DeadLetter;
use crate::event_key::EventKey;
use crate::letters::{Letter, LetterId};
use crate::store::{Reopen, Settled, Verdict};

/// Takes every row but these, and writes down what it was asked to do.
#[derive(Debug, Default)]
struct Picky {
    refuses: Vec<&'static str>,
    rows: Vec<&'static str>,
    savepoint: Option<usize>,
    writes: usize,
}

#[async_trait::async_trait]
impl Unit for Picky {
    type Connection = ();
    type Row = &'static str;

    async fn write(&mut self, rows: &[&'static str]) -> Result<(), StoreError> {
        self.writes += 1;
        for row in rows {
            self.rows.push(row);
            if self.refuses.contains(row) {
                return Err(StoreError::rolled_back(*row));
            }
        }
        Ok(())
    }

    async fn savepoint(&mut self) -> Result<(), StoreError> {
        assert!(self.savepoint.replace(self.rows.len()).is_none());
        Ok(())
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError> {
        self.rows.truncate(self.savepoint.take().unwrap());
        Ok(())
    }

    async fn release_savepoint(&mut self) -> Result<(), StoreError> {
        self.savepoint.take().unwrap();
        Ok(())
    }

    fn connection(&mut self) -> &mut () {
        unreachable!()
    }
    async fn claim(&mut self, _: &[Claim]) -> Result<Vec<Verdict>, StoreError> {
        unreachable!()
    }
    async fn unclaim(&mut self, _: &[EventKey]) -> Result<(), StoreError> {
        unreachable!()
    }
    async fn record(&mut self, _: &[(EventKey, Settled)]) -> Result<(), StoreError> {
        unreachable!()
    }
    async fn set_aside(&mut self, _: &[DeadLetter]) -> Result<(), StoreError> {
        unreachable!()
    }
    async fn forget_attempts(&mut self, _: &[EventKey]) -> Result<(), StoreError> {
        unreachable!()
    }
    async fn room_for_letters(&mut self, _: u64) -> Result<u64, StoreError> {
        unreachable!()
    }
    async fn has_letter(&mut self, _: &[u8; 32]) -> Result<bool, StoreError> {
        unreachable!()
    }
    async fn take_letter(&mut self, _: LetterId) -> Result<Option<Letter>, StoreError> {
        unreachable!()
    }
    async fn delete_letter(&mut self, _: LetterId) -> Result<(), StoreError> {
        unreachable!()
    }
    async fn reopen(&mut self, _: &Claim, _: Reopen) -> Result<(), StoreError> {
        unreachable!()
    }
    async fn commit(self) -> Result<(), StoreError> {
        unreachable!()
    }
    async fn rollback(self) {}
}

fn staged(rows: &[(usize, &'static str)]) -> Staged<&'static str> {
    let mut staged = Staged::new();
    for &(event, row) in rows {
        staged.push(event, row);
    }
    staged
}

fn refused(staged: &mut Staged<&'static str>) -> Vec<usize> {
    let refused = staged.take_refused().into_iter();
    refused.map(|refused| refused.event).collect()
}

#[tokio::test]
async fn rows_are_written_in_the_order_of_their_events() {
    let mut unit = Picky::default();
    let mut staged = staged(&[(0, "a"), (2, "c"), (1, "b"), (0, "a2")]);
    staged.write_before(&mut unit, 2).await.unwrap();
    assert_eq!(unit.rows, ["a", "a2", "b"]);
    staged.push(1, "b2");
    staged.drop_rows_of(2);
    staged.write_all(&mut unit).await.unwrap();
    assert_eq!(unit.rows, ["a", "a2", "b", "b2"]);
    assert_eq!(unit.writes, 2);
    assert_eq!(staged.into_rows()[&1], ["b", "b2"]);
}

#[tokio::test]
async fn a_row_that_is_refused_takes_its_event_and_what_follows_it_in_its_lane() {
    let mut unit = Picky {
        refuses: vec!["bad"],
        ..Picky::default()
    };
    let rows = [(0, "a"), (1, "b"), (2, "c"), (2, "bad"), (3, "d"), (4, "e")];
    let mut staged = staged(&rows);
    // Events 2 and 4 share a lane.
    let lanes = [0, 1, 2, 3, 2];
    staged.write_apart(&mut unit, 5, &lanes).await.unwrap();
    assert_eq!(unit.rows, ["a", "b", "d"]);
    assert!(staged.refuses(2, &lanes) && !staged.refuses(3, &lanes));
    assert_eq!(refused(&mut staged), [2]);
    assert!(unit.savepoint.is_none());
}

#[tokio::test]
async fn only_what_was_staged_before_is_written_and_the_rest_waits() {
    let mut unit = Picky {
        refuses: vec!["a"],
        ..Picky::default()
    };
    let mut staged = staged(&[(0, "a"), (1, "b"), (2, "own")]);
    staged.write_apart(&mut unit, 2, &[0, 1, 2]).await.unwrap();
    assert_eq!(
        (unit.rows.clone(), refused(&mut staged)),
        (vec!["b"], vec![0])
    );
    staged.write_all(&mut unit).await.unwrap();
    assert_eq!(unit.rows, ["b", "own"]);
}

proptest::proptest! {
    /// Whichever rows are refused: what is written is what one by one would have been written.
    #[test]
    fn halves_write_what_one_by_one_would(
        rows in proptest::collection::vec((0..40usize, 0..9usize), 0..120),
        lanes in proptest::collection::vec(0..12usize, 40),
        bad in proptest::collection::vec(0..9usize, 0..2),
    ) {
        const TEXTS: [&str; 9] = ["0", "1", "2", "3", "4", "5", "6", "7", "8"];
        let refuses: Vec<_> = bad.iter().map(|&bad| TEXTS[bad]).collect();
        let mut sorted = rows.clone();
        sorted.sort_by_key(|&(event, _)| event);
        let mut expected = Vec::new();
        let mut blocked = Vec::new();
        for (event, lane) in lanes.iter().enumerate() {
            let own: Vec<_> = sorted.iter().filter(|row| row.0 == event).map(|row| TEXTS[row.1]).collect();
            if blocked.contains(lane) {
                continue;
            }
            if own.iter().any(|row| refuses.contains(row)) {
                blocked.push(*lane);
            } else {
                expected.extend(own);
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut unit = Picky { refuses, ..Picky::default() };
        let rows: Arc<[_]> = rows.iter().map(|&(event, text)| (event, TEXTS[text])).collect();
        let mut staged = staged(&rows);
        runtime.block_on(staged.write_apart(&mut unit, 40, &lanes)).unwrap();
        let refused: Vec<_> = refused(&mut staged).into_iter().map(|event| lanes[event]).collect();
        proptest::prop_assert_eq!(unit.rows, expected);
        proptest::prop_assert_eq!(refused, blocked);
    }
}
