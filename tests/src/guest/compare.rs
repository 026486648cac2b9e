//! The same job on the same emulated drive by the kernel's own driver and by Tentpeg: `fio` with io_uring, then `tentpeg
//! bench`, in the guest. How fast each was it says itself; how often each rang and was interrupted the host counts in
//! QEMU's trace, which the guest marks before each job.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tentpeg_driver::bus::{PciAddress, Sysfs};
use tentpeg_tools::bind::Plan;

use super::system::load_modules;
use super::trace::Marker;
use crate::device_tests::Ending;

/// Where the archive has the programs.
pub const FIO: &str = "fio";
/// See [`FIO`].
pub const TENTPEG: &str = "tentpeg";
/// The modules of the kernel's driver, in their order.
pub const ORDER: &str = "order.nvme";

/// What the rates are called in the report.
pub const RATES: &str = "rates";

/// A job.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// Bytes of a request.
    pub block: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Requests in all.
    pub requests: u32,
    /// Whether they write.
    pub writes: bool,
}

/// What is compared.
pub const JOBS: [Job; 4] = [
    Job { block: 4096, depth: 1, requests: 20_000, writes: false },
    Job { block: 4096, depth: 32, requests: 60_000, writes: false },
    Job { block: 4096, depth: 32, requests: 60_000, writes: true },
    Job { block: 131_072, depth: 8, requests: 10_000, writes: false },
];

/// Who does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Contender {
    /// `fio` over io_uring, with interrupts.
    Fio,
    /// `fio` over io_uring, on queues that are polled.
    FioPolled,
    /// `tentpeg bench` with a thread of the engine's, on a processor of its own.
    Thread,
    /// `tentpeg bench` with the thread that submits driving the queues.
    Caller,
}

impl Contender {
    /// All, in their turn.
    pub const ALL: [Self; 4] = [Self::Fio, Self::FioPolled, Self::Thread, Self::Caller];

    /// What it is called in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fio => "kernel, fio io_uring",
            Self::FioPolled => "kernel, fio io_uring, polled",
            Self::Thread => "tentpeg bench --pin 1",
            Self::Caller => "tentpeg bench --lane caller",
        }
    }

    /// The mark before its job of this number.
    pub fn marker(self, job: usize) -> Marker {
        Marker::before_job(self as u8, job as u8)
    }

    fn command(self, job: Job, target: &Target<'_>) -> Command {
        let Job { block, depth, requests, writes } = job;
        match self {
            Self::Fio | Self::FioPolled => {
                let mut fio = Command::new(format!("/{FIO}"));
                let mode = if writes { "randwrite" } else { "randread" };
                fio.args(["--name=job", "--ioengine=io_uring", "--direct=1", "--thread", "--output-format=json"]);
                fio.args(["--fixedbufs=1", "--registerfiles=1", "--norandommap", "--randrepeat=0"]);
                fio.arg(format!("--filename={}", target.disk)).arg(format!("--rw={mode}")).arg(format!("--bs={block}"));
                fio.arg(format!("--iodepth={depth}")).arg(format!("--number_ios={requests}"));
                // So that the size of the disk ends nothing before.
                fio.arg(format!("--io_size={}", u64::from(block) * u64::from(requests)));
                fio.arg(format!("--hipri={}", u8::from(self == Self::FioPolled)));
                fio
            }
            Self::Thread | Self::Caller => {
                let mut bench = Command::new(format!("/{TENTPEG}"));
                let mode = if writes { "write" } else { "read" };
                bench.arg("bench").arg(format!("pci:{},way=type1,overwrite", target.address)).args(["--mode", mode]);
                for (option, value) in [("--block", block), ("--depth", depth), ("--requests", requests)] {
                    bench.args([option.to_owned(), value.to_string()]);
                }
                match self {
                    Self::Caller => bench.args(["--lane", "caller"]),
                    _ => bench.args(["--lane", "thread", "--pin", "1"]),
                };
                bench.arg("--json");
                bench.args(["--node", "6a4e6483-f952-40da-89c8-235c4d9449cc"]);
                bench
            }
        }
    }

    /// Requests a second, by its own report.
    fn rate(self, job: Job, report: &Value) -> Option<f64> {
        match self {
            Self::Fio | Self::FioPolled => {
                let kind = if job.writes { "write" } else { "read" };
                report.get("jobs")?.get(0)?.get(kind)?.get("iops")?.as_f64()
            }
            Self::Thread | Self::Caller => report.get("blocks_per_second")?.as_f64(),
        }
    }
}

/// The drive: as the kernel calls it, and as it is called once VFIO has it.
struct Target<'a> {
    disk: &'a str,
    address: PciAddress,
}

/// Requests a second of a contender's jobs, in their order.
pub type Rates = BTreeMap<Contender, Vec<f64>>;

/// In the guest: all jobs of all contenders, on the machine's only controller.
///
/// # Errors
/// What did not start, or what it said when it ended badly.
pub fn run(modules: &Path) -> Result<Rates, Ending> {
    let sysfs = Sysfs::system();
    fs::create_dir_all("/run/lock")?;
    load_modules(modules, ORDER, "poll_queues=1")?;
    let function = sysfs.nvme_functions()?.pop().ok_or_else(|| Ending::Failed("no controller".to_owned()))?;
    let target = Target { disk: "/dev/nvme0n1", address: function.address };
    wait_for(Path::new(target.disk))?;
    let mut rates = Rates::new();
    for contender in Contender::ALL {
        if contender == Contender::Thread {
            Plan::bind(&sysfs, target.address)?.run(&sysfs)?;
        }
        for (number, job) in JOBS.into_iter().enumerate() {
            contender.marker(number).write(&sysfs, target.address)?;
            let output = contender.command(job, &target).output()?;
            let report = serde_json::from_slice(&output.stdout).ok();
            let rate =
                report.and_then(|report: Value| contender.rate(job, &report)).filter(|_| output.status.success());
            let said = || [output.stdout.as_slice(), &output.stderr].map(String::from_utf8_lossy).concat();
            let rate =
                rate.ok_or_else(|| Ending::Failed(format!("{contender:?}, {job:?}: {}: {}", output.status, said())))?;
            rates.entry(contender).or_default().push(rate);
            println!("{}: {job:?}: {rate:.0} a second", contender.name());
        }
    }
    // Nothing of this is between a mark and the next.
    contender_end().write(&sysfs, target.address)?;
    Ok(rates)
}

/// The mark behind the last job.
pub fn contender_end() -> Marker {
    Marker::before_job(Contender::ALL.len() as u8, 0)
}

fn wait_for(path: &Path) -> io::Result<()> {
    for _ in 0..1_000 {
        if path.exists() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} does not appear", path.display())))
}
