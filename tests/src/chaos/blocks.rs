//! The reference: what each block of the namespace may hold.
//!
//! Every word of a block says which block it is of, which write put it there and which word it is, so that a word
//! that is found can be named. A block has a list of *candidates*: what writes that were submitted may have left. A
//! write that succeeded rules out all that had ended before it was submitted; one that failed, or was interrupted,
//! leaves both the old and the new. A read that succeeded, with no write beside it, says which it was.
//!
//! Where there is a volatile cache a write may succeed and be lost all the same: what was there before it can come back
//! with a loss of power, until something later is known to be durable.

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
pub(crate) fn word(write: u32, block: u64, place: usize) -> u64 {
    let plain = u64::from(write) << (BLOCK_BITS + PLACE_BITS) | block << PLACE_BITS | place as u64;
    let mixed = plain.wrapping_mul(FACTOR);
    mixed ^ mixed >> 32
}

/// What a word says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) write: u32,
    pub(super) block: u64,
    pub(super) place: usize,
}

/// What any 64 bits say of themselves when they are taken for a word.
pub(crate) fn origin(word: u64) -> Origin {
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
    /// Words of several: what a write that failed in its middle left.
    Mixed(Rc<[u64]>),
}

impl Content {
    fn word(&self, block: u64, place: usize) -> u64 {
        match self {
            Self::Whole(0) => 0,
            Self::Whole(write) => word(*write, block, place),
            Self::Mixed(words) => words[place],
        }
    }
}

/// A moment: events of the harness, counted. Later than all is [`NEVER`].
pub(crate) type Moment = u64;
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
    /// A part of another was found or possible when this was: metadata beside it may be the other's.
    beside_torn: bool,
    /// A loss of power may bring it back: nothing that came after it is known to be durable.
    may_return: bool,
}

impl Candidate {
    /// What was there before any command.
    fn zeroes() -> Self {
        Self {
            id: 0,
            content: Content::Whole(0),
            ended: 0,
            superseded: NEVER,
            torn_until: 0,
            beside_torn: false,
            may_return: true,
        }
    }

    /// Whether a read that was submitted then may have seen a part of it.
    fn may_be_torn(&self, submitted: Moment) -> bool {
        self.ended == NEVER || self.torn_until >= submitted
    }
}

/// How a command that changes blocks ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    Succeeded,
    /// It succeeded, and a loss of power takes it away until a Flush has made it durable.
    Cached,
    Failed,
    /// Nobody knows: of each block it has done all or nothing.
    Unknown,
    /// It was given up before anything of it was done.
    Never,
}

/// A block that does not hold what it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrongByte {
    block: u64,
    place: usize,
    pub(crate) found: u64,
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
pub(crate) struct Blocks {
    blocks: Vec<Vec<Candidate>>,
    /// 64-bit words of a block.
    words: usize,
    /// Numbers given to commands so far.
    numbers: u32,
    /// Reads that said which of several it was.
    pub(crate) settled: u64,
    /// Reads that found a write half done, as its failure allows.
    pub(crate) mixed: u64,
    /// When power was lost last.
    lost: Moment,
}

impl Blocks {
    /// `count` blocks of zeroes.
    pub(crate) fn new(count: u64, lba_size: u64) -> Self {
        Self {
            blocks: (0..count).map(|_| vec![Candidate::zeroes()]).collect(),
            words: (lba_size / 8) as usize,
            numbers: 0,
            settled: 0,
            mixed: 0,
            lost: 0,
        }
    }

    /// From now on there are `count` blocks; those that are new are zeroes, durably.
    pub(crate) fn resize(&mut self, count: u64) {
        self.blocks.resize_with(count as usize, || vec![Candidate::zeroes()]);
    }

    pub(crate) fn count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// A number for a command that changes blocks.
    pub(crate) fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// A command is submitted that writes its words, or zeroes, to blocks; again, where it is a retry.
    pub(crate) fn begin(&mut self, id: u32, zeroes: bool, blocks: std::ops::Range<u64>) {
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
                    beside_torn: false,
                    may_return: true,
                }),
            }
        }
    }

    /// That command, submitted at `submitted`, ends at `now`. Nothing that is still in flight was submitted before
    /// `oldest`.
    pub(crate) fn end(
        &mut self,
        id: u32,
        blocks: std::ops::Range<u64>,
        end: WriteEnd,
        submitted: Moment,
        now: Moment,
        oldest: Moment,
    ) {
        // Whether it was lost on the way: power went after it was submitted, and it may have been in the cache then.
        let certain = match end {
            WriteEnd::Succeeded => true,
            WriteEnd::Cached => submitted > self.lost,
            WriteEnd::Failed | WriteEnd::Unknown | WriteEnd::Never => false,
        };
        for block in blocks {
            let candidates = &mut self.blocks[block as usize];
            if end == WriteEnd::Never {
                candidates.retain(|candidate| candidate.id != id);
                continue;
            }
            for candidate in &mut *candidates {
                if candidate.id == id {
                    candidate.ended = now;
                    match end {
                        WriteEnd::Failed => candidate.torn_until = NEVER,
                        WriteEnd::Unknown | WriteEnd::Never => {}
                        WriteEnd::Succeeded | WriteEnd::Cached => {
                            candidate.torn_until = candidate.torn_until.min(now);
                            candidate.beside_torn = false;
                        }
                    }
                } else if certain && candidate.ended < submitted {
                    candidate.superseded = candidate.superseded.min(now);
                    candidate.may_return &= end == WriteEnd::Cached;
                }
            }
            candidates.retain(|candidate| candidate.superseded >= oldest || candidate.may_return);
        }
    }

    /// Power was lost, and with it what was only in the cache.
    pub(crate) fn lose_power(&mut self, now: Moment) {
        self.lost = now;
        for candidate in self.blocks.iter_mut().flatten().filter(|candidate| candidate.may_return) {
            candidate.superseded = NEVER;
        }
    }

    /// A Flush that was submitted then has succeeded: what had ended by that time is durable.
    pub(crate) fn flushed(&mut self, submitted: Moment, oldest: Moment) {
        for candidates in &mut self.blocks {
            for candidate in &mut *candidates {
                candidate.may_return &= candidate.superseded >= submitted;
            }
            candidates.retain(|candidate| candidate.superseded >= oldest || candidate.may_return);
        }
    }

    /// Whether a read that was in flight from `submitted` on may have found `found` from byte `at` of `block` on.
    pub(crate) fn may_hold(&self, block: u64, at: usize, found: &[u8], submitted: Moment) -> bool {
        let candidates = self.blocks[block as usize].iter();
        let possible: Vec<&Candidate> = candidates.filter(|candidate| candidate.superseded >= submitted).collect();
        let content = |candidate: &&Candidate| -> Vec<u8> {
            (0..self.words).flat_map(|place| candidate.content.word(block, place).to_le_bytes()).collect()
        };
        let contents: Vec<Vec<u8>> = possible.iter().map(content).collect();
        let torn = possible.iter().any(|candidate| candidate.may_be_torn(submitted));
        contents.iter().any(|bytes| bytes[at..at + found.len()] == *found)
            || torn && (at..).zip(found).all(|(at, found)| contents.iter().any(|bytes| bytes[at] == *found))
    }

    /// Whether a read of `block` that was in flight from `submitted` to `now` may have returned `found`; what it says
    /// of the block is kept. The write that it is of, where it is of one and nothing torn is near, and 0 where it is
    /// zeroes.
    pub(crate) fn check(
        &mut self,
        block: u64,
        found: &[u64],
        submitted: Moment,
        now: Moment,
    ) -> Result<Option<u32>, WrongByte> {
        let candidates = &mut self.blocks[block as usize];
        // What was the block's content at some time while the read was in flight.
        let possible: Vec<&Candidate> =
            candidates.iter().filter(|candidate| candidate.superseded >= submitted).collect();
        let torn = possible.iter().any(|candidate| candidate.may_be_torn(submitted));
        let wrong = |place: usize| WrongByte {
            block,
            place,
            found: found[place],
            right: possible.iter().map(|candidate| candidate.id).collect(),
        };
        let whole = |candidate: &&&Candidate| {
            found.iter().enumerate().all(|(place, found)| candidate.content.word(block, place) == *found)
        };
        let content = match possible.iter().find(whole) {
            Some(candidate) => candidate.content.clone(),
            // Pieces of several: only a write that failed leaves such, or one whose failure is not known yet.
            None => {
                // A seam may lie in the middle of a word, as metadata can shift blocks by half of one.
                let right = |place: usize, mask: u64| {
                    possible.iter().any(|candidate| candidate.content.word(block, place) & mask == found[place] & mask)
                };
                let halves = |place: usize| right(place, u64::from(u32::MAX)) && right(place, !u64::from(u32::MAX));
                if let Some(place) = (0..found.len()).find(|place| !halves(*place)) {
                    return Err(wrong(place));
                }
                if !torn {
                    // The first word that is not of the same candidate as the first.
                    let of_first = |candidate: &&&Candidate| candidate.content.word(block, 0) == found[0];
                    let first = possible.iter().find(of_first);
                    let differs = |place: &usize| {
                        first.is_none_or(|candidate| candidate.content.word(block, *place) != found[*place])
                    };
                    return Err(wrong((0..found.len()).find(differs).unwrap_or(0)));
                }
                self.mixed += 1;
                Content::Mixed(found.into())
            }
        };
        let torn = torn || possible.iter().any(|candidate| candidate.beside_torn);
        let write = match &content {
            Content::Whole(write) if !torn => Some(*write),
            _ => None,
        };
        // With a write beside the read, it says nothing of what comes after.
        if submitted > self.lost && candidates.iter().all(|candidate| candidate.ended < submitted) {
            let current = candidates.iter().filter(|candidate| candidate.superseded == NEVER).count();
            self.settled += u64::from(current > 1);
            let mut settled = false;
            for candidate in &mut *candidates {
                if !settled && candidate.superseded == NEVER && candidate.content == content {
                    settled = true;
                    candidate.beside_torn |= torn;
                    candidate.torn_until = candidate.torn_until.min(now);
                } else {
                    // Reads that were submitted before may still have seen it.
                    candidate.superseded = candidate.superseded.min(now);
                }
            }
            if !settled {
                candidates.push(Candidate {
                    id: 0,
                    content,
                    ended: now,
                    superseded: NEVER,
                    torn_until: 0,
                    beside_torn: torn,
                    may_return: true,
                });
            }
        }
        Ok(write)
    }

    /// The write whose words `block` must have held all the time since `submitted`, when there is just one.
    pub(super) fn certain(&self, block: u64, submitted: Moment) -> Option<u32> {
        let mut possible = self.blocks[block as usize].iter().filter(|candidate| candidate.superseded >= submitted);
        match (possible.next(), possible.next()) {
            (Some(Candidate { content: Content::Whole(write), ended, torn_until: 0, .. }), None)
                if *ended < submitted =>
            {
                Some(*write)
            }
            _ => None,
        }
    }

    /// 64-bit words of a block.
    pub(crate) fn words(&self) -> usize {
        self.words
    }
}

#[cfg(test)]
mod tests;
