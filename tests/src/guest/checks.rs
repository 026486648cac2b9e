//! What only a function behind VFIO has: another function's memory as a target, interrupts, and being taken away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tentpeg_driver::bus::{Function, PciAddress, Sysfs};
use tentpeg_driver::controller::{Attended, Controller, ControllerConfig};
use tentpeg_driver::dma::{Access, DmaView, HostMemory};
use tentpeg_driver::queue::{Extent, QueuePair, ReachEnd};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;
use tentpeg_driver::vfio::Way;
use tentpeg_engine::OpCode;

use super::bar_bench::BarBench;
use super::by_uri::by_uri;
use super::direct::direct;
use super::inventoried::inventoried;
use super::killed::killed;
use super::only_mapped::OnlyMapped;
use super::report::{Wish, Writer};
use super::system::{Settings, report, set_option};
use super::tier::{bench_of, open_function, open_two};
use crate::device_tests::bench::{bytes_hold, fill, holds};
use crate::device_tests::{Bench, DeviceTest, Ending, Verdict, ensure};

/// Memory is filled and compared piece by piece, each with data of its own.
pub const PIECE: usize = 1 << 20;

/// Looks without what is waited for after which a check gives up. Each look gives the processor away.
const PATIENCE: usize = 1_000_000;

/// How long a controller is read from until it is given up. A slot's button has five seconds to be pressed again.
const LONGEST: Duration = Duration::from_secs(120);

/// How often, and how far apart, it is looked whether the kernel has done something of its own.
const LOOKS: u32 = 3_000;
/// See [`LOOKS`].
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// What is written from the BAR, and what is read into it, as pieces tell them apart.
pub const FROM_BAR: u64 = 1 << 20;
/// See [`FROM_BAR`].
pub const INTO_BAR: u64 = 2 << 20;

/// The functions that checks may use. Both are with `vfio-pci`.
#[derive(Debug, Clone)]
pub struct Functions {
    /// The machine.
    pub sysfs: Sysfs,
    /// By what they are opened, and what the IOMMU is.
    pub settings: Settings,
    /// A controller with blocks of 512 bytes whose first namespace has room for the BAR twice.
    pub controller: PciAddress,
    /// Another controller.
    pub second: PciAddress,
    /// A function with memory at a BAR.
    pub memory: PciAddress,
    /// That BAR.
    pub bar: u32,
    /// A controller in a slot of its own, which the kernel is asked to give up.
    pub unplugged: PciAddress,
    /// A controller in a slot of its own, which is switched off at the end.
    pub pulled: PciAddress,
}

/// All checks.
pub fn list(functions: &Functions) -> Vec<DeviceTest> {
    let checks: [(&str, Check); 14] = [
        ("an engine of two controllers is opened by their URIs", by_uri),
        ("a drive of an inventory is refused, tested, and has its label again", inventoried),
        ("as many bytes of addresses as the IOMMU translates", addresses),
        ("a GPU's memory, which another function's stands in for, is reached directly, proved and kept", direct),
        // What it leaves in the memory the host looks at in the end.
        ("another function's memory is written from and read into, whole", whole_bar),
        ("transfers into another function's memory start at every 512 bytes of a page", every_offset),
        ("another function's memory without a file: type 1 takes it, iommufd names type 1", bar_without_a_file),
        ("interrupts are events", interrupts),
        ("doorbells are revoked under load", revoked_under_load),
        ("a function that was cut off reaches nothing and is opened again", cut_off),
        ("an address space of 100 regions is emptied", many_regions),
        ("the kernel asks for a function back under load and gets it", unbound),
        ("a slot's button is pressed under load and the controller given up", unplugged),
        ("a controller is pulled under load", pulled),
    ];
    bind(functions, &checks)
}

/// The checks of a machine whose IOMMU does not remap interrupts.
pub fn without_remapping(functions: &Functions) -> Vec<DeviceTest> {
    let checks: [(&str, Check); 5] = [
        ("another function's memory lies behind what a narrow IOMMU could name", bar_above_39_bits),
        ("without interrupt remapping a function is refused, with the remedy", refused_without_remapping),
        ("with the unsafe option a function is opened, and moves another's memory", end_of_bar),
        ("as many bytes of addresses as a wider IOMMU translates", addresses),
        // Last: QEMU does not always bear it for long.
        ("a process is killed that moves data into another function's memory", killed),
    ];
    bind(functions, &checks)
}

type Check = fn(&Functions) -> Verdict;

fn bind(functions: &Functions, checks: &[(&str, Check)]) -> Vec<DeviceTest> {
    let bind = |&(name, check): &(&str, Check)| {
        let functions = functions.clone();
        DeviceTest::new(name, move |_| check(&functions))
    };
    checks.iter().map(bind).collect()
}

/// The kernel refuses, and the message names the option that is then set.
fn refused_without_remapping(functions: &Functions) -> Verdict {
    let module = match functions.settings.way {
        Way::Type1 => "vfio_iommu_type1",
        Way::Iommufd => "iommufd",
    };
    let refused = open_function(&functions.sysfs, functions.controller, functions.settings.way).err();
    let text = refused.map(|ending| ending.to_string()).unwrap_or_default();
    let remedy = format!("the option allow_unsafe_interrupts=1 of the module {module}");
    ensure(text.contains(&remedy), || format!("{text:?} does not name {remedy:?}"))?;
    Ok(set_option(module, "allow_unsafe_interrupts", "1")?)
}

/// Most of what the IOMMU's width promises can be had, and nothing beyond it.
fn addresses(functions: &Functions) -> Verdict {
    let function = open_function(&functions.sysfs, functions.controller, functions.settings.way)?;
    let (free, all) = (function.dma().free_iovas(), 1 << functions.settings.iommu.address_bits);
    ensure(free > all / 2 && free <= all, || format!("{free} bytes of addresses, {all} would be all"))
}

/// The processor has the BAR at addresses of more than 39 bits. What devices name it by is another matter.
fn bar_above_39_bits(functions: &Functions) -> Verdict {
    let resources = fs::read_to_string(functions.sysfs.function_folder(functions.memory).join("resource"))?;
    // A line for each BAR: its first address, its last, and its flags.
    let line = resources.lines().nth(functions.bar as usize).unwrap_or_default();
    let first =
        line.split_whitespace().next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    ensure(first.is_some_and(|first| first >= 1 << 39), || format!("BAR {} is at {line:?}", functions.bar))
}

fn bar_without_a_file(functions: &Functions) -> Verdict {
    let Functions { sysfs, settings, controller, memory, .. } = functions;
    let [controller, memory] = open_two(sysfs, [*controller, *memory], settings.way)?;
    let registered = controller.dma().register(OnlyMapped::new(memory.bar(functions.bar)?), Access::all());
    match (functions.settings.way, registered) {
        (Way::Type1, Ok(region)) => {
            region.release();
            Ok(())
        }
        (Way::Iommufd, Err(error)) => {
            let text = error.to_string();
            ensure(text.contains("open the functions through type 1"), || text)
        }
        (way, Ok(_)) => Err(Ending::Failed(format!("{way} took it"))),
        (way, Err(error)) => Err(Ending::Failed(format!("{way}: {error}"))),
    }
}

/// Pieces of memory with the seed of each.
fn pieces(view: DmaView<'_>, seed: u64) -> impl Iterator<Item = (DmaView<'_>, u64)> {
    let count = view.len() / PIECE;
    (0..count).map(move |piece| (view.slice(piece * PIECE, PIECE), seed + piece as u64))
}

/// The whole BAR goes to the device, and other data comes back into it. The host looks at both afterwards, from its
/// side: at the drive's file and at the file that the BAR is.
fn whole_bar(functions: &Functions) -> Verdict {
    move_end_of_bar(functions, u64::MAX)
}

/// The same with the end of the BAR.
fn end_of_bar(functions: &Functions) -> Verdict {
    move_end_of_bar(functions, 16 * PIECE as u64)
}

/// Moves the last `most` bytes of the BAR, or all.
fn move_end_of_bar(functions: &Functions, most: u64) -> Verdict {
    let mut bench = BarBench::open(functions)?;
    let len = bench.bar().1.min(most);
    let begin = bench.bar().1 - len;
    let moved = begin as usize..bench.bar().1 as usize;
    pieces(bench.bar.view().slice(moved.start, moved.len()), FROM_BAR).for_each(|(piece, seed)| fill(piece, seed));
    bench.move_bytes(OpCode::Write, bench.bar(), begin, 0, len)?;
    let memory = bench.bench.memory(PIECE as u64)?;
    let whole = (memory.iova(), PIECE as u64);
    for piece in 0..len / PIECE as u64 {
        fill(memory.view(), INTO_BAR + piece);
        bench.move_bytes(OpCode::Write, whole, 0, len + piece * PIECE as u64, PIECE as u64)?;
    }
    bench.bar.view().slice(moved.start, moved.len()).fill(0xEE);
    bench.move_bytes(OpCode::Read, bench.bar(), begin, len, len)?;
    let view = bench.bar.view().slice(moved.start, moved.len());
    pieces(view, INTO_BAR).try_for_each(|(piece, seed)| holds(piece, seed))?;
    for piece in 0..len / PIECE as u64 {
        memory.view().fill(0xEE);
        bench.move_bytes(OpCode::Read, whole, 0, piece * PIECE as u64, PIECE as u64)?;
        holds(memory.view(), FROM_BAR + piece)?;
    }
    bench.bench.submit_plain(&mut bench.pair, Sqe::flush(bench.bench.namespace.nsid), 0)?;
    let flushed = bench.bench.complete(&mut bench.pair, 1)?[0].1;
    ensure(flushed.is_success(), || format!("Flush ended with {flushed}"))?;
    bench.bench.finish(bench.pair)
}

/// One command as long as the device takes, from each place within a page; what lies around its target stays.
/// The BAR is left as [`whole_bar`] leaves it.
fn every_offset(functions: &Functions) -> Verdict {
    let mut bench = BarBench::open(functions)?;
    let (page, longest) = (4096u64, bench.bench.limits.max_transfer());
    let whole = bench.bar().1;
    ensure(longest + 2 * page <= whole, || format!("a command of {longest} bytes does not fit into {whole}"))?;
    let source = bench.bench.memory(longest)?;
    let view = source.view();
    for at in (0..page).step_by(512) {
        fill(view, at);
        // Behind all that the host will look at.
        bench.move_bytes(OpCode::Write, (source.iova(), longest), 0, 2 * whole, longest)?;
        bench.bar.view().slice(0, (longest + 2 * page) as usize).fill(0xEE);
        let commands = bench.pair.counters().commands;
        bench.move_bytes(OpCode::Read, bench.bar(), at, 2 * whole, longest)?;
        let commands = bench.pair.counters().commands - commands;
        ensure(commands == 1, || format!("{longest} bytes at {at} took {commands} commands"))?;
        holds(bench.bar.view().slice(at as usize, longest as usize), at)?;
        for around in [0..at as usize, (at + longest) as usize..(longest + 2 * page) as usize] {
            let mut bytes = vec![0; around.len()];
            bench.bar.view().slice(around.start, around.len()).read(0, &mut bytes);
            ensure(bytes.iter().all(|byte| *byte == 0xEE), || format!("bytes around {longest} at {at} were written"))?;
        }
    }
    bench.move_bytes(OpCode::Read, bench.bar(), 0, whole, longest + 2 * page)?;
    bench.bench.finish(bench.pair)
}

/// The admin queue's completions signal the first interrupt; without a command nothing is signalled.
fn interrupts(functions: &Functions) -> Verdict {
    let function = open_function(&functions.sysfs, functions.controller, functions.settings.way)?;
    // Before the queue is made: a controller may look then whether its interrupts are on.
    let events = function.device().interrupts(1)?;
    let mut controller = Controller::enable(Arc::clone(&function) as Arc<dyn Function>, ControllerConfig::default())?;
    let refused = function.device().interrupts(u32::MAX).err().map(|error| error.to_string()).unwrap_or_default();
    ensure(refused.contains("MSI-X interrupts"), || format!("too many interrupts: {refused:?}"))?;
    events[0].take();
    controller.smart_log()?;
    let signalled = (0..PATIENCE).any(|_| {
        function.pause();
        events[0].take()
    });
    ensure(signalled, || "no interrupt came for a completion of the admin queue".to_owned())?;
    function.device().interrupts(0)?;
    controller.smart_log()?;
    ensure(!events[0].take(), || "an interrupt came that was switched off".to_owned())?;
    Ok(controller.shutdown()?)
}

/// A lane rings on while its doorbells are revoked: nothing happens to it, nothing reaches the device, and the
/// controller comes back with the same queue pair.
fn revoked_under_load(functions: &Functions) -> Verdict {
    let function = open_function(&functions.sysfs, functions.controller, functions.settings.way)?;
    let mut bench = bench_of(Arc::clone(&function))?;
    let memory = bench.memory(4096)?;
    let mut pair = bench.pair(64)?;
    let block = [Extent { iova: memory.iova(), len: bench.limits.lba_size() }];
    for round in 0..10 {
        let (started, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut lane = pair;
        let read = Sqe::read(bench.namespace.nsid, round, ZeroesBased::from_raw(0));
        pair = thread::scope(|scope| {
            let ringing = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    while lane.submit(read, &block, 0).is_ok() {}
                    lane.ring();
                    lane.poll(64, |_| ());
                    started.store(true, Ordering::Relaxed);
                }
                lane
            });
            while !started.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            function.revoke_doorbells();
            let ended = bench.controller.stop_reach();
            stop.store(true, Ordering::Relaxed);
            let mut lane = ringing.join().map_err(|_| Ending::Failed("the lane panicked".to_owned()))?;
            lane.interrupt(&ended, |_| ());
            Ok::<_, Ending>(lane)
        })?;
        let attended = bench.controller.recover(&mut [&mut pair], &mut |_| (), "the check stopped it".to_owned());
        ensure(matches!(attended, Attended::Recovered { .. }), || format!("it did not come back: {attended:?}"))?;
        bench.transfer(&mut pair, OpCode::Read, 0, &block)?;
    }
    bench.controller.delete_queue_pair(&mut pair)?;
    Ok(bench.controller.shutdown()?)
}

/// After the function has been cut off with commands in flight it reads as gone, memory is given up without an error,
/// and the same function can be opened anew.
fn cut_off(functions: &Functions) -> Verdict {
    let function = open_function(&functions.sysfs, functions.controller, functions.settings.way)?;
    let mut bench = bench_of(Arc::clone(&function))?;
    let mut pair = bench.pair(64)?;
    let memory = bench.memory(bench.limits.max_transfer())?;
    let extent = [Extent { iova: memory.iova(), len: bench.limits.max_transfer() }];
    for token in 0..32 {
        bench.submit(&mut pair, OpCode::Read, 0, &extent, token)?;
    }
    pair.ring();
    function.cut_off();
    // No device writes any more, so what is written now stays.
    fill(memory.view(), 5);
    let (csts, vs) = (function.read_u32(0x1c), function.read_u32(0x08));
    ensure((csts, vs) == (u32::MAX, u32::MAX), || format!("it still answers: CSTS {csts:#x}, VS {vs:#x}"))?;
    pair.ring();
    let refused = bench.memory(4096).err().map(|ending| ending.to_string()).unwrap_or_default();
    ensure(refused.contains("no function is in the address space"), || format!("memory was mapped: {refused:?}"))?;
    let how = bench.controller.stop_reach().how();
    ensure(how == ReachEnd::CutOff, || format!("its reach was ended by {how:?}"))?;
    holds(memory.view(), 5)?;
    drop((pair, memory, bench));
    drop(function);
    let again = open_function(&functions.sysfs, functions.controller, functions.settings.way)?;
    Ok(Controller::enable(again, ControllerConfig::default())?.shutdown()?)
}

/// Many regions, each one mapping, given up in another order: every unmap finds exactly its own.
fn many_regions(functions: &Functions) -> Verdict {
    let function = open_function(&functions.sysfs, functions.controller, functions.settings.way)?;
    let space = Arc::clone(function.dma());
    let mut regions = Vec::new();
    for number in 0..100u64 {
        let bytes = 4096 << (number % 6);
        let memory = HostMemory::allocate(bytes)?;
        regions.push(space.register(memory, Access::all())?);
    }
    let alone = |range| regions.iter().filter(|other| other.range().overlaps(range)).count() == 1;
    let distinct = regions.iter().all(|region| alone(region.range()));
    ensure(distinct, || "two regions share an IOVA".to_owned())?;
    while !regions.is_empty() {
        regions.swap_remove(regions.len() / 2).release();
    }
    // What was freed can be mapped again: nothing stayed behind.
    for _ in 0..3 {
        space.register(HostMemory::allocate(8 << 20)?, Access::all())?.release();
    }
    Ok(())
}

/// Reads one block again and again until [`Controller::attend`] gives the controller up, and what it says then.
fn read_until_removed(bench: &mut Bench, pair: &mut QueuePair<u32>) -> Result<(ReachEnd, String), Ending> {
    let memory = bench.memory(4096)?;
    let block = [Extent { iova: memory.iova(), len: bench.limits.lba_size() }];
    let read = Sqe::read(bench.namespace.nsid, 0, ZeroesBased::from_raw(0));
    let started = Instant::now();
    while started.elapsed() < LONGEST {
        while pair.submit(read, &block, 0).is_ok() {}
        pair.ring();
        pair.poll(64, |_| ());
        let now = started.elapsed().as_millis() as u32;
        if let Attended::Removed { how, reason } = bench.controller.attend(&mut [&mut *pair], now, |_| ()) {
            // A ring after the end leads nowhere, and is no signal.
            pair.ring();
            return Ok((how, reason));
        }
    }
    Err(Ending::Failed("the controller was never given up".to_owned()))
}

/// Writes a file of sysfs that is there.
fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

/// Somebody unbinds the driver: the kernel waits for us, the controller is given up, and the kernel has it. It is given
/// to VFIO again at the end.
fn unbound(functions: &Functions) -> Verdict {
    let Functions { sysfs, controller, .. } = functions;
    let function = open_function(sysfs, *controller, functions.settings.way)?;
    let mut bench = bench_of(Arc::clone(&function))?;
    let mut pair = bench.pair(16)?;
    ensure(!function.removal_requested(), || "the kernel asks for it before anybody does".to_owned())?;
    let (unbind, address) = (sysfs.function_folder(*controller).join("driver/unbind"), controller.to_string());
    let (how, reason) = thread::scope(|scope| {
        let unbind = scope.spawn(|| write(&unbind, &address));
        let removed = read_until_removed(&mut bench, &mut pair);
        // Whatever came of it, the kernel waits no longer.
        function.cut_off();
        unbind.join().map_err(|_| Ending::Failed("the writer panicked".to_owned()))??;
        removed
    })?;
    ensure(how == ReachEnd::NotReady && reason.contains("wanted back"), || format!("{how:?}: {reason}"))?;
    let driver = sysfs.function(*controller)?.driver;
    ensure(driver.is_none(), || format!("it is with {driver:?} still"))?;
    // The override that VFIO got it by still stands.
    write(&sysfs.path("/sys/bus/pci/drivers_probe"), &address)?;
    let again = open_function(sysfs, *controller, functions.settings.way)?;
    Ok(Controller::enable(again, ControllerConfig::default())?.shutdown()?)
}

/// Somebody presses the button of the controller's slot, as QEMU's `device_del` does. The kernel waits its five seconds,
/// asks for the function, and switches the slot off once it has it.
fn unplugged(functions: &Functions) -> Verdict {
    let Functions { sysfs, unplugged, .. } = functions;
    let function = open_function(sysfs, *unplugged, functions.settings.way)?;
    let mut bench = bench_of(Arc::clone(&function))?;
    let mut pair = bench.pair(16)?;
    Writer::amid(report()?).wish(Wish::Unplug)?;
    let removed = read_until_removed(&mut bench, &mut pair);
    // Whatever came of it, the kernel waits no longer.
    function.cut_off();
    let (how, reason) = removed?;
    ensure(how == ReachEnd::NotReady && reason.contains("wanted back"), || format!("{how:?}: {reason}"))?;
    let folder = sysfs.function_folder(*unplugged);
    let gone = (0..LOOKS).any(|_| {
        thread::sleep(BETWEEN_LOOKS);
        !folder.exists()
    });
    ensure(gone, || format!("{unplugged} is still there"))
}

/// The power of the slot goes off, without a word before: registers read as gone, the controller is cut off, and nothing
/// is a signal.
fn pulled(functions: &Functions) -> Verdict {
    let Functions { sysfs, pulled, .. } = functions;
    let folder = fs::canonicalize(sysfs.function_folder(*pulled))?;
    let port = folder.parent().ok_or_else(|| Ending::Failed(format!("{pulled} is in no slot")))?.join("config");
    let function = open_function(sysfs, *pulled, functions.settings.way)?;
    let mut bench = bench_of(Arc::clone(&function))?;
    let mut pair = bench.pair(16)?;
    let (how, reason) = thread::scope(|scope| {
        let power = scope.spawn(|| switch_slot_off(&port));
        let removed = read_until_removed(&mut bench, &mut pair);
        function.cut_off();
        power.join().map_err(|_| Ending::Failed("the writer panicked".to_owned()))??;
        removed
    })?;
    ensure(how == ReachEnd::CutOff, || format!("{how:?}: {reason}"))?;
    let vs = function.read_u32(0x08);
    ensure(vs == u32::MAX, || format!("VS reads as {vs:#x}"))
}

/// Switches the power of a port's slot off: the Slot Control register of its PCI Express capability (PCI Express Base
/// 6.0, 7.5.3.10), Power Controller Control and Power Indicator Control both to off.
fn switch_slot_off(port: &Path) -> io::Result<()> {
    const PCI_EXPRESS: u8 = 0x10;
    const SLOT_CONTROL: u64 = 0x18;
    const OFF: u16 = 1 << 10 | 3 << 8;
    let config = OpenOptions::new().read(true).write(true).open(port)?;
    let byte = |at: u64| {
        let mut byte = [0];
        config.read_exact_at(&mut byte, at).map(|()| byte[0])
    };
    let mut at = u64::from(byte(0x34)?);
    for _ in 0..48 {
        if byte(at)? == PCI_EXPRESS {
            let mut control = [0; 2];
            config.read_exact_at(&mut control, at + SLOT_CONTROL)?;
            let control = u16::from_le_bytes(control) | OFF;
            return config.write_all_at(&control.to_le_bytes(), at + SLOT_CONTROL);
        }
        at = u64::from(byte(at + 1)?);
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Whether a file of the host holds what `whole_bar` leaves: pieces from `seed` on.
///
/// # Errors
/// [`Ending::Failed`] with the first piece that does not.
pub fn file_holds(file: &File, offset: u64, len: u64, seed: u64) -> Verdict {
    let mut bytes = vec![0; PIECE];
    for piece in 0..len / PIECE as u64 {
        file.read_exact_at(&mut bytes, offset + piece * PIECE as u64)?;
        bytes_hold(&bytes, seed + piece)?;
    }
    Ok(())
}
