use tentpeg_engine::BlockExtent;

use super::*;
use crate::chaos::blocks::word;

const BLOCKS: u64 = 4;

fn entry(number: u128, durability: Durability) -> SegmentEntry {
    SegmentEntry {
        name: format!("s{number}"),
        uuid: Uuid::from_u128(number),
        generation: 1,
        durability,
        capacity: BLOCKS,
        extents: vec![BlockExtent::new(10 * number as u64, BLOCKS).unwrap()],
        stripe: None,
    }
}

/// Two tenants, and what has been heard of them.
struct Heard {
    entries: Vec<SegmentEntry>,
    reference: Reference,
    counters: Counters,
}

impl Heard {
    fn new(durability: Durability) -> Self {
        let entries = vec![entry(1, durability), entry(2, durability)];
        let reference = Reference::new(512, &entries, None);
        Self { entries, reference, counters: Counters::default() }
    }

    fn hear(&mut self, record: Record) {
        self.reference.hear(record, &mut self.counters).unwrap();
    }

    fn begin(&mut self, number: u32, tenant: usize, work: Work, blocks: Range<u64>) {
        let segment = self.entries[tenant].uuid;
        let (first, blocks) = (blocks.start, blocks.end - blocks.start);
        self.hear(Record::Begin(Begin { number, segment, work, first, blocks }));
    }

    fn write(&mut self, number: u32, tenant: usize, blocks: Range<u64>) {
        self.begin(number, tenant, Work::Write, blocks);
        self.hear(Record::End { number });
    }

    /// After a kill: whether block 0 of the first tenant may hold what this write left in block 0, and what is lost.
    fn killed(mut self, found: u32) -> Result<usize, String> {
        self.reference.killed(&self.entries, &mut self.counters)?;
        let words: Vec<u64> = (0..64).map(|place| if found == 0 { 0 } else { word(found, 0, place) }).collect();
        let mut lost = BTreeSet::new();
        self.reference.check(&self.entries[0], 0, &words, &mut lost, &mut self.counters)?;
        Ok(lost.len())
    }
}

#[test]
fn an_acknowledged_write_in_a_durable_mode_is_there_and_in_none_it_may_be_lost() {
    for durability in MODES {
        let after = |found| {
            let mut heard = Heard::new(durability);
            heard.write(1, 0, 0..1);
            heard.write(2, 0, 0..2);
            heard.killed(found)
        };
        assert_eq!(after(2), Ok(0));
        for older in [0, 1] {
            match durability {
                Durability::None => assert_eq!(after(older), Ok(1), "{older}"),
                _ => assert!(after(older).unwrap_err().contains("right would be"), "{older}"),
            }
        }
        assert!(after(3).is_err());
    }
}

#[test]
fn a_flush_covers_what_was_acknowledged_before_it_was_submitted() {
    let after = |found| {
        let mut heard = Heard::new(Durability::None);
        heard.write(1, 0, 0..1);
        heard.begin(2, 0, Work::Flush, 0..0);
        heard.write(3, 0, 0..1);
        heard.hear(Record::End { number: 2 });
        heard.killed(found)
    };
    assert_eq!((after(3), after(1)), (Ok(0), Ok(1)));
    assert!(after(0).is_err(), "it was flushed");
    let mut heard = Heard::new(Durability::None);
    heard.write(1, 0, 0..1);
    heard.hear(Record::Closing);
    heard.hear(Record::Closed);
    assert!(heard.killed(0).is_err(), "a shutdown is a flush");
}

#[test]
fn a_write_in_flight_has_done_all_of_a_block_or_nothing() {
    let heard = || {
        let mut heard = Heard::new(Durability::Fua);
        heard.write(1, 0, 0..1);
        heard.begin(2, 0, Work::Write, 0..4);
        heard
    };
    assert_eq!((heard().killed(1), heard().killed(2)), (Ok(0), Ok(0)));
    assert!(heard().killed(0).is_err());
    let mut heard = heard();
    heard.reference.killed(&heard.entries, &mut heard.counters).unwrap();
    let torn: Vec<u64> = (0..64).map(|place| word(1 + u32::from(place > 31), 0, place)).collect();
    let mut lost = BTreeSet::new();
    assert!(heard.reference.check(&heard.entries[0], 0, &torn, &mut lost, &mut heard.counters).is_err());
}

#[test]
fn what_was_found_once_stays() {
    let mut heard = Heard::new(Durability::None);
    heard.write(1, 0, 0..1);
    heard.reference.killed(&heard.entries, &mut heard.counters).unwrap();
    let mut lost = BTreeSet::new();
    heard.reference.check(&heard.entries[0], 0, &[0; 64], &mut lost, &mut heard.counters).unwrap();
    heard.reference.settled(&mut heard.counters);
    assert_eq!(lost, BTreeSet::from([1]));
    assert!(heard.killed(1).is_err(), "it was lost");
}

#[test]
fn what_another_tenant_wrote_is_called_so() {
    let mut heard = Heard::new(Durability::None);
    heard.write(1, 0, 0..1);
    heard.write(2, 1, 0..1);
    let wrong = heard.killed(2).unwrap_err();
    assert!(wrong.contains("another tenant wrote that"), "{wrong}");
}

#[test]
fn a_change_in_flight_is_there_wholly_or_not_at_all() {
    let change = Change::Resize { name: "s1".to_owned(), blocks: 2 };
    let killed = |acknowledged: bool, capacity, generation| {
        let mut heard = Heard::new(Durability::Fua);
        heard.hear(Record::Change(change.clone()));
        if acknowledged {
            heard.hear(Record::Changed);
        }
        (heard.entries[0].capacity, heard.entries[0].generation) = (capacity, generation);
        heard.reference.killed(&heard.entries, &mut heard.counters)
    };
    assert_eq!((killed(false, 4, 1), killed(false, 2, 2), killed(true, 2, 2)), (Ok(()), Ok(()), Ok(())));
    for (acknowledged, capacity, generation) in [(true, 4, 1), (false, 2, 1), (false, 3, 2), (true, 2, 3)] {
        assert!(killed(acknowledged, capacity, generation).is_err(), "{acknowledged} {capacity} {generation}");
    }
    let mut heard = Heard::new(Durability::Fua);
    heard.entries.pop();
    assert!(heard.reference.killed(&heard.entries, &mut heard.counters).is_err(), "a segment is gone");
}
