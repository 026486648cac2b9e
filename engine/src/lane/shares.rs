//! Shares of spread tasks that a port has begun: what is left of each, counted by the port alone.

use crate::task::Outcome;

#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// The batch's place in the port.
    pub(super) place: u32,
    pub(super) task: u32,
    /// Commands in flight or to be issued again, and one more while it is not planned to its end.
    open: u32,
    /// The first outcome other than success.
    outcome: Outcome,
}

impl Share {
    /// How it ends that is given up with this outcome: as its first command that has failed, if there is one.
    pub(super) fn given_up(&self, outcome: Outcome) -> Outcome {
        self.outcome.or(outcome)
    }
}

/// The shares, by number.
#[derive(Debug, Default)]
pub(super) struct Shares {
    shares: Vec<Option<Share>>,
    free: Vec<u16>,
}

impl Shares {
    /// Begins a share, which is not planned to its end. `None`: there are as many as numbers.
    pub(super) fn begin(&mut self, place: u32, task: u32) -> Option<u16> {
        let share = Some(Share { place, task, open: 1, outcome: Outcome::SUCCESS });
        if let Some(number) = self.free.pop() {
            *self.shares.get_mut(usize::from(number))? = share;
            return Some(number);
        }
        let number = u16::try_from(self.shares.len()).ok()?;
        self.shares.push(share);
        Some(number)
    }

    /// One more command of it is in flight.
    pub(super) fn command_issued(&mut self, number: u16) {
        if let Some(Some(share)) = self.shares.get_mut(usize::from(number)) {
            share.open += 1;
        }
    }

    /// A command of it has ended, or its planning. Its task's number and the outcome of all of it, if that was the last.
    pub(super) fn part_ended(&mut self, number: u16, outcome: Outcome) -> Option<(u32, Outcome)> {
        let slot = self.shares.get_mut(usize::from(number))?;
        let share = slot.as_mut()?;
        share.outcome = share.outcome.or(outcome);
        share.open = share.open.saturating_sub(1);
        if share.open != 0 {
            return None;
        }
        let ended = (share.task, share.outcome);
        *slot = None;
        self.free.push(number);
        Some(ended)
    }

    /// One of which nothing was issued is as if it had not begun.
    pub(super) fn take_back(&mut self, number: u16) {
        if self.shares.get_mut(usize::from(number)).and_then(Option::take).is_some() {
            self.free.push(number);
        }
    }

    /// Takes all of them: none will be counted down any more.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Share> {
        self.free.clear();
        std::mem::take(&mut self.shares).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use tentpeg_driver::spec::status::StatusCode;

    use super::*;

    #[test]
    fn a_share_ends_with_its_last_part_and_keeps_the_first_failure() {
        let mut shares = Shares::default();
        let (one, two) = (shares.begin(7, 3).unwrap(), shares.begin(8, 4).unwrap());
        assert_ne!(one, two);
        shares.command_issued(one);
        shares.command_issued(one);
        let failure = Outcome::from(StatusCode::WRITE_FAULT.status());
        assert_eq!(shares.part_ended(one, Outcome::SUCCESS), None);
        assert_eq!(shares.part_ended(one, failure), None);
        assert_eq!(shares.part_ended(two, Outcome::SUCCESS), Some((4, Outcome::SUCCESS)));
        assert_eq!(shares.part_ended(one, Outcome::LOST), Some((3, failure)));
        assert_eq!(shares.part_ended(one, Outcome::SUCCESS), None, "it is gone");
        let again = shares.begin(9, 5).unwrap();
        let failing = shares.begin(9, 6).unwrap();
        shares.command_issued(failing);
        shares.part_ended(failing, failure);
        let left: Vec<_> =
            shares.take_all().map(|share| (share.place, share.task, share.given_up(Outcome::LOST))).collect();
        assert_eq!(left, [(9, 5, Outcome::LOST), (9, 6, failure)]);
        assert_eq!(shares.part_ended(again, Outcome::SUCCESS), None);
    }

    #[test]
    fn a_share_that_is_taken_back_has_no_end_and_leaves_its_number() {
        let mut shares = Shares::default();
        let (one, two) = (shares.begin(7, 3).unwrap(), shares.begin(8, 4).unwrap());
        shares.take_back(one);
        shares.take_back(one);
        assert_eq!(shares.part_ended(one, Outcome::SUCCESS), None);
        let other = shares.begin(9, 5).unwrap();
        assert_eq!(other, one);
        assert_ne!(shares.begin(9, 6), Some(one), "it is free once");
        assert_eq!(shares.part_ended(two, Outcome::SUCCESS), Some((4, Outcome::SUCCESS)));
    }

    #[test]
    fn there_is_a_limit_to_shares() {
        const MOST: usize = 1 << 16;
        let mut shares = Shares::default();
        let numbers: std::collections::HashSet<_> =
            (0..MOST as u32).map(|task| shares.begin(0, task).unwrap()).collect();
        assert_eq!((numbers.len(), shares.begin(0, 0)), (MOST, None));
        shares.part_ended(77, Outcome::SUCCESS);
        assert_eq!(shares.begin(0, 0), Some(77));
    }
}
