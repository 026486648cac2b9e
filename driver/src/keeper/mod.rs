//! A process that holds descriptors until this one is gone with all of its own.
//!
//! In a process that is killed the kernel closes files in an order of its own. Where a controller writes straight into
//! memory that another driver owns, that driver must not see its owner go while the controller's descriptor is still
//! open: it would give the memory to somebody else under the controller's hands (invariant 3). A [`Keeper`] is a small
//! process of its own that holds a duplicate of such an owner's descriptor. It lets go when the process that it serves has
//! ended, which the kernel says only once every file of that is closed.
//!
//! The process that is served owns the [`Keeper`], and a [`Kept`] for each descriptor. The other side is [`run`], all that
//! the program `tentpeg-keeper` does. Both ends of the socket between them are here; which descriptors are worth keeping is
//! for their owners to say.
//!
//! What ends both processes at once, a `SIGKILL` to all of a cgroup for one, is stronger than this; a service is stopped
//! by a signal that the keeper ignores.

mod serve;
mod wire;

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use thiserror::Error;

pub use serve::run;
use wire::{Request, Socket};

/// The program that calls [`run`].
pub const PROGRAM: &str = "tentpeg-keeper";

/// The longest wait for the keeper's answer. It does nothing that takes time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a descriptor is not kept. The host is at fault, or whoever has ended the keeper.
#[derive(Debug, Error)]
pub enum KeeperError {
    /// The program did not start.
    #[error("the keeper {program} did not start: {source}: install {PROGRAM} where it is looked for")]
    Start {
        /// The program.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It does not answer.
    #[error("the keeper does not answer: {source}: direct access to memory of other drivers needs it: start anew")]
    Silent {
        /// What the socket says.
        source: io::Error,
    },
}

/// A process that holds descriptors for this one. Dropped with the last [`Kept`], it is ended.
#[derive(Debug, Clone)]
pub struct Keeper {
    process: Arc<Process>,
}

#[derive(Debug)]
struct Process {
    /// One question at a time.
    socket: Mutex<Socket>,
    child: Mutex<Child>,
}

impl Keeper {
    /// Starts `program`, which calls [`run`] and nothing before. It is in a process group of its own: what a terminal
    /// sends to this one's does not end it.
    ///
    /// # Errors
    /// [`KeeperError`]; nothing is left running then.
    pub fn start(mut program: Command) -> Result<Self, KeeperError> {
        let failed = |program: &Command, source: io::Error| {
            let program = program.get_program().to_string_lossy().into_owned();
            KeeperError::Start { program, source }
        };
        let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = ends.map_err(|errno| failed(&program, errno.into()))?;
        let this = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|errno| failed(&program, errno.into()))?;
        program.stdin(theirs).stdout(this).process_group(0).current_dir("/");
        let child = program.spawn().map_err(|source| failed(&program, source))?;
        // Those that were the child's are closed here with the command.
        drop(program);
        let process = Process { socket: Mutex::new(Socket::new(ours)), child: Mutex::new(child) };
        process.answer()?;
        Ok(Self { process: Arc::new(process) })
    }

    /// Has a duplicate of `descriptor` held until this process has ended, or the result is dropped.
    ///
    /// # Errors
    /// [`KeeperError::Silent`]; it may be held until this process ends then.
    pub fn keep(&self, descriptor: BorrowedFd<'_>) -> Result<Kept, KeeperError> {
        let number = self.process.ask(Request::Keep, Some(descriptor))?;
        Ok(Kept { process: Arc::clone(&self.process), number })
    }
}

impl Process {
    /// Asks once. Whoever has had no answer, or a wrong one, would take the next for his own: so nobody is asked after that,
    /// and what is held stays so until this process has ended.
    fn ask(&self, request: Request, descriptor: Option<BorrowedFd<'_>>) -> Result<u32, KeeperError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = socket.send(&request.encode(), descriptor).and_then(|()| socket.number(PATIENCE));
        let answer = answer.and_then(|number| match request {
            Request::Release(asked) if asked != number => Err(io::ErrorKind::InvalidData.into()),
            _ => Ok(number),
        });
        answer.map_err(|source| {
            socket.close();
            KeeperError::Silent { source }
        })
    }

    fn answer(&self) -> Result<u32, KeeperError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.number(PATIENCE).map_err(|source| KeeperError::Silent { source })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It holds nothing any more: nobody else has a part of this.
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A descriptor that the keeper has a duplicate of, until this is dropped.
#[derive(Debug)]
pub struct Kept {
    process: Arc<Process>,
    number: u32,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A keeper that does not answer has ended, and holds nothing.
        let _ = self.process.ask(Request::Release(self.number), None);
    }
}

#[cfg(test)]
mod tests;
