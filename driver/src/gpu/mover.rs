//! The mover of a GPU: copies for a controller in software, at the link's speed.
//!
//! A kernel that stays, the feeder, takes copies from a ring in pinned memory and marks each as done there, so that a copy
//! costs its share of a few stores and no call of CUDA. When there was nothing to do for a while, or after a longer while
//! in any case, the feeder retires by itself and is launched again when it is needed: nothing else on the GPU waits for it
//! without end, not cuMemFree either, which waits for all kernels.
//!
//! It is for controllers in software, which no production has: nothing else here keeps a kernel running.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use thiserror::Error;

use super::copier::cut;
use super::device::Gpu;
use super::error::CudaError;
use super::kernels::{Feed, KernelError, Kernels};
use super::memory::{GpuMemory, PinnedMemory, Registration};
use super::stream::Stream;
use crate::dma::{MemoryCopy, Mover, MoverError};

/// Descriptors of the ring, a power of two.
const SLOTS: u32 = 1 << 14;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 32;
/// Pieces that a copy is cut into, in bytes: small, so that a turn's copies keep many warps busy, and no smaller, as a
/// piece costs the thread that feeds about 0.15 us.
const CHUNK: u64 = 16 << 10;
/// The feeder retires when there was nothing to do for so long.
const IDLE_NS: u64 = 1_000_000;
/// And when it is so old.
const LIFE_NS: u64 = 50_000_000;
/// Looks that find nothing new before CUDA is asked whether the feeder still runs.
const PATIENCE: u32 = 1 << 16;

/// Words of the page that host and feeder share (`Control` in `copy.cu`).
const TAIL: usize = 0;
const STOP: usize = 4;
const RETIRED: usize = 64;
const RETIRED_AT: usize = 68;

/// The feeder did what it must not do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum FeederError {
    #[error("the feeder ended without saying how far it came")]
    Vanished,
    #[error("the feeder says that it came to {at}, and only {first} to {tail} were open to it")]
    Position { at: u32, first: u32, tail: u32 },
}

/// Copies between a GPU's memory and admitted memory of this process.
pub struct CudaMover {
    // In this order they are dropped, after `drop` has waited for the feeder.
    stream: Stream,
    kernels: Kernels,
    control: PinnedMemory,
    ring: PinnedMemory,
    done: PinnedMemory,
    state: GpuMemory,
    admitted: Vec<Registration>,
    /// Descriptors written so far, modulo 2^32.
    tail: u32,
    /// Those that are known to be done.
    completed: u32,
    /// Number of the last feeder; 0 before the first.
    generation: u32,
    /// Where it began.
    head: u32,
    /// Looks since something new was seen.
    looks: u32,
    failed: bool,
    /// Pieces that have not had room yet: empty between calls.
    waiting: VecDeque<MemoryCopy>,
    launches: u64,
    /// Where the lists in progress end, as `tail` has it.
    ends: VecDeque<u32>,
    ended: u64,
    /// Blocks of the feeder.
    blocks: u32,
}

impl CudaMover {
    /// A mover of `gpu`, one of `sharers` that run at the same time: each has its part of the warps that the GPU holds at
    /// once. More feeders than the GPU holds wait for one another to retire.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn new(gpu: &Arc<Gpu>, sharers: u32) -> Result<Self, KernelError> {
        let blocks = (gpu.info().multiprocessors * 2 / sharers.max(1)).max(1);
        let state = GpuMemory::allocate(gpu, 8)?;
        let stream = Stream::new(gpu)?;
        // SAFETY: the memory is ours, and nobody else uses it.
        unsafe { stream.fill(state.address(), 0, state.len()) }?;
        Ok(Self {
            stream,
            kernels: Kernels::load(gpu)?,
            control: PinnedMemory::allocate(gpu, 4096)?,
            ring: PinnedMemory::allocate(gpu, SLOTS as usize * DESCRIPTOR)?,
            done: PinnedMemory::allocate(gpu, SLOTS as usize * 4)?,
            state,
            admitted: Vec::new(),
            tail: 0,
            completed: 0,
            generation: 0,
            head: 0,
            looks: 0,
            failed: false,
            waiting: VecDeque::new(),
            launches: 0,
            ends: VecDeque::new(),
            ended: 0,
            blocks,
        })
    }

    /// How often the feeder was launched.
    pub fn launches(&self) -> u64 {
        self.launches
    }

    /// Writes pieces to the ring, as many as have room.
    fn write_pieces(&mut self) {
        while self.tail.wrapping_sub(self.completed) < SLOTS
            && let Some(piece) = self.waiting.pop_front()
        {
            let slot = (self.tail % SLOTS) as usize;
            self.ring.view().write_words(slot * DESCRIPTOR, &[piece.to, piece.from, piece.len, 0]);
            self.tail = self.tail.wrapping_add(1);
        }
        self.control.view().atomic_u32(TAIL).store(self.tail, Ordering::Release);
    }

    /// Takes note of what is done. Whether there was anything.
    fn look(&mut self) -> bool {
        let before = self.completed;
        while self.completed != self.tail {
            let slot = (self.completed % SLOTS) as usize;
            let next = self.completed.wrapping_add(1);
            if self.done.view().atomic_u32(slot * 4).load(Ordering::Acquire) != next {
                break;
            }
            self.completed = next;
        }
        self.completed != before
    }

    /// Sees to it that a feeder runs where there is something to do.
    fn keep_fed(&mut self) -> Result<(), MoverError> {
        let control = self.control.view();
        if self.generation != 0 && control.atomic_u32(RETIRED).load(Ordering::Acquire) != self.generation {
            return Ok(());
        }
        let mut head = 0;
        if self.generation != 0 {
            head = control.atomic_u32(RETIRED_AT).load(Ordering::Relaxed);
            let (first, tail) = (self.head, self.tail);
            if head.wrapping_sub(first) > tail.wrapping_sub(first) {
                return Err(self.fail(FeederError::Position { at: head, first, tail }));
            }
        }
        if head == self.tail {
            return Ok(());
        }
        // 0 is no feeder's number.
        self.generation = self.generation.wrapping_add(1).max(1);
        self.head = head;
        let feed = Feed {
            control: self.control.address(),
            ring: self.ring.address(),
            done: self.done.address(),
            mask: SLOTS - 1,
            state: self.state.address(),
            head,
            generation: self.generation,
            idle_ns: IDLE_NS,
            life_ns: LIFE_NS,
        };
        // SAFETY: all of it is this value's, as large as the mask says, and is kept until the feeder has retired; the
        // descriptors are those of `begin`, whose caller vouches for them.
        unsafe { self.kernels.feed(&self.stream, self.blocks, feed) }.map_err(|error| self.fail(error))?;
        self.launches += 1;
        Ok(())
    }

    /// For a look that found nothing: now and then CUDA is asked whether the feeder still runs.
    fn grow_impatient(&mut self) -> Result<(), MoverError> {
        self.looks = self.looks.wrapping_add(1);
        std::hint::spin_loop();
        if !self.looks.is_multiple_of(PATIENCE) {
            return Ok(());
        }
        thread::yield_now();
        let idle = self.stream.is_idle().map_err(|error| self.fail(error))?;
        // It may have ended and said so after the last look.
        let retired = self.control.view().atomic_u32(RETIRED).load(Ordering::Acquire) == self.generation;
        if idle && !retired { Err(self.fail(FeederError::Vanished)) } else { Ok(()) }
    }

    #[cold]
    fn fail(&mut self, error: impl std::error::Error + Send + Sync + 'static) -> MoverError {
        self.failed = true;
        // What was not shown to the feeder must not be shown to the next.
        self.waiting.clear();
        self.stop();
        self.ended += self.ends.len() as u64;
        self.ends.clear();
        MoverError::new(error)
    }

    /// Ends the feeder and waits for its end. Where CUDA cannot wait, nothing runs any more.
    fn stop(&mut self) {
        self.control.view().atomic_u32(STOP).store(1, Ordering::Release);
        let _: Result<(), CudaError> = self.stream.synchronize();
    }

    fn working(&self) -> Result<(), MoverError> {
        if self.failed { Err(MoverError::new("it has failed before")) } else { Ok(()) }
    }
}

impl Mover for CudaMover {
    unsafe fn admit(&mut self, base: NonNull<u8>, len: usize) -> Result<(), MoverError> {
        // SAFETY: the caller's promise is passed on as it is: the registration goes with this value.
        let registration = unsafe { Registration::new(self.stream.gpu(), base, len) };
        self.admitted.push(registration.map_err(MoverError::new)?);
        Ok(())
    }

    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<(), MoverError> {
        self.working()?;
        self.waiting.extend(copies.iter().flat_map(|copy| cut(*copy, CHUNK)));
        self.write_pieces();
        self.keep_fed()?;
        while !self.waiting.is_empty() {
            if self.look() {
                self.looks = 0;
                self.write_pieces();
            } else {
                self.grow_impatient()?;
            }
            self.keep_fed()?;
        }
        self.ends.push_back(self.tail);
        Ok(())
    }

    fn ended(&mut self) -> Result<u64, MoverError> {
        self.working()?;
        if self.look() {
            self.looks = 0;
        }
        while self.ends.front().is_some_and(|end| self.completed.wrapping_sub(*end) as i32 >= 0) {
            self.ends.pop_front();
            self.ended += 1;
        }
        if self.completed != self.tail {
            self.keep_fed()?;
            self.grow_impatient()?;
        }
        Ok(self.ended)
    }
}

impl Drop for CudaMover {
    fn drop(&mut self) {
        self.stop();
    }
}
