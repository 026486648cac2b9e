//! A namespace's blocks by a queue pair that is idle: one command at a time, through staging memory.
//!
//! A [`NamespaceBlocks`] borrows the controller and the pair for as long as it lives, and leaves the pair idle again. It
//! attends to the controller while it waits, as a lane does: a command that is overdue is aborted, a controller that
//! does not answer is stopped and enabled anew, and what was interrupted is asked for again a few times. So every wait
//! ends within the controller's deadlines. Writes and zeroes carry FUA: a reset of the controller between them and a
//! Flush takes nothing away.

use tentpeg_driver::controller::{Attended, Controller, Namespace};
use tentpeg_driver::dma::{Access, HostMemory, HostMemoryError, Region, RegisterError};
use tentpeg_driver::queue::{Extent, IoCommand, Limits, LimitsError, QueuePair};
use tentpeg_driver::spec::identify::Oncs;
use tentpeg_driver::spec::status::Status;
use thiserror::Error;

use super::{Blocks, BlocksError, check_bounds};
use crate::clock::Clock;

/// Bytes that one command moves at the most, where MDTS allows as many and a block is no longer.
const STAGING: u64 = 1 << 20;
/// How often a command is issued before its error is the answer.
const ATTEMPTS: u32 = 5;
/// Milliseconds between two looks at the controller while a command is waited for.
const INTERVAL: u32 = 10;
/// The most blocks of a command: NLB has 16 bits.
const MAX_BLOCKS: u64 = 1 << 16;

/// Why a namespace's blocks cannot be had.
#[derive(Debug, Error)]
pub enum NamespaceBlocksError {
    /// Device: its format is none that can be served.
    #[error("namespace {nsid}: {source}")]
    Format {
        /// The namespace.
        nsid: u32,
        /// What is wrong with it.
        source: LimitsError,
    },
    /// Device: its blocks have metadata, for which there is no place here.
    #[error("namespace {nsid} has {size} bytes of metadata a block: it must have none (MS = 0)")]
    Metadata {
        /// The namespace.
        nsid: u32,
        /// Bytes of metadata of a block.
        size: u16,
    },
    /// Caller: the pair has commands in flight.
    #[error("the queue pair has {in_flight} commands in flight: it must be idle")]
    Busy {
        /// Commands in flight.
        in_flight: usize,
    },
    /// Host: no memory.
    #[error(transparent)]
    Memory(#[from] HostMemoryError),
    /// Host: the memory could not be mapped for the device.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// The blocks of one namespace of an enabled controller.
pub struct NamespaceBlocks<'a, T> {
    controller: &'a mut Controller,
    pair: &'a mut QueuePair<T>,
    nsid: u32,
    limits: Limits,
    writable: bool,
    staging: Region<HostMemory>,
    /// Bytes of the staging memory that are used: whole blocks, one command at the most.
    room: u64,
    zeroes: Zeroes,
    clock: Clock,
}

/// By what blocks are made to read as zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zeroes {
    /// Write Zeroes of so many blocks at the most, each read back; with DEAC where deallocated blocks read as zeroes.
    Command { most: u64, deallocate: bool },
    /// Writes.
    Writes,
}

impl<'a, T: Copy + Default> NamespaceBlocks<'a, T> {
    /// The blocks of `namespace`, by `pair`, a queue pair of `controller` with nothing in flight. Unless `writable`
    /// nothing is ever written.
    ///
    /// # Errors
    /// [`NamespaceBlocksError`].
    pub fn new(
        controller: &'a mut Controller,
        pair: &'a mut QueuePair<T>,
        namespace: &Namespace,
        writable: bool,
    ) -> Result<Self, NamespaceBlocksError> {
        let clock = Clock::new(controller.function());
        Self::with_clock(controller, pair, namespace, writable, clock)
    }

    /// As [`new`](Self::new), by the clock that others attend to the controller by.
    pub(crate) fn with_clock(
        controller: &'a mut Controller,
        pair: &'a mut QueuePair<T>,
        namespace: &Namespace,
        writable: bool,
        clock: Clock,
    ) -> Result<Self, NamespaceBlocksError> {
        let nsid = namespace.nsid;
        let limits = namespace.limits.map_err(|source| NamespaceBlocksError::Format { nsid, source })?;
        if let Some(metadata) = limits.metadata() {
            return Err(NamespaceBlocksError::Metadata { nsid, size: metadata.size });
        }
        let in_flight = pair.slots() - pair.free_slots();
        if in_flight != 0 {
            return Err(NamespaceBlocksError::Busy { in_flight });
        }
        let room = limits.max_transfer().min(STAGING).max(limits.lba_size());
        let memory = HostMemory::allocate(room as usize)?;
        let staging = controller.function().dma().register(memory, Access::all())?;
        let dlfeat = namespace.identify.dlfeat;
        let deallocate = dlfeat.wzds() && dlfeat.drb() == 1;
        let optional = controller.limits().optional;
        let bytes = if deallocate { optional.max_write_zeroes_deallocate } else { optional.max_write_zeroes };
        let most = (bytes >> limits.lba_shift()).min(MAX_BLOCKS);
        let zeroes = if optional.oncs.contains(Oncs::WRITE_ZEROES) && most != 0 {
            Zeroes::Command { most, deallocate }
        } else {
            Zeroes::Writes
        };
        Ok(Self { controller, pair, nsid, limits, writable, staging, room, zeroes, clock })
    }

    /// The controller and the pair, which is idle, between two calls: what typed reservation commands go by.
    pub fn parts(&mut self) -> (&mut Controller, &mut QueuePair<T>) {
        (self.controller, self.pair)
    }

    /// Blocks that fit into the staging memory.
    fn staged_blocks(&self) -> u64 {
        self.room >> self.limits.lba_shift()
    }

    fn extent(&self, nlb: u64) -> [Extent; 1] {
        [Extent { iova: self.staging.iova(), len: nlb << self.limits.lba_shift() }]
    }

    fn require_writable(&self, command: &'static str, slba: u64) -> Result<(), BlocksError> {
        if self.writable { Ok(()) } else { Err(BlocksError::ReadOnly { command, slba }) }
    }

    /// Calls `each` with the first block and the number of blocks of each piece of at most `most` blocks.
    fn pieces(
        &mut self,
        slba: u64,
        blocks: u64,
        most: u64,
        mut each: impl FnMut(&mut Self, u64, u64) -> Result<(), BlocksError>,
    ) -> Result<(), BlocksError> {
        let mut done = 0;
        while done < blocks {
            let nlb = (blocks - done).min(most);
            each(self, slba + done, nlb)?;
            done += nlb;
        }
        Ok(())
    }

    /// Writes what is in the staging memory.
    fn write_staged(&mut self, slba: u64, nlb: u64) -> Result<(), BlocksError> {
        let extent = self.extent(nlb);
        self.run("Write", slba, &IoCommand::write(slba, nlb as u32, &extent).with_fua())
    }

    fn read_staged(&mut self, slba: u64, nlb: u64) -> Result<(), BlocksError> {
        let extent = self.extent(nlb);
        self.run("Read", slba, &IoCommand::read(slba, nlb as u32, &extent))
    }

    /// Has blocks written with zeroes.
    fn write_zero_blocks(&mut self, slba: u64, blocks: u64) -> Result<(), BlocksError> {
        self.staging.view().fill(0);
        self.pieces(slba, blocks, self.staged_blocks(), Self::write_staged)
    }

    /// Has Write Zeroes do it, and believes it only after reading. Whether all of it reads as zeroes.
    fn command_zeroes(&mut self, slba: u64, nlb: u64, deallocate: bool) -> Result<bool, BlocksError> {
        let command = IoCommand::write_zeroes(slba, nlb as u32, deallocate).with_fua();
        self.run("Write Zeroes", slba, &command)?;
        let mut words = vec![0u64; (self.room / 8) as usize];
        let mut clean = true;
        self.pieces(slba, nlb, self.staged_blocks(), |this, slba, nlb| {
            this.read_staged(slba, nlb)?;
            let words = &mut words[..(nlb << this.limits.lba_shift()) as usize / 8];
            this.staging.view().read_words(0, words);
            clean &= words.iter().all(|word| *word == 0);
            Ok(())
        })?;
        Ok(clean)
    }

    /// Runs one command to its end, again where that may help.
    fn run(&mut self, name: &'static str, slba: u64, command: &IoCommand<'_>) -> Result<(), BlocksError> {
        let failed = |reason: String| BlocksError::Device { command: name, slba, reason };
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            match self.issue(command).map_err(failed)? {
                Ended::Completed(status) if status.is_success() => return Ok(()),
                Ended::Completed(status) if status.dnr() => return Err(failed(status.to_string())),
                Ended::Completed(status) => last = status.to_string(),
                Ended::Interrupted(reason) => last = format!("interrupted by a reset of the controller: {reason}"),
            }
        }
        Err(failed(format!("{last} ({ATTEMPTS} times)")))
    }

    /// Issues a command and waits for its end. An error is one after which nothing can be asked for again.
    fn issue(&mut self, command: &IoCommand<'_>) -> Result<Ended, String> {
        let mut looked = self.clock.milliseconds();
        self.pair.set_now(looked);
        self.pair
            .submit_io(self.nsid, &self.limits, command, T::default())
            .map_err(|error| format!("the command could not be issued: {error}"))?;
        self.pair.ring();
        loop {
            let mut status = None;
            self.pair.poll(1, |completion| status = Some(completion.status));
            if let Some(status) = status {
                return Ok(Ended::Completed(status));
            }
            self.clock.function().pause();
            let now = self.clock.milliseconds();
            if now.wrapping_sub(looked) < INTERVAL {
                continue;
            }
            looked = now;
            // A completion that comes meanwhile is found by the next poll: only a controller that was stopped takes
            // the command away.
            match self.controller.attend(&mut [self.pair], now, |_| ()) {
                Attended::Fine if self.controller.removed().is_none() => {}
                Attended::Fine => return Err("the controller has been given up".to_owned()),
                Attended::Recovered { reason, .. } => return Ok(Ended::Interrupted(reason)),
                Attended::Removed { reason, .. } => return Err(format!("the controller is given up: {reason}")),
            }
        }
    }
}

/// How a command ended.
enum Ended {
    Completed(Status),
    /// Without a completion, by a reset, for this reason.
    Interrupted(String),
}

impl<T: Copy + Default> Blocks for NamespaceBlocks<'_, T> {
    fn block_size(&self) -> u32 {
        self.limits.lba_size() as u32
    }

    fn blocks(&self) -> u64 {
        self.limits.nsze()
    }

    fn read(&mut self, slba: u64, data: &mut [u8]) -> Result<(), BlocksError> {
        check_bounds(self, "Read", slba, data.len() as u64)?;
        let most = self.staged_blocks();
        for (index, chunk) in (0..).zip(data.chunks_mut(self.room as usize)) {
            self.read_staged(slba + index * most, chunk.len() as u64 >> self.limits.lba_shift())?;
            self.staging.view().read(0, chunk);
        }
        Ok(())
    }

    fn write(&mut self, slba: u64, data: &[u8]) -> Result<(), BlocksError> {
        check_bounds(self, "Write", slba, data.len() as u64)?;
        self.require_writable("Write", slba)?;
        let most = self.staged_blocks();
        for (index, chunk) in (0..).zip(data.chunks(self.room as usize)) {
            self.staging.view().write(0, chunk);
            self.write_staged(slba + index * most, chunk.len() as u64 >> self.limits.lba_shift())?;
        }
        Ok(())
    }

    fn zero(&mut self, slba: u64, blocks: u64) -> Result<(), BlocksError> {
        let bytes = blocks.saturating_mul(self.limits.lba_size());
        check_bounds(self, "Write Zeroes", slba, bytes)?;
        self.require_writable("Write Zeroes", slba)?;
        let Zeroes::Command { most, .. } = self.zeroes else { return self.write_zero_blocks(slba, blocks) };
        self.pieces(slba, blocks, most, |this, slba, nlb| {
            // What a piece has found holds for those behind it.
            if let Zeroes::Command { deallocate, .. } = this.zeroes {
                match this.command_zeroes(slba, nlb, deallocate) {
                    Ok(true) => return Ok(()),
                    // It says that it has done so and has not, or refuses: it is not asked again.
                    Ok(false) | Err(BlocksError::Device { .. }) => this.zeroes = Zeroes::Writes,
                    Err(error) => return Err(error),
                }
            }
            this.write_zero_blocks(slba, nlb)
        })
    }

    fn flush(&mut self) -> Result<(), BlocksError> {
        // Without a volatile write cache there is nothing to make durable (Base 2.1, 5.1.13.2.1, VWC).
        if !self.controller.identify().vwc.present() {
            return Ok(());
        }
        self.run("Flush", 0, &IoCommand::flush())
    }
}

#[cfg(test)]
mod tests;
