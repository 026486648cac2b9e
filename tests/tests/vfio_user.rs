//! The device tests over a vfio-user socket, and what becomes of a controller whose server does not do as it should.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tentpeg_driver::controller::{Attended, Controller, ControllerConfig, RecoveryConfig};
use tentpeg_driver::dma::{Access, HostMemory, Region};
use tentpeg_driver::queue::{Extent, QueuePair, ReachEnd};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;
use tentpeg_driver::vfio_user::{ClientConfig, VfioUserFunction};
use tentpeg_tests::device_tests::{Ending, ServerProcess, Table, VfioUserTier, list, patient_client};

/// The server that the tier starts.
const PROGRAM: &str = env!("CARGO_BIN_EXE_vfio_user_server");
/// Tests that have the device do something wrong, which a model in another process is not told to.
const NEED_FAULTS: usize = 4;
/// Why they are skipped.
const ON_DEMAND: &str = "the device does nothing wrong on demand";

#[test]
fn every_device_test_over_a_socket() {
    let mut table = Table::default();
    table.run(&VfioUserTier::new(PROGRAM));
    println!("{table}");
    let (failed, skipped) = table.reasons();
    assert_eq!(failed, [""; 0], "device tests failed");
    assert!(skipped.iter().all(|skipped| skipped.ends_with(ON_DEMAND)), "{skipped:?}");
    assert_eq!(skipped.len(), NEED_FAULTS, "more tests are skipped, or fewer, than this list knows of");
}

/// A device that moves no byte is found out here as well.
#[test]
fn a_forgetful_device_fails() {
    let forgetful = VfioUserTier::forgetful(PROGRAM);
    for name in ["a controller that is enabled again keeps its data", "a queue of 3 entries", "MDTS 1"] {
        let test = list().into_iter().find(|test| test.name == name).expect("a test of this name");
        match test.run(&forgetful) {
            Err(Ending::Failed(reason)) => assert!(reason.contains("would be right"), "{name}: {reason}"),
            other => panic!("{name} on a device that forgets: {other:?}"),
        }
    }
}

/// Commands of a rig, and bytes of each.
const COMMANDS: u32 = 63;
const BYTES: u64 = 64 << 10;

/// A controller in another process, with a queue pair and memory for its commands.
struct Rig {
    controller: Controller,
    pair: QueuePair<u32>,
    memory: Region<HostMemory>,
    function: Arc<VfioUserFunction>,
    process: ServerProcess,
    nsid: u32,
    begin: Instant,
    /// How often each command has ended, by a completion and by an interruption.
    ends: Vec<(u32, u32)>,
}

impl Rig {
    fn new(client: &ClientConfig) -> Self {
        let process = ServerProcess::start(Path::new(PROGRAM), &[]).unwrap();
        let function = process.connect(client).unwrap();
        let recovery = RecoveryConfig { health_interval: Duration::from_millis(1), ..RecoveryConfig::default() };
        let config = ControllerConfig { recovery, event_requests: 0, ..ControllerConfig::default() };
        let mut controller = Controller::enable(function.clone(), config).unwrap();
        let nsid = controller.namespaces().unwrap()[0].nsid;
        let pair = controller.create_queue_pair(COMMANDS + 1).unwrap();
        let memory = HostMemory::allocate((u64::from(COMMANDS) * BYTES) as usize).unwrap();
        let memory = controller.function().dma().register(memory, Access::all()).unwrap();
        let ends = vec![(0, 0); COMMANDS as usize];
        Self { controller, pair, memory, function, process, nsid, begin: Instant::now(), ends }
    }

    /// Writes as many reads as there is room for, each into memory of its own.
    fn submit(&mut self) {
        for token in 0..COMMANDS {
            let offset = u64::from(token) * BYTES;
            let nlb = ZeroesBased::<u16>::from_count((BYTES / 4096) as u32).unwrap();
            let extent = Extent { iova: self.memory.iova_at(offset).unwrap(), len: BYTES };
            self.pair.submit(Sqe::read(self.nsid, offset / 4096, nlb), &[extent], token).unwrap();
        }
        self.pair.ring();
    }

    /// Stops every thread of the server, and waits until they stand.
    fn freeze(&self) {
        self.process.signal(Signal::STOP).unwrap();
        let tasks = format!("/proc/{}/task", self.process.id());
        let stands = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        while !fs::read_dir(&tasks).unwrap().all(|task| stands(task.unwrap())) {
            thread::yield_now();
        }
    }

    /// Looks after the controller as its owner does, until it is given up.
    fn until_removed(&mut self) -> (ReachEnd, String) {
        loop {
            let ends = &mut self.ends;
            self.pair.poll(8, |completion| ends[completion.token as usize].0 += 1);
            let now = self.begin.elapsed().as_millis() as u32;
            match self.controller.attend(&mut [&mut self.pair], now, |token| ends[token as usize].1 += 1) {
                Attended::Fine => thread::yield_now(),
                Attended::Removed { how, reason } => return (how, reason),
                Attended::Recovered { how, reason } => panic!("recovered by {how} from: {reason}"),
            }
        }
    }

    /// What holds of every controller that has been given up.
    fn check_removed(mut self) {
        assert_eq!(self.until_removed().0, ReachEnd::CutOff);
        assert!(self.ends.iter().all(|(completed, interrupted)| completed + interrupted == 1), "{:?}", self.ends);
        assert_eq!(self.controller.removed(), Some(ReachEnd::CutOff));
        assert_eq!(self.process.wait().unwrap(), Some(Signal::KILL.as_raw()));
        assert!(self.function.ended().is_some());
        assert_eq!(self.function_csts(), u32::MAX);
        assert!(self.controller.function().dma().register(HostMemory::allocate(4096).unwrap(), Access::all()).is_err());
        assert!(self.controller.smart_log().is_err());
        // Nothing can reach it any more, so it is unmapped and its bytes are given back: the memfd is closed.
        let descriptor = format!("/proc/self/fd/{}", self.memory.backing().as_fd().as_raw_fd());
        let file = fs::read_link(&descriptor).unwrap();
        assert!(file.to_string_lossy().contains("memfd:tentpeg"), "{file:?}");
        let kept = self.memory.backing().as_fd().try_clone_to_owned().unwrap();
        let inode = rustix::fs::fstat(&kept).unwrap().st_ino;
        drop(kept);
        drop(self.memory);
        let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
        let mut open = open.map(|metadata| std::os::unix::fs::MetadataExt::ino(&metadata));
        assert!(!open.any(|found| found == inode), "the bytes are leaked");
    }

    fn function_csts(&self) -> u32 {
        self.controller.function().read_u32(tentpeg_driver::spec::registers::offset::CSTS)
    }
}

/// The server stands when the doorbell is rung, so that no command has ended when it is killed.
#[test]
fn a_server_that_is_killed_before_it_has_done_anything() {
    let mut rig = Rig::new(&patient_client());
    rig.freeze();
    rig.submit();
    rig.process.signal(Signal::KILL).unwrap();
    let (how, reason) = rig.until_removed();
    assert_eq!(how, ReachEnd::CutOff, "{reason}");
    assert_eq!(rig.ends, vec![(0, 1); COMMANDS as usize], "each is interrupted, once");
}

/// The server is at work when it is killed: some commands have ended, the others are interrupted, none both.
#[test]
fn a_server_that_is_killed_in_the_middle() {
    for _ in 0..5 {
        let mut rig = Rig::new(&patient_client());
        rig.submit();
        rig.process.signal(Signal::KILL).unwrap();
        rig.check_removed();
    }
}

/// The server stops answering, and is killed when its time is over: only then are its commands given back.
#[test]
fn a_server_that_answers_no_more() {
    let (answer_timeout, close_timeout) = (Duration::from_secs(4), Duration::from_millis(300));
    let mut rig = Rig::new(&ClientConfig { answer_timeout, close_timeout, ..patient_client() });
    rig.freeze();
    rig.submit();
    rig.check_removed();
}

/// Memory that has been unmapped is not written any more, whatever was under way.
#[test]
fn nothing_arrives_after_memory_was_unmapped() {
    let mut rig = Rig::new(&patient_client());
    rig.memory.view().fill(0xee);
    let file = fs::File::from(rig.memory.backing().as_fd().try_clone_to_owned().unwrap());
    let contents = || {
        let mut bytes = vec![0; (u64::from(COMMANDS) * BYTES) as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    rig.submit();
    let Rig { mut pair, memory, controller, .. } = rig;
    drop(memory);
    let before = contents();
    let mut ended = 0;
    while ended < COMMANDS {
        pair.poll(8, |_| ended += 1);
        controller.function().pause();
    }
    assert!(before == contents(), "something was written after the mapping was gone");
}

/// The two ends of the crate `vfio_user`, each against one of ours: a mistake that ours share would show.
mod the_other_implementation {
    use std::fs::File;
    use std::io;
    use std::sync::{Mutex, mpsc};

    use tentpeg_driver::bus::Function;
    use tentpeg_driver::spec::registers::offset;
    use vfio_user::{Client, DmaMapFlags, DmaUnmapFlags, Server, ServerBackend, ServerRegion};

    use super::*;

    #[test]
    fn its_client_and_our_server() {
        let process = ServerProcess::start(Path::new(PROGRAM), &[]).unwrap();
        let mut client = Client::new(&process.socket()).unwrap();
        assert_eq!((client.region(0).unwrap().size, client.region(7).unwrap().size), (0x2000, 256));
        let mut cap = [0; 8];
        client.region_read(0, offset::CAP, &mut cap).unwrap();
        assert_eq!(u64::from_le_bytes(cap) & 0xffff, 1023, "CAP.MQES");
        client.region_write(0, offset::AQA, &[7, 0, 7, 0]).unwrap();
        let mut aqa = [0; 4];
        client.region_read(0, offset::AQA, &mut aqa).unwrap();
        assert_eq!(aqa, [7, 0, 7, 0]);
        let memory = HostMemory::allocate(8192).unwrap();
        client.dma_map(4096, 0x10000, 4096, memory.as_fd().as_raw_fd()).unwrap();
        client.dma_unmap(0x10000, 4096).unwrap();
        client.reset().unwrap();
        client.region_read(0, offset::AQA, &mut aqa).unwrap();
        assert_eq!(aqa, [0; 4]);
        client.shutdown().unwrap();
    }

    /// Registers that keep what is written, and a record of the rest.
    struct Backend {
        registers: Vec<u8>,
        told: mpsc::Sender<String>,
    }

    impl ServerBackend for Backend {
        fn region_read(&mut self, _: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
            data.copy_from_slice(&self.registers[offset as usize..][..data.len()]);
            Ok(())
        }

        fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
            self.registers[offset as usize..][..data.len()].copy_from_slice(data);
            self.told.send(format!("write {region} {offset:#x} {data:x?}")).map_err(io::Error::other)
        }

        fn dma_map(&mut self, flags: DmaMapFlags, offset: u64, _: u64, size: u64, fd: Option<File>) -> io::Result<()> {
            let mut bytes = [0; 4];
            fd.unwrap().read_exact_at(&mut bytes, offset)?;
            self.told.send(format!("map {:#x} {size:#x} {bytes:x?}", flags.bits())).map_err(io::Error::other)
        }

        fn dma_unmap(&mut self, _: DmaUnmapFlags, _: u64, size: u64) -> io::Result<()> {
            self.told.send(format!("unmap {size:#x}")).map_err(io::Error::other)
        }

        fn reset(&mut self) -> io::Result<()> {
            self.told.send("reset".to_owned()).map_err(io::Error::other)
        }

        fn set_irqs(&mut self, _: u32, _: u32, _: u32, _: u32, _: Vec<File>) -> io::Result<()> {
            Err(io::Error::other("nobody asks for that"))
        }
    }

    #[test]
    fn our_client_and_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let region = |index| {
            let mut region = ServerRegion { region_info: Default::default(), sparse_areas: vec![], mmap_fd: None };
            let size = [0x4000, 256][usize::from(index == 7)];
            (region.region_info.argsz, region.region_info.index) = (32, index);
            (region.region_info.flags, region.region_info.size) = (3, size);
            region
        };
        let server = Server::new(&path, true, vec![], (0..9).map(region).collect()).unwrap();
        let (told, log) = mpsc::channel();
        let backend = Mutex::new(Backend { registers: vec![0; 0x4000], told });
        thread::scope(|scope| {
            let serving = scope.spawn(|| server.run(&mut *backend.lock().unwrap()));
            let function = VfioUserFunction::connect(&path, &patient_client()).unwrap();
            function.write_u32(0x24, 0x1234);
            assert_eq!(function.read_u64(0x20), 0x1234 << 32);
            let memory = HostMemory::allocate(4096).unwrap();
            fs::File::from(memory.as_fd().try_clone_to_owned().unwrap()).write_all_at(b"here", 0).unwrap();
            drop(function.dma().register(memory, Access::DEVICE_READS).unwrap());
            function.doorbell(0x1000).unwrap().ring(5);
            function.enable_bus_mastering().unwrap();
            function.disable_bus_mastering().unwrap();
            function.reset().unwrap();
            assert_eq!(function.ended(), None);
            drop(function);
            serving.join().unwrap().unwrap();
        });
        drop(backend);
        let log: Vec<_> = log.iter().collect();
        assert_eq!(
            log,
            [
                "write 0 0x24 [34, 12, 0, 0]",
                "map 0x1 0x1000 [68, 65, 72, 65]",
                "unmap 0x1000",
                "write 0 0x1000 [5, 0, 0, 0]",
                "write 7 0x4 [6, 0]",
                "write 7 0x4 [2, 0]",
                "reset",
            ]
        );
    }
}
