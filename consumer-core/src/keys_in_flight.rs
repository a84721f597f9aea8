//! The event keys that this process is handling right now.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::event_key::EventKey;

/// A repeat of an event that is in flight waits here for its first and shares its fate. So a storm
/// of duplicates costs memory but no connections, and a batch never holds a key twice.
#[derive(Debug)]
pub(crate) struct KeysInFlight<T> {
    followers: HashMap<EventKey, Vec<T>>,
}

impl<T> KeysInFlight<T> {
    pub(crate) fn new() -> Self {
        Self {
            followers: HashMap::new(),
        }
    }

    /// Enters an event. Gives it back when it is the first of its key, and is to be handled;
    /// keeps it when it follows another.
    pub(crate) fn enter(&mut self, key: &EventKey, item: T) -> Option<T> {
        match self.followers.entry(key.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Vec::new());
                Some(item)
            }
            Entry::Occupied(mut occupied) => {
                occupied.get_mut().push(item);
                None
            }
        }
    }

    /// The first has come to its end: the followers that share it, and of the others the oldest,
    /// which takes its place.
    pub(crate) fn settle(
        &mut self,
        key: &EventKey,
        mut shares: impl FnMut(&T) -> bool,
    ) -> (Vec<T>, Option<T>) {
        let Some(followers) = self.followers.get_mut(key) else {
            return (Vec::new(), None);
        };
        let sharing = followers
            .extract_if(.., |follower| shares(follower))
            .collect();
        (sharing, self.promote(key))
    }

    /// The first leaves unsettled, and all its followers with it.
    pub(crate) fn leave(&mut self, key: &EventKey) -> Vec<T> {
        self.followers.remove(key).unwrap_or_default()
    }

    /// The first went away undecided: the oldest follower takes its place, and is returned.
    pub(crate) fn promote(&mut self, key: &EventKey) -> Option<T> {
        let followers = self.followers.get_mut(key)?;
        if followers.is_empty() {
            self.followers.remove(key);
            return None;
        }
        Some(followers.remove(0))
    }

    /// Takes out the followers that `gone` picks; their firsts stay.
    pub(crate) fn drop_followers(&mut self, mut gone: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut dropped = Vec::new();
        for followers in self.followers.values_mut() {
            dropped.extend(followers.extract_if(.., |follower| gone(follower)));
        }
        dropped
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.followers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_key::EventId;

    fn key(id: &str) -> EventKey {
        EventKey::new(EventId::new(id).unwrap())
    }

    #[test]
    fn a_repeat_waits_for_its_first_and_leaves_with_it() {
        let mut keys = KeysInFlight::new();
        assert_eq!(keys.enter(&key("a"), 1), Some(1));
        assert_eq!(keys.enter(&key("a"), 2), None);
        assert_eq!(keys.enter(&key("b"), 3), Some(3));
        assert_eq!(keys.leave(&key("a")), [2]);
        assert_eq!(keys.enter(&key("a"), 4), Some(4));
    }

    #[test]
    fn the_oldest_follower_takes_the_place_of_a_first_that_went_away() {
        let mut keys = KeysInFlight::new();
        keys.enter(&key("a"), 1);
        keys.enter(&key("a"), 2);
        keys.enter(&key("a"), 3);
        assert_eq!(keys.promote(&key("a")), Some(2));
        assert_eq!(keys.leave(&key("a")), [3]);
        assert_eq!(keys.promote(&key("a")), None);
        assert_eq!(keys.len(), 0);
    }

    #[test]
    fn a_follower_that_does_not_share_the_end_of_its_first_is_the_next_first() {
        let mut keys = KeysInFlight::new();
        for item in [1, 2, 3, 4, 5] {
            keys.enter(&key("a"), item);
        }
        assert_eq!(
            keys.settle(&key("a"), |item| item % 2 == 1),
            (vec![3, 5], Some(2))
        );
        assert_eq!(keys.enter(&key("a"), 6), None);
        assert_eq!(keys.settle(&key("a"), |_| true), (vec![4, 6], None));
        assert_eq!(keys.settle(&key("a"), |_| true), (vec![], None));
        assert_eq!(keys.len(), 0);
    }

    #[test]
    fn a_first_without_followers_leaves_nothing_behind() {
        let mut keys = KeysInFlight::new();
        keys.enter(&key("a"), 1);
        assert_eq!(keys.promote(&key("a")), None);
        assert_eq!(keys.len(), 0);
    }

    #[test]
    fn followers_of_a_partition_that_goes_are_dropped_alone() {
        let mut keys = KeysInFlight::new();
        for item in [1, 2, 3, 4] {
            keys.enter(&key("a"), item);
        }
        assert_eq!(keys.drop_followers(|item| item % 2 == 0), [2, 4]);
        assert_eq!(keys.leave(&key("a")), [3]);
    }
}
