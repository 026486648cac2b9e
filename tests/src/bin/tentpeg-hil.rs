//! Hardware in the loop without hardware: runs the device tests on the model and in a guest, and prints how each test
//! ended on each tier. `.ci/guest` fetches what it needs and calls it.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::Parser;
use tentpeg_driver::vfio::Way;
use tentpeg_engine::ByteSize;
use tentpeg_tests::device_tests::{Ending, ModelTier, Tier, Verdict, list, word};
use tentpeg_tests::guest::archive::Archive;
use tentpeg_tests::guest::checks::{FROM_BAR, INTO_BAR, file_holds};
use tentpeg_tests::guest::drives;
use tentpeg_tests::guest::machine::{Machine, image};
use tentpeg_tests::guest::report;
use tentpeg_tests::guest::system::{Iommu, Settings};

/// Runs the device tests on the model and in a guest.
#[derive(Parser)]
struct Args {
    /// The guest's kernel
    #[arg(long)]
    kernel: PathBuf,
    /// A folder with the kernel's modules for VFIO, and a file `order` that names them in the order of loading; none
    /// where the kernel has them built in
    #[arg(long)]
    modules: Option<PathBuf>,
    /// By what the guest opens functions
    #[arg(long, value_parser = way, default_value = Way::Type1.word())]
    way: Way,
    /// The program `guest`, linked statically
    #[arg(long)]
    guest: PathBuf,
    /// The memory of the function that stands in for an accelerator, a power of two of at least 16 MiB
    #[arg(long, default_value = "64MiB")]
    bar: ByteSize,
    /// Ends the guest after so many seconds
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// The most tests that may be skipped in the guest: more are an error
    #[arg(long)]
    skips: Option<usize>,
}

fn way(word: &str) -> Result<Way, &'static str> {
    Way::of_word(word).ok_or("write type1 or iommufd")
}

/// Bytes of a controller that has no more to hold than what tests write.
const DRIVE_BYTES: u64 = 64 << 20;

/// How often a guest is started at the most.
const STARTS: u32 = 3;

/// A row of the table: a test, and how it ended on each tier that ran it.
struct Row {
    test: String,
    endings: Vec<Option<Verdict>>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hil: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool, Box<dyn Error>> {
    let mut guest = in_guest(args, Iommu { remaps_interrupts: true, address_bits: 39 }, look_from_outside)?;
    guest.extend(in_guest(args, Iommu { remaps_interrupts: false, address_bits: 48 }, |_, _| Ok(Vec::new()))?);
    let models = [ModelTier::stepped(), ModelTier::threaded()];
    let tests = list();
    let mut rows: Vec<Row> = Vec::new();
    for test in &tests {
        let mut endings: Vec<_> = models.iter().map(|model| Some(test.run(model))).collect();
        endings.push(guest.iter().find(|(name, _)| *name == test.name).map(|(_, verdict)| verdict.clone()));
        rows.push(Row { test: test.name.clone(), endings });
    }
    for (test, verdict) in guest.into_iter().filter(|(name, _)| tests.iter().all(|test| test.name != *name)) {
        rows.push(Row { test, endings: vec![None, None, Some(verdict)] });
    }
    let guest = format!("guest, {}", args.way);
    let tiers: Vec<_> = models.iter().map(Tier::name).chain([&*guest]).collect();
    Ok(print(&tiers, &rows, args.skips))
}

/// Tests by name, and how each ended.
type Verdicts = Vec<(String, Verdict)>;

/// What a guest has left is looked at by this: its first drive, and its memory.
type Look = fn(&File, &File) -> io::Result<Verdicts>;

/// Runs a guest with this IOMMU, and then `look`s at what it has left.
///
/// A signal that ends QEMU is a mistake of QEMU, whatever the guest has done: 7.2 is ended by one now and then while a
/// controller is reset or pulled under load. Then all of it is done anew, and it is said.
fn in_guest(args: &Args, iommu: Iommu, look: Look) -> Result<Verdicts, Box<dyn Error>> {
    for _ in 1..STARTS {
        match start_guest(args, iommu, look) {
            Err(error) if error.is::<QemuCrashed>() => println!("{error}: the guest is started anew"),
            ended => return ended,
        }
    }
    start_guest(args, iommu, look)
}

/// QEMU was ended by a signal.
#[derive(Debug)]
struct QemuCrashed {
    status: ExitStatus,
    report: String,
}

impl fmt::Display for QemuCrashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; QEMU ended with {}", self.report, self.status)
    }
}

impl Error for QemuCrashed {}

fn start_guest(args: &Args, iommu: Iommu, look: Look) -> Result<Verdicts, Box<dyn Error>> {
    let bar_bytes = args.bar.0;
    if !bar_bytes.is_power_of_two() || bar_bytes < 16 << 20 {
        return Err(format!("--bar: {bar_bytes} bytes are no power of two of at least 16 MiB").into());
    }
    let work = tempfile::tempdir()?;
    let path = |name: &str| work.path().join(name);
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "tmp"] {
        archive.directory(folder);
    }
    if let Some(modules) = &args.modules {
        archive.folder("modules", modules)?;
    }
    archive.program("init", &fs::read(&args.guest)?);
    fs::write(path("initramfs"), archive.finish())?;
    let drives: Vec<_> = drives::all().collect();
    for (index, drive) in drives.iter().enumerate() {
        for nsid in 1..=drive.namespaces.len() {
            let bytes = if index == 0 { 2 * bar_bytes + DRIVE_BYTES } else { DRIVE_BYTES };
            File::create(image(work.path(), index, nsid))?.set_len(bytes)?;
        }
    }
    let machine = Machine {
        kernel: args.kernel.clone(),
        settings: Settings { way: args.way, iommu },
        initramfs: path("initramfs"),
        drives,
        images: work.path().to_owned(),
        bar: path("bar"),
        bar_bytes,
        report: path("report"),
        memory_mib: 1024,
    };
    let status = machine.run(Duration::from_secs(args.limit));
    let text = fs::read(&machine.report).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut verdicts = match (report::read(&text.unwrap_or_default()), status) {
        (Ok(verdicts), Ok(_)) => verdicts,
        (Err(report), Ok(status)) if status.signal().is_some() => return Err(QemuCrashed { status, report }.into()),
        (Err(wrong), Ok(status)) => return Err(format!("{wrong}; QEMU ended with {status}").into()),
        (_, Err(error)) => return Err(error.into()),
    };
    verdicts.extend(look(&File::open(image(work.path(), 0, 1))?, &File::open(&machine.bar)?)?);
    Ok(verdicts)
}

/// What must have come from one to the other.
fn look_from_outside(drive: &File, bar: &File) -> io::Result<Verdicts> {
    let bar_bytes = bar.metadata()?.len();
    let checks = [
        ("the host finds in the drive what came from the memory", file_holds(drive, 0, bar_bytes, FROM_BAR)),
        ("the host finds in the drive what came from the guest", file_holds(drive, bar_bytes, bar_bytes, INTO_BAR)),
        ("the host finds in the memory what came from the drive", file_holds(bar, 0, bar_bytes, INTO_BAR)),
    ];
    Ok(checks.map(|(test, verdict)| (test.to_owned(), verdict)).into())
}

/// Prints the table and the reasons. Whether all is well.
fn print(tiers: &[&str], rows: &[Row], most_skips: Option<usize>) -> bool {
    let width = rows.iter().map(|row| row.test.chars().count()).max().unwrap_or_default();
    let heads: Vec<_> = tiers.iter().map(|tier| format!("{tier:16}")).collect();
    println!("\n{:width$} {}", "test", heads.join(" "));
    let mut reasons = Vec::new();
    let mut counts = vec![[0usize; 3]; tiers.len()];
    for row in rows {
        let mut cells = Vec::new();
        for ((ending, tier), count) in row.endings.iter().zip(tiers).zip(&mut counts) {
            let cell = ending.as_ref().map_or("-", word);
            cells.push(format!("{cell:16}"));
            match ending {
                None => {}
                Some(Ok(())) => count[0] += 1,
                Some(Err(ending)) => {
                    count[if matches!(ending, Ending::Failed(_)) { 1 } else { 2 }] += 1;
                    reasons.push(format!("{} on {tier}: {ending}", row.test));
                }
            }
        }
        println!("{:width$} {}", row.test, cells.join(" ").trim_end());
    }
    println!("\n{}", reasons.join("\n"));
    let mut well = true;
    for (tier, [passed, failed, skipped]) in tiers.iter().zip(&counts) {
        println!("{tier}: {passed} passed, {failed} failed, {skipped} skipped");
        well &= *failed == 0;
    }
    let skipped = counts.last().map_or(0, |count| count[2]);
    if let Some(most) = most_skips.filter(|most| skipped > *most) {
        println!("{skipped} tests were skipped in the guest, and {most} is the most that may be");
        well = false;
    }
    well
}
