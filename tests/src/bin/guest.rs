//! The first and only process of a guest: runs the device tests on its controllers through VFIO, and switches it off.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use tentpeg_driver::bus::{PciAddress, Sysfs};
use tentpeg_driver::keeper;
use tentpeg_tests::device_tests::{DeviceTest, Ending, Tier, list};
use tentpeg_tests::guest::VfioTier;
use tentpeg_tests::guest::checks::{self, Functions};
use tentpeg_tests::guest::compare;
use tentpeg_tests::guest::direct;
use tentpeg_tests::guest::drives::{self, PLAIN, SPECIAL};
use tentpeg_tests::guest::features::{self, Special};
use tentpeg_tests::guest::killed;
use tentpeg_tests::guest::report::Writer;
use tentpeg_tests::guest::system::{self, Settings, Task};
use tentpeg_tools::bind::Plan;

/// QEMU's device of shared memory, whose memory is BAR 2.
const SHARED_MEMORY: (u16, u16, u32) = (0x1af4, 0x1110, 2);

fn main() -> ExitCode {
    if direct::is_keeper(env::args_os().next().as_deref()) {
        // Silent: what it is for has ended when it has.
        return if keeper::run().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some(ended) = killed::run(env::args_os().skip(1)) {
        return match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(ending) => {
                println!("{ending}");
                ExitCode::FAILURE
            }
        };
    }
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
    let modules = Path::new("/modules");
    system::load_modules(modules, "order", "")?;
    let settings = Settings::read()?;
    let mut report = Writer::begin(system::report()?)?;
    if settings.task == Task::Compare {
        let rates = compare::run(modules).and_then(|rates| Ok(serde_json::to_string(&rates)?));
        let verdict = rates.and_then(|rates| Ok(report.fact(compare::RATES, &rates)?));
        report.verdict("the same jobs by the kernel's driver and by Tentpeg", &verdict)?;
        return Ok(report.done()?);
    }
    let tests = if settings.iommu.remaps_interrupts { all(settings) } else { without_remapping(settings) };
    let given = match settings.iommu.remaps_interrupts {
        true => "controllers and memory are given to VFIO",
        false => "controllers and memory are given to VFIO without interrupt remapping",
    };
    report.verdict(given, &tests.as_ref().map(|_| ()).map_err(Clone::clone))?;
    if let Ok((name, tier, tests)) = tests {
        for test in &tests {
            println!("{name}: {}", test.name);
            report.verdict(&test.name, &test.run(&*tier))?;
        }
    }
    Ok(report.done()?)
}

/// A tier, what to call it, and its tests.
type Tests = (String, Box<dyn Tier>, Vec<DeviceTest>);

/// All tests. What pulls a controller comes last.
fn all(settings: Settings) -> Result<Tests, Ending> {
    let given = Given::new(settings)?;
    let tier = VfioTier::new(given.sysfs.clone(), &given.plain, settings.way)?;
    let special = Special::new(given.sysfs.clone(), settings.way, &given.special)?;
    let tests = list().into_iter().chain(features::list(&special)).chain(checks::list(&given.functions)).collect();
    Ok((tier.name().to_owned(), Box::new(tier), tests))
}

/// Those that begin with a refusal.
fn without_remapping(settings: Settings) -> Result<Tests, Ending> {
    let given = Given::new(settings)?;
    // No test of these asks its tier for anything.
    let tier = VfioTier::new(given.sysfs, &[], settings.way)?;
    Ok(("no remapping".to_owned(), Box::new(tier), checks::without_remapping(&given.functions)))
}

/// What was given to VFIO.
struct Given {
    sysfs: Sysfs,
    plain: Vec<PciAddress>,
    special: Vec<PciAddress>,
    functions: Functions,
}

impl Given {
    /// Gives every function that is ours to VFIO.
    fn new(settings: Settings) -> Result<Self, Ending> {
        let sysfs = Sysfs::system();
        let mut controllers: Vec<PciAddress> = Vec::new();
        for function in sysfs.nvme_functions()? {
            Plan::bind(&sysfs, function.address)?.run(&sysfs)?;
            controllers.push(function.address);
        }
        controllers.sort();
        let is_memory = |ids| ids == (Some(SHARED_MEMORY.0), Some(SHARED_MEMORY.1));
        let memory = sysfs.functions()?.into_iter().find(|function| is_memory((function.vendor, function.device)));
        let memory = memory.ok_or_else(|| Ending::Failed("no function with shared memory".to_owned()))?;
        Plan::take(&sysfs, &memory)?.run(&sysfs)?;
        let expected = drives::all().count();
        if controllers.len() != expected {
            return Err(Ending::Failed(format!("{} controllers, {expected} would be right", controllers.len())));
        }
        let (plain, rest) = controllers.split_at(PLAIN.len());
        let (special, slots) = rest.split_at(SPECIAL.len());
        Ok(Self {
            plain: plain.to_vec(),
            special: special.to_vec(),
            functions: Functions {
                sysfs: sysfs.clone(),
                settings,
                controller: plain[0],
                second: plain[1],
                memory: memory.address,
                bar: SHARED_MEMORY.2,
                unplugged: slots[0],
                pulled: slots[1],
            },
            sysfs,
        })
    }
}
