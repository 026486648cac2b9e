use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use tempfile::TempDir;
use zerocopy::FromBytes;

use super::super::socket::{Message, Socket, Wait};
use super::super::version::{Capabilities, Offer};
use super::super::wire::{Area, CapabilityHeader, DmaMap, DmaUnmap, Header, RegionAccess, SparseMmap};
use super::super::{PciIdentity, Server, ServerConfig};
use super::*;
use crate::controller::{Controller, ControllerConfig};
use crate::dma::{Access, HostMemory, MapError, RegisterError};
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu};
use crate::queue::Extent;
use crate::spec::ZeroesBased;
use crate::spec::command::Sqe;
use crate::spec::registers::offset;

const LATE: Duration = Duration::from_secs(60);
/// For answers that never come. Long enough for those that do.
const PATIENCE: Duration = Duration::from_secs(2);
const SHORT: Duration = Duration::from_millis(50);
const BAR_SIZE: u64 = 0x4000;

/// What a scripted server does about a command.
enum Step {
    Reply(Vec<u8>, Option<OwnedFd>),
    Fail(i32),
    /// These bytes, whatever they are.
    Raw(Vec<u8>),
    Nothing,
    /// It closes its end.
    Close,
}

/// A server that does as it is told; its thread returns the commands that it was given.
struct Puppet {
    folder: TempDir,
    thread: JoinHandle<Vec<Message>>,
}

impl Puppet {
    fn new(mut script: impl FnMut(&Message) -> Step + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let thread = thread::spawn(move || {
            let socket = Socket::new(listener.accept().unwrap().0).unwrap();
            let mut log = Vec::new();
            while let Ok(Some(message)) = socket.receive(&Wait::new("a command", LATE), ("a command", LATE)) {
                let (header, step) = (message.header, script(&message));
                log.push(message);
                let wait = Wait::new("sending", LATE);
                // A client that has given up does not take what is sent.
                let _ = match step {
                    _ if !header.wants_reply() => Ok(()),
                    Step::Nothing => Ok(()),
                    Step::Reply(payload, file) => {
                        let file = file.as_ref().map(|file| file.as_fd());
                        socket.send(header.reply(payload.len()), &[&payload], file, &wait)
                    }
                    Step::Fail(errno) => socket.send(header.failure(errno), &[], None, &wait),
                    Step::Raw(bytes) => rustix::io::write(&socket, &bytes).map(drop).map_err(|_| wait.closed()),
                    Step::Close => break,
                };
            }
            log
        });
        Self { folder, thread }
    }

    fn connect(
        &self,
        answer_timeout: Duration,
        close_timeout: Duration,
    ) -> Result<Arc<VfioUserFunction>, VfioUserError> {
        let config = ClientConfig { answer_timeout, close_timeout, ..ClientConfig::default() };
        VfioUserFunction::connect(&self.folder.path().join("socket"), &config)
    }
}

/// What a sound device does, with registers that read as their own offset.
fn sound(message: &Message) -> Step {
    let header = message.header;
    let access = || RegionAccess::read_from_prefix(&message.payload).unwrap().0;
    let bytes = match header.command {
        command::VERSION => Offer::proposal(Capabilities::ours(16)).encode(),
        command::DEVICE_GET_INFO => DeviceInfo { argsz: 16, flags: 3, num_regions: 9, num_irqs: 0 }.as_bytes().to_vec(),
        command::DEVICE_GET_REGION_INFO => {
            let index = RegionInfo::read_from_prefix(&message.payload).unwrap().0.index;
            let size = if index == wire::BAR0 { BAR_SIZE } else { 256 };
            RegionInfo { argsz: 32, flags: 3, index, size, ..RegionInfo::default() }.as_bytes().to_vec()
        }
        command::REGION_READ => {
            let value = access().offset.to_le_bytes();
            [access().as_bytes(), value.get(..access().count as usize).unwrap()].concat()
        }
        command::REGION_WRITE => access().as_bytes().to_vec(),
        command::DMA_UNMAP => message.payload.clone(),
        _ => Vec::new(),
    };
    Step::Reply(bytes, None)
}

/// A sound device whose BAR 0 has an area at 1000h that can be mapped, of `file`.
fn with_area(message: &Message, file: &File, size: u64) -> Step {
    let asked = RegionInfo::read_from_prefix(&message.payload).map(|(info, _)| info.index);
    if message.header.command != command::DEVICE_GET_REGION_INFO || asked != Ok(wire::BAR0) {
        return sound(message);
    }
    let flags = RegionInfo::READ | RegionInfo::WRITE | RegionInfo::MMAP | RegionInfo::CAPS;
    let info = RegionInfo { argsz: 64, flags, index: 0, cap_offset: 32, size: BAR_SIZE, offset: 0x1000 };
    let capability = CapabilityHeader { id: CapabilityHeader::SPARSE_MMAP, version: 1, next: 0 };
    let areas = SparseMmap { nr_areas: 1, reserved: 0 };
    let area = Area { offset: 0x1000, size };
    let payload = [info.as_bytes(), capability.as_bytes(), areas.as_bytes(), area.as_bytes()].concat();
    Step::Reply(payload, Some(file.try_clone().unwrap().into()))
}

fn memory() -> HostMemory {
    HostMemory::allocate(8192).unwrap()
}

#[test]
fn a_controller_behind_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let iommu = SoftwareIommu::new();
    let model = Model::new(ModelConfig::default(), Drive::Threaded, &iommu).unwrap();
    let config = ServerConfig {
        sealed_memory_only: false,
        ..ServerConfig::new(PciIdentity { vendor: 0x1234, device: 1 }, 0x1000 + 65 * 8)
    };
    let mut server = Server::new(model.function(), iommu, config);
    let server = thread::spawn(move || server.serve(listener.accept().unwrap().0));
    let function = VfioUserFunction::connect(&path, &ClientConfig::default()).unwrap();
    assert!(function.name().starts_with("vfio-user:/"), "{}", function.name());
    let space = Arc::clone(function.dma());
    let mut controller = Controller::enable(function.clone(), ControllerConfig::default()).unwrap();
    let namespace = controller.namespaces().unwrap().remove(0);
    let mut pair = controller.create_queue_pair::<u32>(16).unwrap();
    let region = space.register(memory(), Access::all()).unwrap();
    let extent = [Extent { iova: region.iova(), len: 8192 }];
    let nlb = ZeroesBased::<u16>::from_count(2).unwrap();
    for (sqe, before, after) in
        [(Sqe::write(namespace.nsid, 7, nlb), 0x5a, 0x5a), (Sqe::read(namespace.nsid, 7, nlb), 0xee, 0x5a)]
    {
        region.view().fill(before);
        pair.submit(sqe, &extent, 3).unwrap();
        pair.ring();
        let mut ended = Vec::new();
        while ended.is_empty() {
            pair.poll(1, |completion| ended.push((completion.token, completion.status.is_success())));
            thread::yield_now();
        }
        assert_eq!(ended, [(3, true)]);
        let mut bytes = [0; 8192];
        region.view().read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == after));
    }
    controller.delete_queue_pair(&mut pair).unwrap();
    controller.shutdown().unwrap();
    drop((pair, region, space));
    assert_eq!(function.ended(), None);
    drop(function);
    server.join().unwrap().unwrap();
    assert_eq!(model.violations(), []);
}

#[test]
fn registers_are_read_and_written_by_messages() {
    let puppet = Puppet::new(sound);
    let function = puppet.connect(LATE, LATE).unwrap();
    assert_eq!(function.read_u32(0x1c), 0x1c);
    assert_eq!(function.read_u64(8), 8);
    assert_eq!(function.read_u32(BAR_SIZE), u32::MAX, "behind the BAR's end");
    assert_eq!(function.read_u32(2), u32::MAX, "not a dword");
    assert_eq!(function.read_u64(u64::MAX - 7), u64::MAX);
    function.write_u32(0x14, 0x1234);
    function.write_u32(BAR_SIZE, 1);
    function.write_u64(0x28, 0x1_0000_0002);
    assert_eq!(function.reset(), Ok(()));
    let refused = function.doorbell(BAR_SIZE).map(|_| ()).unwrap_err();
    assert_eq!(refused, BusError::NoRegister { offset: BAR_SIZE, end: BAR_SIZE });
    drop(function);
    let log = puppet.thread.join().unwrap();
    let written: Vec<_> = log
        .iter()
        .filter(|message| message.header.command == command::REGION_WRITE)
        .map(|message| RegionAccess::read_from_prefix(&message.payload).map(|(at, data)| (at.offset, data)).unwrap())
        .collect();
    assert_eq!(written, [(0x14, &[0x34, 0x12, 0, 0][..]), (0x28, &[2, 0, 0, 0]), (0x2c, &[1, 0, 0, 0])]);
}

#[test]
fn memory_is_passed_by_its_file_and_taken_back_exactly() {
    let puppet = Puppet::new(sound);
    let function = puppet.connect(LATE, LATE).unwrap();
    let region = function.dma().register(memory(), Access::DEVICE_READS).unwrap();
    let range = region.range();
    drop(region);
    let unmapped = |range| function.connection.ask("x", command::DMA_UNMAP, &[range], None).map(drop);
    unmapped(&[0; 24]).unwrap();
    drop(function);
    let log = puppet.thread.join().unwrap();
    let map = log.iter().find(|message| message.header.command == command::DMA_MAP).unwrap();
    let found = DmaMap::read_from_bytes(&map.payload).unwrap();
    let due = DmaMap { argsz: 32, flags: 1, offset: 0, address: range.start().get(), size: 8192 };
    assert_eq!((found, map.descriptors.len()), (due, 1));
    let unmap = log.iter().find(|message| message.header.command == command::DMA_UNMAP).unwrap();
    let due = DmaUnmap { argsz: 24, flags: 0, address: range.start().get(), size: 8192 };
    assert_eq!(DmaUnmap::read_from_bytes(&unmap.payload), Ok(due));
}

#[test]
fn a_refusal_is_an_error_and_no_end() {
    let puppet = Puppet::new(|message| match message.header.command {
        command::DMA_MAP => Step::Fail(libc::EEXIST),
        command::DEVICE_RESET => Step::Fail(libc::EOPNOTSUPP),
        command::REGION_READ if message.payload[0] == 0x1c => Step::Fail(0),
        _ => sound(message),
    });
    let function = puppet.connect(LATE, LATE).unwrap();
    let refused = function.dma().register(memory(), Access::all()).map(drop).unwrap_err();
    assert!(matches!(refused, RegisterError::Map(MapError::Kernel { errno: libc::EEXIST, .. })), "{refused}");
    assert_eq!(function.reset(), Err(BusError::NoReset));
    assert_eq!(function.read_u32(0x1c), u32::MAX);
    assert_eq!(function.read_u32(0x14), 0x14);
    assert_eq!(function.ended(), None);
}

#[test]
fn limits_of_the_address_space_are_kept_here() {
    let puppet = Puppet::new(sound);
    let function = puppet.connect(LATE, LATE).unwrap();
    let regions: Vec<_> = (0..16).map(|_| function.dma().register(memory(), Access::all()).unwrap()).collect();
    let refused = function.dma().register(memory(), Access::all()).map(drop).unwrap_err();
    assert!(matches!(refused, RegisterError::Map(MapError::EntryLimit { limit: 16, .. })), "{refused}");
    drop(regions);
    function.dma().register(memory(), Access::all()).unwrap();
}

#[test]
fn answers_that_cannot_be_end_the_connection() {
    let other_id = |message: &Message| Header { message_id: 999, ..message.header.reply(0) }.as_bytes().to_vec();
    let command = |message: &Message| Header::command(message.header.message_id, 9, 0).as_bytes().to_vec();
    let other_region = |message: &Message| {
        let access = RegionAccess { offset: 0x18, region: 0, count: 4 };
        [message.header.reply(20).as_bytes(), access.as_bytes(), &[1, 2, 3, 4]].concat()
    };
    let short = |message: &Message| {
        let access = RegionAccess { offset: 0x1c, region: 0, count: 4 };
        [message.header.reply(18).as_bytes(), access.as_bytes(), &[1, 2]].concat()
    };
    let long = |message: &Message| message.header.reply(1 << 20).as_bytes().to_vec();
    type Answer = fn(&Message) -> Vec<u8>;
    let scripts: [(&str, Answer); 6] = [
        ("another message's reply", other_id),
        ("a command", command),
        ("a reply about something else", other_region),
        ("a reply without all of its data", short),
        ("a reply that is too long", long),
        ("garbage", |_| vec![0xa5; 64]),
    ];
    for (name, answer) in scripts {
        let puppet = Puppet::new(move |message| match message.header.command {
            command::REGION_READ => Step::Raw(answer(message)),
            _ => sound(message),
        });
        let function = puppet.connect(LATE, LATE).unwrap();
        let region = function.dma().register(memory(), Access::all()).unwrap();
        assert_eq!(function.read_u32(0x1c), u32::MAX, "{name}");
        let reason = function.ended().expect(name);
        assert!(reason.contains("does not keep to the protocol"), "{name}: {reason}");
        assert_eq!(function.read_u32(0x1c), u32::MAX, "{name}: it stays gone");
        assert_eq!(function.reset(), Err(BusError::Gone { what: "Function Level Reset" }));
        assert!(function.disable_bus_mastering().is_err() && function.enable_bus_mastering().is_err());
        assert!(function.dma().register(memory(), Access::all()).is_err());
        // The server has closed its end: all is unmapped, and the bytes are free.
        assert!(function.connection.end("once more"), "{name}");
        drop(region);
        puppet.thread.join().unwrap();
    }
}

#[test]
fn memory_of_a_silent_server_is_kept_until_it_closes() {
    let puppet = Puppet::new(|message| match message.header.command {
        command::REGION_READ => {
            // It neither answers nor closes its end, for a while.
            thread::sleep(PATIENCE * 2);
            Step::Nothing
        }
        _ => sound(message),
    });
    let function = puppet.connect(PATIENCE, SHORT).unwrap();
    let region = function.dma().register(memory(), Access::all()).unwrap();
    assert_eq!(function.read_u32(0x1c), u32::MAX);
    let reason = function.ended().unwrap();
    assert!(reason.contains("did not answer within"), "{reason}");
    function.cut_off();
    assert!(!function.connection.end("x"), "it may still reach what it was given");
    drop(puppet.thread.join().unwrap());
    assert!(function.connection.end("x"), "now it cannot");
    drop(region);
}

#[test]
fn a_server_that_goes_away_is_gone() {
    let puppet = Puppet::new(|message| match message.header.command {
        command::DEVICE_RESET => Step::Close,
        _ => sound(message),
    });
    let function = puppet.connect(LATE, LATE).unwrap();
    let bell = function.doorbell(0x1008).unwrap();
    assert_eq!(function.reset(), Err(BusError::Gone { what: "Function Level Reset" }));
    bell.ring(1);
    function.revoke_doorbells();
    function.cut_off();
    assert_eq!(function.read_u64(0), u64::MAX);
    assert!(function.ended().unwrap().contains("has ended"), "{:?}", function.ended());
    puppet.thread.join().unwrap();
}

#[test]
fn devices_that_cannot_be_driven() {
    let reply = |info: &[u8]| Step::Reply(info.to_vec(), None);
    let region = |index, size, flags| RegionInfo { argsz: 32, flags, index, size, ..RegionInfo::default() };
    type Case = Box<dyn Fn(&Message) -> Option<Step> + Send>;
    let cases: [(&str, Case); 4] = [
        (
            "no PCI device",
            Box::new(move |message| {
                let info = DeviceInfo { argsz: 16, flags: 1, num_regions: 9, num_irqs: 0 };
                (message.header.command == command::DEVICE_GET_INFO).then(|| reply(info.as_bytes()))
            }),
        ),
        (
            "at least 4104",
            Box::new(move |message| {
                let small = region(0, 4096, 3);
                (message.header.command == command::DEVICE_GET_REGION_INFO && message.payload[8] == 0)
                    .then(|| reply(small.as_bytes()))
            }),
        ),
        (
            "configuration space",
            Box::new(move |message| {
                let read_only = region(7, 256, 1);
                (message.header.command == command::DEVICE_GET_REGION_INFO && message.payload[8] == 7)
                    .then(|| reply(read_only.as_bytes()))
            }),
        ),
        (
            "speaks version 0.2",
            Box::new(move |message| (message.header.command == command::VERSION).then(|| reply(&[0, 0, 2, 0]))),
        ),
    ];
    for (expected, case) in cases {
        let puppet = Puppet::new(move |message| case(message).unwrap_or_else(|| sound(message)));
        let error = puppet.connect(LATE, LATE).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        puppet.thread.join().unwrap();
    }
    let nobody =
        VfioUserFunction::connect(Path::new("/nowhere/socket"), &ClientConfig::default()).map(drop).unwrap_err();
    assert!(nobody.to_string().contains("cannot connect to the vfio-user socket /nowhere/socket"), "{nobody}");
}

/// What a puppet was told of the doorbell at 1008h, in order.
fn rings(log: &[Message]) -> Vec<u8> {
    let writes = log.iter().filter(|message| message.header.command == command::REGION_WRITE);
    let writes = writes.map(|message| RegionAccess::read_from_prefix(&message.payload).unwrap());
    writes.filter(|(access, _)| access.offset == 0x1008).map(|(_, data)| data[0]).collect()
}

#[test]
fn doorbells_by_message_can_be_revoked() {
    let puppet = Puppet::new(sound);
    let function = puppet.connect(LATE, LATE).unwrap();
    let former = function.doorbell(0x1008).unwrap();
    former.ring(1);
    function.revoke_doorbells();
    former.ring(2);
    let latter = function.doorbell(0x1008).unwrap();
    latter.ring(3);
    former.ring(4);
    drop((former, latter, function));
    assert_eq!(rings(&puppet.thread.join().unwrap()), [1, 3]);
}

#[test]
fn doorbells_in_memory_can_be_revoked() {
    let file = File::from(memfd_create("bar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(0x3000).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let theirs = file.try_clone().unwrap();
    let puppet = Puppet::new(move |message| with_area(message, &theirs, 0x1000));
    let function = puppet.connect(LATE, LATE).unwrap();
    // The region begins at 1000h of the file, and the area at 1000h of the region.
    let seen = || {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 0x2008).unwrap();
        u32::from_le_bytes(bytes)
    };
    let former = function.doorbell(0x1008).unwrap();
    former.ring(1);
    assert_eq!(seen(), 1);
    assert_eq!(function.read_u32(0x1008), 1);
    function.revoke_doorbells();
    former.ring(2);
    assert_eq!(seen(), 1, "it leads nowhere");
    let latter = function.doorbell(0x1008).unwrap();
    latter.ring(3);
    assert_eq!((seen(), function.read_u32(0x1008)), (3, 3));
    function.write_u32(0x1ffc, 9);
    function.write_u32(0x14, 7);
    assert_eq!(function.read_u64(0xffc), 0xffc, "one half by message, the other mapped");
    drop((former, latter, function));
    let log = puppet.thread.join().unwrap();
    assert_eq!(rings(&log), [0; 0], "none was a message");
    assert_eq!(log.iter().filter(|message| message.header.command == command::REGION_WRITE).count(), 1);
}

#[test]
fn what_could_be_cut_short_is_not_mapped() {
    for (len, seals, size) in [
        (0x3000, SealFlags::GROW, 0x1000),
        (0x2000, SealFlags::SHRINK, 0x1000),
        (0x9000, SealFlags::SHRINK, 0x5000),
        (0x3000, SealFlags::SHRINK, u64::MAX - 0xfff),
    ] {
        let file = File::from(memfd_create("bar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(len).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        let puppet = Puppet::new(move |message| with_area(message, &file, size));
        let function = puppet.connect(LATE, LATE).unwrap();
        function.doorbell(0x1008).unwrap().ring(5);
        drop(function);
        assert_eq!(rings(&puppet.thread.join().unwrap()), [5], "{len:#x} {seals:?} {size:#x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A server that is sound for some commands and then answers anything: nothing panics, and nothing waits for ever.
    #[test]
    fn any_answers(sound_for in 0usize..12, bytes in proptest::collection::vec(any::<u8>(), 0..100), size in 16u32..80) {
        let mut count = 0;
        let puppet = Puppet::new(move |message| {
            count += 1;
            if count <= sound_for {
                return sound(message);
            }
            if count > sound_for + 1 {
                return Step::Close;
            }
            // A header that fits, so that what follows it is looked at.
            let header = Header { message_size: size, ..message.header.reply(0) };
            Step::Raw([header.as_bytes(), &bytes].concat())
        });
        if let Ok(function) = puppet.connect(SHORT, LATE) {
            let bell = function.doorbell(0x1000);
            let region = function.dma().register(memory(), Access::all());
            function.read_u64(0);
            function.write_u32(offset::CC, 0);
            let _ = (function.disable_bus_mastering(), function.reset());
            bell.unwrap().ring(1);
            drop(region);
            function.cut_off();
            prop_assert_eq!(function.read_u32(offset::CSTS), u32::MAX);
        }
        puppet.thread.join().unwrap();
    }
}
