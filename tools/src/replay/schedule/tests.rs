use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::replay::cache::{Prefix, SlotCache};

fn schedule(pool_blocks: u32, in_flight: u32) -> Schedule {
    Schedule::new(NonZeroU32::new(pool_blocks).unwrap(), NonZeroU32::new(in_flight).unwrap())
}

fn decision(kind: Kind, slot: u32) -> Decision {
    Decision { block: 1, slot, kind, write: 1 }
}

#[test]
fn reads_of_a_slot_overlap_and_writes_of_it_do_not() {
    let mut schedule = schedule(8, 4);
    schedule.begin_request().unwrap();
    let first = schedule.issue(&decision(Kind::Read, 5)).unwrap();
    let second = schedule.issue(&decision(Kind::Read, 5)).unwrap();
    assert_ne!(first.pool_block(), second.pool_block());
    assert_eq!(schedule.issue(&decision(Kind::Write, 5)), Err(Blocked::Slot(5)));
    schedule.complete(first);
    assert_eq!(schedule.issue(&decision(Kind::Write, 5)), Err(Blocked::Slot(5)));
    schedule.complete(second);
    let write = schedule.issue(&decision(Kind::Write, 5)).unwrap();
    assert_eq!(schedule.issue(&decision(Kind::Read, 5)), Err(Blocked::Slot(5)));
    assert_eq!(schedule.issue(&decision(Kind::Write, 5)), Err(Blocked::Slot(5)));
    let elsewhere = schedule.issue(&decision(Kind::Write, 6)).unwrap();
    schedule.complete(write);
    let again = schedule.issue(&decision(Kind::Read, 5)).unwrap();
    schedule.complete(elsewhere);
    schedule.complete(again);
}

#[test]
fn a_request_longer_than_the_pool_goes_through_it() {
    let mut schedule = schedule(2, 1);
    let request = schedule.begin_request().unwrap();
    let first = schedule.issue(&decision(Kind::Write, 0)).unwrap();
    let second = schedule.issue(&decision(Kind::Write, 1)).unwrap();
    assert_eq!(schedule.issue(&decision(Kind::Write, 2)), Err(Blocked::Pool));
    let freed = first.pool_block();
    assert_eq!(schedule.complete(first), None);
    let third = schedule.issue(&decision(Kind::Write, 2)).unwrap();
    assert_eq!((third.pool_block(), third.slot(), third.request()), (freed, 2, request));
    assert_eq!(schedule.complete(third), None);
    assert_eq!(schedule.complete(second), None);
    assert_eq!(schedule.end_of_request(), Some(request));
    assert!(schedule.is_idle());
}

#[test]
fn requests_in_flight_are_bounded_and_end_in_any_order() {
    let mut schedule = schedule(8, 2);
    let mut begin = |slot| {
        let request = schedule.begin_request()?;
        let io = schedule.issue(&decision(Kind::Write, slot)).unwrap();
        assert_eq!(schedule.end_of_request(), None);
        Ok((request, io))
    };
    let (first, first_io) = begin(0).unwrap();
    let (second, second_io) = begin(1).unwrap();
    assert_eq!(begin(2), Err(Blocked::Requests));
    assert_eq!((first, second), (RequestNumber(0), RequestNumber(1)));
    assert_eq!(schedule.complete(second_io), Some(second));
    let third = schedule.begin_request().unwrap();
    assert_eq!(third, RequestNumber(2));
    assert_eq!(schedule.end_of_request(), Some(third), "no blocks, so it ends at once");
    assert_eq!(schedule.complete(first_io), Some(first));
    assert!(schedule.is_idle());
}

/// What the rules allow, kept apart from the schedule's own state.
#[derive(Default)]
struct Referee {
    in_flight: VecDeque<Io>,
    begun: HashSet<RequestNumber>,
}

impl Referee {
    fn issued(&mut self, io: Io, pool_blocks: u32) {
        assert!(io.pool_block() < pool_blocks);
        for other in &self.in_flight {
            assert_ne!(io.pool_block(), other.pool_block(), "a pool block is used twice");
            let both_read = io.kind() == Kind::Read && other.kind() == Kind::Read;
            assert!(io.slot() != other.slot() || both_read, "{io:?} and {other:?} touch one slot");
        }
        self.in_flight.push_back(io);
    }
}

proptest! {
    /// Replays on a device that ends I/O in any order, as late as it can: one at a time, and only when the schedule is blocked or
    /// by chance.
    #[test]
    fn every_replay_ends_and_no_use_conflicts(
        pool_blocks in 1u32..6,
        in_flight in 1u32..5,
        slots in 1u32..8,
        requests in prop::collection::vec(prop::collection::vec(0u64..12, 0..10), 0..40),
        choices in prop::collection::vec(any::<(bool, prop::sample::Index)>(), 1..64),
    ) {
        let mut schedule = schedule(pool_blocks, in_flight);
        let mut cache = SlotCache::new(NonZeroU32::new(slots).unwrap());
        let mut referee = Referee::default();
        let mut choices = choices.iter().cycle();
        // What each slot holds, and what each read found, as they are when their I/O ends.
        let mut stored: HashMap<u32, (u64, u64)> = HashMap::new();
        let mut asked: HashMap<(u32, u32), (u64, u64)> = HashMap::new();

        let mut end_one = |schedule: &mut Schedule, referee: &mut Referee, asked: &mut HashMap<_, (u64, u64)>, which: usize| {
            let io = referee.in_flight.remove(which).expect("a blocked schedule has I/O in flight");
            let of_block = asked.remove(&(io.slot(), io.pool_block())).unwrap();
            match io.kind() {
                Kind::Write => {
                    stored.insert(io.slot(), of_block);
                }
                Kind::Read => assert_eq!(stored.get(&io.slot()), Some(&of_block), "stale or overtaken"),
            }
            if let Some(request) = schedule.complete(io) {
                assert!(referee.begun.remove(&request));
                assert!(referee.in_flight.iter().all(|io| io.request() != request));
            }
        };

        for hash_ids in &requests {
            let request = loop {
                match schedule.begin_request() {
                    Ok(request) => break request,
                    Err(blocked) => {
                        prop_assert_eq!(blocked, Blocked::Requests);
                        prop_assert!(!referee.in_flight.is_empty(), "nothing to wait for");
                        let which = choices.next().unwrap().1.index(referee.in_flight.len());
                        end_one(&mut schedule, &mut referee, &mut asked, which);
                    }
                }
            };
            referee.begun.insert(request);
            prop_assert!(referee.begun.len() <= in_flight as usize);
            let mut prefix = Prefix::new();
            for &block in hash_ids {
                let decision = cache.decide(&mut prefix, block);
                loop {
                    let (by_chance, which) = choices.next().unwrap();
                    let issued = schedule.issue(&decision);
                    let blocked = issued.is_err();
                    prop_assert!(!blocked || !referee.in_flight.is_empty(), "{:?} with nothing in flight", issued);
                    if let Ok(io) = issued {
                        asked.insert((io.slot(), io.pool_block()), (decision.block, decision.write));
                        referee.issued(io, pool_blocks);
                    }
                    if blocked || *by_chance {
                        let which = which.index(referee.in_flight.len());
                        end_one(&mut schedule, &mut referee, &mut asked, which);
                    }
                    if !blocked {
                        break;
                    }
                }
            }
            if schedule.end_of_request() == Some(request) {
                prop_assert!(referee.begun.remove(&request));
                prop_assert!(referee.in_flight.iter().all(|io| io.request() != request));
            }
        }
        while !referee.in_flight.is_empty() {
            end_one(&mut schedule, &mut referee, &mut asked, 0);
        }
        prop_assert!(schedule.is_idle() && referee.begun.is_empty());
        prop_assert!(schedule.slots.is_empty());
        prop_assert_eq!(schedule.free_pool_blocks.len(), pool_blocks as usize);
    }
}
