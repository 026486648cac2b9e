//! Lists in pinned memory, and the order in which they are done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::CopyError;
use crate::gpu::device::Gpu;
use crate::gpu::error::CudaError;
use crate::gpu::kernels::{KernelError, Kernels};
use crate::gpu::memory::PinnedMemory;
use crate::gpu::stream::Stream;

/// Bytes of an entry of a list.
const ENTRY: usize = 32;
/// Where an answer of two words lies in the page of the sequence word.
const ANSWER: usize = 64;
/// Looks at the word before CUDA is asked whether the GPU still works.
const PATIENCE: u32 = 1 << 16;

/// A list that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u32);

impl Ticket {
    /// The ticket of a list with this number.
    pub(in crate::gpu) fn new(sequence: u32) -> Self {
        Self(sequence)
    }
}

/// Runs lists one after the other.
pub(super) struct Launches {
    stream: Stream,
    kernels: Kernels,
    entries: PinnedMemory,
    /// The number of the last list that is done, and an answer.
    word: PinnedMemory,
    room: Room,
    /// Number of the last list that was begun.
    sequence: u32,
    /// What CUDA refused once.
    broken: Option<CudaError>,
}

impl Launches {
    pub(super) fn new(gpu: &Arc<Gpu>, slots: u32) -> Result<Self, KernelError> {
        Ok(Self {
            stream: Stream::new(gpu)?,
            kernels: Kernels::load(gpu)?,
            entries: PinnedMemory::allocate(gpu, slots as usize * ENTRY)?,
            word: PinnedMemory::allocate(gpu, 4096)?,
            room: Room::new(slots),
            sequence: 0,
            broken: None,
        })
    }

    /// Where an answer of two words goes.
    pub(super) fn answer(&self) -> u64 {
        self.word.address() + ANSWER as u64
    }

    /// The answer, once its list is done.
    pub(super) fn read_answer(&self) -> [u64; 2] {
        let mut words = [0; 2];
        self.word.view().read_words(ANSWER, &mut words);
        words
    }

    /// Writes a list of `count` entries and has `begin` begin what is to be done with it, given its address.
    ///
    /// # Safety
    /// What `begin` gives to the stream is sound until it is done.
    pub(super) unsafe fn run(
        &mut self,
        count: u64,
        entries: impl Iterator<Item = [u64; 4]>,
        begin: impl FnOnce(&Kernels, &Stream, u64, u32) -> Result<(), CudaError>,
    ) -> Result<Ticket, CopyError> {
        if let Some(error) = &self.broken {
            return Err(error.clone().into());
        }
        self.room.give_back(self.word.view().atomic_u32(0).load(Ordering::Acquire));
        let start = self.room.take(count)?;
        for (index, entry) in entries.take(count as usize).enumerate() {
            self.entries.view().write_words((start as usize + index) * ENTRY, &entry);
        }
        let sequence = self.sequence.wrapping_add(1);
        let list = self.entries.address() + u64::from(start) * ENTRY as u64;
        let begun = begin(&self.kernels, &self.stream, list, count as u32).and_then(|()| {
            // SAFETY: the word is ours, and only this stream writes it.
            unsafe { self.stream.write_value(self.word.address(), sequence) }
        });
        if let Err(error) = begun {
            // What was begun before, and a part of this list that was, is not asked about any more: it is waited for here, so
            // that nobody takes it for over while the GPU is in the middle of it.
            let _ = self.stream.synchronize();
            self.broken = Some(error.clone());
            return Err(error.into());
        }
        self.sequence = sequence;
        self.room.begun(sequence);
        Ok(Ticket(sequence))
    }

    #[inline]
    pub(super) fn is_done(&self, ticket: Ticket) -> bool {
        reached(self.word.view().atomic_u32(0).load(Ordering::Acquire), ticket.0)
    }

    pub(super) fn check(&self) -> Result<(), CudaError> {
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => self.stream.is_idle().map(|_| ()),
        }
    }

    pub(super) fn wait(&self, ticket: Ticket) -> Result<(), CudaError> {
        let mut looks = 0u32;
        while !self.is_done(ticket) {
            looks = looks.wrapping_add(1);
            std::hint::spin_loop();
            if looks.is_multiple_of(PATIENCE) {
                self.check()?;
                thread::yield_now();
            }
        }
        Ok(())
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        // The lists are read until then. Where CUDA cannot wait there is nothing that runs any more.
        let _ = self.stream.synchronize();
    }
}

/// Whether the number `done` is `wanted` or one that came after it, modulo 2^32.
fn reached(done: u32, wanted: u32) -> bool {
    done.wrapping_sub(wanted) as i32 >= 0
}

/// Room for entries, in a ring; each list has its entries side by side.
struct Room {
    slots: u32,
    /// Slots ever taken and ever given back; what a list leaves at the end of the ring counts as its own.
    taken: u64,
    given: u64,
    /// Lists in flight: number, and what was taken up to their ends.
    flights: VecDeque<(u32, u64)>,
}

impl Room {
    fn new(slots: u32) -> Self {
        Self { slots, taken: 0, given: 0, flights: VecDeque::new() }
    }

    /// Room for `count` entries: the first slot. It is kept until the list that [`begun`](Self::begun) names is done.
    fn take(&mut self, count: u64) -> Result<u32, CopyError> {
        let slots = u64::from(self.slots);
        if count > slots {
            return Err(CopyError::TooMany { pieces: count, most: self.slots });
        }
        if self.flights.is_empty() {
            // From the start again, so that a list as long as the ring has room.
            (self.taken, self.given) = (0, 0);
        }
        let place = self.taken % slots;
        let skipped = if place + count > slots { slots - place } else { 0 };
        if self.taken + skipped + count - self.given > slots {
            return Err(CopyError::Busy { pieces: count });
        }
        self.taken += skipped + count;
        Ok(((self.taken - count) % slots) as u32)
    }

    fn begun(&mut self, sequence: u32) {
        self.flights.push_back((sequence, self.taken));
    }

    /// Lists up to number `done` are done.
    fn give_back(&mut self, done: u32) {
        while let Some((sequence, end)) = self.flights.front()
            && reached(done, *sequence)
        {
            self.given = *end;
            self.flights.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dma::MemoryCopy;
    use crate::gpu::copier::{Copier, CopierConfig};
    use crate::gpu::library::Cuda;
    use crate::gpu::library::tests::library;

    /// A list is begun, and CUDA refuses the next one while the GPU copies the first, which it does until it is waited for.
    #[test]
    fn what_was_begun_before_a_refusal_is_over_when_it_was_waited_for() {
        let state = "static unsigned *volatile word; static volatile unsigned value;\n";
        let own = [
            ("cuDeviceGetCount", "(int *n) { *n = 1; return 0; }"),
            ("cuDeviceGetAttribute", "(int *v, unsigned n, int d) { *v = 8; return 0; }"),
            ("cuMemAlloc_v2", "(unsigned long long *a, unsigned long n) { *a = 1ull << 40; return 0; }"),
            ("cuLaunchKernel", "(void) { static int n; return n++ ? 2 : 0; }"),
            (
                "cuStreamWriteValue32_v2",
                "(void *s, unsigned *to, unsigned v, unsigned f) { word = to; value = v; return 0; }",
            ),
            ("cuStreamQuery", "(void *s) { return word && *word != value ? 600 : 0; }"),
            ("cuStreamSynchronize", "(void *s) { if (word) *word = value; return 0; }"),
        ];
        let own = own.map(|(name, body)| (name, format!("{state}unsigned {name}{body}\n")));
        let own: Vec<_> = own.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let folder = tempfile::tempdir().unwrap();
        let cuda = Arc::new(Cuda::open(&[library(folder.path(), &own, None)]).unwrap());
        let mut copier = Copier::new(&Gpu::open(&cuda, 0).unwrap(), CopierConfig::default()).unwrap();
        let list = [MemoryCopy::new(1 << 41, 1 << 40, 4096)];
        // SAFETY: nothing is copied by this library.
        let begun = unsafe { copier.begin(&list) }.unwrap();
        assert!(!copier.is_done(begun));
        // SAFETY: as above.
        assert!(unsafe { copier.begin(&list) }.is_err());
        assert!(copier.is_done(begun), "its memory is given back now");
        assert!(copier.wait(begun).is_ok() && copier.check().is_err());
    }

    #[test]
    fn numbers_go_round() {
        assert!(reached(5, 5) && reached(6, 5) && !reached(4, 5));
        assert!(reached(0, u32::MAX) && !reached(u32::MAX, 0));
    }

    #[test]
    fn a_list_as_long_as_the_ring_has_room_when_nothing_is_in_flight() {
        let mut room = Room::new(8);
        assert_eq!(room.take(5).ok(), Some(0));
        room.begun(1);
        assert!(matches!(room.take(8), Err(CopyError::Busy { pieces: 8 })));
        assert!(matches!(room.take(9), Err(CopyError::TooMany { pieces: 9, most: 8 })));
        room.give_back(1);
        assert_eq!(room.take(8).ok(), Some(0));
        room.begun(2);
        assert!(matches!(room.take(1), Err(CopyError::Busy { .. })));
        assert_eq!(room.take(0).ok(), Some(0));
    }

    proptest! {
        #[test]
        fn lists_in_flight_never_share_a_slot(steps in prop::collection::vec((0u64..12, 0usize..4), 1..60)) {
            let mut room = Room::new(16);
            let (mut flights, mut sequence) = (VecDeque::<(u32, Vec<u32>)>::new(), u32::MAX - 5);
            for (count, done) in steps {
                if let Ok(first) = room.take(count) {
                    sequence = sequence.wrapping_add(1);
                    room.begun(sequence);
                    let slots: Vec<u32> = (first..first + count as u32).collect();
                    prop_assert!(slots.iter().all(|slot| *slot < 16));
                    for (_, others) in &flights {
                        prop_assert!(others.iter().all(|slot| !slots.contains(slot)));
                    }
                    flights.push_back((sequence, slots));
                } else {
                    prop_assert!(!flights.is_empty(), "an empty ring has room for {}", count);
                }
                for _ in 0..done {
                    if let Some((sequence, _)) = flights.pop_front() {
                        room.give_back(sequence);
                    }
                }
            }
        }
    }
}
