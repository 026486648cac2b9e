//! Guests: what they are booted with, and what they have left when they end.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tentpeg_driver::vfio::Way;

use crate::device_tests::{Ending, Verdicts};
use crate::guest::archive::Archive;
use crate::guest::checks::{FROM_BAR, INTO_BAR, file_holds};
use crate::guest::drives::{self, Drive};
use crate::guest::killed::Round;
use crate::guest::machine::{CONTROLLER, MEMORY, Machine, image};
use crate::guest::report;
use crate::guest::system::{Iommu, Settings, Task};
use crate::guest::trace::{CONFIG_WRITES, Marker, controller_stops_first};

/// Bytes of a controller that has no more to hold than what tests write.
const DRIVE_BYTES: u64 = 64 << 20;

/// Bytes of the memory of the other function in the guest with the wider IOMMU: more than fits below 4 GiB, so that it lies
/// behind whatever memory could be added.
const WIDE_BAR: u64 = 2 << 30;

/// How often a guest is started at the most.
const STARTS: u32 = 8;

/// What every guest is booted with.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The guest's kernel.
    pub kernel: PathBuf,
    /// A folder with the kernel's modules, and the files that name them in the order of loading; none where the kernel has
    /// them built in.
    pub modules: Option<PathBuf>,
    /// The program `guest`, linked statically.
    pub program: PathBuf,
    /// By what the guest opens functions.
    pub way: Way,
    /// Bytes of the memory of the function that stands in for an accelerator, a power of two of at least 16 MiB.
    pub bar_bytes: u64,
    /// The guest is ended after so long.
    pub limit: Duration,
}

/// The emulated machine failed, which is QEMU's mistake whatever was done in it. 7.2 is ended by a signal now and then while
/// a controller is reset or pulled under load; and where two processors are emulated by two threads, one may run into the
/// breakpoint by which the kernel patches its own code while it boots, and take it for a fault.
#[derive(Debug)]
struct MachineFailed(String);

impl fmt::Display for MachineFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for MachineFailed {}

/// A guest that has come to its end.
pub(super) struct Ended {
    pub(super) machine: Machine,
    /// What it reported.
    pub(super) report: String,
    pub(super) verdicts: Verdicts,
    /// What the machine's files are in.
    _work: TempDir,
}

impl Boot {
    /// Runs all tests in two guests, one of each kind of IOMMU.
    ///
    /// # Errors
    /// A guest does not come to its end.
    pub fn test(&self) -> Result<Verdicts, Box<dyn Error>> {
        let first = self.with_tests(Iommu { remaps_interrupts: true, address_bits: 39 }, self.bar_bytes)?;
        let mut verdicts = first.verdicts;
        verdicts.extend(look_from_outside(&first.machine)?);
        let wide = Iommu { remaps_interrupts: false, address_bits: 48 };
        let second = self.with_tests(wide, self.bar_bytes.max(WIDE_BAR))?;
        verdicts.extend(second.verdicts);
        verdicts.extend(look_at_the_killed(&second.machine)?);
        Ok(verdicts)
    }

    fn with_tests(&self, iommu: Iommu, bar_bytes: u64) -> Result<Ended, Box<dyn Error>> {
        let settings = Settings { way: self.way, iommu, task: Task::Test };
        self.start(settings, &drives::all().collect::<Vec<_>>(), bar_bytes, &[CONFIG_WRITES], &Archive::default())
    }

    /// Boots a guest with these drives, and with what `archive` holds beside the program, and waits for its end. Where the
    /// machine fails, all of it is done anew, and it is said.
    pub(super) fn start(
        &self,
        settings: Settings,
        drives: &[Drive],
        bar_bytes: u64,
        traced: &'static [&'static str],
        archive: &Archive,
    ) -> Result<Ended, Box<dyn Error>> {
        let start = || self.start_once(settings, drives, bar_bytes, traced, archive.clone());
        for _ in 1..STARTS {
            match start() {
                Err(error) if error.is::<MachineFailed>() => println!("{error}: the guest is started anew"),
                ended => return ended,
            }
        }
        start()
    }

    fn start_once(
        &self,
        settings: Settings,
        drives: &[Drive],
        bar_bytes: u64,
        traced: &'static [&'static str],
        mut archive: Archive,
    ) -> Result<Ended, Box<dyn Error>> {
        if !bar_bytes.is_power_of_two() || bar_bytes < 16 << 20 {
            return Err(format!("--bar: {bar_bytes} bytes are no power of two of at least 16 MiB").into());
        }
        let work = tempfile::tempdir()?;
        let path = |name: &str| work.path().join(name);
        for folder in ["dev", "proc", "sys", "tmp", "run"] {
            archive.directory(folder);
        }
        if let Some(modules) = &self.modules {
            archive.folder("modules", modules)?;
        }
        archive.program("init", &fs::read(&self.program)?);
        fs::write(path("initramfs"), archive.finish())?;
        for (index, drive) in drives.iter().enumerate() {
            for nsid in 1..=drive.namespaces.len() {
                let bytes = if index == 0 { 2 * bar_bytes + DRIVE_BYTES } else { DRIVE_BYTES };
                File::create(image(work.path(), index, nsid))?.set_len(bytes)?;
            }
        }
        let machine = Machine {
            kernel: self.kernel.clone(),
            settings,
            initramfs: path("initramfs"),
            drives: drives.to_vec(),
            images: work.path().to_owned(),
            bar: path("bar"),
            bar_bytes,
            report: path("report"),
            monitor: path("monitor"),
            traced,
            trace: path("trace"),
            memory_mib: 1024,
        };
        let status = machine.run(self.limit);
        let report = fs::read(&machine.report).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let report = report.unwrap_or_default();
        match (report::read(&report), status) {
            (Ok(verdicts), Ok(_)) => Ok(Ended { machine, report, verdicts, _work: work }),
            (Err(wrong), Ok(status)) => {
                let wrong = format!("{wrong}; QEMU ended with {status}");
                let failed = status.signal().is_some() || !report::has_begun(&report);
                if failed { Err(MachineFailed(wrong).into()) } else { Err(wrong.into()) }
            }
            (_, Err(error)) => Err(error.into()),
        }
    }
}

/// What must have come from one to the other.
fn look_from_outside(machine: &Machine) -> io::Result<Verdicts> {
    let (drive, bar) = (File::open(image(&machine.images, 0, 1))?, File::open(&machine.bar)?);
    let bar_bytes = machine.bar_bytes;
    let checks = [
        ("the host finds in the drive what came from the memory", file_holds(&drive, 0, bar_bytes, FROM_BAR)),
        ("the host finds in the drive what came from the guest", file_holds(&drive, bar_bytes, bar_bytes, INTO_BAR)),
        ("the host finds in the memory what came from the drive", file_holds(&bar, 0, bar_bytes, INTO_BAR)),
    ];
    Ok(checks.map(|(test, verdict)| (test.to_owned(), verdict)).into())
}

/// In which order the functions of killed processes were closed.
fn look_at_the_killed(machine: &Machine) -> io::Result<Verdicts> {
    let (kept, left): (Vec<_>, Vec<_>) = stops_of_killed(machine)?.into_iter().partition(|(round, _)| round.keeper);
    let wrong = |rounds| Err(Ending::Failed(format!("{rounds:?}")));
    let in_order = kept.iter().all(|(_, first)| *first == Ok(true));
    let out_of_order = left.iter().any(|(_, first)| *first == Ok(false));
    let checks = [
        (
            "the host sees a killed process's controller stop before its memory's owner goes",
            if in_order { Ok(()) } else { wrong(kept) },
        ),
        (
            "the host sees the other order where no keeper holds the owner",
            if out_of_order { Ok(()) } else { wrong(left) },
        ),
    ];
    Ok(checks.map(|(test, verdict)| (test.to_owned(), verdict)).into())
}

/// For each round whether the controller stopped first.
fn stops_of_killed(machine: &Machine) -> io::Result<Vec<(Round, Result<bool, String>)>> {
    let trace = String::from_utf8_lossy(&fs::read(&machine.trace)?).into_owned();
    let first = |number| controller_stops_first(&trace, Marker::before_kill(number), CONTROLLER, MEMORY);
    Ok((0..).zip(Round::ALL).map(|(number, round)| (round, first(number))).collect())
}
