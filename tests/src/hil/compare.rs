//! The same jobs by the kernel's own driver and by ours, on the same emulated drive, in the same guest.
//!
//! Two guests do them: one as fast as it can, which says the rates; and one that QEMU traces, which takes time for each
//! event and says how often each driver rang and was interrupted.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::boot::{Boot, Ended};
use crate::guest::archive::Archive;
use crate::guest::compare::{Contender, FIO, JOBS, RATES, Rates, TENTPEG};
use crate::guest::drives::PLAIN;
use crate::guest::machine::CONTROLLER;
use crate::guest::report::fact;
use crate::guest::system::{Iommu, Settings, Task};
use crate::guest::trace::{CONFIG_WRITES, TRAFFIC, Traffic, traffic};

/// The programs that are compared.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `fio`, which is taken with the libraries that it is linked with.
    pub fio: PathBuf,
    /// `tentpeg`, linked statically.
    pub tentpeg: PathBuf,
}

/// Runs it, and returns the table in Markdown.
///
/// # Errors
/// A guest does not come to its end, or a job did not.
pub fn run(boot: &Boot, programs: &Programs) -> Result<String, Box<dyn Error>> {
    let untraced = guest(boot, programs, &[CONFIG_WRITES])?;
    let rates = fact(&untraced.report, RATES).ok_or_else(|| format!("no rates: {:?}", untraced.verdicts))?;
    let rates: Rates = serde_json::from_str(rates)?;
    let traced = guest(boot, programs, &TRAFFIC)?;
    let trace = String::from_utf8_lossy(&fs::read(&traced.machine.trace)?).into_owned();
    let mut table =
        "| job | driver | requests a second | to the kernel's | submission doorbells | completion doorbells | \
                     interrupts |\n| --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for (number, job) in JOBS.into_iter().enumerate() {
        let rate = |contender: Contender| rates.get(&contender).and_then(|rates| rates.get(number)).copied();
        let kernel = rate(Contender::Fio).ok_or("no rate of the kernel's driver")?;
        for contender in Contender::ALL {
            let rate = rate(contender).ok_or("no rate")?;
            let Traffic { commands, submission_doorbells, completion_doorbells, interrupts } =
                traffic(&trace, contender.marker(number), CONTROLLER)?;
            let each = |count: u64| format!("{:.3}", count as f64 / commands.max(1) as f64);
            let kind = if job.writes { "writes" } else { "reads" };
            writeln!(
                table,
                "| {kind} of {} KiB, {} in flight | {} | {rate:.0} | {:.2} | {} | {} | {} |",
                job.block >> 10,
                job.depth,
                contender.name(),
                rate / kernel,
                each(submission_doorbells),
                each(completion_doorbells),
                each(interrupts),
            )?;
        }
    }
    Ok(table)
}

fn guest(boot: &Boot, programs: &Programs, traced: &'static [&'static str]) -> Result<Ended, Box<dyn Error>> {
    let mut archive = Archive::default();
    let mut folders = BTreeSet::new();
    for library in libraries(&programs.fio)? {
        for folder in library.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            let name = inside(folder);
            if !name.is_empty() && folders.insert(name.clone()) {
                archive.directory(&name);
            }
        }
        archive.program(&inside(&library), &fs::read(&library)?);
    }
    archive.program(FIO, &fs::read(&programs.fio)?);
    archive.program(TENTPEG, &fs::read(&programs.tentpeg)?);
    let iommu = Iommu { remaps_interrupts: true, address_bits: 39 };
    let settings = Settings { way: boot.way, iommu, task: Task::Compare };
    boot.start(settings, &[PLAIN[0]], boot.bar_bytes, traced, &archive)
}

/// A path as the archive has it.
fn inside(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

/// What a program is linked with, the loader included, by ldd(1): lines such as
/// `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x...)`.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let output = Command::new("ldd").arg(program).output()?;
    if !output.status.success() {
        return Err(format!("ldd {}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(|path| PathBuf::from(OsStr::new(path))).collect())
}
