//! How much memory a run may take, asked before it takes any: what Linux has available, what the process's cgroups leave it, and
//! whether a store and a pool fit.
//!
//! Available is the smallest of
//!
//! - `MemAvailable` of `/proc/meminfo` (proc(5)): what can be used without swapping;
//! - cgroup v2, for the process's cgroup and each above it: the smaller of `memory.max` and `memory.high`, minus what is used, which
//!   is `memory.current` without the file cache that can be dropped, `inactive_file` of `memory.stat` (the kernel's `cgroup-v2.rst`);
//! - cgroup v1 with the memory controller, the same: `memory.limit_in_bytes`, `memory.usage_in_bytes`, `total_inactive_file` (`cgroup-v1/memory.rst`).
//!
//! A file that is not there sets no limit: the root cgroup has none, and a container may hide those above it. `MemAvailable` alone must
//! be there. Memory that is set aside as hugepages is in none of these numbers; a run that would lie on it is judged as if it did not.
//!
//! The answer is of this moment. Others can take the memory before the run does.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::report::Value;
use crate::units::Count;

mod cgroup;

/// What is left to the rest of the system and to the process's own code, tables and buffers: this part of what is available,
const HEADROOM_DIVISOR: u64 = 16;
/// and at least so many bytes.
const HEADROOM_LEAST: u64 = 64 << 20;

/// Memory that can be taken now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes that can be taken.
    pub bytes: u64,
    /// What sets that number.
    pub bound: Bound,
}

/// What sets the memory that is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The machine's memory.
    MemAvailable,
    /// The limit of the cgroup with this directory.
    Cgroup(PathBuf),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::MemAvailable => f.write_str("MemAvailable of /proc/meminfo"),
            Bound::Cgroup(directory) => {
                write!(f, "the memory limit of the cgroup {}", directory.display())
            }
        }
    }
}

impl Available {
    /// What is available to this process.
    ///
    /// # Errors
    /// [`MemoryError::Unreadable`] or [`MemoryError::Malformed`].
    pub fn now() -> Result<Self, MemoryError> {
        Self::under(Path::new("/"))
    }

    /// The same, with all files looked for under `root`.
    fn under(root: &Path) -> Result<Self, MemoryError> {
        let path = root.join("proc/meminfo");
        let text =
            std::fs::read_to_string(&path).map_err(|source| MemoryError::Unreadable { path: path.clone(), source })?;
        let bytes = mem_available(&text)
            .ok_or(MemoryError::Malformed { path, expected: "a line `MemAvailable: <number> kB`" })?;
        let machine = Self { bytes, bound: Bound::MemAvailable };
        let cgroups = cgroup::available(root)?;
        Ok(std::iter::once(machine)
            .chain(cgroups)
            .min_by_key(|available| available.bytes)
            .expect("the machine's is one"))
    }

    /// What of this a run may plan with: all but a sixteenth, and all but 64 MiB.
    pub fn usable(&self) -> u64 {
        self.bytes - self.bytes.min(HEADROOM_LEAST.max(self.bytes / HEADROOM_DIVISOR))
    }

    /// Whether a run fits.
    ///
    /// # Errors
    /// [`MemoryError::TooManySlots`] or [`MemoryError::NoRoom`].
    pub fn check(&self, need: &Need) -> Result<(), MemoryError> {
        let needed = need.bytes();
        let usable = self.usable();
        if needed <= u128::from(usable) {
            return Ok(());
        }
        let needed = u64::try_from(needed).unwrap_or(u64::MAX);
        let bound = self.bound.clone();
        let for_slots = usable.saturating_sub(need.fixed);
        // Never zero: with nothing to pay for a slot, too much is needed by the rest.
        match for_slots.checked_div(need.per_slot) {
            None | Some(0) => Err(MemoryError::NoRoom { needed: need.with_slots(1), usable, bound }),
            Some(largest) => Err(MemoryError::TooManySlots { slots: need.slots, needed, usable, largest, bound }),
        }
    }
}

/// Memory that a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Slots of the store.
    pub slots: u64,
    /// Bytes that each slot takes: its block, if that lies in memory, and what is kept about it.
    pub per_slot: u64,
    /// Bytes that are taken however many slots there are: the pool, queues.
    pub fixed: u64,
}

impl Need {
    fn bytes(&self) -> u128 {
        u128::from(self.slots) * u128::from(self.per_slot) + u128::from(self.fixed)
    }

    /// Bytes with another number of slots, or as many as 64 bits count.
    fn with_slots(&self, slots: u64) -> u64 {
        let bytes = Self { slots, ..*self }.bytes();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Why a run cannot have its memory, or why that is not known.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The caller asks for too many slots.
    #[error(
        "{} slots and the pool need {}, but {} can be used, by {bound}: give --slots {largest}{}",
        Count(*slots), Value::Bytes(*needed), Value::Bytes(*usable), if *largest == 1 { "" } else { " or fewer" }
    )]
    TooManySlots {
        /// Slots asked for.
        slots: u64,
        /// Bytes they and the rest need.
        needed: u64,
        /// Bytes that can be used, headroom left out.
        usable: u64,
        /// The largest number of slots that fits.
        largest: u64,
        /// What sets the bytes that can be used.
        bound: Bound,
    },
    /// The rest leaves no room for even one slot.
    #[error(
        "one slot and the pool need {}, but {} can be used, by {bound}: give a smaller --pool or --block",
        Value::Bytes(*needed), Value::Bytes(*usable)
    )]
    NoRoom {
        /// Bytes that one slot and the rest need.
        needed: u64,
        /// Bytes that can be used, headroom left out.
        usable: u64,
        /// What sets the bytes that can be used.
        bound: Bound,
    },
    /// The host does not let a file be read.
    #[error("cannot tell how much memory is available: {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// A file of the host is not as Linux documents it.
    #[error("cannot tell how much memory is available: {} must have {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
}

/// `MemAvailable` in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests;
