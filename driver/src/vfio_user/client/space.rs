//! The address space of one connection: memory is passed to the server by its file.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use zerocopy::{FromBytes, IntoBytes};

use super::super::wire::{DmaMap, DmaUnmap, command};
use super::connection::{Connection, check_echo};
use super::{ProtocolError, VfioUserError};
use crate::dma::{Access, AddressSpace, IovaRange, MapError};

const MAP: &str = "the mapping of memory";
const UNMAP: &str = "the end of a mapping";

/// What the server may reach.
pub(super) struct ClientSpace {
    connection: Arc<Connection>,
    page_size: u64,
    limit: u64,
    /// By the first IOVA. Held while the server is asked, so that it is told of one change after the other.
    mapped: Mutex<BTreeMap<u64, IovaRange>>,
}

impl ClientSpace {
    pub(super) fn new(connection: Arc<Connection>, page_size: u64, limit: u64) -> Self {
        Self { connection, page_size, limit, mapped: Mutex::default() }
    }

    /// Asks the server to forget a mapping, and compares what it says it has forgotten.
    fn ask_to_unmap(&self, range: IovaRange) -> Result<(), VfioUserError> {
        let (address, size) = (range.start().get(), range.len());
        let unmap = DmaUnmap { argsz: size_of::<DmaUnmap>() as u32, flags: 0, address, size };
        let reply = self.connection.ask(UNMAP, command::DMA_UNMAP, &[unmap.as_bytes()], None)?;
        // The protocol has the reply repeat the mapping; libraries leave it out.
        let echoed = match DmaUnmap::read_from_prefix(&reply.payload) {
            Ok((echo, _)) => check_echo(&reply.header, "the address", echo.address, address)
                .and_then(|()| check_echo(&reply.header, "the size", echo.size, size)),
            Err(_) if reply.payload.is_empty() => Ok(()),
            Err(_) => Err(ProtocolError::Payload {
                command: reply.header.command,
                len: reply.payload.len(),
                least: size_of::<DmaUnmap>(),
            }),
        };
        self.connection.judge(UNMAP, echoed)
    }
}

/// What a failure is as an errno: the server's own, or that there is no connection.
fn kernel(range: IovaRange, error: &VfioUserError) -> MapError {
    let errno = match error {
        VfioUserError::Refused { errno, .. } => *errno,
        VfioUserError::Silent { .. } => libc::ETIMEDOUT,
        VfioUserError::Protocol { .. } => libc::EPROTO,
        VfioUserError::Socket { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        _ => libc::ENOTCONN,
    };
    MapError::Kernel { range, errno }
}

impl AddressSpace for ClientSpace {
    fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Memory without a file cannot be passed on: EOPNOTSUPP.
    unsafe fn map(&self, range: IovaRange, _: NonNull<u8>, _: Access) -> Result<(), MapError> {
        Err(MapError::Kernel { range, errno: libc::EOPNOTSUPP })
    }

    unsafe fn map_file(
        &self,
        range: IovaRange,
        _: NonNull<u8>,
        (file, offset): (BorrowedFd<'_>, u64),
        access: Access,
    ) -> Result<(), MapError> {
        let (address, size) = (range.start().get(), range.len());
        if [address, size, offset].iter().any(|value| !value.is_multiple_of(self.page_size)) {
            return Err(MapError::Misaligned { range, page_size: self.page_size });
        }
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        // No two overlap, so of those that begin before its end the last one ends last.
        if let Some((_, former)) = mapped.range(..range.end()).next_back()
            && former.overlaps(range)
        {
            return Err(MapError::Occupied { range, mapped: *former });
        }
        if mapped.len() as u64 >= self.limit {
            return Err(MapError::EntryLimit { range, limit: mapped.len() });
        }
        let reads = if access.contains(Access::DEVICE_READS) { DmaMap::READ } else { 0 };
        let writes = if access.contains(Access::DEVICE_WRITES) { DmaMap::WRITE } else { 0 };
        let map = DmaMap { argsz: size_of::<DmaMap>() as u32, flags: reads | writes, offset, address, size };
        match self.connection.ask(MAP, command::DMA_MAP, &[map.as_bytes()], Some(file)) {
            Ok(_) => {
                mapped.insert(address, range);
                Ok(())
            }
            // Where the answer was lost, so is the connection, and all that was mapped with it.
            Err(error) => Err(kernel(range, &error)),
        }
    }

    /// When the connection has ended, and the server has closed its end, nothing is mapped any more. While it has not,
    /// everything must be taken to be.
    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if mapped.get(&range.start().get()) != Some(&range) {
            return Err(MapError::NotMapped { range });
        }
        if let Err(error) = self.ask_to_unmap(range) {
            let over = match error {
                // It is there, and has kept the mapping.
                VfioUserError::Refused { .. } => false,
                _ => self.connection.end("an address space without a connection"),
            };
            if !over {
                return Err(kernel(range, &error));
            }
        }
        mapped.remove(&range.start().get());
        Ok(())
    }
}
