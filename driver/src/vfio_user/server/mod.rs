//! The server: any function, served over a socket.
//!
//! [`Server::serve`] is one connection, from the version to its end. The client is not trusted: whatever it sends, the
//! server's own memory is safe and the function is free for the next one afterwards. What it maps is checked by
//! [`memory`]; configuration space is [`configuration`]'s own, for a [`Function`] has none.
//!
//! Commands are taken one after the other, so a reply says that all before it has been done: DMA under way has ended
//! when DMA_UNMAP or a reset is answered, for so the function and the address space have it.

mod configuration;
mod memory;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use configuration::Configuration;
pub use configuration::PciIdentity;
use memory::Memory;

use super::error::{ProtocolError, VfioUserError};
use super::mapping::Seal;
use super::socket::{Message, Socket, Wait};
use super::version::{Capabilities, Offer};
use super::wire::{
    BAR0, CONFIGURATION, DeviceInfo, DmaMap, DmaUnmap, Header, MAX_DATA, PCI_REGIONS, RegionAccess, RegionInfo, command,
};
use crate::bus::{BusError, Function};
use crate::dma::AddressSpace;

/// How a function is served.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Bytes of BAR 0 from its start that the function has registers in; the BAR is the next power of two.
    pub registers: u64,
    /// Who it is in configuration space.
    pub identity: PciIdentity,
    /// How long the rest of a message may take when its first byte is there, and how long a client may take to make room
    /// for a reply.
    pub message_timeout: Duration,
    /// The most mappings of a client.
    pub max_mappings: u64,
    /// The most bytes that a client may have mapped: their pages are faulted in.
    pub max_mapped_bytes: u64,
    /// Whether memory is refused that its owner could cut short while it is mapped (a memfd without F_SEAL_SHRINK): a
    /// client that does so ends this process by a signal. Without it the client is trusted in that.
    pub sealed_memory_only: bool,
}

impl ServerConfig {
    /// For a function of this identity with this many bytes of registers, and nothing special.
    pub fn new(identity: PciIdentity, registers: u64) -> Self {
        Self {
            registers,
            identity,
            message_timeout: Duration::from_secs(5),
            max_mappings: 4096,
            max_mapped_bytes: 64 << 30,
            sealed_memory_only: true,
        }
    }
}

/// Serves a function, one client at a time.
pub struct Server {
    function: Arc<dyn Function>,
    space: Arc<dyn AddressSpace>,
    config: ServerConfig,
}

impl Server {
    /// A server of `function`, whose DMA goes through `space`.
    pub fn new(function: Arc<dyn Function>, space: Arc<dyn AddressSpace>, config: ServerConfig) -> Self {
        Self { function, space, config }
    }

    /// Serves a client until it closes the connection. Afterwards bus mastering is off, and nothing of the client's is mapped;
    /// otherwise the function is as the client has left it.
    ///
    /// # Errors
    /// [`VfioUserError`]: the client did not keep to the protocol or to its times. It is done with all the same.
    pub fn serve(&mut self, stream: UnixStream) -> Result<(), VfioUserError> {
        let what = "a client's connection";
        let socket = Socket::new(stream).map_err(|source| VfioUserError::Socket { what, source })?;
        let seal = if self.config.sealed_memory_only { Seal::Required } else { Seal::Trusted };
        let limits = (self.config.max_mappings, self.config.max_mapped_bytes);
        let memory = Memory::new(Arc::clone(&self.space), seal, limits);
        let configuration = Configuration::new(self.config.identity, self.config.registers);
        // Configuration space begins with bus mastering off, and so does the function. One that is gone shows as such.
        let _ = self.function.disable_bus_mastering();
        // The socket is the last to go: its end tells the client that nothing is mapped any more.
        let session = Session { server: self, memory, configuration, socket };
        session.run()
    }
}

/// One connection.
struct Session<'a> {
    server: &'a Server,
    memory: Memory,
    configuration: Configuration,
    socket: Socket,
}

/// A reply's payload, or the errno that the client is told.
type Answer = Result<Vec<u8>, Errno>;

impl Session<'_> {
    fn run(mut self) -> Result<(), VfioUserError> {
        let mut agreed = false;
        let limit = self.server.config.message_timeout;
        loop {
            // A client must say at once what it speaks; afterwards it may be silent for as long as it likes.
            let first = if agreed { Wait::endless("a command") } else { Wait::new("the version", limit) };
            let Some(message) = self.socket.receive(&first, ("the rest of a command", limit))? else { return Ok(()) };
            message.header.expect(Header::COMMAND).map_err(|error| first.protocol(error))?;
            let wait = Wait::new("room for a reply", limit);
            let header = message.header;
            if !agreed || header.command == command::VERSION {
                let reply = if agreed { Err(Errno::INVAL) } else { self.agree(&message, &first)? };
                self.reply(&header, reply, &wait)?;
                agreed = true;
                continue;
            }
            let answer = self.execute(message);
            if header.wants_reply() {
                self.reply(&header, answer, &wait)?;
            }
        }
    }

    fn reply(&self, header: &Header, answer: Answer, wait: &Wait) -> Result<(), VfioUserError> {
        match answer {
            Ok(payload) => self.socket.send(header.reply(payload.len()), &[&payload], None, wait),
            Err(errno) => self.socket.send(header.failure(errno.raw_os_error()), &[], None, wait),
        }
    }

    /// The version, which must come first. A client that cannot be spoken with is told EINVAL, then the connection ends.
    fn agree(&self, message: &Message, wait: &Wait) -> Result<Answer, VfioUserError> {
        let capabilities = Capabilities::ours(self.server.config.max_mappings);
        let offer = match message.header.command {
            command::VERSION => Offer::decode(&message.header, &message.payload),
            command => Err(ProtocolError::NoVersion { command }),
        };
        match offer.and_then(|offer| offer.answer(capabilities)) {
            Ok(answer) => Ok(Ok(answer.encode())),
            Err(error) => {
                self.reply(&message.header, Err(Errno::INVAL), wait)?;
                Err(wait.protocol(error))
            }
        }
    }

    fn execute(&mut self, message: Message) -> Answer {
        let Message { header, payload, descriptors } = message;
        match header.command {
            command::DMA_MAP => self.map(&header, &payload, descriptors),
            command::DMA_UNMAP => self.unmap(&header, &payload),
            command::DEVICE_GET_INFO => Ok(DeviceInfo {
                argsz: size_of::<DeviceInfo>() as u32,
                flags: DeviceInfo::RESET | DeviceInfo::PCI,
                num_regions: PCI_REGIONS,
                num_irqs: 0,
            }
            .as_bytes()
            .to_vec()),
            command::DEVICE_GET_REGION_INFO => self.region_info(&header, &payload),
            command::REGION_READ => self.read(&header, &payload),
            command::REGION_WRITE => self.write(&header, &payload),
            command::DEVICE_RESET => self.reset(),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn map(&mut self, header: &Header, payload: &[u8], descriptors: Vec<OwnedFd>) -> Answer {
        let (map, _) = header.payload::<DmaMap>(payload).map_err(|_| Errno::INVAL)?;
        let mut descriptors = descriptors.into_iter();
        // Memory without a descriptor would be read and written by messages, which this server does not do.
        let (Some(file), None) = (descriptors.next(), descriptors.next()) else { return Err(Errno::INVAL) };
        self.memory.map(&map, &file)?;
        Ok(Vec::new())
    }

    fn unmap(&mut self, header: &Header, payload: &[u8]) -> Answer {
        let (unmap, _) = header.payload::<DmaUnmap>(payload).map_err(|_| Errno::INVAL)?;
        self.memory.unmap(&unmap)?;
        Ok(unmap.as_bytes().to_vec())
    }

    fn region_info(&self, header: &Header, payload: &[u8]) -> Answer {
        let (asked, _) = header.payload::<RegionInfo>(payload).map_err(|_| Errno::INVAL)?;
        let size = match asked.index {
            BAR0 => self.configuration.bar_size(),
            CONFIGURATION => Configuration::SIZE,
            index if index < PCI_REGIONS => 0,
            _ => return Err(Errno::INVAL),
        };
        let flags = if size > 0 { RegionInfo::READ | RegionInfo::WRITE } else { 0 };
        let argsz = size_of::<RegionInfo>() as u32;
        Ok(RegionInfo { argsz, flags, index: asked.index, size, ..RegionInfo::default() }.as_bytes().to_vec())
    }

    /// What is read or written, where that is within its region.
    fn access<'a>(&self, header: &Header, payload: &'a [u8]) -> Result<(RegionAccess, &'a [u8]), Errno> {
        let (access, data) = header.payload::<RegionAccess>(payload).map_err(|_| Errno::INVAL)?;
        let size = match access.region {
            BAR0 => self.configuration.bar_size(),
            CONFIGURATION => Configuration::SIZE,
            _ => return Err(Errno::INVAL),
        };
        let inside = access.offset.checked_add(access.count.into()).is_some_and(|end| end <= size);
        // Registers are accessed as dwords or in pairs (PCIe Transport 1.1, 3.1.1), configuration space in any way.
        let register = matches!(access.count, 4 | 8) && access.offset.is_multiple_of(access.count.into());
        if inside && access.count as usize <= MAX_DATA && (access.region == CONFIGURATION || register) {
            Ok((access, data))
        } else {
            Err(Errno::INVAL)
        }
    }

    fn read(&self, header: &Header, payload: &[u8]) -> Answer {
        let (access, _) = self.access(header, payload)?;
        let mut reply = access.as_bytes().to_vec();
        let function = &self.server.function;
        match (access.region, access.count) {
            (BAR0, 8) => reply.extend(function.read_u64(access.offset).to_le_bytes()),
            (BAR0, _) => reply.extend(function.read_u32(access.offset).to_le_bytes()),
            _ => reply.extend(self.configuration.read(access.offset as usize, access.count as usize)),
        }
        Ok(reply)
    }

    fn write(&mut self, header: &Header, payload: &[u8]) -> Answer {
        let (access, data) = self.access(header, payload)?;
        if data.len() != access.count as usize {
            return Err(Errno::INVAL);
        }
        let function = &self.server.function;
        match (access.region, data) {
            (BAR0, &[a, b, c, d]) => function.write_u32(access.offset, u32::from_le_bytes([a, b, c, d])),
            (BAR0, &[a, b, c, d, e, f, g, h]) => {
                function.write_u64(access.offset, u64::from_le_bytes([a, b, c, d, e, f, g, h]));
            }
            _ => self.configure(access.offset as usize, data).map_err(|_| Errno::IO)?,
        }
        Ok(access.as_bytes().to_vec())
    }

    /// A write to configuration space. What it says of bus mastering has happened when it returns.
    fn configure(&mut self, offset: usize, data: &[u8]) -> Result<(), BusError> {
        let mut changed = self.configuration.clone();
        changed.write(offset, data);
        match (self.configuration.bus_master(), changed.bus_master()) {
            (false, true) => self.server.function.enable_bus_mastering()?,
            (true, false) => self.server.function.disable_bus_mastering()?,
            _ => {}
        }
        self.configuration = changed;
        Ok(())
    }

    fn reset(&mut self) -> Answer {
        match self.server.function.reset() {
            Ok(()) => {
                self.configuration.reset();
                Ok(Vec::new())
            }
            Err(BusError::NoReset) => Err(Errno::OPNOTSUPP),
            Err(_) => Err(Errno::IO),
        }
    }
}

impl Drop for Session<'_> {
    /// The client is gone: the device must not go on with what it was told, nor find the memory of the next client at
    /// the addresses of this one.
    fn drop(&mut self) {
        // Where the function does not answer, taking its memory away is what ends its reach.
        let _ = self.server.function.disable_bus_mastering();
        self.memory.clear();
    }
}

#[cfg(test)]
mod tests;
