//! The client: a function of which the other end of a socket is the device.
//!
//! [`connection`] is one command at a time with its reply, and how a connection ends; [`bar`] is BAR 0, by messages and by
//! what of it can be mapped; [`space`] maps memory by its file.
//!
//! A server that does not answer in time, or answers what it must not, is gone for good: the connection is ended, the
//! registers read as all ones from then on, and nothing can be mapped. What it was given to reach it reaches until it
//! has closed its end, and no word of it proves otherwise; see [`SilentServer`] for one that does not even do that.

mod bar;
mod connection;
mod space;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::bus::{BusError, Doorbell, Function};
use crate::dma::{DmaSpace, IovaAllocator};

use bar::Bar;
use connection::Connection;
use space::ClientSpace;

use super::error::{ProtocolError, VfioUserError};
use super::wire::{self, DeviceInfo, RegionInfo, command};

/// Offset of the Command register in configuration space, and its Bus Master Enable (PCI Local Bus 3.0, 6.2.2).
const COMMAND: u64 = 4;
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
/// The least BAR 0 of a controller: its registers and the admin queue's doorbells.
const LEAST_BAR: u64 = 0x1008;
/// Areas of BAR 0 that are mapped at the most: more than any controller has. The others are accessed by messages.
const MOST_AREAS: usize = 64;

/// What is done about a server that neither answers nor closes its end when the connection is to end.
///
/// It may still have memory of this process mapped, and nothing that this end does takes it away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SilentServer {
    /// It is left alone: it may belong to others as well. Memory that was mapped for it can then never be unmapped (the
    /// region's bytes are leaked), and what was in flight may still arrive: if it wakes up, it writes into buffers
    /// whose commands have been given up.
    #[default]
    LeaveRunning,
    /// Its process is killed, as far as the kernel lets this one do that; when the kernel has closed its end, its memory
    /// has gone. Right for a server that serves nobody else.
    Kill,
}

/// How a server is spoken with.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The longest wait for the connection, and for each answer.
    pub answer_timeout: Duration,
    /// The longest wait for the server to close its end when the connection is to end.
    pub close_timeout: Duration,
    /// What is done when it does not.
    pub silent_server: SilentServer,
    /// The most mappings at a time; fewer where the server has room for fewer.
    pub max_mappings: u64,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            answer_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
            silent_server: SilentServer::default(),
            max_mappings: 65535,
        }
    }
}

/// A function behind a vfio-user socket.
///
/// Its address space is its own: what is mapped is passed to the server by file descriptor, so only memory that has a
/// file can be mapped ([`HostMemory`](crate::dma::HostMemory) has one).
///
/// Every access is a message and its reply, one at a time; a doorbell is a message without one. Where the server lets
/// parts of BAR 0 be mapped, and cannot take them back, they are accessed as memory.
pub struct VfioUserFunction {
    name: String,
    connection: Arc<Connection>,
    bar: Arc<Bar>,
    has_reset: bool,
    dma: Arc<DmaSpace>,
}

impl VfioUserFunction {
    /// Connects to the server at `path` and asks what it is.
    ///
    /// # Errors
    /// [`VfioUserError`]: there is no server, it does not keep to the protocol, or serves no controller.
    pub fn connect(path: &Path, config: &ClientConfig) -> Result<Arc<Self>, VfioUserError> {
        let (connection, capabilities) = Connection::open(path, config)?;
        let connection = Arc::new(connection);
        let info = device_info(&connection)?;
        if info.flags & DeviceInfo::PCI == 0 || info.num_regions <= wire::CONFIGURATION {
            let reason = format!("it is no PCI device (flags {:#x}, {} regions)", info.flags, info.num_regions);
            return Err(VfioUserError::Device { reason });
        }
        check_configuration(&connection)?;
        let bar = open_bar(&connection)?;
        let limit = capabilities.max_dma_maps.min(config.max_mappings);
        let space = Arc::new(ClientSpace::new(Arc::clone(&connection), capabilities.page_size(), limit));
        Ok(Arc::new(Self {
            name: format!("vfio-user:{}", path.display()),
            connection,
            bar: Arc::new(bar),
            has_reset: info.flags & DeviceInfo::RESET != 0,
            dma: DmaSpace::new(space, IovaAllocator::common()),
        }))
    }

    /// Why the connection has ended, if it has.
    pub fn ended(&self) -> Option<String> {
        self.connection.ended()
    }

    /// Sets Bus Master Enable, or clears it, and reads it back: a register that can be read has been written.
    fn set_bus_mastering(&self, on: bool, what: &'static str) -> Result<(), BusError> {
        let gone = |_: VfioUserError| BusError::Gone { what };
        let mut bytes = [0; 2];
        self.connection.read(what, wire::CONFIGURATION, COMMAND, &mut bytes).map_err(gone)?;
        let command = u16::from_le_bytes(bytes);
        let wanted = if on { command | BUS_MASTER | MEMORY_SPACE } else { command & !BUS_MASTER };
        self.connection.write(what, wire::CONFIGURATION, COMMAND, &wanted.to_le_bytes()).map_err(gone)?;
        self.connection.read(what, wire::CONFIGURATION, COMMAND, &mut bytes).map_err(gone)?;
        if (u16::from_le_bytes(bytes) & BUS_MASTER != 0) == on { Ok(()) } else { Err(BusError::Gone { what }) }
    }
}

impl Function for VfioUserFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_u32(&self, offset: u64) -> u32 {
        self.bar.read_u32(offset)
    }

    fn write_u32(&self, offset: u64, value: u32) {
        self.bar.write_u32(offset, value);
    }

    fn read_u64(&self, offset: u64) -> u64 {
        self.bar.read_u64(offset)
    }

    fn write_u64(&self, offset: u64, value: u64) {
        self.bar.write_u64(offset, value);
    }

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        Ok(Box::new(Bar::doorbell(&self.bar, offset)?))
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        &self.dma
    }

    fn revoke_doorbells(&self) {
        self.bar.revoke();
    }

    fn reset(&self) -> Result<(), BusError> {
        let what = "Function Level Reset";
        if !self.has_reset {
            return Err(BusError::NoReset);
        }
        match self.connection.ask(what, command::DEVICE_RESET, &[], None) {
            Ok(_) => Ok(()),
            Err(VfioUserError::Refused { errno: libc::EOPNOTSUPP, .. }) => Err(BusError::NoReset),
            Err(_) => Err(BusError::Gone { what }),
        }
    }

    /// The server answers the write when none of its DMA is under way; the register is read back all the same.
    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        self.set_bus_mastering(false, "the read after bus mastering was disabled")
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        self.set_bus_mastering(true, "the write that enables bus mastering")
    }

    /// Ends the connection, and waits until the server has closed its end, which it does when it has given back all memory.
    /// For one that does not see [`SilentServer`].
    fn cut_off(&self) {
        self.connection.end("it was cut off");
    }
}

fn device_info(connection: &Connection) -> Result<DeviceInfo, VfioUserError> {
    let what = "what the device is";
    let asked = DeviceInfo { argsz: size_of::<DeviceInfo>() as u32, ..DeviceInfo::default() };
    let reply = connection.ask(what, command::DEVICE_GET_INFO, &[asked.as_bytes()], None)?;
    let (info, _) = connection.judge(what, reply.header.payload::<DeviceInfo>(&reply.payload))?;
    Ok(info)
}

/// A region's information, with the capabilities behind it and its descriptor.
fn region_info(connection: &Connection, index: u32) -> Result<(RegionInfo, super::socket::Message), VfioUserError> {
    let what = "what a region of the device is";
    let asked = RegionInfo { argsz: wire::MAX_PAYLOAD as u32, index, ..RegionInfo::default() };
    let asked = [asked.as_bytes()];
    let reply = connection.ask(what, command::DEVICE_GET_REGION_INFO, &asked, None)?;
    let (info, _) = connection.judge(what, reply.header.payload::<RegionInfo>(&reply.payload))?;
    let (found, due) = (info.index.into(), index.into());
    if found != due {
        let echo = ProtocolError::Echo { command: reply.header.command, what: "the region", found, due };
        connection.judge(what, Err(echo))?;
    }
    Ok((info, reply))
}

fn check_configuration(connection: &Connection) -> Result<(), VfioUserError> {
    let (info, _) = region_info(connection, wire::CONFIGURATION)?;
    if info.has(RegionInfo::READ | RegionInfo::WRITE) && info.size >= 64 {
        return Ok(());
    }
    let reason = format!("configuration space has {} bytes and flags {:#x}", info.size, info.flags);
    Err(VfioUserError::Device { reason })
}

/// BAR 0, with those of its parts mapped that can be.
fn open_bar(connection: &Arc<Connection>) -> Result<Bar, VfioUserError> {
    let (info, reply) = region_info(connection, wire::BAR0)?;
    if !info.has(RegionInfo::READ | RegionInfo::WRITE) || info.size < LEAST_BAR {
        let reason = format!(
            "BAR 0 has {} bytes and flags {:#x}; at least {LEAST_BAR}, readable and writable, would be right",
            info.size, info.flags
        );
        return Err(VfioUserError::Device { reason });
    }
    let mut areas = connection.judge("what of BAR 0 can be mapped", info.areas(&reply.payload))?;
    areas.truncate(MOST_AREAS);
    let file = reply.descriptors.into_iter().next();
    Ok(Bar::new(Arc::clone(connection), &info, &areas, file))
}

#[cfg(test)]
mod tests;
