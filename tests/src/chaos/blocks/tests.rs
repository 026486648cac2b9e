use proptest::prelude::*;

use super::*;

const WORDS: usize = 64;

fn block(writes: impl Fn(usize) -> u32, block: u64) -> Vec<u64> {
    (0..WORDS).map(|place| if writes(place) == 0 { 0 } else { word(writes(place), block, place) }).collect()
}

fn check(blocks: &mut Blocks, write: u32, submitted: Moment, now: Moment) -> Result<(), WrongByte> {
    blocks.check(0, &block(|_| write, 0), submitted, now).map(|_| ())
}

proptest! {
    #[test]
    fn a_word_tells_where_it_is_from(write in 1u32..1 << 31, at in 0u64..1 << 24, place in 0usize..512) {
        let word = word(write, at, place);
        prop_assert_ne!(word, 0);
        prop_assert_eq!(origin(word), Origin { write, block: at, place });
    }
}

#[test]
fn a_write_that_succeeded_rules_out_what_had_ended_before() {
    let mut blocks = Blocks::new(1, 512);
    blocks.begin(1, false, 0..1);
    assert_eq!(check(&mut blocks, 0, 1, 2), Ok(()), "in flight: the old or the new");
    assert_eq!(check(&mut blocks, 1, 1, 2), Ok(()));
    blocks.end(1, 0..1, WriteEnd::Succeeded, 1, 3, 3);
    assert_eq!(check(&mut blocks, 1, 4, 5), Ok(()));
    assert_eq!((blocks.certain(0, 4), blocks.certain(0, 2)), (Some(1), None));
    assert!(check(&mut blocks, 0, 6, 7).is_err());
}

#[test]
fn two_writes_at_once_leave_either() {
    let mut blocks = Blocks::new(1, 512);
    blocks.begin(1, false, 0..1);
    blocks.begin(2, true, 0..1);
    blocks.end(1, 0..1, WriteEnd::Succeeded, 1, 3, 1);
    blocks.end(2, 0..1, WriteEnd::Succeeded, 2, 4, 4);
    assert_eq!(check(&mut blocks, 1, 5, 6), Ok(()));
    assert!(check(&mut blocks, 0, 7, 8).is_err(), "the read before has settled it");
}

#[test]
fn a_read_may_see_what_was_there_when_it_was_submitted() {
    let mut blocks = Blocks::new(1, 512);
    blocks.begin(1, false, 0..1);
    blocks.end(1, 0..1, WriteEnd::Succeeded, 2, 3, 1);
    assert_eq!(check(&mut blocks, 0, 1, 4), Ok(()));
    assert!(check(&mut blocks, 0, 4, 5).is_err());
}

#[test]
fn what_one_read_settles_another_may_still_have_seen_before() {
    let mut blocks = Blocks::new(1, 512);
    blocks.begin(1, false, 0..1);
    blocks.end(1, 0..1, WriteEnd::Succeeded, 2, 4, 1);
    assert_eq!(check(&mut blocks, 1, 5, 6), Ok(()));
    assert_eq!(check(&mut blocks, 0, 3, 7), Ok(()), "submitted before the write had ended");
    assert!(check(&mut blocks, 0, 8, 9).is_err());
}

#[test]
fn a_write_that_failed_may_be_half_done_and_no_other() {
    let half = |place| if place < WORDS / 2 { 1 } else { 0 };
    for (end, right) in [(WriteEnd::Failed, true), (WriteEnd::Succeeded, false)] {
        let mut blocks = Blocks::new(1, 512);
        blocks.begin(1, false, 0..1);
        assert_eq!(blocks.check(0, &block(half, 0), 1, 2), Ok(None), "how it ends is not known yet");
        blocks.end(1, 0..1, end, 1, 2, 1);
        assert_eq!(blocks.check(0, &block(half, 0), 3, 4).is_ok(), right);
        if right {
            assert!(check(&mut blocks, 1, 5, 6).is_err(), "what was found stays");
            assert_eq!(blocks.check(0, &block(half, 0), 7, 8), Ok(None));
        }
    }
}

#[test]
fn a_read_from_before_a_retry_may_see_its_first_half() {
    let half = |place| if place < WORDS / 2 { 1 } else { 0 };
    let mut blocks = Blocks::new(1, 512);
    blocks.begin(1, false, 0..1);
    blocks.end(1, 0..1, WriteEnd::Failed, 1, 2, 1);
    blocks.begin(1, false, 0..1);
    blocks.end(1, 0..1, WriteEnd::Succeeded, 4, 6, 1);
    assert_eq!(blocks.check(0, &block(half, 0), 3, 7), Ok(None));
    assert!(blocks.check(0, &block(half, 0), 7, 8).is_err());
}

#[test]
fn words_of_another_block_are_wrong() {
    let mut blocks = Blocks::new(2, 512);
    blocks.begin(1, false, 0..2);
    blocks.end(1, 0..2, WriteEnd::Succeeded, 1, 2, 2);
    let wrong = blocks.check(1, &block(|_| 1, 0), 3, 4).unwrap_err();
    assert!(wrong.to_string().contains("as write 1 left it in block 0; right would be"), "{wrong}");
    assert!(blocks.check(1, &[0xEEEE_EEEE_EEEE_EEEE; WORDS], 5, 6).is_err());
}

#[test]
fn what_was_given_up_was_never_there() {
    let mut blocks = Blocks::new(1, 512);
    blocks.begin(1, false, 0..1);
    blocks.end(1, 0..1, WriteEnd::Succeeded, 1, 2, 1);
    blocks.begin(2, false, 0..1);
    assert!(check(&mut blocks, 2, 3, 4).is_ok(), "how it ends is not known yet");
    blocks.end(2, 0..1, WriteEnd::Never, 3, 5, 3);
    assert!(check(&mut blocks, 2, 6, 7).is_err());
    assert!(check(&mut blocks, 1, 8, 9).is_ok());
}
