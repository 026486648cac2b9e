//! Processors: which there are, where a process may run, and which are near a device (Linux, cpuset(7) and sysfs).

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

use super::LaneError;

/// Where the kernel says which processors there are.
const SYSTEM: &str = "/sys/devices/system";

/// Processors by number, written as Linux does: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuList(pub Vec<usize>);

/// A text that lists no processors.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{}' lists no processors: write numbers below {MAX}, and ranges of them, such as 0,2-3", .0.escape_debug())]
pub struct CpuListError(pub String);

/// Processors that the kernel's calls can name.
const MAX: usize = CpuSet::MAX_CPU;

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Reads numbers and ranges parted by commas, in the order in which they stand.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || CpuListError(text.to_owned());
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number: &usize| digits && *number < MAX)
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) =
                number(first).zip(number(last)).filter(|(first, last)| first <= last).ok_or_else(wrong)?;
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(cpus) = self;
        if cpus.is_empty() {
            return f.write_str("none");
        }
        let mut parts: Vec<(usize, usize)> = Vec::new();
        for cpu in cpus {
            match parts.last_mut() {
                Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
                _ => parts.push((*cpu, *cpu)),
            }
        }
        let part = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
        f.pad(&parts.into_iter().map(part).collect::<Vec<_>>().join(","))
    }
}

impl CpuList {
    fn of(set: &CpuSet) -> Self {
        Self((0..MAX).filter(|cpu| set.is_set(*cpu)).collect())
    }

    fn set(&self) -> CpuSet {
        let mut set = CpuSet::new();
        // The call names no more.
        self.0.iter().filter(|cpu| **cpu < MAX).for_each(|cpu| set.set(*cpu));
        set
    }
}

/// Where this thread may run.
fn allowed() -> io::Result<CpuList> {
    Ok(CpuList::of(&sched_getaffinity(None)?))
}

/// Refuses processors that there are not, or where this process may not run.
pub(super) fn require(cpus: &[usize]) -> Result<(), LaneError> {
    require_of(cpus, &read_list(Path::new(SYSTEM).join("cpu/online").as_path())?, &allowed()?)
}

fn require_of(cpus: &[usize], online: &CpuList, allowed: &CpuList) -> Result<(), LaneError> {
    for cpu in cpus {
        if !online.0.contains(cpu) {
            return Err(LaneError::NoCpu { cpu: *cpu, online: online.clone() });
        }
        if !allowed.0.contains(cpu) {
            return Err(LaneError::NotAllowed { cpu: *cpu, allowed: allowed.clone() });
        }
    }
    Ok(())
}

/// The processors near devices on these NUMA nodes, as far as this process may run there; `None`: no device is near any.
pub(super) fn near(devices: &[(String, Option<u32>)]) -> Result<Option<CpuList>, LaneError> {
    near_of(devices, Path::new(SYSTEM), &allowed()?)
}

fn near_of(devices: &[(String, Option<u32>)], system: &Path, allowed: &CpuList) -> Result<Option<CpuList>, LaneError> {
    let mut all = Vec::new();
    for (device, node) in devices {
        let Some(node) = node else { continue };
        let near = read_list(&system.join(format!("node/node{node}/cpulist")))?;
        let before = all.len();
        all.extend(near.0.iter().copied().filter(|cpu| allowed.0.contains(cpu)));
        if all.len() == before {
            return Err(LaneError::NotNear { device: device.clone(), near, allowed: allowed.clone() });
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok((!all.is_empty()).then_some(CpuList(all)))
}

fn read_list(path: &Path) -> Result<CpuList, LaneError> {
    let text = fs::read_to_string(path)?;
    match text.trim() {
        // A node may have memory alone.
        "" => Ok(CpuList::default()),
        text => Ok(text.parse().map_err(|error: CpuListError| io::Error::new(io::ErrorKind::InvalidData, error))?),
    }
}

/// Has this thread run on these processors alone.
pub(super) fn pin(cpus: &CpuList) -> io::Result<()> {
    Ok(sched_setaffinity(None, &cpus.set())?)
}

/// Does something on these processors, so that memory that is touched first there is near them; this thread runs where it
/// ran before afterwards.
///
/// # Errors
/// What the kernel says; nothing was done then.
pub(super) fn visit<T>(cpus: Option<&CpuList>, work: impl FnOnce() -> T) -> io::Result<T> {
    struct Home(CpuSet);

    impl Drop for Home {
        fn drop(&mut self) {
            // It was there a moment ago; where it may not be any more the kernel has moved it already.
            let _ = sched_setaffinity(None, &self.0);
        }
    }

    let Some(cpus) = cpus else { return Ok(work()) };
    let _home = Home(sched_getaffinity(None)?);
    pin(cpus)?;
    Ok(work())
}

#[cfg(test)]
mod tests;
