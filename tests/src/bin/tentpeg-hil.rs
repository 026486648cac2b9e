//! `tentpeg hil`: hardware in the loop. What it does is in [`tentpeg_tests::hil`].

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tentpeg_driver::bus::Sysfs;
use tentpeg_driver::vfio::Way;
use tentpeg_engine::{ByteSize, OpenOptions};
use tentpeg_tests::device_tests::{ModelTier, Table, VfioUserTier};
use tentpeg_tests::hil::boot::Boot;
use tentpeg_tests::hil::compare::{self, Programs};
use tentpeg_tests::hil::hardware::Drive;
use tentpeg_tests::hil::inventory::Inventory;
use tentpeg_tools::hil::beside;

/// Proves the driver on what this machine has: in software, in a guest, on drives.
#[derive(Parser)]
#[command(name = "tentpeg hil", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the device tests, and print how each ended on each tier
    ///
    /// The model, in this process and in another, is always there. A guest comes with --kernel, drives with --inventory.
    Test(TestArgs),
    /// Do the same jobs by the kernel's driver and by Tentpeg in a guest, and print a table in Markdown
    Compare(CompareArgs),
}

#[derive(Args)]
struct TestArgs {
    /// Drives of this machine that may be overwritten: a TOML file with a table `controller` for each, of its address and
    /// its serial number, and above them way = "type1" or "iommufd" where it matters. Each drive needs a label that says so too
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    #[command(flatten)]
    guest: GuestArgs,
    /// The most tests that a guest or a drive may skip: more are an error
    #[arg(long)]
    skips: Option<usize>,
}

/// What a guest is booted with: `.ci/guest` has it all.
#[derive(Args)]
struct GuestArgs {
    /// The guest's kernel
    #[arg(long, requires = "guest")]
    kernel: Option<PathBuf>,
    /// A folder with the kernel's modules, and the files that name them in the order of loading; none where the kernel has
    /// them built in
    #[arg(long, requires = "kernel")]
    modules: Option<PathBuf>,
    /// By what the guest opens functions
    #[arg(long, value_parser = way, default_value = Way::Type1.word())]
    way: Way,
    /// The program `guest`, linked statically
    #[arg(long, requires = "kernel")]
    guest: Option<PathBuf>,
    /// The memory of the function that stands in for an accelerator, a power of two of at least 16 MiB
    #[arg(long, default_value = "64MiB", requires = "kernel")]
    bar: ByteSize,
    /// Ends the guest after so many seconds
    #[arg(long, default_value_t = 600, requires = "kernel")]
    limit: u64,
}

#[derive(Args)]
struct CompareArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// `fio`, with the libraries of this machine
    #[arg(long)]
    fio: PathBuf,
    /// `tentpeg`, linked statically
    #[arg(long)]
    tentpeg: PathBuf,
}

fn way(word: &str) -> Result<Way, &'static str> {
    Way::of_word(word).ok_or("write type1 or iommufd")
}

impl GuestArgs {
    /// The guest, where one was asked for, whose files are there.
    fn boot(&self) -> Result<Option<Boot>, String> {
        let (Some(kernel), Some(program)) = (&self.kernel, &self.guest) else { return Ok(None) };
        for (option, path) in [("--kernel", kernel), ("--guest", program)] {
            if !path.is_file() {
                return Err(format!("{option} {}: there is no such file: `.ci/guest` makes it", path.display()));
            }
        }
        Ok(Some(Boot {
            kernel: kernel.clone(),
            modules: self.modules.clone(),
            program: program.clone(),
            way: self.way,
            bar_bytes: self.bar.0,
            limit: Duration::from_secs(self.limit),
        }))
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(args) => test(&args),
        Command::Compare(args) => compare(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tentpeg hil: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is well.
fn test(args: &TestArgs) -> Result<bool, Box<dyn Error>> {
    // What is refused is refused before anything else takes its time.
    let inventory = args.inventory.as_deref().map(Inventory::read).transpose()?;
    let guest = args.guest.boot()?;
    let sysfs = Sysfs::system();
    let drives = inventory.map(|inventory| Drive::all(&sysfs, &inventory, &OpenOptions::default()));
    let drives = drives.transpose().map_err(|ending| ending.to_string())?.unwrap_or_default();
    let mut table = Table::default();
    // Columns that have more to show than the model has.
    let mut counted = Vec::new();
    table.run(&ModelTier::stepped());
    table.run(&ModelTier::threaded());
    match beside("vfio_user_server") {
        Some(program) => table.run(&VfioUserTier::new(program)),
        None => println!("no tier vfio-user: there is no program vfio_user_server beside this one"),
    }
    if let Some(guest) = guest {
        let name = format!("guest, {}", guest.way);
        table.add(name.clone(), guest.test()?);
        counted.push(name);
    }
    for drive in drives {
        counted.push(drive.name().to_owned());
        let taken = drive.take().map_err(|ending| ending.to_string())?;
        table.run(taken.tier());
        taken.give_back().map_err(|ending| ending.to_string())?;
    }
    println!("\n{table}");
    let mut well = true;
    for (tier, counts) in table.counts() {
        well &= counts.failed == 0;
        if let Some(most) = args.skips.filter(|most| counts.skipped > *most && counted.iter().any(|name| name == tier))
        {
            println!("{} tests were skipped on {tier}, and {most} is the most that may be", counts.skipped);
            well = false;
        }
    }
    Ok(well)
}

fn compare(args: &CompareArgs) -> Result<bool, Box<dyn Error>> {
    let programs = Programs { fio: args.fio.clone(), tentpeg: args.tentpeg.clone() };
    let guest = args.guest.boot()?.ok_or("compare needs a guest: --kernel FILE --guest FILE")?;
    println!("{}", compare::run(&guest, &programs)?);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_args(args: &[&str]) -> Result<TestArgs, clap::Error> {
        let cli = Cli::try_parse_from(["tentpeg hil", "test"].iter().chain(args))?;
        match cli.command {
            Command::Test(args) => Ok(args),
            Command::Compare(_) => unreachable!("test was asked for"),
        }
    }

    #[test]
    fn drives_need_no_guest_and_a_guest_needs_its_program() {
        let args = test_args(&["--inventory", "drives.toml", "--skips", "3"]).unwrap_or_else(|error| panic!("{error}"));
        assert!(args.guest.boot().unwrap().is_none() && args.inventory.is_some());
        assert!(test_args(&[]).is_ok());
        for incomplete in [&["--kernel", "k"][..], &["--guest", "g"], &["--modules", "m"]] {
            assert!(test_args(incomplete).is_err(), "{incomplete:?}");
        }
        let nowhere = test_args(&["--kernel", "/nowhere/k", "--guest", "/nowhere/g"]).map(|args| args.guest.boot());
        let error = nowhere.unwrap_or_else(|error| panic!("{error}")).err().unwrap();
        assert!(error.contains("--kernel /nowhere/k: there is no such file"), "{error}");
    }
}
