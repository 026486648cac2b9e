//! The set of registered memory, as it was at some time: it is never changed, but replaced whole.

use tentpeg_driver::dma::{Access, Iova, RegionEntry, RegionTable, ResolveError};

use super::{Memory, MemoryError, RegisterOptions};

/// Memory that may be copied through staging buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StagedEntry {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) access: Access,
}

/// What requests can name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nameable {
    /// What devices reach.
    pub(crate) direct: RegionTable,
    /// What may be copied, by address; of what devices reach that which was registered so, too.
    staged: Vec<StagedEntry>,
    /// First address and length of what neither the host nor a GPU copies: a GPU's, where devices reach it.
    untouchable: Vec<(u64, u64)>,
}

impl Nameable {
    /// What devices reach, and what may be copied; neither shares addresses with others of its kind.
    pub(crate) fn new(direct: RegionTable, mut staged: Vec<StagedEntry>) -> Self {
        staged.sort_by_key(|entry| entry.address);
        Self { direct, staged, untouchable: Vec::new() }
    }

    /// Whether anybody copies to and from `address`.
    pub(crate) fn is_touchable(&self, address: u64) -> bool {
        !self.untouchable.iter().any(|(start, len)| address.checked_sub(*start).is_some_and(|offset| offset < *len))
    }

    /// The IOVA of `len` bytes at `address`, and what devices may do there.
    ///
    /// # Errors
    /// [`ResolveError`] when devices do not reach them as one range.
    pub(crate) fn resolve(&self, address: u64, len: u64) -> Result<(Iova, Access), ResolveError> {
        self.direct.resolve(address, len).map(|(range, access)| (range.start(), access))
    }

    /// What may be done by copies with `len` bytes at `address`. `None`: the first one may not be copied.
    pub(crate) fn staged(&self, address: u64, len: u64) -> Option<Result<Access, ResolveError>> {
        let after = self.staged.partition_point(|entry| entry.address <= address);
        let entry = self.staged.get(after.checked_sub(1)?)?;
        let offset = address - entry.address;
        if offset >= entry.len {
            return None;
        }
        Some(match len {
            0 => Err(ResolveError::NoRange { address, len }),
            _ if len > entry.len - offset => {
                Err(ResolveError::PastEnd { address, len, end: entry.address + entry.len })
            }
            _ => Ok(entry.access),
        })
    }
}

/// All memory that was registered, as it was at some time.
#[derive(Default)]
pub(crate) struct Registered {
    /// What admission asks.
    pub(crate) nameable: Nameable,
    /// By address; that which is being unregistered too, as what was admitted before is served still. No two share an
    /// address.
    regions: Vec<Memory>,
    /// Which of them requests can name, by address.
    open: Vec<Memory>,
}

impl Registered {
    /// The same with one more.
    ///
    /// # Errors
    /// [`MemoryError::Overlaps`].
    pub(crate) fn with(&self, memory: Memory) -> Result<Self, MemoryError> {
        self.check_free(memory.address(), memory.len() as u64)?;
        Ok(Self::of(insert(&self.regions, &memory), insert(&self.open, &memory)))
    }

    /// The same with that memory out of what requests can name. `None`: it is not among it.
    pub(crate) fn closing(&self, memory: &Memory) -> Option<Self> {
        self.is_open(memory).then(|| Self::of(self.regions.clone(), without(&self.open, memory)))
    }

    /// The same with that memory, which is being unregistered, among what requests can name again.
    pub(crate) fn opened(&self, memory: &Memory) -> Self {
        Self::of(self.regions.clone(), insert(&self.open, memory))
    }

    /// The same without that memory, which requests cannot name any more.
    pub(crate) fn without(&self, memory: &Memory) -> Self {
        Self::of(without(&self.regions, memory), self.open.clone())
    }

    fn of(regions: Vec<Memory>, open: Vec<Memory>) -> Self {
        let reached = |memory: &Memory| {
            let entry = |iova| RegionEntry {
                address: memory.address(),
                len: memory.len() as u64,
                iova,
                access: memory.access(),
            };
            memory.first_iova().map(entry)
        };
        // Checked when each was added; a table that cannot be made names nothing.
        let direct = RegionTable::new(open.iter().filter_map(reached).collect()).unwrap_or_default();
        let copied = |memory: &&Memory| memory.inner.staging;
        let entry = |memory: &Memory| StagedEntry {
            address: memory.address(),
            len: memory.len() as u64,
            access: memory.access(),
        };
        let staged = open.iter().filter(copied).map(entry).collect();
        let gpus = open.iter().filter(|memory| memory.is_gpu() && !memory.is_staged());
        let untouchable = gpus.map(|memory| (memory.address(), memory.len() as u64)).collect();
        Self { nameable: Nameable { untouchable, ..Nameable::new(direct, staged) }, regions, open }
    }

    /// Whether requests can name that memory.
    fn is_open(&self, memory: &Memory) -> bool {
        self.open.iter().any(|open| open.is(memory))
    }

    /// Registers what is registered already, as memory of a GPU or as the host's, once more. `None`: it is not.
    ///
    /// # Errors
    /// [`MemoryError::RegisteredOtherwise`].
    pub(crate) fn again(
        &self,
        address: u64,
        len: u64,
        options: RegisterOptions,
        is_gpu: bool,
    ) -> Option<Result<Memory, MemoryError>> {
        let same =
            |memory: &&Memory| (memory.address(), memory.len() as u64, memory.is_gpu()) == (address, len, is_gpu);
        let memory = self.open.iter().find(same)?;
        Some(match memory.register_again(options) {
            true => Ok(memory.clone()),
            false => Err(MemoryError::RegisteredOtherwise { address, len }),
        })
    }

    /// Takes back one registration of that memory. Whether it has others, or is none of this set's.
    pub(crate) fn unregister_once(&self, memory: &Memory) -> bool {
        !self.is_open(memory) || memory.unregister_once()
    }

    /// Whether no memory has one of `len` bytes at `address`.
    ///
    /// # Errors
    /// [`MemoryError::Overlaps`].
    pub(crate) fn check_free(&self, address: u64, len: u64) -> Result<(), MemoryError> {
        let before = self.regions.partition_point(|memory| memory.address() < address.saturating_add(len));
        match before.checked_sub(1).and_then(|last| self.regions.get(last)) {
            // The last one that begins before the end: no other one of those ends behind it.
            Some(other) if other.address() + other.len() as u64 > address => {
                let (other, other_len) = (other.address(), other.len() as u64);
                Err(MemoryError::Overlaps { address, len, other, other_len })
            }
            _ => Ok(()),
        }
    }

    /// The memory that has the `len` bytes at `address`, and where in it they begin.
    pub(crate) fn find(&self, address: u64, len: u64) -> Option<(&Memory, usize)> {
        find(&self.regions, address, len)
    }

    /// As [`find`](Self::find), of what requests can name.
    pub(crate) fn find_open(&self, address: u64, len: u64) -> Option<&Memory> {
        find(&self.open, address, len).map(|(memory, _)| memory)
    }

    /// All of it.
    pub(crate) fn regions(&self) -> &[Memory] {
        &self.regions
    }
}

fn find(regions: &[Memory], address: u64, len: u64) -> Option<(&Memory, usize)> {
    let after = regions.partition_point(|memory| memory.address() <= address);
    let memory = regions.get(after.checked_sub(1)?)?;
    let offset = address - memory.address();
    let end = offset.checked_add(len)?;
    (end <= memory.len() as u64).then_some((memory, offset as usize))
}

fn insert(regions: &[Memory], memory: &Memory) -> Vec<Memory> {
    let mut regions = regions.to_vec();
    let at = regions.partition_point(|other| other.address() < memory.address());
    regions.insert(at, memory.clone());
    regions
}

fn without(regions: &[Memory], memory: &Memory) -> Vec<Memory> {
    regions.iter().filter(|other| !other.is(memory)).cloned().collect()
}

#[cfg(test)]
mod tests;
