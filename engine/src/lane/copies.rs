//! Copies between staging buffers and memory of a GPU, made by the GPU: many in one launch.
//!
//! What a turn's commands leave to be copied is one list, begun at the end of the turn; a command whose bytes wait for it
//! waits here. When a list is done the GPU has said so in a word of pinned memory: looking is one load. All calls of CUDA
//! are made by the lane, in its turn and under no lock.
//!
//! A read's copy comes after its command, a write's before it: a write is [ready](GpuCopies::take_ready) when its copy is
//! made.

use std::collections::VecDeque;

use tentpeg_driver::dma::MemoryCopy;
use tentpeg_driver::gpu::{Copies, CopyError, CudaError, Ticket};
use tentpeg_driver::spec::command::Sqe;

use super::CommandTasks;

/// Turns that find nothing done before the GPU is asked whether it still works.
const PATIENCE: u32 = 1 << 16;

/// Lists in flight: one that is copied, and one behind it, so that the link does not wait for a launch. What comes
/// meanwhile is the next one: the more there is to do, the longer lists are.
const MOST_LISTS: usize = 2;

/// A command whose bytes are copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copied {
    pub(super) token: CommandTasks,
    /// What is to be submitted then, with its bytes; `None`: it has ended, and was a read.
    pub(super) command: Option<(Sqe, u64)>,
}

/// A port's copies.
#[derive(Default)]
pub(super) struct GpuCopies {
    copier: Option<Box<dyn Copies>>,
    /// The next list, and whom it is for.
    list: Vec<MemoryCopy>,
    waiting: Vec<Copied>,
    flights: VecDeque<(Ticket, Vec<Copied>)>,
    /// Writes whose bytes are in their buffers.
    ready: VecDeque<Copied>,
    /// Lists for other flights.
    spare: Vec<Vec<Copied>>,
    looks: u32,
    /// What CUDA refused: nothing that was begun may be relied on, and nothing more is.
    broken: Option<CudaError>,
}

impl GpuCopies {
    /// Has what `take` gives make the copies, unless there is something that does.
    #[inline]
    pub(super) fn open(&mut self, take: impl FnOnce() -> Option<Box<dyn Copies>>) {
        if self.copier.is_none() {
            self.copier = take();
        }
    }

    /// Leaves a copy to the next list. `false`: nothing can be copied.
    ///
    /// Both ranges stay what they are until the copy is made: the buffer is the command's, and memory that a task names
    /// stays registered until the task has ended.
    pub(super) fn add(&mut self, copy: MemoryCopy, copied: Copied) -> bool {
        if self.copier.is_none() || self.broken.is_some() {
            return false;
        }
        self.list.push(copy);
        self.waiting.push(copied);
        true
    }

    /// Whether copies are made or wait to be begun. Of writes that are ready, and wait for a slot, others will tell.
    pub(super) fn is_copying(&self) -> bool {
        !(self.flights.is_empty() && self.list.is_empty())
    }

    /// Whether copies are made or wait, or commands for them.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !(self.flights.is_empty() && self.list.is_empty() && self.ready.is_empty())
    }

    /// Begins the list, unless enough are in flight.
    pub(super) fn begin(&mut self) {
        if self.flights.len() >= MOST_LISTS {
            return;
        }
        let (Some(copier), false) = (&mut self.copier, self.list.is_empty()) else { return };
        // SAFETY: each copy is between a staging buffer, pinned by the GPU and its command's own, and registered memory of
        // the GPU that a task names which has not ended; both stay until the list is done, or the port waits in `settle`.
        match unsafe { copier.begin(&self.list) } {
            Ok(ticket) => {
                let waiting = std::mem::replace(&mut self.waiting, self.spare.pop().unwrap_or_default());
                self.flights.push_back((ticket, waiting));
                self.list.clear();
            }
            Err(CopyError::Busy { .. }) => {}
            Err(error @ CopyError::TooMany { .. }) => {
                // A copier has room for all buffers.
                debug_assert!(false, "{error}");
            }
            Err(CopyError::Cuda(error)) => self.broken = Some(error),
        }
    }

    /// Takes the commands of the next list that has ended into `ended`, with whether its copies are made. `None`: there is
    /// none.
    #[inline]
    pub(super) fn look(&mut self, ended: &mut Vec<Copied>) -> Option<bool> {
        if self.broken.is_some() {
            return self.give_up(ended);
        }
        let (copier, (ticket, _)) = (self.copier.as_ref()?, self.flights.front()?);
        if !copier.is_done(*ticket) {
            self.looks = self.looks.wrapping_add(1);
            if self.looks.is_multiple_of(PATIENCE) {
                self.broken = copier.check().err();
            }
            return None;
        }
        self.looks = 0;
        let (_, mut copied) = self.flights.pop_front()?;
        ended.append(&mut copied);
        self.spare.push(copied);
        Some(true)
    }

    /// After a failure of CUDA, when what was begun before has ended: everything that waits.
    #[cold]
    fn give_up(&mut self, ended: &mut Vec<Copied>) -> Option<bool> {
        self.wait();
        self.list.clear();
        ended.append(&mut self.waiting);
        ended.extend(self.flights.drain(..).flat_map(|(_, copied)| copied));
        (!ended.is_empty()).then_some(false)
    }

    /// A write is ready to be submitted.
    pub(super) fn make_ready(&mut self, copied: Copied) {
        self.ready.push_back(copied);
    }

    /// The next write that is ready.
    pub(super) fn take_ready(&mut self) -> Option<Copied> {
        self.ready.pop_front()
    }

    /// Waits until nothing is copied any more, and forgets who waited: whatever ends now, no copy goes to its memory.
    pub(super) fn settle(&mut self) {
        self.wait();
        self.list.clear();
        self.waiting.clear();
        self.flights.clear();
        self.ready.clear();
    }

    /// Waits until nothing that was begun is copied any more.
    fn wait(&self) {
        if let (Some(copier), Some((last, _))) = (&self.copier, self.flights.back()) {
            // What CUDA cannot wait for does not run any more.
            let _ = copier.wait(*last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tentpeg_driver::gpu::{Accelerator, CopierConfig, CopierCounters, StandIn, WordSeries};

    use super::*;

    /// Lists are done when a test says so, up to a number, or when they are waited for; from a number on CUDA fails.
    struct Slow {
        inner: Box<dyn Copies>,
        begun: u32,
        done: Arc<AtomicU32>,
        fails_from: u32,
        /// The GPU does not work any more.
        is_lost: bool,
        tickets: Vec<Ticket>,
    }

    fn failure() -> CudaError {
        CudaError { call: "cuLaunchKernel", code: 719, name: "FAILED".to_owned() }
    }

    impl Copies for Slow {
        unsafe fn begin(&mut self, _: &[MemoryCopy]) -> Result<Ticket, CopyError> {
            if self.begun >= self.fails_from {
                return Err(CopyError::Cuda(failure()));
            }
            self.begun += 1;
            // SAFETY: nothing is copied.
            let ticket = unsafe { self.inner.begin(&[]) }?;
            self.tickets.push(ticket);
            Ok(ticket)
        }

        unsafe fn write_series(&mut self, _: &[WordSeries]) -> Result<Ticket, CopyError> {
            unreachable!("lanes write no series")
        }

        unsafe fn check_series(&mut self, _: &[WordSeries]) -> Result<Option<(u64, u64)>, CopyError> {
            unreachable!("lanes compare none")
        }

        fn is_done(&self, ticket: Ticket) -> bool {
            let number = self.tickets.iter().position(|other| *other == ticket).unwrap() as u32;
            number < self.done.load(Ordering::Relaxed)
        }

        fn check(&self) -> Result<(), CudaError> {
            if self.is_lost { Err(failure()) } else { Ok(()) }
        }

        fn wait(&self, _: Ticket) -> Result<(), CudaError> {
            self.done.store(self.begun, Ordering::Relaxed);
            Ok(())
        }

        fn counters(&self) -> CopierCounters {
            CopierCounters::default()
        }
    }

    fn copies(fails_from: u32) -> (GpuCopies, Arc<AtomicU32>) {
        copies_of(fails_from, false)
    }

    fn copies_of(fails_from: u32, is_lost: bool) -> (GpuCopies, Arc<AtomicU32>) {
        let inner = StandIn::new(1 << 20).copier(CopierConfig::default()).unwrap();
        let done = Arc::<AtomicU32>::default();
        let mut copies = GpuCopies::default();
        let slow = Slow { inner, begun: 0, done: Arc::clone(&done), fails_from, is_lost, tickets: Vec::new() };
        copies.open(|| Some(Box::new(slow)));
        (copies, done)
    }

    fn read(first: u32) -> Copied {
        Copied { token: CommandTasks { first, ..CommandTasks::default() }, command: None }
    }

    fn look(copies: &mut GpuCopies) -> Option<(bool, Vec<u32>)> {
        let mut ended = Vec::new();
        copies.look(&mut ended).map(|made| (made, ended.iter().map(|copied| copied.token.first).collect()))
    }

    #[test]
    fn a_turns_copies_are_one_list_and_end_in_order() {
        let (mut copies, done) = copies(u32::MAX);
        assert!(!copies.is_busy() && look(&mut copies).is_none());
        let copy = MemoryCopy::new(8, 16, 0);
        assert!(copies.add(copy, read(1)) && copies.add(copy, read(2)));
        assert!(copies.is_copying(), "it waits to be begun");
        copies.begin();
        assert!(copies.is_copying(), "it is made");
        assert!(copies.add(copy, read(3)) && copies.is_busy());
        copies.begin();
        copies.begin();
        assert_eq!(look(&mut copies), None);
        // Two are in flight; what comes now waits, however often it is begun.
        assert!(copies.add(copy, read(4)));
        copies.begin();
        assert!(copies.add(copy, read(5)));
        copies.begin();
        done.store(1, Ordering::Relaxed);
        assert_eq!(look(&mut copies), Some((true, vec![1, 2])));
        copies.begin();
        assert_eq!(look(&mut copies), None);
        done.store(2, Ordering::Relaxed);
        assert_eq!(look(&mut copies), Some((true, vec![3])));
        done.store(3, Ordering::Relaxed);
        assert_eq!(look(&mut copies), Some((true, vec![4, 5])));
        assert!(!copies.is_busy());
        copies.make_ready(read(4));
        assert!(!copies.is_copying(), "a write that is ready waits for a slot");
        assert!(copies.is_busy() && copies.take_ready().is_some() && !copies.is_busy());
    }

    #[test]
    fn a_gpu_that_does_nothing_is_asked_whether_it_works() {
        for (is_lost, told) in [(true, Some((false, vec![1]))), (false, None)] {
            let (mut copies, _) = copies_of(u32::MAX, is_lost);
            assert!(copies.add(MemoryCopy::new(8, 16, 0), read(1)));
            copies.begin();
            for looks in 0..PATIENCE {
                assert_eq!(look(&mut copies), None, "look {looks}");
            }
            assert_eq!(look(&mut copies), told);
        }
    }

    #[test]
    fn what_is_settled_is_copied_no_more_and_told_to_nobody() {
        let (mut copies, done) = copies(u32::MAX);
        let copy = MemoryCopy::new(8, 16, 0);
        assert!(copies.add(copy, read(1)));
        copies.begin();
        assert!(copies.add(copy, read(2)));
        copies.make_ready(read(3));
        copies.settle();
        assert_eq!(done.load(Ordering::Relaxed), 1, "what was begun is waited for, and nothing more is begun");
        assert!(!copies.is_busy() && copies.take_ready().is_none());
        copies.begin();
        assert_eq!(look(&mut copies), None);
    }

    #[test]
    fn where_cuda_fails_all_that_waits_is_told_and_nothing_more_is_taken() {
        let (mut copies, done) = copies(1);
        for first in [1, 2] {
            assert!(copies.add(MemoryCopy::new(8, 16, 0), read(first)));
            copies.begin();
        }
        assert_eq!(look(&mut copies), Some((false, vec![2, 1])));
        assert_eq!(done.load(Ordering::Relaxed), 1, "whoever is told has no copy under way");
        assert!(!copies.add(MemoryCopy::new(8, 16, 0), read(2)) && !copies.is_busy());
        assert!(!GpuCopies::default().add(MemoryCopy::new(8, 16, 0), read(2)), "there is no copier");
    }
}
