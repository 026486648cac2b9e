//! What goes over the socket: a request of five bytes, with a descriptor or without, and a number as the answer.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, recvmsg, sendmsg, shutdown,
};

/// What the keeper is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// To hold the descriptor that comes with it. The answer is its number.
    Keep,
    /// To close the descriptor of this number. The answer is the number.
    Release(u32),
}

/// Bytes of a request.
pub(super) const REQUEST_LEN: usize = 5;

impl Request {
    pub(super) fn encode(self) -> [u8; REQUEST_LEN] {
        let (kind, number) = match self {
            Self::Keep => (0, 0u32),
            Self::Release(number) => (1, number),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [0, 0, 0, 0, 0] => Some(Self::Keep),
            [1, a, b, c, d] => Some(Self::Release(u32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Socket {
    end: OwnedFd,
}

impl Socket {
    pub(super) fn new(end: OwnedFd) -> Self {
        Self { end }
    }

    /// Sends a message.
    pub(super) fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        loop {
            match sendmsg(&self.end, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The next message, and the descriptor that came with it; 0 bytes when the other end is closed.
    pub(super) fn receive(&self, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        loop {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            match recvmsg(&self.end, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => {
                    let mut descriptor = None;
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                            descriptor = descriptors.into_iter().last().or(descriptor);
                        }
                    }
                    return Ok((received.bytes, descriptor));
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Nothing goes either way any more.
    pub(super) fn close(&self) {
        // It may be closed already.
        let _ = shutdown(&self.end, Shutdown::Both);
    }

    /// An answer, within `patience`.
    pub(super) fn number(&self, patience: Duration) -> io::Result<u32> {
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        loop {
            match poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&patience)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut bytes = [0; 4];
        match self.receive(&mut bytes)? {
            (4, _) => Ok(u32::from_le_bytes(bytes)),
            (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
