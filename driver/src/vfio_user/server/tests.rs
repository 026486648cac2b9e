use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread::{self, JoinHandle};

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, memfd_create};
use zerocopy::FromBytes;

use super::*;
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu};
use crate::spec::registers::offset;
use crate::vfio_user::wire::{HEADER_LEN, Version};

const LATE: Duration = Duration::from_secs(60);
const IDENTITY: PciIdentity = PciIdentity { vendor: 0x1234, device: 1 };
/// Registers, and doorbells of 64 I/O queue pairs.
const REGISTERS: u64 = 0x1000 + 65 * 8;

/// A model behind a server, and its client's end of the socket, used as a bad client would.
struct Rig {
    model: Model,
    iommu: Arc<SoftwareIommu>,
    config: ServerConfig,
}

impl Rig {
    fn new() -> Self {
        let iommu = SoftwareIommu::new();
        let model = Model::new(ModelConfig::default(), Drive::Threaded, &iommu).unwrap();
        let config =
            ServerConfig { max_mappings: 8, max_mapped_bytes: 1 << 20, ..ServerConfig::new(IDENTITY, REGISTERS) };
        Self { model, iommu, config }
    }

    fn client(&self) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (function, space) = (self.model.function(), Arc::clone(&self.iommu));
        let mut server = Server::new(function, space, self.config.clone());
        let server = thread::spawn(move || server.serve(theirs));
        Client { socket: Socket::new(ours).unwrap(), server }
    }

    /// A client that has agreed on a version.
    fn agreed(&self) -> Client {
        let client = self.client();
        let proposal = Offer::proposal(Capabilities::ours(8)).encode();
        client.ask(command::VERSION, &[&proposal], &[]).unwrap();
        client
    }
}

struct Client {
    socket: Socket,
    server: JoinHandle<Result<(), VfioUserError>>,
}

impl Client {
    fn send(&self, flags: u32, command: u16, payload: &[&[u8]], file: Option<BorrowedFd<'_>>) {
        let header = Header::command(9, command, payload.iter().map(|part| part.len()).sum());
        let header = Header { flags, ..header };
        self.socket.send(header, payload, file, &Wait::new("sending", LATE)).unwrap();
    }

    fn receive(&self) -> Option<Message> {
        self.socket.receive(&Wait::new("a reply", LATE), ("a reply", LATE)).unwrap_or(None)
    }

    /// A command and its reply's payload, or errno.
    fn ask(&self, command: u16, payload: &[&[u8]], files: &[BorrowedFd<'_>]) -> Result<Vec<u8>, i32> {
        self.send(Header::COMMAND, command, payload, files.first().copied());
        let reply = self.receive().expect("a reply");
        assert_eq!((reply.header.message_id, reply.header.command), (9, command));
        reply.header.expect(Header::REPLY).unwrap();
        reply.header.errno().map_or(Ok(reply.payload), Err)
    }

    fn map(&self, map: DmaMap, file: &File) -> Result<(), Errno> {
        let answer = self.ask(command::DMA_MAP, &[map.as_bytes()], &[file.as_fd()]);
        answer.map(|payload| assert!(payload.is_empty())).map_err(Errno::from_raw_os_error)
    }

    fn unmap(&self, address: u64, size: u64) -> Result<(), Errno> {
        let unmap = DmaUnmap { argsz: 24, flags: 0, address, size };
        let answer = self.ask(command::DMA_UNMAP, &[unmap.as_bytes()], &[]);
        answer.map(|payload| assert_eq!(payload, unmap.as_bytes())).map_err(Errno::from_raw_os_error)
    }

    fn access(&self, command: u16, region: u32, offset: u64, count: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let access = RegionAccess { offset, region, count };
        let answer = self.ask(command, &[access.as_bytes(), data], &[]).map_err(Errno::from_raw_os_error)?;
        assert_eq!(RegionAccess::read_from_prefix(&answer).unwrap().0, access);
        Ok(answer[size_of::<RegionAccess>()..].to_vec())
    }

    fn read(&self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, Errno> {
        self.access(command::REGION_READ, region, offset, count, &[])
    }

    /// How the server has taken the connection's end.
    fn end(self) -> Result<(), VfioUserError> {
        drop(self.socket);
        self.server.join().expect("the server does not panic")
    }
}

fn sealed(len: u64) -> File {
    let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(len).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

fn at(address: u64, size: u64) -> DmaMap {
    DmaMap { argsz: 32, flags: DmaMap::READ | DmaMap::WRITE, offset: 0, address, size }
}

#[test]
fn the_version_comes_first_and_is_agreed_on() {
    let rig = Rig::new();
    let client = rig.client();
    assert_eq!(client.ask(command::DEVICE_GET_INFO, &[&[0; 16]], &[]), Err(libc::EINVAL));
    let ended = client.end();
    let source = ProtocolError::NoVersion { command: command::DEVICE_GET_INFO };
    assert!(matches!(&ended, Err(VfioUserError::Protocol { source: found, .. }) if *found == source), "{ended:?}");
    for (version, json) in [((1, 0), "{}"), ((0, 1), "{]")] {
        let client = rig.client();
        let version = Version { major: version.0, minor: version.1 };
        assert_eq!(client.ask(command::VERSION, &[version.as_bytes(), json.as_bytes()], &[]), Err(libc::EINVAL));
        assert!(client.receive().is_none(), "the connection has ended");
        assert!(matches!(client.end(), Err(VfioUserError::Protocol { .. })));
    }
    let client = rig.agreed();
    assert_eq!(client.ask(command::VERSION, &[&[0, 0, 1, 0]], &[]), Err(libc::EINVAL), "once is enough");
    client.end().unwrap();
}

#[test]
fn regions_are_what_the_function_has() {
    let rig = Rig::new();
    let client = rig.agreed();
    let info = client.ask(command::DEVICE_GET_INFO, &[&[0; 16]], &[]).unwrap();
    assert_eq!(
        DeviceInfo::read_from_bytes(&info).unwrap(),
        DeviceInfo { argsz: 16, flags: 3, num_regions: 9, num_irqs: 0 }
    );
    for (index, size) in [(0, 0x2000), (1, 0), (7, 256), (8, 0)] {
        let asked = RegionInfo { argsz: 32, index, ..RegionInfo::default() };
        let info = client.ask(command::DEVICE_GET_REGION_INFO, &[asked.as_bytes()], &[]).unwrap();
        assert_eq!(RegionInfo::read_from_bytes(&info).unwrap().size, size, "region {index}");
    }
    let cap = rig.model.function().read_u64(offset::CAP);
    assert_eq!(client.read(BAR0, offset::CAP, 8), Ok(cap.to_le_bytes().to_vec()));
    assert_eq!(client.read(BAR0, offset::CAP + 4, 4), Ok(cap.to_le_bytes()[4..].to_vec()));
    assert_eq!(client.access(command::REGION_WRITE, BAR0, offset::AQA, 4, &0x1f_001fu32.to_le_bytes()), Ok(vec![]));
    assert_eq!(rig.model.function().read_u32(offset::AQA), 0x1f_001f);
    assert_eq!(client.ask(command::DEVICE_RESET, &[], &[]), Ok(vec![]));
    assert_eq!(rig.model.function().read_u32(offset::AQA), 0, "it was reset");
    client.end().unwrap();
}

#[test]
fn accesses_that_no_region_has() {
    let rig = Rig::new();
    let client = rig.agreed();
    for (region, offset, count) in [
        (BAR0, 0x2000, 4),
        (BAR0, 0x1ffc, 8),
        (BAR0, u64::MAX - 3, 4),
        (BAR0, 2, 4),
        (BAR0, 4, 8),
        (BAR0, 0, 1),
        (BAR0, 0, u32::MAX),
        (CONFIGURATION, 255, 2),
        (CONFIGURATION, u64::MAX, 2),
        (1, 0, 4),
        (99, 0, 4),
    ] {
        assert_eq!(client.read(region, offset, count), Err(Errno::INVAL), "{region} {offset:#x} {count}");
    }
    let write = |count, data: &[u8]| client.access(command::REGION_WRITE, BAR0, offset::AQA, count, data);
    assert_eq!(write(4, &[1, 2, 3]), Err(Errno::INVAL), "too little data");
    assert_eq!(write(4, &[1; 8]), Err(Errno::INVAL), "too much data");
    for command in [0, 6, 7, 8, 11, 12, 14, 15, 16, u16::MAX] {
        assert_eq!(client.ask(command, &[&[0; 64]], &[]), Err(libc::EOPNOTSUPP), "command {command}");
    }
    for command in [command::DMA_MAP, command::DMA_UNMAP, command::DEVICE_GET_REGION_INFO, command::REGION_READ] {
        assert_eq!(client.ask(command, &[&[0; 3]], &[]), Err(libc::EINVAL), "command {command}, cut off");
    }
    client.end().unwrap();
}

#[test]
fn bus_mastering_follows_the_command_register() {
    let rig = Rig::new();
    let client = rig.agreed();
    let write = |value: u16| client.access(command::REGION_WRITE, CONFIGURATION, 4, 2, &value.to_le_bytes());
    assert_eq!(client.read(CONFIGURATION, 0, 6), Ok(vec![0x34, 0x12, 1, 0, 0, 0]));
    write(0xffff).unwrap();
    assert_eq!(client.read(CONFIGURATION, 4, 2), Ok(vec![6, 0]));
    client.ask(command::DEVICE_RESET, &[], &[]).unwrap();
    assert_eq!(client.read(CONFIGURATION, 4, 2), Ok(vec![0, 0]), "off after a reset");
    write(4).unwrap();
    client.end().unwrap();
    let client = rig.agreed();
    assert_eq!(client.read(CONFIGURATION, 4, 2), Ok(vec![0, 0]), "off for the next client");
    client.end().unwrap();
}

#[test]
fn memory_is_mapped_exactly_and_within_limits() {
    let rig = Rig::new();
    let client = rig.agreed();
    let file = sealed(64 << 10);
    client.map(at(0x10000, 0x4000), &file).unwrap();
    for (name, map, expected) in [
        ("the same again", at(0x10000, 0x4000), Errno::EXIST),
        ("its last page", at(0x13000, 0x1000), Errno::EXIST),
        ("around it", at(0xf000, 0x10000), Errno::EXIST),
        ("address 0", at(0, 0x1000), Errno::INVAL),
        ("no bytes", at(0x20000, 0), Errno::INVAL),
        ("past the last address", at(u64::MAX - 0xfff, 0x2000), Errno::INVAL),
        ("more than all memory", at(0x20000, u64::MAX - 0x20fff), Errno::NOMEM),
        ("more than a client may", at(0x20000, 1 << 20), Errno::NOMEM),
        ("an address within a page", at(0x20800, 0x1000), Errno::INVAL),
        ("half a page", at(0x20000, 0x800), Errno::INVAL),
        ("behind the file's end", DmaMap { offset: 0xf000, ..at(0x20000, 0x2000) }, Errno::NXIO),
        ("an offset that overflows", DmaMap { offset: u64::MAX - 0xfff, ..at(0x20000, 0x2000) }, Errno::OVERFLOW),
        ("no access", DmaMap { flags: 0, ..at(0x20000, 0x1000) }, Errno::INVAL),
        ("an unknown flag", DmaMap { flags: 11, ..at(0x20000, 0x1000) }, Errno::INVAL),
    ] {
        assert_eq!(client.map(map, &file), Err(expected), "{name}");
    }
    for (name, address, size) in [
        ("a part", 0x10000, 0x1000),
        ("more", 0x10000, 0x5000),
        ("from inside", 0x11000, 0x3000),
        ("none", 0x20000, 0x1000),
    ] {
        assert_eq!(client.unmap(address, size), Err(Errno::NOENT), "{name}");
    }
    client.unmap(0x10000, 0x4000).unwrap();
    assert_eq!(client.unmap(0x10000, 0x4000), Err(Errno::NOENT), "it is gone");
    for index in 0..8 {
        client.map(at(0x10000 + index * 0x1000, 0x1000), &file).unwrap();
    }
    assert_eq!(client.map(at(0x30000, 0x1000), &file), Err(Errno::NOSPC), "one too many");
    client.end().unwrap();
    // The next client finds nothing in its way.
    let client = rig.agreed();
    client.map(at(0x10000, 0x4000), &file).unwrap();
    client.end().unwrap();
}

#[test]
fn files_that_cannot_be_served_are_refused() {
    let rig = Rig::new();
    let client = rig.agreed();
    let map = at(0x10000, 0x1000);
    let unsealed = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    unsealed.set_len(0x1000).unwrap();
    assert_eq!(client.map(map, &unsealed), Err(Errno::PERM), "it could be cut short");
    assert_eq!(client.map(map, &File::open("/dev/zero").unwrap()), Err(Errno::INVAL));
    assert_eq!(client.map(map, &File::open("/").unwrap()), Err(Errno::INVAL));
    let file = sealed(0x1000);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let read_only = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap();
    assert_eq!(client.map(map, &File::from(read_only)), Err(Errno::ACCESS));
    assert_eq!(client.ask(command::DMA_MAP, &[map.as_bytes()], &[]), Err(libc::EINVAL), "no file at all");
    client.map(map, &file).unwrap();
    client.end().unwrap();
}

#[test]
fn a_command_without_reply_has_none_and_the_next_has() {
    let rig = Rig::new();
    let client = rig.agreed();
    let access = RegionAccess { offset: offset::AQA, region: BAR0, count: 4 };
    client.send(Header::NO_REPLY, command::REGION_WRITE, &[access.as_bytes(), &[3, 0, 3, 0]], None);
    client.send(Header::NO_REPLY, command::REGION_WRITE, &[access.as_bytes(), &[3]], None);
    client.send(Header::NO_REPLY, 77, &[], None);
    assert_eq!(client.read(BAR0, offset::AQA, 4), Ok(vec![3, 0, 3, 0]));
    client.end().unwrap();
}

#[test]
fn what_is_no_command_ends_the_connection() {
    let rig = Rig::new();
    let client = rig.agreed();
    client.send(Header::REPLY, command::DEVICE_RESET, &[], None);
    assert!(client.receive().is_none());
    let ended = client.end();
    assert!(
        matches!(ended, Err(VfioUserError::Protocol { source: ProtocolError::MessageType { .. }, .. })),
        "{ended:?}"
    );
    let mut rig = rig;
    rig.config.message_timeout = Duration::from_millis(20);
    // Half a message, and then nothing.
    let client = rig.agreed();
    rustix::io::write(&client.socket, &[0; 7]).unwrap();
    assert!(client.receive().is_none());
    assert!(matches!(client.end(), Err(VfioUserError::Silent { .. })));
    // A client that says nothing at all is not waited for either.
    let client = rig.client();
    assert!(client.receive().is_none());
    assert!(matches!(client.end(), Err(VfioUserError::Silent { what: "the version", .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Commands of any bytes: each has its reply or ends the connection, and the server is as good as new for the next client.
    #[test]
    fn a_hostile_client_harms_nobody(
        messages in proptest::collection::vec((0u16..18, 0u32..64, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80)), 1..20),
        size in proptest::option::of(any::<u32>()),
    ) {
        let rig = Rig::new();
        let client = rig.agreed();
        let file = sealed(16 << 10);
        for (command, flags, small, mut payload) in messages {
            if small {
                // Numbers as a command has them, not random ones.
                payload.iter_mut().enumerate().filter(|(index, _)| index % 8 != 1).for_each(|(_, byte)| *byte &= 3);
            }
            let header = Header { flags, ..Header::command(1, command, payload.len()) };
            let sent = client.socket.send(header, &[&payload], Some(file.as_fd()), &Wait::new("sending", LATE));
            if sent.is_err() {
                break;
            }
            if header.wants_reply() && client.receive().is_none() {
                break;
            }
        }
        if let Some(message_size) = size {
            let bytes: [u8; HEADER_LEN] = zerocopy::transmute!(Header { message_size, ..Header::command(1, 2, 0) });
            let _ = rustix::io::write(&client.socket, &bytes);
        }
        let _ = client.end();
        let client = rig.agreed();
        prop_assert_eq!(client.map(at(0x10000, 0x4000), &file), Ok(()));
        prop_assert!(client.read(BAR0, offset::CAP, 8).is_ok());
        client.end().unwrap();
    }
}
