//! What QEMU traces of the guest: writes to configuration space (the event `pci_cfg_write`), and what a controller is told
//! and tells.

use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;

use tentpeg_driver::bus::{PciAddress, Sysfs};

/// The Cache Line Size register (PCI Express Base 6.0, 7.5.1.1.7), which nothing goes by: what is written there is for
/// the trace.
const CACHE_LINE_SIZE: u64 = 0x0c;
/// The Command register and two of its bits (7.5.1.1.3).
const COMMAND: u64 = 0x04;
const MEMORY_SPACE_ENABLE: u64 = 1 << 1;
const BUS_MASTER_ENABLE: u64 = 1 << 2;

/// The event that markers are among.
pub const CONFIG_WRITES: &str = "pci_cfg_write";

/// Marks of jobs.
const JOBS: RangeInclusive<u8> = 0x40..=0x7F;

/// A place in the trace that the guest marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker(u8);

impl Marker {
    /// Before a process is killed for the `number`th time, from 0 on.
    pub fn before_kill(number: u8) -> Self {
        Self(0xA0 + number)
    }

    /// Before the `job`th job of the `contender`th contender, from 0 on: 0 to 7 of both.
    pub(super) fn before_job(contender: u8, job: u8) -> Self {
        Self(JOBS.start() + contender * 8 + job)
    }

    /// Marks the trace, by a register of a function.
    ///
    /// # Errors
    /// Those of sysfs.
    pub(super) fn write(self, sysfs: &Sysfs, function: PciAddress) -> io::Result<()> {
        let config = std::fs::OpenOptions::new().write(true).open(sysfs.function_folder(function).join("config"))?;
        config.write_all_at(&[self.0], CACHE_LINE_SIZE)
    }
}

/// A write to configuration space.
#[derive(Debug, PartialEq, Eq)]
struct ConfigWrite<'a> {
    /// Bus, device and function, as in `00:05.0`.
    function: &'a str,
    offset: u64,
    value: u64,
}

/// The writes of a trace, in their order: `pci_cfg_write nvme 00:05.0 @0x4 <- 0x400`.
fn config_writes(trace: &str) -> impl Iterator<Item = ConfigWrite<'_>> {
    trace.lines().filter_map(|line| {
        let mut words = line.split_once("pci_cfg_write ")?.1.split_whitespace().skip(1);
        let function = words.next()?;
        let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        let offset = number(words.next()?.strip_prefix('@')?)?;
        let value = number(words.nth(1)?)?;
        Some(ConfigWrite { function, offset, value })
    })
}

/// Whether, behind a marker, the controller is stopped (its bus mastering is switched off) before the memory's function
/// is closed (its memory is switched off). Functions are named as in `00:05.0`.
///
/// # Errors
/// What the trace does not show.
pub fn controller_stops_first(trace: &str, marker: Marker, controller: &str, memory: &str) -> Result<bool, String> {
    let is_marker = |write: &ConfigWrite<'_>| {
        *write == ConfigWrite { function: memory, offset: CACHE_LINE_SIZE, value: marker.0.into() }
    };
    let mut behind = config_writes(trace).skip_while(|write| !is_marker(write)).skip(1).peekable();
    if behind.peek().is_none() {
        return Err(format!("the trace has no {marker:?}, or nothing behind it"));
    }
    let commands = behind.filter(|write| write.offset == COMMAND);
    for ConfigWrite { function, value, .. } in commands {
        if function == controller && value & BUS_MASTER_ENABLE == 0 {
            return Ok(true);
        }
        if function == memory && value & MEMORY_SPACE_ENABLE == 0 {
            return Ok(false);
        }
    }
    Err(format!("neither {controller} nor {memory} is switched off behind {marker:?}"))
}

/// What a driver did between two places of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Commands of blocks that the controller was given.
    pub commands: u64,
    /// Writes to the doorbells of submission queues.
    pub submission_doorbells: u64,
    /// Writes to those of completion queues.
    pub completion_doorbells: u64,
    /// Interrupts.
    pub interrupts: u64,
}

/// What is traced for [`traffic`].
pub const TRAFFIC: [&str; 6] = [
    CONFIG_WRITES,
    "pci_nvme_read",
    "pci_nvme_write",
    "pci_nvme_mmio_doorbell_sq",
    "pci_nvme_mmio_doorbell_cq",
    "pci_nvme_irq_msix",
];

/// The traffic behind a marker of `function`, up to its next one; markers are written in their order.
///
/// # Errors
/// The trace has no such marker.
pub fn traffic(trace: &str, marker: Marker, function: &str) -> Result<Traffic, String> {
    // Marks grow. Who resets a function, or wakes it, restores what the register once had: an older one.
    let marked = |line: &str| {
        let mut writes = config_writes(line).filter(|write| write.function == function);
        let mark = writes.find(|write| write.offset == CACHE_LINE_SIZE)?.value as u8;
        JOBS.contains(&mark).then_some(mark)
    };
    let mut lines = trace.lines().skip_while(|line| marked(line) != Some(marker.0));
    lines.next().ok_or_else(|| format!("the trace has no {marker:?}"))?;
    let mut traffic = Traffic::default();
    for line in lines.take_while(|line| marked(line).is_none_or(|mark| mark <= marker.0)) {
        // A name may have the time before it, and arguments behind it.
        let words = line.split_whitespace().next().unwrap_or_default();
        match words.rsplit(':').next().unwrap_or_default() {
            "pci_nvme_read" | "pci_nvme_write" => traffic.commands += 1,
            "pci_nvme_mmio_doorbell_sq" => traffic.submission_doorbells += 1,
            "pci_nvme_mmio_doorbell_cq" => traffic.completion_doorbells += 1,
            "pci_nvme_irq_msix" => traffic.interrupts += 1,
            _ => {}
        }
    }
    Ok(traffic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_behind_a_marker_is_told() {
        let trace = "pci_cfg_write nvme 00:05.0 @0x4 <- 0x400\nnoise\n\
                     7@1.5:pci_cfg_write ivshmem-plain 00:04.0 @0xc <- 0xa1\n\
                     pci_cfg_write nvme 00:05.0 @0x4 <- 0x406\npci_cfg_write nvme 00:06.0 @0x4 <- 0x400\n\
                     pci_cfg_write ivshmem-plain 00:04.0 @0x4 <- 0x400\npci_cfg_write nvme 00:05.0 @0x4 <- 0x402\n\
                     pci_cfg_write ivshmem-plain 00:04.0 @0xc <- 0xa2\n\
                     pci_cfg_write nvme 00:05.0 @0x4 <- 0x402\npci_cfg_write ivshmem-plain 00:04.0 @0x4 <- 0x400\n\
                     pci_cfg_write ivshmem-plain 00:04.0 @0xc <- 0xa3\npci_cfg_write nvme 00:05.0 @0x10 <- 0x0\n";
        let first = |number| controller_stops_first(trace, Marker::before_kill(number), "00:05.0", "00:04.0");
        assert_eq!((first(1), first(2)), (Ok(false), Ok(true)));
        assert!(first(0).is_err() && first(3).is_err());
    }

    #[test]
    fn traffic_is_counted_between_markers() {
        let trace = "pci_nvme_read cid 1\npci_cfg_write nvme 00:05.0 @0xc <- 0x41\n\
                     pci_nvme_mmio_doorbell_sq sqid 1 new_tail 2\npci_nvme_read cid 2 nsid 1\npci_nvme_write cid 3\n\
                     7@1.5:pci_nvme_irq_msix raising MSI-X IRQ vector 1\npci_nvme_mmio_doorbell_cq cqid 1\n\
                     pci_cfg_write nvme 00:05.0 @0x4 <- 0x406\npci_cfg_write nvme 00:05.0 @0xc <- 0x0\n\
                     pci_cfg_write nvme 00:05.0 @0xc <- 0x40\npci_nvme_read cid 3\n\
                     pci_cfg_write nvme 00:05.0 @0xc <- 0x42\npci_nvme_read cid 4\n";
        let expected = Traffic { commands: 3, submission_doorbells: 1, completion_doorbells: 1, interrupts: 1 };
        assert_eq!(traffic(trace, Marker::before_job(0, 1), "00:05.0"), Ok(expected));
        let rest = Traffic { commands: 1, ..Traffic::default() };
        assert_eq!(traffic(trace, Marker::before_job(0, 2), "00:05.0"), Ok(rest));
        assert!(traffic(trace, Marker::before_job(1, 0), "00:05.0").is_err());
    }
}
