//! The first and only process of a guest: runs the device tests on its controllers through VFIO, and switches it off.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::ExitCode;

use tentpeg_driver::bus::{PciAddress, Sysfs};
use tentpeg_driver::vfio::Way;
use tentpeg_tests::device_tests::{Ending, Tier, list};
use tentpeg_tests::guest::checks::{self, Functions};
use tentpeg_tests::guest::drives::{PLAIN, SPECIAL};
use tentpeg_tests::guest::features::{self, Special};
use tentpeg_tests::guest::report::Writer;
use tentpeg_tests::guest::{VfioTier, system};
use tentpeg_tools::bind::Plan;

/// QEMU's device of shared memory, whose memory is BAR 2.
const SHARED_MEMORY: (u16, u16, u32) = (0x1af4, 0x1110, 2);

fn main() -> ExitCode {
    if !system::is_first_process() {
        eprintln!("this is the first process of a guest: the program `hil` starts it there");
        return ExitCode::from(2);
    }
    if let Err(ending) = run() {
        println!("{ending}");
    }
    println!("cannot switch the machine off: {}", system::power_off());
    ExitCode::FAILURE
}

fn run() -> Result<(), Ending> {
    system::mount_all()?;
    system::load_modules(Path::new("/modules"))?;
    let way = system::way()?;
    let report: File = OpenOptions::new().write(true).open("/dev/ttyS1")?;
    let mut report = Writer::new(report);
    let prepared = prepare(way);
    report.verdict("controllers and memory are given to VFIO", &prepared.as_ref().map(|_| ()).map_err(Clone::clone))?;
    if let Ok((tier, special, functions)) = prepared {
        // What pulls a controller comes last.
        for test in list().iter().chain(&features::list(&special)).chain(&checks::list(&functions)) {
            println!("{}: {}", tier.name(), test.name);
            report.verdict(&test.name, &test.run(&tier))?;
        }
    }
    Ok(report.done()?)
}

/// Gives every function that is ours to VFIO, and sees what the controllers are.
fn prepare(way: Way) -> Result<(VfioTier, Special, Functions), Ending> {
    let sysfs = Sysfs::system();
    let mut controllers: Vec<PciAddress> = Vec::new();
    for function in sysfs.nvme_functions()? {
        Plan::bind(&sysfs, function.address)?.run(&sysfs)?;
        controllers.push(function.address);
    }
    controllers.sort();
    let memory = sysfs
        .functions()?
        .into_iter()
        .find(|function| (function.vendor, function.device) == (Some(SHARED_MEMORY.0), Some(SHARED_MEMORY.1)));
    let memory = memory.ok_or_else(|| Ending::Failed("no function with shared memory".to_owned()))?;
    Plan::take(&sysfs, &memory)?.run(&sysfs)?;
    let Some((plain, rest)) = controllers.split_at_checked(PLAIN.len()) else {
        return Err(Ending::Failed(format!("{} controllers", controllers.len())));
    };
    let (special, pulled) = match rest {
        [special @ .., pulled] if special.len() == SPECIAL.len() => (special, *pulled),
        _ => return Err(Ending::Failed(format!("{} controllers", controllers.len()))),
    };
    let tier = VfioTier::new(sysfs.clone(), plain, way)?;
    let special = Special::new(sysfs.clone(), way, special)?;
    let controller = plain[0];
    Ok((tier, special, Functions { sysfs, way, controller, memory: memory.address, bar: SHARED_MEMORY.2, pulled }))
}
