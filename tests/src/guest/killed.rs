//! A process that is killed while a controller writes into another function's memory.
//!
//! The kernel closes the files of a process that is killed in an order of its own. The memory's function must not be
//! closed before the controller is. From within nobody can see that order; the host can, in what the kernel writes to the
//! two functions' Command registers, which QEMU traces.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tentpeg_driver::bus::{PciAddress, Sysfs};
use tentpeg_driver::keeper::{self, Keeper};
use tentpeg_driver::queue::Extent;
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;
use tentpeg_driver::vfio::{self, VfioDevice, Way};

use super::bar_bench::BarBench;
use super::checks::Functions;
use super::tier::open_two;
use super::trace::Marker;
use crate::device_tests::{Ending, Verdict, ensure};

/// This program, run once more.
const ITSELF: &str = "/proc/self/exe";
/// What it is told to be: the process that is killed, or the keeper of that.
const VICTIM: &str = "victim";
const KEEPER: &str = "keeper";
/// What the victim prints once data is on its way.
const MOVING: &str = "moving";

/// Bytes of the memory that are written to, from the first on.
const WRITTEN: u64 = 8 << 20;

/// How it is done: all four ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Whether a keeper holds the memory's function.
    pub keeper: bool,
    /// Whether the memory's function is opened before the controller.
    pub memory_first: bool,
}

impl Round {
    /// Every round, in its turn.
    pub const ALL: [Self; 4] = [
        Self { keeper: false, memory_first: false },
        Self { keeper: false, memory_first: true },
        Self { keeper: true, memory_first: false },
        Self { keeper: true, memory_first: true },
    ];
}

/// The process that is killed, in each round; none of its commands writes anything when it has ended.
pub(super) fn killed(functions: &Functions) -> Verdict {
    for (number, round) in (0..).zip(Round::ALL) {
        let mut victim = Command::new(ITSELF).args(arguments(functions, round)).stdout(Stdio::piped()).spawn()?;
        let lines = victim.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let said: Vec<_> = lines.into_iter().flatten().map_while(Result::ok).take(1).collect();
        if said != [MOVING] {
            victim.kill()?;
            victim.wait()?;
            return Err(Ending::Failed(format!("{round:?}: it said {said:?}")));
        }
        Marker::before_kill(number).write(&functions.sysfs, functions.memory)?;
        victim.kill()?;
        victim.wait()?;
        let memory = open_when_free(functions)?.bar(functions.bar)?;
        let written = memory.view().slice(0, WRITTEN as usize);
        written.fill(0xEE);
        thread::sleep(Duration::from_millis(100));
        let mut found = vec![0; written.len()];
        written.read(0, &mut found);
        ensure(found.iter().all(|byte| *byte == 0xEE), || format!("{round:?}: it was written to after the end"))?;
    }
    Ok(())
}

/// Whoever held the memory's function for the process that was killed lets go of it a moment after that has ended.
fn open_when_free(functions: &Functions) -> Result<VfioDevice, Ending> {
    let mut tries = 0;
    loop {
        match vfio::open(&functions.sysfs, &[functions.memory], Some(functions.settings.way)) {
            Ok(mut devices) => return devices.pop().ok_or_else(|| Ending::Failed("no device".to_owned())),
            Err(error) if tries == 500 => return Err(error.into()),
            Err(_) => tries += 1,
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn arguments(functions: &Functions, round: Round) -> [String; 7] {
    let Functions { settings, controller, memory, bar, .. } = functions;
    let words = [round.keeper, round.memory_first].map(|word| word.to_string());
    let [keeper, memory_first] = words;
    let [controller, memory] = [controller, memory].map(ToString::to_string);
    [VICTIM.to_owned(), settings.way.word().to_owned(), controller, memory, bar.to_string(), keeper, memory_first]
}

/// What this program does where it is started by itself; nothing where it was not.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Option<Verdict> {
    let arguments: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [KEEPER] => Some(keeper::run().map_err(Ending::from)),
        [VICTIM, way, controller, memory, bar, keeper, memory_first] => {
            let read = || {
                let way = Way::of_word(way)?;
                let (controller, memory) = (controller.parse().ok()?, memory.parse().ok()?);
                let round = Round { keeper: keeper.parse().ok()?, memory_first: memory_first.parse().ok()? };
                Some((way, controller, memory, bar.parse().ok()?, round))
            };
            let Some((way, controller, memory, bar, round)) = read() else {
                return Some(Err(Ending::Failed(format!("nobody starts it like that: {arguments:?}"))));
            };
            Some(move_for_ever(way, controller, memory, bar, round))
        }
        _ => None,
    }
}

/// Reads from the controller into the memory until it is killed.
fn move_for_ever(way: Way, controller: PciAddress, memory: PciAddress, bar: u32, round: Round) -> Verdict {
    let sysfs = Sysfs::system();
    let [controller, memory] = if round.memory_first {
        let [memory, controller] = open_two(&sysfs, [memory, controller], way)?;
        [controller, memory]
    } else {
        open_two(&sysfs, [controller, memory], way)?
    };
    let mut bench = BarBench::on(controller, memory, bar)?;
    let mut program = Command::new(ITSELF);
    program.arg(KEEPER);
    let keeper = if round.keeper { Some(Keeper::start(program)?) } else { None };
    if let Some(keeper) = &keeper {
        bench.memory.keep_by(keeper)?;
    }
    let len = bench.bench.limits.max_transfer();
    let blocks = (len >> bench.bench.limits.lba_shift()) as u32;
    let count = ZeroesBased::<u16>::from_count(blocks).ok_or_else(|| Ending::Failed(format!("{blocks} blocks")))?;
    let read = Sqe::read(bench.bench.namespace.nsid, 0, count);
    let places: Vec<[Extent; 1]> =
        (0..WRITTEN / len).filter_map(|place| Some([Extent { iova: bench.bar.iova_at(place * len)?, len }])).collect();
    let mut done = 0u64;
    for place in places.iter().cycle() {
        while bench.pair.submit(read, place, 0).is_err() {
            bench.pair.ring();
            let before = done;
            bench.pair.poll(64, |_| done += 1);
            if before == 0 && done > 0 {
                println!("{MOVING}");
            }
        }
    }
    Err(Ending::Failed("there is no place to read into".to_owned()))
}
