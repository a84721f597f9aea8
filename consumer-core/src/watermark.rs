//! How far a log may be committed when deliveries settle in any order.

use std::collections::BTreeMap;

/// The commit watermark of one assignment: the offset below which every delivered offset is settled.
///
/// Offsets that were never delivered (compacted away, transaction markers, aborted records) are no
/// obstacle, since only what was delivered is waited for; and it never exceeds the last delivered
/// offset + 1, since nothing is known of what lies beyond.
///
/// A delivery is known by its *tag*, not by its offset: after a rewind the same offset may hold
/// another record, and what settles the old delivery must not settle the new one.
///
/// Memory is what is unsettled, however far the rest has run ahead of it.
#[derive(Debug, Default)]
pub struct Watermark {
    next_tag: u64,
    /// By tag. Offsets ascend with it: a rewind removes those that would break that.
    unsettled: BTreeMap<u64, i64>,
    /// The last delivered offset + 1.
    end: Option<i64>,
}

impl Watermark {
    /// Takes note of a delivery, and gives it its tag.
    ///
    /// An offset at or below the last one is a rewind: the log was truncated, or the position set
    /// back. What was delivered from there on will be delivered again and is forgotten, settled or
    /// not; the watermark is back at that offset until its new delivery is settled.
    pub fn delivered(&mut self, offset: i64) -> u64 {
        if self.end.is_some_and(|end| offset < end) {
            while let Some(last) = self.unsettled.last_entry()
                && *last.get() >= offset
            {
                last.remove();
            }
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        self.unsettled.insert(tag, offset);
        self.end = Some(offset.saturating_add(1));
        tag
    }

    /// Takes note that a delivery is settled. One that is not waited for changes nothing.
    pub fn settled(&mut self, tag: u64) {
        self.unsettled.remove(&tag);
    }

    /// The watermark: the offset to commit, which is the next one to read. `None` before the first
    /// delivery.
    pub fn offset(&self) -> Option<i64> {
        match self.unsettled.first_key_value() {
            Some((_, &offset)) => Some(offset),
            None => self.end,
        }
    }

    /// How many deliveries are waited for.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn after(offsets: &[i64]) -> (Watermark, Vec<u64>) {
        let mut watermark = Watermark::default();
        let tags = offsets.iter().map(|&o| watermark.delivered(o)).collect();
        (watermark, tags)
    }

    #[test]
    fn there_is_nothing_to_commit_before_the_first_delivery() {
        assert_eq!(Watermark::default().offset(), None);
    }

    #[test]
    fn it_waits_for_the_oldest_unsettled_delivery() {
        let (mut watermark, tags) = after(&[10, 11, 12]);
        watermark.settled(tags[1]);
        watermark.settled(tags[2]);
        assert_eq!(watermark.offset(), Some(10));
        watermark.settled(tags[0]);
        assert_eq!(watermark.offset(), Some(13));
    }

    #[test]
    fn offsets_that_do_not_exist_are_stepped_over() {
        let (mut watermark, tags) = after(&[3, 90, 91, 4000]);
        for &tag in &tags[..3] {
            watermark.settled(tag);
        }
        assert_eq!(watermark.offset(), Some(4000));
        watermark.settled(tags[3]);
        assert_eq!(watermark.offset(), Some(4001));
    }

    #[test]
    fn settling_twice_or_what_was_never_delivered_changes_nothing() {
        let (mut watermark, tags) = after(&[0, 1]);
        watermark.settled(tags[0]);
        watermark.settled(tags[0]);
        watermark.settled(77);
        assert_eq!(watermark.offset(), Some(1));
        assert_eq!(watermark.unsettled(), 1);
    }

    #[test]
    fn a_rewind_takes_it_back_until_the_new_deliveries_are_settled() {
        let (mut watermark, tags) = after(&[10, 11, 12]);
        for &tag in &tags {
            watermark.settled(tag);
        }
        let again = watermark.delivered(11);
        assert_eq!(watermark.offset(), Some(11));
        watermark.settled(again);
        assert_eq!(watermark.offset(), Some(12));
    }

    #[test]
    fn what_settles_a_delivery_from_before_a_rewind_does_not_settle_its_successor() {
        let (mut watermark, tags) = after(&[10, 11]);
        let again = watermark.delivered(11);
        watermark.settled(tags[0]);
        watermark.settled(tags[1]);
        assert_eq!(watermark.offset(), Some(11));
        watermark.settled(again);
        assert_eq!(watermark.offset(), Some(12));
    }

    /// Field case 034.
    #[test]
    fn an_offset_delivered_twice_in_a_row_is_settled_twice() {
        let (mut watermark, tags) = after(&[6, 7, 7, 8]);
        for &tag in &tags {
            watermark.settled(tag);
        }
        assert_eq!(watermark.offset(), Some(9));
        assert_eq!(watermark.unsettled(), 0);
    }

    #[test]
    fn memory_is_bounded_by_what_is_unsettled() {
        let (mut watermark, _) = after(&[0]);
        for offset in 1..100_000 {
            let tag = watermark.delivered(offset);
            watermark.settled(tag);
        }
        assert_eq!(watermark.unsettled(), 1);
        assert_eq!(watermark.offset(), Some(0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Deliver the record this far behind the last one.
        Forward(i64),
        /// Deliver one this far before the end.
        Back(i64),
        /// Settle one of the deliveries so far.
        Settle(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..5i64).prop_map(Step::Forward),
            1 => (1..9i64).prop_map(Step::Back),
            8 => any::<prop::sample::Index>().prop_map(Step::Settle),
        ]
    }

    proptest! {
        #[test]
        fn below_it_the_latest_delivery_of_every_offset_is_settled(
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut watermark = Watermark::default();
            let mut tags = Vec::new();
            // By offset: the latest delivery's tag, and whether it is settled.
            let mut latest: HashMap<i64, (u64, bool)> = HashMap::new();
            let mut end = 100;
            for step in steps {
                let before = watermark.offset();
                let rewound = matches!(step, Step::Back(_));
                match step {
                    Step::Forward(by) | Step::Back(by) => {
                        let offset = if rewound { (end - by).max(0) } else { end + by - 1 };
                        let tag = watermark.delivered(offset);
                        latest.retain(|&o, _| o < offset);
                        latest.insert(offset, (tag, false));
                        tags.push((tag, offset));
                        end = offset + 1;
                    }
                    Step::Settle(index) if !tags.is_empty() => {
                        let (tag, offset) = *index.get(&tags);
                        watermark.settled(tag);
                        if let Some((last, settled)) = latest.get_mut(&offset) {
                            *settled |= *last == tag;
                        }
                    }
                    Step::Settle(_) => {}
                }
                let Some(now) = watermark.offset() else { continue };
                prop_assert!(now <= end, "{now} is beyond the last delivered record + 1, {end}");
                for (&offset, &(_, settled)) in &latest {
                    prop_assert!(settled || offset >= now, "{offset} is unsettled, but below {now}");
                }
                let all_settled = latest.values().all(|&(_, settled)| settled);
                prop_assert!(!all_settled || now == end, "nothing is in the way, yet it stands at {now} before {end}");
                prop_assert!(rewound || before.is_none_or(|before| before <= now), "it went back without a rewind");
            }
        }
    }
}
