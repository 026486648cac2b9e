//! The reference: what each block of the namespace may hold.
//!
//! Every word of a block says which block it is of, which write put it there and which word it is, so that a word
//! that is found can be named. A block has a list of *candidates*: what writes that were submitted may have left. A
//! write that succeeded rules out all that had ended before it was submitted; one that failed, or was interrupted,
//! leaves both the old and the new. A read that succeeded, with no write beside it, says which it was.

use std::fmt;
use std::rc::Rc;

/// Bits of a word for its place in the block, and for the block; the rest names the write.
const PLACE_BITS: u32 = 9;
const BLOCK_BITS: u32 = 24;
/// Odd, so that multiplying by it can be undone.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
const INVERSE: u64 = inverse(FACTOR);

/// Newton's iteration for the inverse modulo 2^64: each step doubles the bits that are right, of which an odd number
/// is its own inverse in three.
const fn inverse(odd: u64) -> u64 {
    let mut guess = odd;
    let mut step = 0;
    while step < 5 {
        guess = guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess)));
        step += 1;
    }
    guess
}

/// The word at `place` of `block` after write number `write`, which is not 0. Never 0, which is an unwritten word.
pub(super) fn word(write: u32, block: u64, place: usize) -> u64 {
    let plain = u64::from(write) << (BLOCK_BITS + PLACE_BITS) | block << PLACE_BITS | place as u64;
    let mixed = plain.wrapping_mul(FACTOR);
    mixed ^ mixed >> 32
}

/// What a word says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) write: u32,
    pub(super) block: u64,
    pub(super) place: usize,
}

/// What any 64 bits say of themselves when they are taken for a word.
pub(super) fn origin(word: u64) -> Origin {
    let plain = (word ^ word >> 32).wrapping_mul(INVERSE);
    Origin {
        write: (plain >> (BLOCK_BITS + PLACE_BITS)) as u32,
        block: plain >> PLACE_BITS & ((1 << BLOCK_BITS) - 1),
        place: (plain & ((1 << PLACE_BITS) - 1)) as usize,
    }
}

/// What a block may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    /// The words of one write; 0 is zeroes.
    Whole(u32),
    /// A number for each word: what a write that failed in its middle left.
    Mixed(Rc<[u32]>),
}

impl Content {
    fn write_of(&self, place: usize) -> u32 {
        match self {
            Self::Whole(write) => *write,
            Self::Mixed(writes) => writes[place],
        }
    }
}

/// A moment: events of the harness, counted. Later than all is [`NEVER`].
pub(super) type Moment = u64;
const NEVER: Moment = Moment::MAX;

#[derive(Debug, Clone)]
struct Candidate {
    /// The command that it is of; a retry has the same.
    id: u32,
    content: Content,
    /// When its command ended.
    ended: Moment,
    /// When another was found to have come after it.
    superseded: Moment,
    /// Until when a part of it may be there: its command did not succeed, and then it did, or it was found whole.
    torn_until: Moment,
}

impl Candidate {
    /// Whether a read that was submitted then may have seen a part of it.
    fn may_be_torn(&self, submitted: Moment) -> bool {
        self.ended == NEVER || self.torn_until >= submitted
    }
}

/// How a command that changes blocks ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteEnd {
    Succeeded,
    Failed,
}

/// A block that does not hold what it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrongByte {
    block: u64,
    place: usize,
    found: u64,
    /// Commands whose words would be right.
    right: Vec<u32>,
}

impl fmt::Display for WrongByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, place, found, right } = self;
        write!(f, "block {block} holds {found:#018x} at word {place}, as ")?;
        match (*found, origin(*found)) {
            (0, _) => f.write_str("if it had never been written")?,
            (_, origin) if origin.place == *place => {
                write!(f, "write {} left it in block {}", origin.write, origin.block)?
            }
            _ => f.write_str("no write ever left it there")?,
        }
        write!(f, "; right would be what one of the writes {right:?} left (0: zeroes)")
    }
}

/// What every block may hold.
pub(super) struct Blocks {
    blocks: Vec<Vec<Candidate>>,
    /// 64-bit words of a block.
    words: usize,
    /// Numbers given to commands so far.
    numbers: u32,
    /// Reads that said which of several it was.
    pub(super) settled: u64,
    /// Reads that found a write half done, as its failure allows.
    pub(super) mixed: u64,
}

impl Blocks {
    /// `count` blocks of zeroes.
    pub(super) fn new(count: u64, lba_size: u64) -> Self {
        let zeroes = Candidate { id: 0, content: Content::Whole(0), ended: 0, superseded: NEVER, torn_until: 0 };
        Self {
            blocks: (0..count).map(|_| vec![zeroes.clone()]).collect(),
            words: (lba_size / 8) as usize,
            numbers: 0,
            settled: 0,
            mixed: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// A number for a command that changes blocks.
    pub(super) fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// A command is submitted that writes its words, or zeroes, to blocks; again, where it is a retry.
    pub(super) fn begin(&mut self, id: u32, zeroes: bool, blocks: std::ops::Range<u64>) {
        let content = Content::Whole(if zeroes { 0 } else { id });
        for block in blocks {
            let candidates = &mut self.blocks[block as usize];
            match candidates.iter_mut().find(|candidate| candidate.id == id) {
                Some(again) => {
                    again.content = content.clone();
                    (again.ended, again.superseded) = (NEVER, NEVER);
                }
                None => candidates.push(Candidate {
                    id,
                    content: content.clone(),
                    ended: NEVER,
                    superseded: NEVER,
                    torn_until: 0,
                }),
            }
        }
    }

    /// That command, submitted at `submitted`, ends at `now`. Nothing that is still in flight was submitted before
    /// `oldest`.
    pub(super) fn end(
        &mut self,
        id: u32,
        blocks: std::ops::Range<u64>,
        end: WriteEnd,
        submitted: Moment,
        now: Moment,
        oldest: Moment,
    ) {
        for block in blocks {
            let candidates = &mut self.blocks[block as usize];
            for candidate in &mut *candidates {
                if candidate.id == id {
                    candidate.ended = now;
                    candidate.torn_until = match end {
                        WriteEnd::Failed => NEVER,
                        WriteEnd::Succeeded => candidate.torn_until.min(now),
                    };
                } else if end == WriteEnd::Succeeded && candidate.ended < submitted {
                    candidate.superseded = candidate.superseded.min(now);
                }
            }
            candidates.retain(|candidate| candidate.superseded >= oldest);
        }
    }

    /// Whether a read of `block` that was in flight from `submitted` to `now` may have returned `found`; what it says
    /// of the block is kept.
    pub(super) fn check(&mut self, block: u64, found: &[u64], submitted: Moment, now: Moment) -> Result<(), WrongByte> {
        let candidates = &mut self.blocks[block as usize];
        // What was the block's content at some time while the read was in flight.
        let possible = |candidate: &Candidate| candidate.superseded >= submitted;
        let writes: Vec<u32> = found
            .iter()
            .enumerate()
            .map(|(place, found)| match (*found, origin(*found)) {
                (0, _) => Some(0),
                (_, origin) if origin.block == block && origin.place == place => Some(origin.write),
                _ => None,
            })
            .enumerate()
            .map(|(place, write)| {
                let right =
                    |candidate: &&Candidate| possible(candidate) && Some(candidate.content.write_of(place)) == write;
                let all = || candidates.iter().filter(|candidate| possible(candidate));
                let wrong = || WrongByte {
                    block,
                    place,
                    found: found[place],
                    right: all().map(|candidate| candidate.content.write_of(place)).collect(),
                };
                candidates.iter().find(right).and(write).ok_or_else(wrong)
            })
            .collect::<Result<_, _>>()?;

        let whole = |candidate: &Candidate| {
            possible(candidate)
                && writes.iter().enumerate().all(|(place, write)| candidate.content.write_of(place) == *write)
        };
        let content = match candidates.iter().find(|candidate| whole(candidate)) {
            Some(candidate) => candidate.content.clone(),
            // Pieces of several: only a write that failed leaves such, or one whose failure is not known yet.
            None if candidates.iter().any(|candidate| possible(candidate) && candidate.may_be_torn(submitted)) => {
                self.mixed += 1;
                Content::Mixed(writes.into())
            }
            None => {
                let place = writes.iter().position(|write| *write != writes[0]).unwrap_or(0);
                let right = candidates.iter().filter(|candidate| possible(candidate)).map(|candidate| candidate.id);
                return Err(WrongByte { block, place, found: found[place], right: right.collect() });
            }
        };
        // With a write beside the read, it says nothing of what comes after.
        if candidates.iter().all(|candidate| candidate.ended < submitted) {
            let current = candidates.iter().filter(|candidate| candidate.superseded == NEVER).count();
            self.settled += u64::from(current > 1);
            let mut settled = false;
            for candidate in &mut *candidates {
                if !settled && candidate.superseded == NEVER && candidate.content == content {
                    settled = true;
                    candidate.torn_until = candidate.torn_until.min(now);
                } else {
                    // Reads that were submitted before may still have seen it.
                    candidate.superseded = candidate.superseded.min(now);
                }
            }
            if !settled {
                candidates.push(Candidate { id: 0, content, ended: now, superseded: NEVER, torn_until: 0 });
            }
        }
        Ok(())
    }

    /// 64-bit words of a block.
    pub(super) fn words(&self) -> usize {
        self.words
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: usize = 64;

    fn block(writes: impl Fn(usize) -> u32, block: u64) -> Vec<u64> {
        (0..WORDS).map(|place| if writes(place) == 0 { 0 } else { word(writes(place), block, place) }).collect()
    }

    fn check(blocks: &mut Blocks, write: u32, submitted: Moment, now: Moment) -> Result<(), WrongByte> {
        blocks.check(0, &block(|_| write, 0), submitted, now)
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
            assert_eq!(blocks.check(0, &block(half, 0), 1, 2), Ok(()), "how it ends is not known yet");
            blocks.end(1, 0..1, end, 1, 2, 1);
            assert_eq!(blocks.check(0, &block(half, 0), 3, 4).is_ok(), right);
            if right {
                assert!(check(&mut blocks, 1, 5, 6).is_err(), "what was found stays");
                assert_eq!(blocks.check(0, &block(half, 0), 7, 8), Ok(()));
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
        assert_eq!(blocks.check(0, &block(half, 0), 3, 7), Ok(()));
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
}
