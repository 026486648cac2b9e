//! When each I/O of a replay may start, and into which pool block.
//!
//! I/O is issued in the order of the trace, and waits at its head: if the next I/O may not start yet, none behind it may. It may start
//! when
//!
//! - its request is one of at most `in_flight` that have begun and not ended. A request ends when all its I/O has been issued and has
//!   ended;
//! - its slot is free of conflict: a read waits for a write of the same slot, a write waits for any I/O of it;
//! - a pool block is free. It is taken when the I/O is issued and freed when that I/O ends, so a request longer than the pool goes
//!   through it in parts, and a pool of one block is enough.
//!
//! Each of these waits for I/O that has been issued, never for I/O that has not, so as long as the device answers, a replay goes on.
//!
//! This owns who uses what, and nothing else: the bytes of the pool, the commands and the time are the caller's. Memory is proportional
//! to the pool and to the requests in flight, not to the slots.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU32;

use super::cache::{Decision, Kind};

/// The next I/O may not start before some I/O has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// As many requests are in flight as may be.
    Requests,
    /// The slot with this number has conflicting I/O in flight.
    Slot(u32),
    /// Every pool block is in use.
    Pool,
}

/// The number of a request in its trace, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(pub u64);

/// An I/O that has been issued: the right to its slot and its pool block until it is given back to [`Schedule::complete`]. If it is
/// dropped instead, both stay in use for good, as they must if a device may still reach them.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its slot and pool block stay in use until it is completed"]
pub struct Io {
    request: RequestNumber,
    slot: u32,
    kind: Kind,
    pool_block: u32,
}

impl Io {
    /// The request that it is part of.
    pub fn request(&self) -> RequestNumber {
        self.request
    }

    /// The slot that is read or written.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Whether the slot is read or written.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The pool block that it reads into or writes from.
    pub fn pool_block(&self) -> u32 {
        self.pool_block
    }
}

/// Who uses which slot, pool block and place among the requests in flight.
#[derive(Debug)]
pub struct Schedule {
    in_flight: NonZeroU32,
    next_request: u64,
    /// The request whose I/O is being issued, if there is one. It is in `unfinished` too.
    issuing: Option<RequestNumber>,
    /// Requests in flight, with how many of their I/Os are.
    unfinished: HashMap<RequestNumber, u64>,
    /// Slots with I/O in flight. No other slot is named.
    slots: HashMap<u32, SlotUse>,
    free_pool_blocks: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum SlotUse {
    ReadBy(u32),
    Written,
}

impl Schedule {
    /// For a pool of `pool_blocks` blocks and up to `in_flight` requests at a time.
    pub fn new(pool_blocks: NonZeroU32, in_flight: NonZeroU32) -> Self {
        Self {
            in_flight,
            next_request: 0,
            issuing: None,
            unfinished: HashMap::new(),
            slots: HashMap::new(),
            // The last is taken first: what was used last is likeliest to be in cache.
            free_pool_blocks: (0..pool_blocks.get()).rev().collect(),
        }
    }

    /// Begins the next request. The I/O of its blocks is issued until [`end_of_request`](Self::end_of_request).
    ///
    /// # Errors
    /// [`Blocked::Requests`].
    ///
    /// # Panics
    /// If the request before it has not been issued whole.
    pub fn begin_request(&mut self) -> Result<RequestNumber, Blocked> {
        assert!(self.issuing.is_none(), "requests are issued one after the other");
        if self.unfinished.len() >= self.in_flight.get() as usize {
            return Err(Blocked::Requests);
        }
        let request = RequestNumber(self.next_request);
        self.next_request += 1;
        self.unfinished.insert(request, 0);
        self.issuing = Some(request);
        Ok(request)
    }

    /// Takes the slot and a pool block for the next block of the request that has begun. After an error nothing has changed, and the
    /// same decision is to be tried again once some I/O has been completed.
    ///
    /// # Errors
    /// [`Blocked::Slot`] or [`Blocked::Pool`].
    ///
    /// # Panics
    /// If no request has begun.
    pub fn issue(&mut self, decision: &Decision) -> Result<Io, Blocked> {
        let request = self.issuing.expect("a request has begun");
        let Decision { slot, kind, .. } = *decision;
        let slot_use = match (self.slots.get(&slot), kind) {
            (None, Kind::Read) => SlotUse::ReadBy(1),
            (None, Kind::Write) => SlotUse::Written,
            (Some(SlotUse::ReadBy(readers)), Kind::Read) => SlotUse::ReadBy(readers + 1),
            (Some(_), _) => return Err(Blocked::Slot(slot)),
        };
        let pool_block = self.free_pool_blocks.pop().ok_or(Blocked::Pool)?;
        self.slots.insert(slot, slot_use);
        *self.unfinished.entry(request).or_default() += 1;
        Ok(Io { request, slot, kind, pool_block })
    }

    /// Ends the issuing of the request that has begun. Gives its number if it has ended by this, as all its I/O has, or as it had
    /// none; otherwise [`complete`](Self::complete) gives it.
    ///
    /// # Panics
    /// If no request has begun.
    pub fn end_of_request(&mut self) -> Option<RequestNumber> {
        let request = self.issuing.take().expect("a request has begun");
        self.ended(request)
    }

    /// Frees the slot and the pool block of an I/O that has ended, well or not: nothing reaches either on its behalf any more, and
    /// whoever wanted the pool block's bytes has them. Gives the request's number if it has ended by this.
    pub fn complete(&mut self, io: Io) -> Option<RequestNumber> {
        self.free_pool_blocks.push(io.pool_block);
        if let Entry::Occupied(mut slot) = self.slots.entry(io.slot) {
            match slot.get_mut() {
                SlotUse::ReadBy(readers @ 2..) => *readers -= 1,
                _ => {
                    slot.remove();
                }
            }
        }
        if let Some(in_flight) = self.unfinished.get_mut(&io.request) {
            *in_flight -= 1;
        }
        self.ended(io.request)
    }

    /// Forgets the request, and gives it, if all of it has been issued and has ended.
    fn ended(&mut self, request: RequestNumber) -> Option<RequestNumber> {
        if self.issuing == Some(request) || self.unfinished.get(&request) != Some(&0) {
            return None;
        }
        self.unfinished.remove(&request);
        Some(request)
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.unfinished.is_empty()
    }
}

#[cfg(test)]
mod tests;
