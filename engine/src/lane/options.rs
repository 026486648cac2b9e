//! How the lanes of an engine are run, as far as the engine runs them: those with threads.

use std::time::Duration;

use thiserror::Error;

use super::cpus::{self, CpuList};
use crate::LaneMode;

/// How long a lane polls in vain before it sleeps, unless it is told otherwise.
const POLL: Duration = Duration::from_millis(1);

/// How lanes with threads are run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneOptions {
    /// How many there are, from 1 to one for each device; without, one for each device. A device has one lane, whose queue
    /// pair it is; where there are fewer lanes than devices these are dealt out in turn, so that lane `l` of `n` has the
    /// devices `l`, `l + n` and so on. Devices of one lane wait for each other where one of them has to be recovered.
    pub threads: Option<usize>,
    /// What a lane does that finds nothing to do.
    pub idle: LaneIdle,
    /// Where lanes run.
    pub pin: LanePin,
}

/// What a lane does that finds nothing to do. Either way each vain look gives the processor to whoever else wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneIdle {
    /// It looks again, for ever: nothing is faster, and one processor is kept busy.
    Poll,
    /// It looks for so long, and then sleeps until somebody submits, a device interrupts, or it is time to look after a
    /// controller: every 100 ms, and every 10 ms where commands are in flight. Where a device has no interrupt to give it
    /// sleeps only while none of its commands is in flight.
    Sleep {
        /// How long it looks in vain.
        after: Duration,
    },
}

impl Default for LaneIdle {
    /// Sleep after 1 ms: longer than a drive takes for a command.
    fn default() -> Self {
        Self::Sleep { after: POLL }
    }
}

/// On which processors lanes run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LanePin {
    /// Wherever the kernel puts them.
    #[default]
    Free,
    /// Each on the processors of the NUMA nodes of its devices, by sysfs, with the memory of their queues there; one whose
    /// devices have none is free.
    Near,
    /// Each on a processor of its own, with the memory of its devices' queues near: these, in the order of the lanes.
    Cpus(CpuList),
}

/// How many lanes so many devices can have, in words.
fn as_many_as(devices: usize) -> String {
    match devices {
        1 => "1 device: a device has one lane, so ask for 1".to_owned(),
        _ => format!("{devices} devices: a device has one lane, so ask for 1 to {devices}"),
    }
}

/// Lanes that an engine cannot have.
#[derive(Debug, Error)]
pub enum LaneError {
    /// Caller: none, or more than there are devices.
    #[error("{threads} lanes for {}", as_many_as(*devices))]
    Threads {
        /// Lanes asked for.
        threads: usize,
        /// Devices.
        devices: usize,
    },
    /// Caller: settings of threads for a lane that has none.
    #[error("the one lane that the caller drives has no thread: leave the settings of lanes with threads away")]
    NoThread,
    /// Caller: not one processor for each lane.
    #[error("{cpus} processors for {lanes} lanes: name one for each")]
    CpuCount {
        /// Processors named.
        cpus: usize,
        /// Lanes.
        lanes: usize,
    },
    /// Caller: the machine has no such processor.
    #[error("there is no processor {cpu}: the machine has {online} online")]
    NoCpu {
        /// The processor asked for.
        cpu: usize,
        /// Those that there are.
        online: CpuList,
    },
    /// Caller, or whoever has started the process: it may not run there.
    #[error("this process may not run on processor {cpu}, but on {allowed}: see taskset, or the cpuset of its cgroup")]
    NotAllowed {
        /// The processor asked for.
        cpu: usize,
        /// Those that it may run on.
        allowed: CpuList,
    },
    /// Whoever has started the process: it may not run near its devices.
    #[error(
        "this process may run on processors {allowed}, and near {device} are {near}: pin lanes to others, or see the \
         cpuset of its cgroup"
    )]
    NotNear {
        /// The device.
        device: String,
        /// The processors of its NUMA node.
        near: CpuList,
        /// Those that the process may run on.
        allowed: CpuList,
    },
    /// Host: the kernel says no.
    #[error("cannot find or set the processors of a lane: {0}")]
    Kernel(#[from] std::io::Error),
}

impl LaneOptions {
    /// How many threads serve `devices` devices; none where the caller drives the lane. All is checked that can be
    /// before a device is opened.
    ///
    /// # Errors
    /// [`LaneError`].
    pub(crate) fn threads(&self, mode: LaneMode, devices: usize) -> Result<usize, LaneError> {
        let threads = match (mode, self.threads) {
            (LaneMode::CallerDriven, _) if *self != Self::default() => return Err(LaneError::NoThread),
            (LaneMode::CallerDriven, _) => return Ok(0),
            (LaneMode::Thread, None) => devices,
            (LaneMode::Thread, Some(threads)) if (1..=devices).contains(&threads) => threads,
            (LaneMode::Thread, Some(threads)) => return Err(LaneError::Threads { threads, devices }),
        };
        if let LanePin::Cpus(CpuList(cpus)) = &self.pin {
            if cpus.len() != threads {
                return Err(LaneError::CpuCount { cpus: cpus.len(), lanes: threads });
            }
            cpus::require(cpus)?;
        }
        Ok(threads)
    }

    /// The processors of lane `lane`, whose devices these are with their NUMA nodes; `None`: it is free.
    ///
    /// # Errors
    /// [`LaneError`].
    pub(crate) fn cpus(&self, lane: usize, devices: &[(String, Option<u32>)]) -> Result<Option<CpuList>, LaneError> {
        match &self.pin {
            LanePin::Free => Ok(None),
            LanePin::Near => cpus::near(devices),
            LanePin::Cpus(CpuList(cpus)) => Ok(cpus.get(lane).map(|cpu| CpuList(vec![*cpu]))),
        }
    }
}

impl LaneOptions {
    /// Does something on the processors that the lane of device `number` will have, so that the memory which that takes is
    /// near them. `device` is what it is called, and its NUMA node.
    ///
    /// # Errors
    /// [`LaneError`]; nothing was done then.
    pub(crate) fn near<T>(
        &self,
        number: usize,
        device: (String, Option<u32>),
        work: impl FnOnce() -> T,
    ) -> Result<T, LaneError> {
        let lane = self.threads.map_or(number, |threads| number % threads.max(1));
        let cpus = self.cpus(lane, &[device])?;
        Ok(cpus::visit(cpus.as_ref(), work)?)
    }
}

/// Deals things out to `hands`, one after the other.
pub(crate) fn deal<T>(things: impl IntoIterator<Item = T>, hands: usize) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..hands).map(|_| Vec::new()).collect();
    for (number, thing) in things.into_iter().enumerate() {
        dealt[number % hands].push(thing);
    }
    dealt
}

#[cfg(test)]
mod tests;
