//! One command at a time, and its reply; and how a connection ends.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use zerocopy::IntoBytes;

use super::super::socket::{Message, Socket, Wait};
use super::super::version::{Capabilities, Offer};
use super::super::wire::{Header, RegionAccess, command};
use super::{ClientConfig, ProtocolError, SilentServer, VfioUserError};

/// Between two tries to connect to a server whose queue of connections is full.
const AGAIN: Duration = Duration::from_millis(1);

/// A connection, until it has ended, for good.
pub(super) struct Connection {
    state: Mutex<State>,
    config: ClientConfig,
    /// The server's process, where the kernel says which that is.
    peer: Option<OwnedFd>,
}

enum State {
    Open { socket: Socket, next_id: u16 },
    Ended { reason: String, reach: Reach },
}

/// Whether the server can still reach what was mapped for it.
enum Reach {
    /// It has closed its end, or is no more.
    Over,
    /// It has not. The socket is kept, to ask again.
    Unknown(Socket),
}

impl Connection {
    /// Connects, and agrees on a version. Returns the server's capabilities too.
    pub(super) fn open(path: &Path, config: &ClientConfig) -> Result<(Self, Capabilities), VfioUserError> {
        let wait = Wait::new("the connection", config.answer_timeout);
        let stream = connect_within(path, &wait, config.answer_timeout)?;
        // A server in this very process is nobody to be killed.
        let peer = socket_peercred(&stream).ok().map(|peer| peer.pid).filter(|pid| *pid != getpid());
        let peer = peer.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let failed = |source| VfioUserError::Connect { path: path.to_owned(), source };
        let socket = Socket::new(stream).map_err(failed)?;
        let state = Mutex::new(State::Open { socket, next_id: 0 });
        let connection = Self { state, config: config.clone(), peer };
        let what = "the version";
        let proposal = Offer::proposal(Capabilities::ours(config.max_mappings)).encode();
        let reply = connection.ask(what, command::VERSION, &[&proposal], None)?;
        let answer = Offer::decode(&reply.header, &reply.payload);
        let answer = connection.judge(what, answer)?;
        connection.judge(what, answer.check_answer())?;
        Ok((connection, answer.capabilities))
    }

    /// Sends a command and waits for its reply. Whatever is not a reply to it, in time, ends the connection.
    pub(super) fn ask(
        &self,
        what: &'static str,
        command: u16,
        payload: &[&[u8]],
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Message, VfioUserError> {
        let mut state = self.lock();
        let State::Open { socket, next_id } = &mut *state else { return Err(VfioUserError::Closed { what }) };
        let header = next_header(next_id, command, payload);
        let limit = self.config.answer_timeout;
        let answered = socket.send(header, payload, file, &Wait::new(what, limit)).and_then(|()| {
            let wait = Wait::new(what, limit);
            let reply = socket.receive(&wait, (what, limit))?.ok_or_else(|| wait.closed())?;
            check_reply(&header, &reply.header).map_err(|error| wait.protocol(error))?;
            Ok(reply)
        });
        match answered {
            Ok(reply) => match reply.header.errno() {
                Some(errno) => Err(VfioUserError::Refused { what, errno }),
                None => Ok(reply),
            },
            Err(error) => {
                self.end_in(&mut state, &error.to_string());
                Err(error)
            }
        }
    }

    /// Sends a command that has no reply, if `wanted` still says so when nobody else is sending.
    pub(super) fn tell(&self, what: &'static str, command: u16, payload: &[&[u8]], wanted: impl Fn() -> bool) {
        let mut state = self.lock();
        let State::Open { socket, next_id } = &mut *state else { return };
        if !wanted() {
            return;
        }
        let header = next_header(next_id, command, payload);
        let header = Header { flags: header.flags | Header::NO_REPLY, ..header };
        if let Err(error) = socket.send(header, payload, None, &Wait::new(what, self.config.answer_timeout)) {
            self.end_in(&mut state, &error.to_string());
        }
    }

    /// Waits until nobody is sending.
    pub(super) fn settle(&self) {
        drop(self.lock());
    }

    /// Reads the whole of `to` from a region.
    pub(super) fn read(
        &self,
        what: &'static str,
        region: u32,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), VfioUserError> {
        let access = RegionAccess { offset, region, count: to.len() as u32 };
        let reply = self.ask(what, command::REGION_READ, &[access.as_bytes()], None)?;
        let data = reply.header.payload::<RegionAccess>(&reply.payload).and_then(|(found, data)| {
            check_echo(&reply.header, "the offset", found.offset, offset)?;
            check_echo(&reply.header, "the count", found.count.into(), access.count.into())?;
            check_echo(&reply.header, "the length of data", data.len() as u64, access.count.into())?;
            Ok(data)
        });
        to.copy_from_slice(self.judge(what, data)?);
        Ok(())
    }

    /// Writes to a region, and waits until it has been done.
    pub(super) fn write(&self, what: &'static str, region: u32, offset: u64, from: &[u8]) -> Result<(), VfioUserError> {
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        self.ask(what, command::REGION_WRITE, &[access.as_bytes(), from], None).map(drop)
    }

    /// What a reply says, or the end of the connection where it says what cannot be.
    pub(super) fn judge<T>(&self, what: &'static str, found: Result<T, ProtocolError>) -> Result<T, VfioUserError> {
        found.map_err(|source| {
            let error = VfioUserError::Protocol { what, source };
            self.end(&error.to_string());
            error
        })
    }

    /// Why the connection has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        match &*self.lock() {
            State::Open { .. } => None,
            State::Ended { reason, .. } => Some(reason.clone()),
        }
    }

    /// Ends the connection, and waits until the server has closed its end. Whether it has.
    pub(super) fn end(&self, reason: &str) -> bool {
        self.end_in(&mut self.lock(), reason)
    }

    fn end_in(&self, state: &mut State, reason: &str) -> bool {
        let ended = State::Ended { reason: reason.to_owned(), reach: Reach::Over };
        let (reason, socket, limit) = match std::mem::replace(state, ended) {
            State::Open { socket, .. } => (reason.to_owned(), socket, self.config.close_timeout),
            // It had its time; a look is enough.
            State::Ended { reason, reach: Reach::Unknown(socket) } => (reason, socket, Duration::ZERO),
            over => {
                *state = over;
                return true;
            }
        };
        let over = self.has_closed(&socket, limit);
        *state = State::Ended { reason, reach: if over { Reach::Over } else { Reach::Unknown(socket) } };
        over
    }

    /// Whether the server has closed its end, in time, or by force.
    fn has_closed(&self, socket: &Socket, limit: Duration) -> bool {
        let wait = || Wait::new("the server's end of the connection", limit);
        if socket.close(&wait()) {
            return true;
        }
        match (&self.peer, self.config.silent_server) {
            // Its end is closed after its memory has gone: the kernel takes a process apart in that order, and the last thread
            // to go closes its files.
            (Some(peer), SilentServer::Kill) => pidfd_send_signal(peer, Signal::KILL).is_ok() && socket.close(&wait()),
            _ => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole; a message that was cut off by a panic shows as one that cannot be.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Regions are gone before: they hold the address space, which holds the connection.
        self.end("its function was dropped");
    }
}

/// The header of a command under an identifier of its own.
fn next_header(next_id: &mut u16, command: u16, payload: &[&[u8]]) -> Header {
    let header = Header::command(*next_id, command, payload.iter().map(|part| part.len()).sum());
    *next_id = next_id.wrapping_add(1);
    header
}

fn check_reply(asked: &Header, reply: &Header) -> Result<(), ProtocolError> {
    reply.expect(Header::REPLY)?;
    if (reply.message_id, reply.command) == (asked.message_id, asked.command) {
        return Ok(());
    }
    let (due_id, due_command) = (asked.message_id, asked.command);
    Err(ProtocolError::Reply { id: reply.message_id, command: reply.command, due_id, due_command })
}

/// Whether a reply repeats what was asked.
pub(super) fn check_echo(reply: &Header, what: &'static str, found: u64, due: u64) -> Result<(), ProtocolError> {
    if found == due { Ok(()) } else { Err(ProtocolError::Echo { command: reply.command, what, found, due }) }
}

/// Connects without waiting for longer than allowed: a server whose queue is full makes a plain connect wait.
fn connect_within(path: &Path, wait: &Wait, limit: Duration) -> Result<UnixStream, VfioUserError> {
    let failed = |errno: Errno| VfioUserError::Connect { path: path.to_owned(), source: errno.into() };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    let end = Instant::now().checked_add(limit);
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(Errno::AGAIN) if end.is_none_or(|end| Instant::now() < end) => std::thread::sleep(AGAIN),
            Err(Errno::AGAIN) => return Err(wait.silent()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}
