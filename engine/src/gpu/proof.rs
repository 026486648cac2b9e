//! Whether a direct way to GPU memory leads where it should, proved with data.
//!
//! In the field bytes went to the wrong place and their commands succeeded: a pointer that was rounded to a page of the GPU,
//! addresses that an IOMMU did not translate. So when memory is registered each device moves a block from it and into it,
//! by way of the scratch extent of its label, and the GPU's own copies say what was there. Each comparison is made
//! before, too, when it must fail: one that cannot fail proves nothing. What was in the memory is there again afterwards.
//!
//! Here is what is moved and compared; who moves it, the engine's lanes, is the caller's.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tentpeg_driver::dma::{Access, Backing, DmaView, HostMemory, Iova, MemoryCopy, Region, RegisterError};
use tentpeg_driver::gpu::{
    Accelerator, CopierConfig, Copies, CopyError, CudaError, GpuMemoryError, KernelError, WritesOrdering,
};
use thiserror::Error;

use crate::OpCode;

/// Whether direct ways are proved with data when memory is registered. From text: `auto`, `required`, `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Proving {
    /// Never.
    Off,
    /// By each device that may be written and has a label with a scratch extent.
    #[default]
    WherePossible,
    /// By every device: memory that one cannot prove is refused.
    Required,
}

/// The text names no way of proving.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} does not say when to prove: it must be auto, required or off")]
pub struct ProvingError {
    /// The text.
    pub text: String,
}

impl FromStr for Proving {
    type Err = ProvingError;

    fn from_str(text: &str) -> Result<Self, ProvingError> {
        Ok(match text {
            "auto" => Self::WherePossible,
            "required" => Self::Required,
            "off" => Self::Off,
            _ => return Err(ProvingError { text: text.to_owned() }),
        })
    }
}

/// How far the direct way to memory was proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuProof {
    /// Devices moved data that way, in the directions that the memory was registered for, and it was right.
    Proved {
        /// How many.
        devices: usize,
    },
    /// It was not tried by all.
    NotTried {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for GpuProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proved { devices } => write!(f, "proved with data by each of {devices} devices"),
            Self::NotTried { reason } => write!(f, "not proved with data: {reason}"),
        }
    }
}

/// Which way a block was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// By a Write command, out of the memory.
    OutOfMemory,
    /// By a Read command, into the memory.
    IntoMemory,
}

/// Why memory was not registered: its way was tried with data.
#[derive(Debug, Error)]
pub enum ProofError {
    /// Device, or whatever is between it and the GPU: bytes went elsewhere.
    #[error(
        "{path}: what {device} moved {} {address:#x} by {} is not what was there: {wrong} of {len} bytes are wrong, though \
         the command succeeded; look at IOMMU and ACS of the pair (tentpeg doctor), or allow staging alone",
        if *moved == Moved::OutOfMemory { "from" } else { "to" },
        if *moved == Moved::OutOfMemory { "a Write" } else { "a Read" }
    )]
    Astray {
        /// The way.
        path: String,
        /// The device.
        device: String,
        /// Which way the block went.
        moved: Moved,
        /// Where in the GPU's memory.
        address: u64,
        /// Bytes that are wrong.
        wrong: usize,
        /// Of so many.
        len: usize,
    },
    /// The comparison takes any bytes for right.
    #[error(
        "{device}: before anything was moved the bytes of {address:#x} were those that were to come: nothing is proved so"
    )]
    Blind {
        /// The device.
        device: String,
        /// Where in the GPU's memory.
        address: u64,
    },
    /// Device: a command that names the GPU's memory failed.
    #[error("{device} fails commands that name the GPU's memory: {reason}")]
    Command {
        /// The device.
        device: String,
        /// How.
        reason: String,
    },
    /// Device: it does not serve its scratch extent, which says nothing of the way.
    #[error("{device} does not move blocks between host memory and its scratch extent: {reason}")]
    Scratch {
        /// The device.
        device: String,
        /// Why.
        reason: String,
    },
    /// Host: its memory could not be mapped for the devices.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Caller: not every device can prove it, and each was to.
    #[error("the way cannot be proved, as was required: {reason}")]
    NotPossible {
        /// Why.
        reason: String,
    },
    /// Host: no memory for it.
    #[error(transparent)]
    Memory(#[from] GpuMemoryError),
    /// Host: the GPU has no kernels for it.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Host: the GPU does not copy.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// Host: nor does CUDA.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// The least that is moved, where a block is no larger.
const LEAST: usize = 4096;

/// What moves blocks between memory and the scratch extent, and waits for them.
pub(crate) trait Mover {
    /// Moves one block of the proof's length, and waits for it; or why it was not moved.
    fn transfer(&mut self, opcode: OpCode, iova: Iova) -> Result<(), String>;
}

/// The memory that is proved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proved<'a> {
    /// Its address on the GPU.
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// The IOVA of its first byte.
    pub(crate) iova: Iova,
    pub(crate) access: Access,
    /// The way, as messages have it.
    pub(crate) path: &'a str,
}

/// One proof's buffers: pinned memory that the GPU copies to and from, and host memory that devices do.
pub(crate) struct Proof {
    accelerator: Arc<dyn Accelerator>,
    // In this order they are dropped: what copies, then what it copies to.
    copies: Box<dyn Copies>,
    pinned: Box<dyn Backing>,
    host: Region<HostMemory>,
    len: usize,
}

impl Proof {
    /// Buffers for blocks of `lba_size` bytes.
    pub(crate) fn new(
        accelerator: &Arc<dyn Accelerator>,
        lba_size: usize,
        register: impl FnOnce(HostMemory) -> Result<Region<HostMemory>, RegisterError>,
    ) -> Result<Self, ProofError> {
        let len = Self::length(lba_size);
        let copies = Arc::clone(accelerator).copier(CopierConfig::default())?;
        let pinned = Arc::clone(accelerator).allocate_pinned(len)?;
        let host = HostMemory::allocate(len).map_err(GpuMemoryError::from)?;
        let host = register(host)?;
        Ok(Self { accelerator: Arc::clone(accelerator), copies, pinned, host, len })
    }

    /// Bytes that are moved at a time where a block has so many.
    pub(crate) fn length(lba_size: usize) -> usize {
        lba_size.max(LEAST)
    }

    /// Bytes that are moved at a time: whole blocks.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Proves the way of `device` to the memory, at its beginning, its end and between them.
    pub(crate) fn run(&mut self, proved: Proved<'_>, device: &str, mover: &mut dyn Mover) -> Result<(), ProofError> {
        for offset in spots(proved.address, proved.len, self.len as u64) {
            let spot = Spot { address: proved.address + offset, iova: proved.iova.checked_add(offset) };
            let before = self.fetch(spot.address)?;
            let tried = self.try_spot(proved, spot, device, mover);
            // Whatever has come of it the memory is as it was: no command of ours names it any more, and nothing of one is on
            // its way there.
            self.flush()?;
            self.put(spot.address, &before)?;
            tried?;
        }
        Ok(())
    }

    fn try_spot(
        &mut self,
        proved: Proved<'_>,
        spot: Spot,
        device: &str,
        mover: &mut dyn Mover,
    ) -> Result<(), ProofError> {
        let Spot { address, iova: Some(iova) } = spot else {
            return Err(ProofError::NotPossible { reason: "the memory's IOVAs have no end".to_owned() });
        };
        let astray = |moved, wrong, len| {
            let (path, device) = (proved.path.to_owned(), device.to_owned());
            Err(ProofError::Astray { path, device, moved, address, wrong, len })
        };
        let [first, second, third] = [1, 2, 3].map(|number| self.pattern(address, number));
        let host = self.host.iova();
        let mut transfer = |opcode, iova| {
            let failed = |reason| match iova == host {
                true => ProofError::Scratch { device: device.to_owned(), reason },
                false => ProofError::Command { device: device.to_owned(), reason },
            };
            mover.transfer(opcode, iova).map_err(failed)
        };
        // By host memory alone: the scratch extent keeps what is written there, and has something else than what is to come.
        self.host.view().write(0, &first);
        transfer(OpCode::Write, host)?;
        self.host.view().write(0, &third);
        transfer(OpCode::Read, host)?;
        if self.in_host() != first {
            let reason = "it does not keep what is written there".to_owned();
            return Err(ProofError::Scratch { device: device.to_owned(), reason });
        }
        if proved.access.contains(Access::DEVICE_READS) {
            self.put(address, &second)?;
            transfer(OpCode::Write, iova)?;
            transfer(OpCode::Read, host)?;
            let wrong = differing(&self.in_host(), &second);
            if wrong != 0 {
                return astray(Moved::OutOfMemory, wrong, self.len);
            }
        }
        if proved.access.contains(Access::DEVICE_WRITES) {
            self.host.view().write(0, &third);
            transfer(OpCode::Write, host)?;
            self.put(address, &second)?;
            if differing(&self.fetch(address)?, &third) == 0 {
                return Err(ProofError::Blind { device: device.to_owned(), address });
            }
            transfer(OpCode::Read, iova)?;
            self.flush()?;
            let wrong = differing(&self.fetch(address)?, &third);
            if wrong != 0 {
                return astray(Moved::IntoMemory, wrong, self.len);
            }
        }
        Ok(())
    }

    /// Bytes that tell each place of each spot apart, and each pattern from the others.
    fn pattern(&self, address: u64, number: u64) -> Vec<u8> {
        let words = (0..self.len as u64 / 8).map(|at| {
            address.wrapping_add(at * 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ number.wrapping_mul(0xff51_afd7_ed55_8ccd)
        });
        words.flat_map(u64::to_ne_bytes).collect()
    }

    fn in_host(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.host.view().read(0, &mut bytes);
        bytes
    }

    fn pinned(&self) -> DmaView<'_> {
        // SAFETY: pinned memory of ours, of which nobody makes a reference.
        unsafe { DmaView::new(self.pinned.base(), self.pinned.len()) }
    }

    /// Has the GPU write `bytes` to its memory.
    fn put(&mut self, address: u64, bytes: &[u8]) -> Result<(), ProofError> {
        self.pinned().write(0, bytes);
        self.copy(address, self.pinned.base().addr().get() as u64)
    }

    /// Has the GPU read its memory.
    fn fetch(&mut self, address: u64) -> Result<Vec<u8>, ProofError> {
        self.copy(self.pinned.base().addr().get() as u64, address)?;
        let mut bytes = vec![0; self.len];
        self.pinned().read(0, &mut bytes);
        Ok(bytes)
    }

    /// Has what a device has written be in the memory, whoever the engine's tasks are to show it to.
    fn flush(&self) -> Result<(), CudaError> {
        match self.accelerator.info().needs_flush(WritesOrdering::Owner) {
            true => self.accelerator.flush(WritesOrdering::Owner),
            false => Ok(()),
        }
    }

    fn copy(&mut self, to: u64, from: u64) -> Result<(), ProofError> {
        // SAFETY: one end is pinned memory of ours, as long; the other lies in memory that is being registered, which its
        // owner keeps allocated; this waits for the end.
        let ticket = unsafe { self.copies.begin(&[MemoryCopy::new(to, from, self.len as u64)]) }?;
        Ok(self.copies.wait(ticket)?)
    }
}

/// A place in the memory.
#[derive(Clone, Copy)]
struct Spot {
    address: u64,
    iova: Option<Iova>,
}

/// Where blocks of `block` bytes are tried, from the memory's first byte, on dwords: its beginning, its end, and a page in the
/// middle that does not begin one of the GPU's. None where it has no room for one.
fn spots(address: u64, len: u64, block: u64) -> Vec<u64> {
    let first = address.next_multiple_of(4) - address;
    let Some(last) = len.checked_sub(block).filter(|last| first <= *last) else { return Vec::new() };
    let last = (address + last) / 4 * 4 - address;
    let middle = (address + len / 2) / (LEAST as u64) * LEAST as u64;
    let middle = if (middle / LEAST as u64).is_multiple_of(16) { middle + LEAST as u64 } else { middle };
    let mut spots = vec![first];
    spots.extend(middle.checked_sub(address).filter(|middle| (first..=last).contains(middle)));
    spots.push(last);
    spots.sort_unstable();
    spots.dedup();
    spots
}

/// Whether memory has room for a block.
pub(crate) fn has_room(address: u64, len: u64, block: u64) -> bool {
    !spots(address, len, block).is_empty()
}

fn differing(found: &[u8], right: &[u8]) -> usize {
    found.iter().zip(right).filter(|(found, right)| found != right).count()
}

#[cfg(test)]
mod tests;
