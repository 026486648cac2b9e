//! Whole messages over a UNIX socket, with file descriptors, each within its time.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use zerocopy::IntoBytes;

use super::error::{ProtocolError, VfioUserError};
use super::wire::{HEADER_LEN, Header, MAX_DESCRIPTORS, MAX_PAYLOAD};

/// What is waited for, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    what: &'static str,
    limit: Duration,
    /// None: for ever.
    end: Option<Instant>,
}

impl Wait {
    /// From now on for `limit`.
    pub(super) fn new(what: &'static str, limit: Duration) -> Self {
        Self { what, limit, end: Instant::now().checked_add(limit) }
    }

    /// For ever: for a server that has nothing else to do.
    pub(super) fn endless(what: &'static str) -> Self {
        Self { what, limit: Duration::MAX, end: None }
    }

    /// What is left of it; `Some(None)` is for ever.
    fn left(&self) -> Result<Option<Timespec>, VfioUserError> {
        let Some(end) = self.end else { return Ok(None) };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.silent());
        }
        // A time that does not fit is as good as for ever.
        Ok(Timespec::try_from(left).ok())
    }

    pub(super) fn silent(&self) -> VfioUserError {
        VfioUserError::Silent { what: self.what, limit: self.limit }
    }

    pub(super) fn closed(&self) -> VfioUserError {
        VfioUserError::Closed { what: self.what }
    }

    pub(super) fn protocol(&self, source: ProtocolError) -> VfioUserError {
        VfioUserError::Protocol { what: self.what, source }
    }

    fn socket(&self, errno: Errno) -> VfioUserError {
        match errno {
            Errno::PIPE | Errno::CONNRESET => self.closed(),
            errno => VfioUserError::Socket { what: self.what, source: errno.into() },
        }
    }
}

/// A message as it came.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Socket {
    stream: UnixStream,
}

impl Socket {
    /// A connection over `stream`.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream })
    }

    /// Sends a message, and `file` with it.
    pub(super) fn send(
        &self,
        header: Header,
        payload: &[&[u8]],
        file: Option<BorrowedFd<'_>>,
        wait: &Wait,
    ) -> Result<(), VfioUserError> {
        let bytes = [&[header.as_bytes()], payload].concat().concat();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.into_iter().collect();
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match sendmsg(&self.stream, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    // They went with the first byte.
                    control.clear();
                }
                Err(Errno::AGAIN) => self.ready(PollFlags::OUT, wait)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(wait.socket(errno)),
            }
        }
        Ok(())
    }

    /// The next message: its first byte within `first`, the others within `rest` of that. None: the other end has closed
    /// the connection between two messages.
    pub(super) fn receive(
        &self,
        first: &Wait,
        rest: (&'static str, Duration),
    ) -> Result<Option<Message>, VfioUserError> {
        let mut descriptors = Vec::new();
        let mut head = [0; HEADER_LEN];
        let began = self.receive_some(&mut head, &mut descriptors, first)?;
        if began == 0 {
            return Ok(None);
        }
        let rest = Wait::new(rest.0, rest.1);
        self.receive_all(head.get_mut(began..).unwrap_or_default(), &mut descriptors, &rest)?;
        let (header, len) = Header::decode(head, MAX_PAYLOAD).map_err(|error| rest.protocol(error))?;
        let mut payload = vec![0; len];
        self.receive_all(&mut payload, &mut descriptors, &rest)?;
        Ok(Some(Message { header, payload, descriptors }))
    }

    fn receive_all(&self, mut to: &mut [u8], descriptors: &mut Vec<OwnedFd>, wait: &Wait) -> Result<(), VfioUserError> {
        while !to.is_empty() {
            let received = self.receive_some(to, descriptors, wait)?;
            if received == 0 {
                return Err(wait.closed());
            }
            to = to.get_mut(received..).unwrap_or_default();
        }
        Ok(())
    }

    /// At least a byte, or 0 when the other end has closed.
    fn receive_some(&self, to: &mut [u8], descriptors: &mut Vec<OwnedFd>, wait: &Wait) -> Result<usize, VfioUserError> {
        loop {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.stream, &mut [IoSliceMut::new(to)], &mut control, flags) {
                Ok(received) => {
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(files) = message {
                            descriptors.extend(files);
                        }
                    }
                    // What was cut off the kernel has closed.
                    if descriptors.len() > MAX_DESCRIPTORS || received.flags.contains(ReturnFlags::CTRUNC) {
                        return Err(wait.protocol(ProtocolError::Descriptors { max: MAX_DESCRIPTORS }));
                    }
                    return Ok(received.bytes);
                }
                Err(Errno::AGAIN) => self.ready(PollFlags::IN, wait)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(wait.socket(errno)),
            }
        }
    }

    /// Says that nothing more will be sent, throws away what still comes, and waits until the other end has closed. Whether
    /// it has, in time.
    pub(super) fn close(&self, wait: &Wait) -> bool {
        // Where the other end is gone already there is nothing to say.
        let _ = shutdown(&self.stream, Shutdown::Write);
        let mut bytes = [0; 4096];
        loop {
            let mut descriptors = Vec::new();
            match self.receive_some(&mut bytes, &mut descriptors, wait) {
                Ok(0) | Err(VfioUserError::Closed { .. }) => return true,
                Ok(_) | Err(VfioUserError::Protocol { .. }) if wait.left().is_ok() => {}
                Ok(_) | Err(_) => return false,
            }
        }
    }

    /// Waits until the socket can be read or written, or the other end is gone.
    fn ready(&self, flags: PollFlags, wait: &Wait) -> Result<(), VfioUserError> {
        let left = wait.left()?;
        match poll(&mut [PollFd::new(&self.stream, flags)], left.as_ref()) {
            // A time-out shows at the next look at what is left.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(wait.socket(errno)),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests;
